"""A write that fails, whatever fails, leaves the old vault or the new one; and no update is lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from strongbox import ALICE, RECOVERY, meta, put, reopened, two_slots, value
from vault_writer import STEPS, content

from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.repair import repair
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot
from kortix_tui.vault.vault import Vault

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "support" / "vault_writer.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault.kxv"


def writer(*given: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, given)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


class Fault:
    """Let the nth call of one system call fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, nth: int, number: int) -> None:
        self.calls = 0
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == nth:
                if name == "write" and number == errno.ENOSPC:
                    real(given[0], given[1][: len(given[1]) // 2])  # a full disk takes a part first
                raise OSError(number, os.strerror(number))
            return real(*given, **named)

        monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("name", [step for step in STEPS if step != "close"])
def test_a_fault_at_any_step_leaves_the_old_or_the_new_vault(path: Path, name: str, number: int) -> None:
    vault = two_slots(path)
    put(vault, meta(1), b"v1")
    put(vault, meta(1, version=2), b"v2")
    version, nth, failed = 2, 1, True
    while failed:
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, name, nth, number)
            try:
                put(vault, meta(1, version=version + 1), b"v%d" % (version + 1))
                failed = False
            except VaultFailed as error:
                assert error.hint
            # A fault that the write gets over (a draft that cannot be swept) is none.
            failed = failed or fault.calls >= nth
        described = vault.metas()[0]
        assert described.version in (version, version + 1)
        assert value(vault, "sec_1") == value(reopened(path, ALICE), "sec_1") == b"v%d" % described.version
        version, nth = described.version, nth + 1
    assert nth > 1 and vault.verify() == ()
    put(vault, meta(1, version=version + 1), b"goes on")
    assert not [entry for entry in path.parent.iterdir() if ".tmp." in entry.name]


@pytest.mark.parametrize("name", ["open", "write", "fsync", "link", "unlink"])
def test_a_fault_while_a_vault_is_made_leaves_none_or_a_whole_one(path: Path, name: str) -> None:
    for nth in range(1, 9):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(VaultFailed):
            Fault(patch, name, nth, errno.EIO)
            two_slots(path)
        if path.exists():
            assert reopened(path, ALICE).verify() == ()
            path.unlink()
    assert two_slots(path).unlocked


@pytest.mark.parametrize("name", ["write", "fsync", "unlink", "rename"])
def test_a_rotation_that_fails_keeps_the_old_keys(path: Path, name: str) -> None:
    vault = two_slots(path)
    put(vault, meta(1), b"v1")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(VaultFailed):
        Fault(patch, name, 1, errno.EIO)
        vault.rekey([NewSlot(ALICE, "alice")])
    assert value(vault, "sec_1") == b"v1" == value(reopened(path, RECOVERY), "sec_1")


def test_a_repair_that_fails_leaves_what_there_is(path: Path) -> None:
    put(two_slots(path), meta(1), b"v1")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    for name in ("write", "fsync", "link", "rename"):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(VaultFailed):
            Fault(patch, name, 1, errno.EIO)
            repair(path, ALICE, RECOVERY)
        assert path.read_bytes() == bytes(damaged)
    assert len(repair(path, ALICE, RECOVERY).kept) == 1


def test_what_is_renamed_was_synced_and_the_folder_is_synced_after(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(1), b"v1")
    done = list[str]()

    def call(real: Callable[..., Any], name: str, *given: Any, **named: Any) -> Any:
        done.append(name)
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "fsync", "unlink", "link", "rename"):
            patch.setattr(os, name, partial(call, getattr(os, name), name))
        put(vault, meta(2), b"v2")
    assert done == ["write", "fsync", "unlink", "link", "rename", "fsync"]


def test_a_disk_that_only_reads_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = two_slots(path)
    with pytest.MonkeyPatch.context() as patch:
        Fault(patch, "pread", 1, errno.EIO)
        with pytest.raises(VaultFailed, match="could not be read"):
            vault.metas()
    with pytest.MonkeyPatch.context() as patch:
        Fault(patch, "read", 1, errno.EIO)
        with pytest.raises(VaultFailed, match="could not be read"):
            Vault.load(path)


@contextlib.contextmanager
def little_room(folder: Path, room: int) -> Iterator[Path]:
    """A folder in which a file cannot grow beyond `room` bytes: a small disk, or a limit where none can be mounted."""
    disk = folder / "disk"
    disk.mkdir(mode=0o700)
    options = f"size={room},mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        try:
            yield disk
        finally:
            subprocess.run(["umount", str(disk)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield disk
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_the_change_and_keeps_the_vault(tmp_path: Path) -> None:
    with little_room(tmp_path, 1024 * 1024) as disk:
        path = disk / "vault.kxv"
        vault = two_slots(path)
        stored = 0
        with pytest.raises(VaultFailed) as caught:
            for number in range(1, 40):
                put(vault, meta(number), os.urandom(60_000))
                stored = number
        assert stored > 2 and "space" in str(caught.value.hint)
        again = reopened(path, ALICE)
        assert len(again.metas()) == len(vault.metas()) == stored and again.verify() == ()
        assert not [entry for entry in disk.iterdir() if ".tmp." in entry.name]
        # Removing needs room too: beside the old file and the one before. Without the latter there is some.
        disk.joinpath("vault.kxv.prev").unlink()
        with again.change() as draft:
            for number in range(2, stored + 1):
                draft.delete(f"sec_{number}")
        put(again, meta(99), b"there is room again")
        assert value(vault, "sec_99") == b"there is room again"


def test_a_process_that_dies_at_any_step_leaves_the_old_or_the_new_vault(path: Path) -> None:
    vault = two_slots(path)
    with vault.change() as draft:
        for number in (1, 2):
            draft.put(meta(number), Secret(content(1)))
    points = answer(writer("deaths", path))["points"]
    assert {point.rsplit(" ", 1)[0] for point in points} == {
        f"{when} {name}" for when in ("before", "after") for name in STEPS
    }


def test_two_writers_lose_no_update(path: Path) -> None:
    put(two_slots(path), meta(1), b"0")
    both = [writer("increments", path, 500) for _ in range(2)]
    assert [answer(process)["times"] for process in both] == [500, 500]
    vault = reopened(path, ALICE)
    assert value(vault, "sec_1") == b"1000" and vault.metas()[0].version == 1001 and vault.generation == 1002
