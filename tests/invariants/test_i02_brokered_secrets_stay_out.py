"""I2: what is brokered never enters an agent's sandbox, and no value is stored or shown anywhere but in the vault.

A canary is in every kind of secret. Agents hunt for them, and those that are given some say them in every way that a
program can. Then everything is searched that the program wrote, said, started or showed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import canary_scene
import pytest
from canaries import BLOCK, PIECE, Finding, Sweep, fresh, fresh_key, reached, spellings
from canary_scene import GREEDY, HELD_FIRST, HELD_THEN, KEYS, Scene, engine
from desk import git, make_repository, sweep, wait_for
from vaulted import Vaulted
from wiretap import tapped

from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, PromptState, VaultState
from kortix_tui.cli.main import run
from kortix_tui.vault.needles import needles
from kortix_tui.vault.secret import Secret

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400), pytest.mark.xdist_group("i02")]

DOOMED = Path(canary_scene.__file__).with_name("doomed_host.py")
Frames = list[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="kx", dir="/tmp") as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setenv("KORTIX_HOME", str(folder / "home"))
        patch.setenv("KORTIX_CONFIG_HOME", str(folder / "config"))
        home = Home(folder / "home")
        home.prepare()
        with everything_logged(home), tapped() as tap:
            made = Scene(home, folder, tap)
            install = made.runtime.context.store.install_id
            try:
                made.play()
                yield made
            finally:
                made.runtime.close()
                sweep(install)


@contextmanager
def everything_logged(home: Home) -> Iterator[None]:
    """The host's log, with more in it than a host ever writes: every library's smallest words."""
    root, handler = logging.getLogger(), logging.FileHandler(home.path / "host.log")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def test_the_sweep_finds_what_is_there(tmp_path: Path) -> None:
    values = {"one": fresh(), "key": fresh_key()}
    sweeper = Sweep(values)
    for label, value in values.items():
        for form in {*spellings(value), *needles(value)}:
            if len(form) >= 2 * BLOCK - 1:
                assert sweeper.labels(b"before " + form + b" after") == {label}, form
        text = value.decode()
        middle = len(value) // 2
        assert sweeper.labels(value[middle : middle + PIECE]) == {label}
        assert sweeper.labels(value[middle : middle + PIECE - 1]) == set()
        folder = tmp_path / label
        repository = make_repository(folder)
        (folder / "leak").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "Leak")
        leak = git(folder, "rev-parse", "HEAD:leak")
        assert sweeper.objects(repository) == {leak: {label}}
        assert Finding(f".git/objects/{leak[:2]}/{leak[2:]} inflated", label) in sweeper.folder(folder)
        git(folder, "reset", "-q", "--hard", "HEAD~")
        assert leak not in reached(repository)
        git(folder, "repack", "-adkq")
        git(folder, "prune-packed")
        assert sweeper.objects(repository) == {leak: {label}}
        store = sqlite3.connect(folder / "state.db")
        with store:
            store.execute("CREATE TABLE t (x)")
            store.execute("INSERT INTO t VALUES (?)", ("x" * 3000 + json.dumps(text) + "x" * 9000,))
        store.close()
        assert Finding("state.db table t", label) in sweeper.folder(folder)
        halves = [{"kind": "output", "text": half} for half in (text[:middle], text[middle:])]
        (folder / "1.jsonl").write_text("".join(json.dumps(half) + "\n" for half in halves))
        assert label in {finding.label for finding in sweeper.records(folder)}
    assert sweeper.labels(os.urandom(1 << 20), Path(__file__).read_bytes(), "\n".join(KEYS).encode()) == set()


def test_an_agent_without_a_grant_finds_nothing(scene: Scene) -> None:
    hunted = scene.loot["hunter"].rpartition(b"\n")[2].split()
    counts = dict(zip(hunted[2::2], map(int, hunted[1::2]), strict=True))
    # It did see something: itself, its own files, answers.
    assert min(counts[b"processes"] - 3, counts[b"memories"], counts[b"files"] - 100, counts[b"answers"] - 50) > 0
    assert re.search(rb"CONNECTOR_KEY +not granted\n", scene.loot["hunter"])
    assert scene.sweep.labels(scene.loot["hunter"]) == set()
    assert not {place: labels for place, labels in scene.found.items() if place[0] == "hunter" and labels}


def test_each_agent_is_sent_what_is_granted_and_nothing_else(scene: Scene) -> None:
    sent: dict[str, list[set[str]]] = {}
    for line in scene.tap.lines:
        if line.is_channel:
            heard, said = line.frames()
            session = json.loads(heard[0][0])["session_id"]
            for header, _ in said:
                order = json.loads(header)
                if order["type"] in ("start_turn", "shell_open"):
                    given = {value.encode() for value in order["environment"].values()}
                    labels = {label for label, value in scene.values.items() if value in given}
                    sent.setdefault(session, []).append(labels)
    assert sent[scene.hunter.id] == [set()]
    assert sent[scene.greedy.id] == [GREEDY]
    assert sent[scene.holder.id] == [HELD_FIRST] * 3 + [HELD_THEN] * 2


def test_a_request_for_the_environment_moves_no_secret_there(scene: Scene) -> None:
    """The hunter asked for those that stay on the host, and a person gave values."""
    exposures = {view.identifier: view.exposure for view in scene.runtime.secrets.list()}
    wanted = {row[0] for row in scene.runtime.context.store.all(
        "SELECT identifier FROM secret_requests WHERE exposure = 'environment' AND state = 'provided'"
    )}  # fmt: skip
    assert {"CONNECTOR_KEY", "KEPT_KEY", "OPENAI_API_KEY", "REQUESTED"} <= wanted
    assert exposures["CONNECTOR_KEY"] is Exposure.CONNECTOR
    assert exposures["KEPT_KEY"] is exposures["OPENAI_API_KEY"] is Exposure.NONE
    assert exposures["REQUESTED"] is Exposure.ENVIRONMENT


def test_a_sandbox_has_what_it_was_sent_and_nothing_else(scene: Scene) -> None:
    allowed = {"hunter": set[str](), "holder": HELD_FIRST | HELD_THEN, "greedy": GREEDY}
    for agent, may in allowed.items():
        assert scene.sweep.labels(scene.loot[agent]) <= may
        for (whose, place), labels in scene.found.items():
            if whose == agent:
                assert labels <= (set() if place.startswith(("docker", "root")) else may), (agent, place)
    # Searching finds what is there.
    assert scene.sweep.labels(scene.loot["greedy"]) == GREEDY
    assert scene.found["holder", "processes"] == HELD_THEN
    assert "ENV_KEY" in scene.found["holder", "journal"] & scene.found["holder", "files"]
    assert any(labels == HELD_THEN for (_, place), labels in scene.found.items() if place.startswith("memory"))


def test_no_layer_of_the_image_has_one(scene: Scene) -> None:
    image = engine("inspect", "-f", "{{.Image}}", f"kortix-{scene.hunter.id}").decode().strip()
    assert scene.sweep.labels(engine("inspect", image), engine("history", "--no-trunc", image)) == set()
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
        tail, size = b"", 0
        while data := saving.stdout.read(8 << 20):  # type: ignore[union-attr]
            assert scene.sweep.labels(tail + data) == set()
            tail, size = data[-1024:], size + len(data)
    assert saving.returncode == 0 and size > 50 << 20


def test_nothing_in_the_home_has_one_but_saved_work(scene: Scene) -> None:
    home = scene.home.path
    assert {"state.db", "state.db-wal", "vault.kxv", "vault.kxv.prev", "host.log", "audit.head"} <= set(
        os.listdir(home)
    )
    assert scene.sweep.folder(home) == []
    for session in (scene.hunter, scene.holder, scene.greedy):
        assert list(scene.sweep.records(scene.home.records(session.id))) == []
    shown = scene.text(scene.holder)
    for name in ("ENV_KEY", "ENV_PEM", "ROTATED", "GONE", "MOVED", "MY_ENV", "REQUESTED"):
        assert f"[redacted:{name}]" in shown
    # No work is lost (I6), so what an agent wrote into its files is saved as it is: there, and nowhere else.
    objects = scene.sweep.objects(scene.mirror)
    assert set().union(*objects.values()) == HELD_FIRST | HELD_THEN
    refs = git(scene.mirror, "for-each-ref", "--format=%(refname)").splitlines()
    saved = f"refs/kortix/rescue/{scene.holder.id}/"
    assert set(objects) <= reached(scene.mirror, saved)
    assert set(objects) & reached(scene.mirror, *(ref for ref in refs if not ref.startswith(saved))) == set()
    assert scene.sweep.objects(scene.repository) == {} and scene.sweep.folder(scene.repository) == []
    assert {finding.place for finding in scene.sweep.folder(scene.config)} == {"vault.key"}
    assert scene.sweep.labels(scene.backup) == set()


def test_no_command_shows_one(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    sessions = [session.id for session in (scene.hunter, scene.holder, scene.greedy)]
    commands = [
        "projects ls", f"projects show {scene.project.slug}", "sessions ls", "cr ls", "cr show 1", "cr diff 1",
        "cr preview 1", "review ls", "review show 1", "secrets ls", "secrets requests", "vault status", "vault verify",
        "vault slots ls", "audit ls --limit 1000", "audit verify", "host", "sandboxes ls", "doctor",
        *(f"review show {request.id}" for request in scene.runtime.secrets.requests()[:2]),
        *(f"sessions {verb} {session}" for verb in ("show", "queue ls", "rescue ls") for session in sessions),
        *(f"secrets show {name}" for name in ("ENV_PEM", "ROTATED", "MY_CONNECTOR", "OPENAI_API_KEY")),
    ]  # fmt: skip
    logs = [f"sessions logs {session}" for session in sessions]
    for command in (*commands, *(f"{command} --json" for command in commands), *logs):
        status = run(command.split())
        out, error = capfd.readouterr()
        assert status == 0 and out + error, (command, error)
        assert scene.sweep.labels(out.encode(), error.encode()) == set(), command
    assert run(["audit", "ls", "--event", "secret.deliver", "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)) == 6


async def test_no_screen_shows_one(scene: Scene) -> None:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.bridge import Bridge
    from kortix_tui.console.terminal import Terminal

    bridge = Bridge(scene.runtime)
    app = KortixApp(bridge, terminal=Terminal.detect({}))
    seen = list[str]()
    try:
        async with app.run_test(size=(160, 60)) as pilot:
            async with asyncio.timeout(60):
                while not (app.facts.loaded and app.facts.sessions and app.facts.changes):
                    await pilot.pause(0.05)
            for view in "1234":
                await pilot.press(view)
                for key in ("down", "down", "enter", "escape"):
                    await pilot.press(key)
                    await pilot.pause(0.15)
                    seen.append("\n".join(strip.text for strip in app.screen._compositor.render_strips()))
    finally:
        bridge.stop()
    everything = "\n".join(seen)
    assert "CONNECTOR_KEY" in everything and scene.hunter.id[:6] in everything
    assert scene.sweep.labels(everything.encode(), everything.replace("\n", "").encode()) == set()


def test_values_are_on_sockets_only_where_they_are_meant_to_be(scene: Scene) -> None:
    held = HELD_FIRST | HELD_THEN | GREEDY
    stored, channels, doors = set[str](), 0, 0
    for line in scene.tap.lines:
        heard, said = bytes(line.heard), bytes(line.said)
        if line.is_channel:
            channels += 1
            _check_channel(scene.sweep, *line.frames(), held)
        elif line.is_control:
            stored |= _check_control(scene.sweep, *line.frames(), held)
        elif line.is_door:
            doors += 1
            # An agent that has a value may say it; the host says no more than it heard.
            told = scene.sweep.labels(heard)
            assert told <= held and scene.sweep.labels(said) <= told
        else:
            assert scene.sweep.labels(heard, said) == set(), line.name
    assert channels >= 3 and doors > 100
    given = set(scene.values) - {"key file"} - {label for label in scene.values if label.endswith("bare")}
    assert stored == given, "the tap has missed something"
    assert scene.sweep.labels(scene.shell_saw) == {"ENV_KEY"}


def _check_channel(sweeper: Sweep, heard: Frames, said: Frames, held: set[str]) -> None:
    for header, body in said:
        order = json.loads(header)
        environment = order.pop("environment", {})
        assert sweeper.labels(body, json.dumps(order).encode()) == set()
        assert not environment or order["type"] in ("start_turn", "shell_open")
    assert sweeper.labels(*(header for header, _ in heard)) == set()
    assert sweeper.labels(b"".join(body for _, body in heard)) <= held


def _check_control(sweeper: Sweep, heard: Frames, said: Frames, held: set[str]) -> set[str]:
    """Check one call or shell, from either end; what it carried on purpose."""
    if said and json.loads(said[0][0])["type"] in ("call", "open"):
        heard, said = said, heard
    assert sweeper.labels(*(header for header, _ in (*heard, *said))) == set()
    first = json.loads(heard[0][0])
    verb = first.get("verb", "shell")
    there = sweeper.labels(b"".join(body for _, body in heard))
    back = sweeper.labels(b"".join(body for _, body in said))
    match verb:
        case "secret.set" | "secret_request.provide":
            assert len(there) == 1 and not there & KEYS and not back
        case "secret.set_many":
            assert there == {"IMPORTED"} and not back
        case "vault.init" | "vault.slot.add":
            assert there <= {"passphrase 1"}
            assert {label.removesuffix(" bare")[:12] for label in back} == {"recovery key"}
        case "vault.passphrase" | "vault.unlock" | "vault.export":
            assert there <= KEYS and not back
        case "shell":
            assert not there and back <= held
            return set()
        case _:
            assert not there | back, verb
    return {label.removesuffix(" bare") for label in there | back}


def test_no_process_is_started_with_one(scene: Scene) -> None:
    seen = b"\0".join(scene.tap.children)
    for program in (b"receive-pack", b"cat-file", b"rev-list", b"docker", b"kortix_tui.cli.main", b"KORTIX_HOME="):
        assert program in seen
    assert scene.sweep.labels(seen) == set()


def test_after_a_take_over_nothing_is_stored_until_values_are_known(home: Home, short_folder: Path) -> None:
    value = fresh()
    sweeper = Sweep({"value": value})
    desk = Vaulted(home, short_folder / "repo", quiet=False)
    install = desk.runtime.context.store.install_id
    try:
        desk.store(value=value)
        say = 'echo "$STRIPE_API_KEY"; printf %s "$STRIPE_API_KEY" | base64 -w0; echo; echo "$STRIPE_API_KEY" >&2'
        wait = "until [ -e ~/go ]; do sleep 0.05; done"
        session = desk.start(f"echo began; {wait}; {say}; echo ended; touch ~/done", agent="teller")
        wait_for(lambda: "began" in desk.text(session))
        desk.restart()
        assert desk.runtime.vault.status().state is VaultState.LOCKED
        desk.shell(session, "touch ~/go")
        wait_for(lambda: desk.view(session).reason == "vault_locked")
        desk.shell(session, "until [ -e ~/done ]; do sleep 0.05; done")
        desk.runtime.sessions.prompt(session.id, say, queue=True)
        assert "ended" not in desk.text(session)
        assert sweeper.folder(home.path) == []
        desk.runtime.vault.unlock("passphrase", secret=Secret(b"correct horse battery"))
        assert desk.settle(session).state is PromptState.FINISHED
        assert desk.text(session).count("[redacted:STRIPE_API_KEY]") == 6 and "ended" in desk.text(session)
        assert sweeper.folder(home.path) == [] and list(sweeper.records(home.records(session.id))) == []
    finally:
        desk.runtime.close()
        sweep(install)


class Hosts:
    """Hosts in processes of their own, killed one after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def next(self, where: str = "commit:1000000") -> None:
        self.kill()
        self._process = subprocess.Popen([sys.executable, str(DOOMED), where])

    @property
    def is_dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture
def deadly(home: Home, short_folder: Path) -> Iterator[tuple[Vaulted, Hosts]]:
    desk, hosts = Vaulted(home, short_folder / "repo"), Hosts()
    install = desk.runtime.context.store.install_id
    try:
        yield desk, hosts
    finally:
        hosts.kill()
        desk.runtime.close()
        sweep(install)


def test_a_value_that_a_host_died_in_the_middle_of_is_not_stored(deadly: tuple[Vaulted, Hosts]) -> None:
    desk, hosts = deadly
    value = fresh()
    sweeper = Sweep({"value": value})
    desk.store(value=value)
    session, _ = desk.run("true", agent="teller")
    desk.runtime.stop_hosting()
    desk.runtime.context.ensure_host = lambda: None
    cuts = (9, len(value) // 2, len(value) - 9)
    # Each half is there before the next word, which is another stream's.
    program = f"""\
import os, time
value = os.environb[b"STRIPE_API_KEY"]
for number, cut in enumerate({cuts}):
    os.write(1, b"<" + value[:cut])
    time.sleep(0.3)
    os.write(2, b"half %d\\n" % number)
    while not os.path.exists(f"/home/agent/go{{number}}"):
        time.sleep(0.02)
    os.write(1, value[cut:] + b">\\n")
    time.sleep(0.3)
    os.write(2, b"whole %d\\n" % number)
"""
    desk.runtime.sessions.prompt(session.id, f"python3 - <<'KX'\n{program}\nKX", queue=True)
    hosts.next()
    for number in range(len(cuts)):
        wait_for(lambda: f"half {number}\n" in desk.text(session))  # noqa: B023
        hosts.next()
        desk.shell(session, f"touch ~/go{number}")
        wait_for(lambda: f"whole {number}\n" in desk.text(session))  # noqa: B023
    assert desk.settle(session).state is PromptState.FINISHED
    hosts.kill()
    assert sweeper.folder(desk.home.path) == [] and list(sweeper.records(desk.home.records(session.id))) == []


def test_hosts_that_die_at_every_batch_store_no_value(deadly: tuple[Vaulted, Hosts]) -> None:
    desk, hosts = deadly
    value = fresh()
    sweeper = Sweep({"value": value})
    desk.store(value=value)
    session, _ = desk.run("true", agent="teller")
    desk.runtime.stop_hosting()
    desk.runtime.context.ensure_host = lambda: None
    program = """\
import os, time
value = os.environb[b"STRIPE_API_KEY"]
for form in (value, value.hex().encode()):
    for at in range(0, len(form), 9):
        os.write(1, form[at:at + 9])
        time.sleep(0.15)
    os.write(1, b"\\n")
"""
    prompt = desk.runtime.sessions.prompt(session.id, f"python3 - <<'KX'\n{program}\nKX", queue=True)
    deaths = 0
    ended = (PromptState.FINISHED, PromptState.FAILED, PromptState.UNKNOWN)
    while desk.last(session).state not in ended:
        assert deaths < 40
        hosts.next("after:kortix_tui.runtime.recording:Recording._stored")
        wait_for(lambda: hosts.is_dead or desk.last(session).state in ended)
        deaths += 1
    assert deaths > 2 and desk.last(session).id == prompt.id
    assert sweeper.folder(desk.home.path) == [] and list(sweeper.records(desk.home.records(session.id))) == []
