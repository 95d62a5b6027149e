"""The profile's shape; what it does is tried in a real sandbox (tests/docker/test_probe.py)."""

from __future__ import annotations

import json

from kortix_tui.sandbox.seccomp import profile

NEVER = {
    *("mount", "umount2", "unshare", "setns", "bpf", "keyctl", "add_key", "request_key", "perf_event_open"),
    *("userfaultfd", "open_by_handle_at", "kexec_load", "kexec_file_load", "io_uring_setup", "io_uring_enter"),
    *("init_module", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "reboot", "swapon", "chroot"),
    *("pivot_root", "open_tree", "move_mount", "fsopen", "fsmount", "mount_setattr", "vmsplice", "acct", "quotactl"),
}


def rules() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(profile())["syscalls"]
    return found


def names(rule: dict[str, object]) -> set[str]:
    found = rule["names"]
    assert isinstance(found, list)
    return set(found)


def test_everything_is_refused_unless_it_is_listed() -> None:
    whole = json.loads(profile())
    assert whole["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {entry["architecture"] for entry in whole["archMap"]} == {"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"}


def test_what_leads_out_is_listed_nowhere() -> None:
    for rule in rules():
        assert not names(rule) & NEVER


def test_new_namespaces_and_rare_sockets_are_never_allowed_without_a_condition() -> None:
    for rule in rules():
        if names(rule) & {"clone", "socket", "socketpair", "personality"}:
            assert rule.get("args")
        if "clone3" in names(rule):
            assert rule["action"] == "SCMP_ACT_ERRNO"
