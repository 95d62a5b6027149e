"""The arguments of every sandbox container, in one place: the provider and the isolation probe share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kortix_tui import __version__
from kortix_tui.sandbox.provider import SandboxSpec
from kortix_tui.sandbox.seccomp import profile

ENTRYPOINT = ("/opt/kortix/bin/python3", "-I", "-S", "/opt/kortix/supervisor.py")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DOOR = "/run/kortix"
MEBIBYTE = 1024 * 1024
VOLUMES = {"workspace": "/workspace", "home": "/home/agent", "journal": "/var/lib/kortix"}
"""What survives stop and resume: role → place in the sandbox."""

LABEL_INSTALL = "kortix.install"
LABEL_SESSION = "kortix.session"
LABEL_PROJECT = "kortix.project"
LABEL_ROLE = "kortix.role"
LABEL_VERSION = "kortix.version"


@dataclass(frozen=True)
class EngineLimits:
    """What this engine can give at most.

    Attributes:
        cpus: Its processors; it refuses to promise more.
        open_files: The hard limit it can set; `None` leaves the engine's own default.
    """

    cpus: float
    open_files: int | None


def container_name(session_id: str) -> str:
    """The one container of a session."""
    return f"kortix-{session_id}"


def volume_name(session_id: str, role: str) -> str:
    """One of the session's volumes."""
    return f"kortix-{session_id}-{role}"


def labels(spec: SandboxSpec, role: str) -> dict[str, str]:
    """What marks an object as this home's."""
    return {
        LABEL_INSTALL: spec.install_id,
        LABEL_SESSION: spec.session_id,
        LABEL_PROJECT: spec.project_id,
        LABEL_ROLE: role,
        LABEL_VERSION: __version__,
    }


def container_config(
    spec: SandboxSpec, limits: EngineLimits, *, path: str = DEFAULT_PATH, command: Sequence[str] = ENTRYPOINT
) -> dict[str, Any]:
    """The body of the engine's create call.

    Written out instead of built by the SDK: this is the security boundary, and every line of it is to be read.

    Args:
        spec: What to make.
        limits: What the engine can give.
        path: The image's own PATH, which programs of its layers may need.
        command: The main process: the supervisor, or what stands in for it in a test of the isolation.
    """
    return {
        "Image": spec.image,
        "Hostname": spec.session_id,
        "User": "0:0",
        "WorkingDir": "/",
        "Entrypoint": list(command),
        "Cmd": [],
        "Env": [f"PATH={path}", "LANG=C.UTF-8", f"KORTIX_SESSION_ID={spec.session_id}"],
        "Labels": labels(spec, "sandbox"),
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "OpenStdin": False,
        "HostConfig": _host_config(spec, limits),
    }


def confinement(
    limits: EngineLimits, *, cpus: float, memory_bytes: int, pids: int, runtime: str | None, capabilities: Sequence[str]
) -> dict[str, Any]:
    """What confines every container of ours, whatever runs in it; a part of the engine's `HostConfig`.

    Args:
        limits: What the engine can give.
        cpus: Processors.
        memory_bytes: Memory; there is no swap beside it.
        pids: Processes and threads.
        runtime: The OCI runtime; the engine's default when `None`.
        capabilities: The only ones that are left.
    """
    ulimits = [{"Name": "core", "Soft": 0, "Hard": 0}]
    if limits.open_files is not None:
        ulimits.append({"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files})
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": list(capabilities),
        "SecurityOpt": ["no-new-privileges", f"seccomp={profile()}"],
        "Privileged": False,
        "Init": True,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidsLimit": pids,
        "Memory": memory_bytes,
        "MemorySwap": memory_bytes,
        "NanoCpus": round(min(cpus, limits.cpus) * 1_000_000_000),
        "ShmSize": 64 * MEBIBYTE,
        "Ulimits": ulimits,
        "RestartPolicy": {"Name": "no"},
    }
    if runtime is not None:
        config["Runtime"] = runtime
    return config


def door_mount(folder: Path) -> dict[str, Any]:
    """The door's folder, as a container sees it."""
    return {
        "Type": "bind",
        "Source": str(folder),
        "Target": DOOR,
        "ReadOnly": True,
        "BindOptions": {"Propagation": "private"},
    }


def scratch_bytes(memory_bytes: int) -> int:
    """Size of a container's `/tmp`.

    tmpfs pages count as the container's memory: half of it at most, so that a full /tmp alone kills nothing.
    """
    return max(16 * MEBIBYTE, memory_bytes // 2)


def _host_config(spec: SandboxSpec, limits: EngineLimits) -> dict[str, Any]:
    scratch = scratch_bytes(spec.memory_bytes)
    return {
        **confinement(
            limits, cpus=spec.cpus, memory_bytes=spec.memory_bytes, pids=spec.pids, runtime=spec.runtime,
            capabilities=("SETUID", "SETGID", "KILL"),
        ),
        "AutoRemove": False,
        "Tmpfs": {
            "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={scratch}",  # noqa: S108  # inside the sandbox
            "/run": "rw,exec,nosuid,nodev,mode=0755,size=67108864",
        },
        "Mounts": [
            *(
                {"Type": "volume", "Source": volume_name(spec.session_id, role), "Target": target}
                for role, target in VOLUMES.items()
            ),
            door_mount(spec.door),
        ],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "2"}},
    }  # fmt: skip
