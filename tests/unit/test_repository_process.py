"""Running git: what each environment has and lacks, deadlines, and that nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from kortix_tui.base.errors import DeadlineExceeded, GitFailed
from kortix_tui.repository.errors import clean_stderr, git_failed
from kortix_tui.repository.process import Git, Limits, operator, sealed, sealed_environment, without_questions


def shell(script: str, git: Git) -> tuple[str, ...]:
    """Arguments that make git run a shell script: an alias with an exclamation mark."""
    return ("-c", f"alias.x=!{script}", "x")


async def test_the_sealed_environment_has_nothing_of_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[user]\n\tname = Olive\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.email")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "olive@example.invalid")
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_PROTOCOL", "version=2")
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    assert not {"GIT_CONFIG_COUNT", "GIT_DIR", "GIT_PROTOCOL", "SECRET_TOKEN"} & sealed_environment().keys()
    listed = (await sealed().run("config", "--list", "--show-scope")).text
    assert "olive" not in listed.lower()
    assert {line.split("\t")[0] for line in listed.splitlines()} == {"command"}
    theirs = (await operator().run("config", "--get-regexp", "^user")).text
    assert "user.name Olive" in theirs and "user.email olive@example.invalid" in theirs


async def test_the_operator_environment_cannot_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_SSH_COMMAND", "GIT_SSH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    quiet = await without_questions(operator())
    assert "BatchMode=yes" in quiet.environment["GIT_SSH_COMMAND"]
    assert quiet.environment["GIT_TERMINAL_PROMPT"] == "0" and quiet.environment["GIT_ASKPASS"] == ""
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i mine")
    assert (await without_questions(operator())).environment["GIT_SSH_COMMAND"] == "ssh -i mine"
    monkeypatch.delenv("GIT_SSH_COMMAND")
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\tsshCommand = ssh -i configured\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert "GIT_SSH_COMMAND" not in (await without_questions(operator())).environment
    # No controlling terminal: a program that opens /dev/tty to ask fails.
    with pytest.raises(GitFailed):
        await operator().run(*shell("exec 3<>/dev/tty", operator()), what="x")


async def test_a_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    script = f"sleep 987 & echo $! $$ > {mark}; trap '' TERM; wait; sleep 987"
    with pytest.raises(DeadlineExceeded) as caught:
        await operator().run(*shell(script, operator()), limits=Limits(wall_s=0.5, cpu_s=None, memory_bytes=None))
    assert caught.value.hint
    await _gone(mark)


async def test_cancelling_ends_the_whole_group(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    task = asyncio.create_task(operator().run(*shell(f"sleep 987 & echo $! $$ > {mark}; wait", operator())))
    async with asyncio.timeout(30):
        while not mark.exists() or not mark.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(mark)


async def _gone(mark: Path) -> None:
    pids = [int(word) for word in mark.read_text().split()]
    assert pids
    async with asyncio.timeout(10):
        while any(_runs(pid) for pid in pids):
            await asyncio.sleep(0.02)


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


async def test_limits_hold() -> None:
    hungry = Limits(wall_s=30, cpu_s=1, memory_bytes=64 << 20)
    with pytest.raises(GitFailed):
        await sealed().run(*shell("while :; do :; done", sealed()), limits=hungry, what="x")
    with pytest.raises(GitFailed, match="printed more than"):
        await sealed().run(*shell("yes", sealed()), limits=Limits(output_bytes=1 << 20), what="x")
    held = await sealed().run(*shell("ulimit -v; ulimit -c; ulimit -t", sealed()), limits=hungry)
    assert held.text.split() == [str(64 << 10), "0", "1"]
    cut = await sealed().run(*shell("yes", sealed()), cut_at=1000)
    assert len(cut.stdout) > 1000


async def test_much_input_and_output_at_once() -> None:
    data = os.urandom(4 << 20)
    out = await sealed().run(*shell("cat", sealed()), stdin=data)
    assert out.stdout == data
    ignored = await sealed().run(*shell("true", sealed()), stdin=data)
    assert ignored.status == 0


def test_words_of_git_are_made_safe_and_explained() -> None:
    raw = b"remote: \x1b]0;owned\x07\nfatal: Authentication failed for 'https://olive:hunter2@example.invalid/x'\n"
    error = git_failed("fetch", 128, raw)
    assert "\x1b" not in error.message and "hunter2" not in error.message
    assert error.hint is not None and "credential" in error.hint
    assert "network" in (git_failed("fetch", 128, b"ssh: Could not resolve host: x").hint or "")
    assert "safe.directory" in (git_failed("fetch", 128, b"fatal: detected dubious ownership in x").hint or "")
    assert git_failed("fetch", 1, b"").message == "git fetch failed (status 1): it said nothing."
    assert clean_stderr(b"a\rb\n\n" + b"x" * 5000).startswith("a; b; xxx")
