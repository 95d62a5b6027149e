"""The supervisor in a real sandbox: clone, turns, records, stop and resume (invariants I6, I7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path

import pytest

from kortix_tui.repository.door import Access
from kortix_tui.sandbox.frames import TurnOrder
from tests.support.door import WAIT_S, open_door
from tests.support.engine import docker, inspect
from tests.support.supervised import sandbox

pytestmark = pytest.mark.docker


async def test_an_agent_works_commits_and_proposes(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        text = await box.sh(
            "pwd; git rev-parse --abbrev-ref HEAD '@{upstream}'; git config user.name; cat a.txt; echo $FROM_HOST;"
            "echo $KORTIX_BRANCH_NAME; git log --format=%s origin/main; ls -A"
        )
        sid = box.spec.session_id
        lines = ["/workspace", sid, f"origin/{sid}", 'Robin Ag"ent\\', "a", "yes", sid, "one", "zero", ".git", "a.txt"]
        assert text.splitlines() == lines
        await box.sh("echo more >> a.txt; git commit -qam more; git push -q; git fetch -q; git status -sb")
        assert box.git("show", f"{sid}:a.txt") == "a\nmore"
        await box.sh("echo most >> a.txt; git commit -qam most; kortix cr open --title 'A title' --description Why")
        assert box.host.proposals[0].head_commit == box.git("rev-parse", sid)
        assert json.loads(await box.sh("kortix info --json"))["branch"] == sid
        end, text = await box.run("kortix", "cr", "merge", "1")
        assert end.exit_code == 1 and "merge is default-deny for agents" in text and box.host.denied == 1
        end, text = await box.run("git", "push", "origin", "HEAD:main")
        assert end.exit_code != 0 and box.git("log", "--format=%s", "-1", "main") == "one"


async def test_without_a_repository_turns_run_at_once(short_folder: Path) -> None:
    async with sandbox(short_folder, repository=False) as box:
        assert await box.sh("ls -A; touch new; ls") == "new\n"
        end, text = await box.run("git", "ls-remote", "http://127.0.0.1:8118/v1/git/repo.git")
        assert end.exit_code != 0 and "403" in text
        assert (await (await box.host.connected()).rescue(1, "stop")).outcome == "clean"


async def test_twenty_thousand_lines_while_hosts_come_and_go(short_folder: Path) -> None:
    """In order, each once, and the turn's end at the end."""
    chance = random.Random(3)
    async with sandbox(short_folder, serve=False) as box:
        host = box.host
        started = False
        for _ in range(6):
            async with open_door(box.door, host):
                channel = await host.connected(len(host.hellos) + 1)
                if not started:
                    code = (
                        "import time\nfor n in range(20000):\n print(n, flush=True)\n if n % 20 == 0: time.sleep(.001)"
                    )
                    await channel.start_turn(TurnOrder(turn_id="t1", command=("python3", "-c", code)), "")
                    started = True
                wanted = host.stored_seq + chance.randrange(3, 12)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5), host.changed:
                        await host.changed.wait_for(lambda wanted=wanted: host.stored_seq >= wanted)
                if chance.random() < 0.5 and host.channel is not None:
                    host.channel._writer.transport.abort()
            await asyncio.sleep(chance.random() / 2)
        async with open_door(box.door, host):
            assert (await host.ended("t1")).data.exit_code == 0
        assert [record.seq for record in host.stored] == list(range(1, host.stored_seq + 1))
        assert host.output("t1").decode().split() == [str(number) for number in range(20_000)]


async def test_a_sandbox_that_dies_in_a_turn_goes_on_where_it_was(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        channel = await box.host.connected()
        script = "echo kept > kept; echo here; sleep 1000"
        await channel.start_turn(TurnOrder(turn_id="first", command=("bash", "-c", script)), "")
        await box.host.printed("first", b"here")
        docker("kill", box.container)
        await box.bench.provider.start(box.spec)
        end = (await box.host.ended("first")).data
        assert (end.exit_code, end.signal, end.reason) == (None, None, "killed")
        channel = await box.host.connected(2)
        assert box.host.hellos[-1].cloned and not box.host.hellos[-1].fresh
        await channel.start_turn(TurnOrder(turn_id="first", command=("touch", "again")), "")
        assert await box.sh("cat kept; ls; git fetch -q && echo fetched") == "kept\na.txt\nkept\nfetched\n"
        assert [record.seq for record in box.host.stored] == list(range(1, box.host.stored_seq + 1))
        assert "Traceback" not in box.logs()


async def test_a_stop_from_outside_is_orderly(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        channel = await box.host.connected()
        await channel.start_turn(TurnOrder(turn_id="long", command=("bash", "-c", "echo here; sleep 1000")), "")
        await box.host.printed("long", b"here")
        await box.bench.provider.stop(box.spec.session_id)
        assert (await box.host.ended("long")).data.reason == "cancelled"
        assert inspect(box.container)["State"]["ExitCode"] == 0


async def test_shutdown_leaves_no_process_of_the_agent(short_folder: Path) -> None:
    """Deaf programs, daemons that left their session, and a fork bomb."""
    async with sandbox(short_folder, pids=300) as box:
        await box.sh(
            "for n in 1 2 3; do (trap '' TERM HUP; setsid bash -c \"trap '' TERM HUP; while :; do sleep 1; done\""
            " </dev/null >/dev/null 2>&1 &); done"
        )
        channel = await box.host.connected()
        assert (await channel.status()).processes >= 3
        bomb = "import os\nprint('bomb', flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass"
        await channel.start_turn(TurnOrder(turn_id="bomb", command=("python3", "-c", bomb)), "")
        await box.host.printed("bomb", b"bomb")
        await channel.ping()
        await channel.shutdown(0.5)
        async with asyncio.timeout(WAIT_S):
            while inspect(box.container)["State"]["Running"]:
                await asyncio.sleep(0.05)
        assert inspect(box.container)["State"]["ExitCode"] == 0
        assert (await box.host.ended("bomb")).data.reason == "cancelled"


async def test_when_memory_runs_out_the_agent_goes_and_the_supervisor_stays(short_folder: Path) -> None:
    async with sandbox(short_folder, memory_bytes=128 << 20) as box:
        end, _ = await box.run("python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))")
        assert (end.signal, end.reason) == (9, "killed")
        assert await box.sh("echo alive") == "alive\n"
        assert len(box.host.hellos) == 1


async def test_a_person_gets_a_shell_as_the_agents_user(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        await box.sh("echo 'echo FROM-RC' > ~/.bashrc; cp ~/.bashrc ~/.profile")
        channel = await box.host.connected()
        await box.host.state("ready")
        shell = await channel.open_shell(rows=33, columns=101)
        await shell.write(b"id -u; pwd; tty; stat -c %U $(tty); echo T=$TERM; env | sort | tr '\\n' ' '; stty size\n")
        text = b""
        async with asyncio.timeout(WAIT_S):
            while b"33 101\r\n" not in text:
                text += await shell.read()
            await shell.resize(44, 55)
            await shell.write(b"stty size; exit 5\n")
            while piece := await shell.read():
                text += piece
        words = text.decode()
        assert shell.exit_code == 5
        for found in ("1000\r\n", "/workspace\r\n", "33 101\r\n", "44 55\r\n", "agent\r\n", "T=xterm-256color"):
            assert found in words, words
        assert (
            "FROM-RC" not in words and box.host.agent_token not in words and (box.host.channel_key or "?") not in words
        )


async def test_work_of_every_kind_is_saved_through_the_door(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        sid = box.spec.session_id
        channel = await box.host.connected()
        assert (await channel.rescue(1, "turn")).outcome == "clean"
        await box.sh(
            "echo dirty >> a.txt; mkdir d; echo new > d/new; git checkout -q --detach; git commit -qam c; echo x > e"
        )
        result = await channel.rescue(1, "turn")
        assert (result.outcome, result.files) == ("saved", 2), result
        ref = f"refs/kortix/rescue/{sid}/1"
        assert box.git("rev-parse", ref) == result.commit
        assert (box.git("show", f"{ref}:a.txt"), box.git("show", f"{ref}:d/new")) == ("a\ndirty", "new")
        await box.sh("echo secret > unreadable; chmod 000 unreadable")
        result = await channel.rescue(2, "turn")
        assert result.outcome == "failed" and result.commit is not None and "unreadable" in result.message
        await box.sh("rm -f unreadable; echo other > f")
        assert (await channel.rescue(2, "turn")).outcome == "failed"  # the number is taken: nothing is overwritten
        assert box.host.git is not None
        box.host.git.access = Access.PUSH_ONLY  # type: ignore[attr-defined]
        result = await channel.rescue(3, "stop")
        assert result.outcome == "saved", result


async def test_a_rescue_only_host_gets_the_work_of_a_stopped_sandbox(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        await box.sh("echo dirty >> a.txt")
        docker("kill", box.container)
        box.host.mode = "rescue"
        assert box.host.git is not None
        box.host.git.access = Access.PUSH_ONLY  # type: ignore[attr-defined]
        await box.bench.provider.start(box.spec)
        channel = await box.host.connected(2)
        result = await channel.rescue(1, "found dead")
        assert result.outcome == "saved"
        assert box.git("show", f"refs/kortix/rescue/{box.spec.session_id}/1:a.txt") == "a\ndirty"
