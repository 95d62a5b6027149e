"""A whole supervisor against a whole door in one process: turns, records, absence of the host (I6, I7)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kortix_tui.guest import turns
from kortix_tui.guest.session import Session, told
from kortix_tui.sandbox.frames import OutputRecord, Repository, TurnOrder
from tests.support.door import WAIT_S, SmallHost, open_door
from tests.support.guest import places, running

SID = "kaaaaaaaaaaa"


@pytest.fixture
async def host() -> SmallHost:
    return SmallHost(SID)


@pytest.fixture
async def session(short_folder: Path, host: SmallHost) -> AsyncIterator[Session]:
    where = places(short_folder)
    async with open_door(short_folder / "door", host), running(SID, where) as session:
        yield session


def python(code: str, turn_id: str = "t1", **fields: object) -> TurnOrder:
    return TurnOrder(turn_id=turn_id, command=("python3", "-u", "-c", code), cwd="", **fields)  # type: ignore[arg-type]


async def run(host: SmallHost, order: TurnOrder, prompt: str = "") -> tuple[object, bytes, bytes]:
    channel = await host.connected()
    await channel.start_turn(order, prompt)
    end = await host.ended(order.turn_id)
    return end.data, host.output(order.turn_id), host.output(order.turn_id, "stderr")


async def test_a_turn_gets_its_prompt_in_every_way_and_its_output_is_recorded(
    session: Session, host: SmallHost
) -> None:
    code = (
        "import os, sys; e = os.environ; print(sys.stdin.read(), open(e['KORTIX_PROMPT_FILE']).read(),"
        "e['KORTIX_PROMPT'], e['KORTIX_SESSION_ID'], e['KORTIX_TURN_ID'], e['KORTIX_TOKEN'], e['EXTRA'], e['HOME']);"
        "print('oops', file=sys.stderr); sys.exit(7)"
    )
    end, out, err = await run(host, python(code, environment={"EXTRA": "more"}), "do it")
    assert (end.exit_code, end.signal, end.reason) == (7, None, "exited")
    words = out.decode().split()
    assert words[:6] == ["do", "it", "do", "it", "do", "it"] and words[6:10] == [SID, "t1", host.agent_token, "more"]
    assert err == b"oops\n"


@pytest.mark.parametrize("ways", [(), ("stdin",), ("file",), ("env",)])
async def test_only_the_wanted_ways_are_used(session: Session, host: SmallHost, ways: tuple[str, ...]) -> None:
    code = (
        "import os, sys; e = os.environ;"
        "print([sys.stdin.read() != '', 'KORTIX_PROMPT_FILE' in e, 'KORTIX_PROMPT' in e])"
    )
    _, out, _ = await run(host, python(code, prompt_in=ways), "p")
    assert out.decode().strip() == str(["stdin" in ways, "file" in ways, "env" in ways])


async def test_five_megabytes_of_prompt_arrive_and_are_not_put_into_the_environment(
    session: Session, host: SmallHost
) -> None:
    prompt = "é" * 2_500_000 + "end"
    code = (
        "import os, sys, hashlib; a = sys.stdin.buffer.read(); b = open(os.environ['KORTIX_PROMPT_FILE'], 'rb').read();"
        "print(len(a), a == b, a.decode()[-3:], 'KORTIX_PROMPT' in os.environ)"
    )
    _, out, _ = await run(host, python(code), prompt)
    assert out == b"5000003 True end False\n"


async def test_a_prompt_that_nobody_reads_does_no_harm(session: Session, host: SmallHost) -> None:
    end, _, _ = await run(host, python("pass"), "x" * 1_000_000)
    assert end.exit_code == 0


async def test_bytes_are_kept_as_they_are(session: Session, host: SmallHost) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 1000)"
    _, out, _ = await run(host, python(code))
    assert out == bytes(range(256)) * 1000


async def test_a_flood_without_a_line_end_comes_through_whole(session: Session, host: SmallHost) -> None:
    code = "import os\nfor n in range(300): os.write(1, bytes([n % 256]) * 65536)"
    end, out, _ = await run(host, python(code))
    assert end.exit_code == 0 and len(out) == 300 * 65536
    assert all(out[n * 65536] == n % 256 for n in range(300))
    assert max(len(record.body) for record in host.stored if isinstance(record, OutputRecord)) <= 65536


@pytest.mark.parametrize(
    ("command", "folder", "words"),
    [
        (("/no/such/program",), "", "No such file"),
        (("python3",), "/no/such/folder", "No such file"),
        (("/etc/passwd",), "", "denied"),
    ],
)
async def test_what_cannot_start_says_why(
    session: Session, host: SmallHost, command: tuple[str, ...], folder: str, words: str
) -> None:
    end, _, _ = await run(host, TurnOrder(turn_id="t1", command=command, cwd=folder))
    assert end.reason == "not_started" and end.exit_code is None and words in end.message


async def test_a_killed_program_is_told_from_one_that_exited(session: Session, host: SmallHost) -> None:
    end, _, _ = await run(host, python("import os; os.kill(os.getpid(), 9)"))
    assert (end.exit_code, end.signal, end.reason) == (None, 9, "killed")


async def test_cancelling_ends_a_program_that_ignores_it(
    session: Session, host: SmallHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_TERM_TO_KILL_S", 0.2)
    channel = await host.connected()
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(1000)"
    await channel.start_turn(python(code), "")
    await host.printed("t1", b"deaf")
    await channel.cancel_turn("t1")
    end = (await host.ended("t1")).data
    assert (end.signal, end.reason) == (9, "cancelled")


async def test_what_stays_in_the_background_does_not_hold_the_turn(session: Session, host: SmallHost) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '3']); print('done')"
    end, out, _ = await run(host, python(code))
    assert end.exit_code == 0 and out == b"done\n"


async def test_the_same_turn_is_never_started_twice(session: Session, host: SmallHost, short_folder: Path) -> None:
    channel = await host.connected()
    order = python(f"open({str(short_folder / 'count')!r}, 'a').write('x')")
    for _ in range(3):
        await channel.start_turn(order, "")
    await host.ended("t1")
    await channel.start_turn(order, "")
    await run(host, python("pass", "t2"))
    assert (short_folder / "count").read_text() == "x"


async def test_one_turn_at_a_time(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    await channel.start_turn(python("import time; print('here'); time.sleep(1000)"), "")
    await host.printed("t1", b"here")
    await channel.start_turn(python("pass", "t2"), "")
    assert (await host.ended("t2")).data.reason == "not_started"
    await channel.cancel_turn("t1")
    assert (await host.ended("t1")).data.reason == "cancelled"


async def test_a_turn_goes_on_while_no_host_is_there(short_folder: Path, host: SmallHost) -> None:
    go = short_folder / "go"
    code = f"import os, time\nprint('one')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('two')"
    async with running(SID, places(short_folder)):
        async with open_door(short_folder / "door", host):
            channel = await host.connected()
            await channel.start_turn(python(code), "")
            await host.printed("t1", b"one")
        go.touch()
        await asyncio.sleep(0.3)  # nobody listens while it ends
        async with open_door(short_folder / "door", host):
            end = (await host.ended("t1")).data
            assert end.exit_code == 0 and host.output("t1") == b"one\ntwo\n"
            assert host.hellos[0].boot == host.hellos[-1].boot and host.hellos[-1].cloned


async def test_twenty_thousand_records_through_hosts_that_die(short_folder: Path, host: SmallHost) -> None:
    """Every record once and in order, however often the connection or the listener goes."""
    chance = random.Random(7)
    code = "import sys\nfor n in range(20000): print(n, file=sys.stderr if n % 2 else sys.stdout)"
    async with running(SID, places(short_folder)) as session:
        async with open_door(short_folder / "door", host):
            await host.connected()
        for number in range(20_000):
            session._record("note", data={"text": str(number)})
        for _ in range(8):
            async with open_door(short_folder / "door", host):
                times = len(host.hellos)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_S):
                        await host.connected(times + 1)
                        wanted = host.stored_seq + chance.randrange(500, 3000)
                        async with host.changed:
                            await host.changed.wait_for(lambda wanted=wanted: host.stored_seq >= min(wanted, 20_001))
                if chance.random() < 0.5 and host.channel is not None:
                    host.channel._writer.transport.abort()
        async with open_door(short_folder / "door", host):
            await (await host.connected(len(host.hellos) + 1)).start_turn(python(code), "")
            await host.ended("t1")
    assert [record.seq for record in host.stored] == list(range(1, len(host.stored) + 1))
    notes = [int(record.data.text) for record in host.stored if record.kind == "note"]
    assert notes == list(range(20_000))
    assert len(host.output("t1").split()) == len(host.output("t1", "stderr").split()) == 10_000


async def test_a_turn_whose_sandbox_died_is_reported_as_unknown(short_folder: Path, host: SmallHost) -> None:
    where = places(short_folder)
    async with open_door(short_folder / "door", host):
        async with running(SID, where):
            channel = await host.connected()
            await channel.start_turn(python("import time; print('here'); time.sleep(3)"), "")
            await host.printed("t1", b"here")
        async with running(SID, where):
            end = (await host.ended("t1")).data
            assert (end.exit_code, end.signal, end.reason) == (None, None, "killed") and "sandbox" in end.message
            assert host.hellos[0].boot != host.hellos[-1].boot and not host.hellos[-1].fresh
            channel = await host.connected(2)
            await channel.start_turn(python("print('again')"), "")
            await run(host, python("print('new')", "t2"))
            assert b"again" not in host.output("t1")
        async with running(SID, where):
            await host.connected(3)
            assert set(host.hellos[-1].ended) == {"t1", "t2"}
    assert [record.seq for record in host.stored] == list(range(1, len(host.stored) + 1))


async def test_a_second_life_on_a_new_volume_goes_on_above_what_the_host_has(
    short_folder: Path, host: SmallHost
) -> None:
    async with open_door(short_folder / "door", host):
        async with running(SID, places(short_folder)):
            await run(host, python("print(1)"))
        before = host.stored_seq
        host.channel_key = None
        async with running(SID, places(short_folder / "new")) as session:
            session._places.door = str(short_folder / "door" / "door.sock")
            await host.connected(2)
            assert host.hellos[-1].fresh
            await run(host, python("print(2)", "t2"))
    assert [record.seq for record in host.stored][before:] == list(range(before + 1, host.stored_seq + 1))


async def test_a_newer_channel_replaces_the_older(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    await channel.close()
    again = await host.connected(2)
    await again.ping()
    assert channel.closed.is_set() and not again.closed.is_set()


async def test_shutdown_ends_the_turn_and_says_so_last(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    await channel.start_turn(python("import time; print('here'); time.sleep(1000)"), "")
    await host.printed("t1", b"here")
    await channel.shutdown(1.0)
    assert (await host.ended("t1")).data.reason == "cancelled"


async def test_frames_that_are_nonsense_are_ignored(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    for header in (
        {"type": "no such"}, {"type": "start_turn"}, {"type": "start_turn", "turn_id": "../x", "command": ["true"]},
        {"type": "start_turn", "turn_id": "x", "command": [1]}, {"type": "start_turn_more", "turn_id": "y"},
        {"type": "ack"}, {"type": "ack", "seq": "many"}, {"type": "cancel_turn", "turn_id": "none"},
        {"type": "shell_data", "id": "none"}, {"type": "rescue", "id": "r"}, {"type": "shutdown"},
    ):  # fmt: skip
        await channel._send(header)
    await channel.ping()
    assert (await run(host, python("print('fine')")))[1] == b"fine\n"


async def test_what_an_order_brings_is_in_no_file_and_in_no_log(
    session: Session, host: SmallHost, short_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "hidden-9fK2qLmZx7TtWbVn4RcE"
    channel = await host.connected()
    for number, environment in enumerate(
        [{"A": f"{value}\ud800"}, {"A": f"{value}\0"}, {f"A={value}": "x"}, {"": value}, {"A": [value]}, [value], value]
    ):
        order = {"turn_id": f"bad{number}", "command": ["true"], "environment": environment}
        await channel._send({"type": "start_turn", **order})
        await channel._send({"type": "shell_open", "id": f"s9{number}", "rows": 9, "cols": 9, **order})
    for number, command in enumerate([["/no/such/program"], ["sh", "-c", "printenv A >&2; kill -9 $$"]]):
        order = TurnOrder(turn_id=f"t{number}", command=tuple(command), cwd="", environment={"A": value})
        assert value not in str((await run(host, order))[0])
    assert host.output("t1", "stderr").decode() == f"{value}\n"  # it came, and only the program's own output has it
    text = "".join(capsys.readouterr())
    assert "a bad 'start_turn' frame" in text and "a bad 'shell_open' frame" in text and value[:8] not in text
    journal = str(short_folder / "state")
    for path in short_folder.rglob("*"):
        assert not path.is_file() or str(path).startswith(journal) or value.encode() not in path.read_bytes(), path
    assert "surrogates" not in told(UnicodeEncodeError("utf-8", value, 0, 1, "surrogates not allowed"))


async def test_a_shell_gets_what_it_is_given(session: Session, host: SmallHost) -> None:
    shell = await (await host.connected()).open_shell(
        rows=24, columns=80, environment={"A": "given", "TERM": "no", "KORTIX_SESSION_ID": "no"}
    )
    await shell.write(b'echo "[$A $TERM $KORTIX_SESSION_ID]"; exit\n')
    text = b""
    while piece := await asyncio.wait_for(shell.read(), WAIT_S):
        text += piece
    assert f"[given xterm-256color {SID}]".encode() in text


async def test_two_shells_and_their_size(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    first = await channel.open_shell(rows=30, columns=90)
    second = await channel.open_shell(rows=10, columns=20)
    await first.write(b"stty size; exit 3\n")
    await second.resize(11, 21)
    await second.write(b"stty size; tty; exit\n")
    texts = []
    for shell in (first, second):
        text = b""
        while piece := await asyncio.wait_for(shell.read(), WAIT_S):
            text += piece
        texts.append(text)
    assert b"30 90" in texts[0] and first.exit_code == 3
    assert b"11 21" in texts[1] and b"/dev/pts/" in texts[1] and second.exit_code == 0


async def test_a_shell_that_floods_delays_nobody(session: Session, host: SmallHost) -> None:
    channel = await host.connected()
    shell = await channel.open_shell(rows=24, columns=80)
    await shell.write(b"yes\n")
    while b"y\r\ny\r\n" not in await asyncio.wait_for(shell.read(), WAIT_S):
        pass
    assert (await run(host, python("print('through')")))[1] == b"through\n"
    await channel.ping()
    await shell.close()
    while await asyncio.wait_for(shell.read(), WAIT_S):
        pass
    assert shell.exit_code is not None


async def test_what_stays_in_the_background_can_go_on_writing(
    session: Session, host: SmallHost, short_folder: Path
) -> None:
    go, alive = short_folder / "go", short_folder / "alive"
    script = f"(while [ ! -e {go} ]; do sleep 0.01; done; head -c 200000 /dev/zero && touch {alive}) & exit 0"
    end, _, _ = await run(host, TurnOrder(turn_id="t1", command=("bash", "-c", script), cwd=""))
    assert end.exit_code == 0
    (short_folder / "go").touch()
    async with asyncio.timeout(WAIT_S):
        while not (short_folder / "alive").exists():
            await asyncio.sleep(0.01)


async def test_turns_leave_no_descriptors_behind(session: Session, host: SmallHost) -> None:
    await run(host, python("print(1)", "first"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        await run(host, python("print(1)", f"t{number}"))
        await run(host, TurnOrder(turn_id=f"n{number}", command=("/no/such",), cwd=""))
    async with asyncio.timeout(WAIT_S):
        while len(list(Path("/proc/self/fd").iterdir())) > before:
            await asyncio.sleep(0.01)


async def test_a_note_of_a_turn_that_could_not_be_written_leaves_the_book_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = turns.TurnBook(str(tmp_path / "turns"))
    book.start("one")
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:3], offset))
        with pytest.raises(OSError, match="full"):
            book.start("two")
    book.end("one")
    book.start("three")
    book.close()
    with (tmp_path / "turns").open("a") as file:
        file.write("S fo")  # torn
    again = turns.TurnBook(str(tmp_path / "turns"))
    assert again.started == {"one", "three"} and list(again.ended) == ["one"] and again.interrupted() == ["three"]
    again.close()


async def test_a_host_that_first_only_rescues_and_then_works(short_folder: Path) -> None:
    origin = short_folder / "origin.git"
    people = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(short_folder), "GIT_CONFIG_NOSYSTEM": "1", **people}
    seed = str(short_folder / "seed")
    for words in (
        ("init", "-q", "-b", SID, seed), ("-C", seed, "commit", "-q", "--allow-empty", "-m", "one"),
        ("clone", "-q", "--bare", seed, str(origin)),
    ):  # fmt: skip
        subprocess.run(["git", *words], check=True, env=environment)
    repository = Repository(url=str(origin), branch=SID, base_branch="main", base_commit="")
    host = SmallHost(SID, repository=repository, mode="rescue")
    async with running(SID, places(short_folder)):
        async with open_door(short_folder / "door", host):
            assert (await (await host.connected()).rescue(1, "found dead")).outcome == "clean"
        host.mode = "normal"
        async with open_door(short_folder / "door", host):
            await host.connected(2)
            assert not host.hellos[-1].cloned
            await host.state("clone_done")
            assert (await run(host, TurnOrder(turn_id="t", command=("git", "status", "-sb"), cwd="")))[1]
