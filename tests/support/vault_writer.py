"""Processes that write a vault, are killed, and count what they promised. Run as a script: `vault_writer.py MODE …`.

One process imports everything and forks a child for each round, so that a round costs milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strongbox import ALICE, meta, reopened, value

from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.vault import Vault

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "close")
"""What a write is made of."""


def content(version: int) -> bytes:
    """What stands in the vault at a version; long enough for a write to take a while."""
    return (b"%d." % version) * 3000


def step(vault: Vault) -> int:
    """One more version of both secrets; returns it."""
    with vault.change() as draft:
        version = draft.meta("sec_1").version + 1
        for number in (1, 2):
            draft.put(meta(number, version=version), Secret(content(version)))
    return version


def check(path: Path, promised: int) -> int:
    """The version on disk: whole, the same in both secrets, and not older than what was promised."""
    vault = reopened(path, ALICE)
    (version,) = {described.version for described in vault.metas()}
    assert version in (promised, promised + 1), (version, promised)
    assert all(value(vault, f"sec_{number}") == content(version) for number in (1, 2))
    assert vault.generation == version + 1 and vault.verify() == ()
    return version


def in_child(work: Callable[[int], None]) -> tuple[int, int]:
    """Fork; the child runs `work` with a pipe to write its promises to. Returns its pid and the pipe's end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    try:
        work(writing)
    finally:
        os._exit(3)


def promises(reading: int, before: int) -> int:
    """The last version that the dead child said was written."""
    told = b""
    while part := os.read(reading, 65536):
        told += part
    os.close(reading)
    lines = told.decode().split("\n")[:-1]
    return int(lines[-1]) if lines else before


def kills(path: Path, rounds: int, seed: int) -> dict[str, Any]:
    """Kill a writer at random moments; each next one goes on with what is there."""
    chance = random.Random(seed)
    version, written, left, started = 1, 0, 0, time.monotonic()
    for _ in range(rounds):

        def work(promise: int) -> None:
            vault = reopened(path, ALICE)
            while True:
                os.write(promise, b"%d\n" % step(vault))

        pid, reading = in_child(work)
        if chance.random() < 0.8:
            select.select([reading], [], [], 10)  # most are killed after their first promise, some on the way to it
        time.sleep(chance.uniform(0, 0.012))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), status
        promised = promises(reading, version)
        now = check(path, promised)
        written, version = written + now - version, now
        left += any(".tmp." in entry.name for entry in path.parent.iterdir())
    step(reopened(path, ALICE))
    assert not [entry for entry in path.parent.iterdir() if ".tmp." in entry.name]
    return {"rounds": rounds, "written": written, "left": left, "seconds": time.monotonic() - started}


def deaths(path: Path) -> dict[str, Any]:
    """Die right before and right after each system call of a write, one at a time."""
    version, points = 1, list[str]()
    for when in ("before", "after"):
        for name in STEPS:
            nth = 1
            while True:

                def work(promise: int, when: str = when, name: str = name, nth: int = nth) -> None:
                    vault = reopened(path, ALICE)
                    _die_at(name, nth, when)
                    _write(promise, b"%d\n" % step(vault))
                    os._exit(0)

                pid, reading = in_child(work)
                _, status = os.waitpid(pid, 0)
                version = check(path, promises(reading, version))
                if os.WIFEXITED(status):
                    assert os.WEXITSTATUS(status) == 0
                    break
                assert os.WTERMSIG(status) == signal.SIGKILL
                points.append(f"{when} {name} {nth}")
                nth += 1
    return {"points": points}


_write = os.write


def _die_at(name: str, nth: int, when: str) -> None:
    real, calls = getattr(os, name), 0

    def deadly(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given, **named)
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, deadly)


def increments(path: Path, times: int) -> dict[str, Any]:
    """Read, add one, write."""
    vault = reopened(path, ALICE)
    for _ in range(times):
        with vault.change() as draft:
            number = int(draft.read("sec_1").use("count"))
            draft.put(meta(1, version=draft.meta("sec_1").version + 1), Secret(b"%d" % (number + 1)))
    return {"times": times}


def main() -> None:
    mode, path, *numbers = sys.argv[1:]
    work: Callable[..., dict[str, Any]] = {"kills": kills, "deaths": deaths, "increments": increments}[mode]
    try:
        print(json.dumps(work(Path(path), *(int(number) for number in numbers))))
    except VaultFailed as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
