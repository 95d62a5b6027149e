"""A home with a canary in every kind of secret, agents that hunt for them, and agents that say what they were given."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from canaries import Sweep, fresh, fresh_key
from desk import Desk, git, make_repository
from wiretap import Wiretap

from kortix_tui.base.errors import WrongKey
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, SessionStatus
from kortix_tui.runtime.vault_calls import SlotWish
from kortix_tui.runtime.views import SessionView
from kortix_tui.vault.secret import Secret

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
MANIFEST = """\
kortix_version: 2
default_agent: hunter
agents:
  hunter:
    kortix_permissions: [project.gitops.push, project.review.submit]
  holder:
    secrets:
      [ENV_KEY, ENV_PEM, ROTATED, GONE, MOVED, MY_ENV, REQUESTED, REQUESTED_CONNECTOR, CONNECTOR_KEY, CONNECTOR_ROTATED,
       EGRESS_KEY, KEPT_KEY, OPENAI_API_KEY, MY_CONNECTOR]
    kortix_permissions: [project.gitops.push, project.review.submit]
  greedy:
    secrets: all
    kortix_permissions: [project.gitops.push]
"""
AGENT = "---\ndescription: Runs its prompt.\nharness: command\ncommand: [sh, -s]\n---\nYou run what you are given.\n"
HELD_FIRST = {"ENV_KEY", "ENV_PEM", "ROTATED 1", "GONE", "MOVED", "MY_ENV"}
HELD_THEN = {"ENV_KEY", "ENV_PEM", "ROTATED 2", "MY_ENV", "REQUESTED"}
GREEDY = {"ENV_KEY", "ENV_PEM", "ROTATED 2", "REQUESTED", "ENV_ALL", "IMPORTED"}
NAMES = "+ENV_KEY +ENV_PEM ROTATED GONE MOVED MY_ENV REQUESTED ENV_ALL IMPORTED"
KEYS = {"passphrase 1", "passphrase 2", "recovery key 1", "recovery key 2", "wrong passphrase", "export passphrase"}
FOLDERS = "workspace home run tmp opt var etc root srv mnt media dev/shm"


MEMORY = """\
import os, sys
for process in sys.argv[1:] or [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
    with open(f"/proc/{process}/mem", "rb", 0) as memory, open(f"/proc/{process}/maps") as maps:
        for area, rights in (line.split()[:2] for line in maps):
            start, end = (int(one, 16) for one in area.split("-"))
            if rights.startswith("rw"):
                memory.seek(start)
                sys.stdout.buffer.write(memory.read(end - start))
"""


def script(name: str, *arguments: str) -> str:
    """A prompt that runs a program of ours in the sandbox."""
    return f"python3 - {' '.join(arguments)} <<'KX'\n{(SUPPORT / name).read_text()}\nKX\n"


def inside(session: SessionView, script: str, *users: str) -> bytes:
    """What a script prints that somebody runs in the sandbox, behind everybody's back."""
    whole = ["docker", "exec", f"kortix-{session.id}", "sh", "-c", f"{{ {script}; }} 2>/dev/null"]
    found = [subprocess.run([*whole[:2], "-u", user, *whole[2:]], capture_output=True, timeout=120) for user in users]
    return b"".join(one.stdout for one in found)


def memory(session: SessionView) -> dict[str, bytes]:
    """What the processes of a sandbox have in memory, by name and number; read from outside.

    Whoever is not root here has to be it inside, with more power than the sandbox gives.
    """
    name = f"kortix-{session.id}"
    if os.geteuid() != 0:
        return {"memory": engine("exec", "-u", "0", "--privileged", name, "python3", "-c", MEMORY)}
    top = engine("top", name, "-eo", "pid,comm").decode().splitlines()[1:]
    found = {}
    for pid, command in (line.split(None, 1) for line in top):
        found[f"memory of {command} {pid}"] = subprocess.run(
            [sys.executable, "-c", MEMORY, pid], capture_output=True, timeout=60, check=True
        ).stdout
    return found


def engine(*arguments: str) -> bytes:
    """What the engine's own command says."""
    done = subprocess.run(["docker", *arguments], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


class Scene(Desk):
    """A home with a canary in every kind of secret, and three sessions that did all they can."""

    def __init__(self, home: Home, folder: Path, tap: Wiretap) -> None:
        self.tap = tap
        self.values = {
            label: fresh()
            for label in (
                "ENV_KEY", "ENV_ALL", "ROTATED 1", "ROTATED 2", "GONE", "MOVED", "MY_ENV", "MY_CONNECTOR", "REQUESTED",
                "REQUESTED_CONNECTOR", "CONNECTOR_KEY", "CONNECTOR_ROTATED 1", "CONNECTOR_ROTATED 2", "EGRESS_KEY",
                "KEPT_KEY", "OPENAI_API_KEY", *sorted(KEYS - {"recovery key 1", "recovery key 2"}),
            )
        }  # fmt: skip
        self.values |= {"ENV_PEM": fresh_key(), "IMPORTED": fresh(without="'\\\"$`")}
        self.config = folder / "config"
        self.loot = dict[str, bytes]()
        self.found = dict[tuple[str, str], set[str]]()
        """Canaries by agent and place, in a running sandbox."""
        self.shell_saw = b""
        repository = make_repository(folder / "repo")
        (repository / "kortix.yaml").write_text(MANIFEST)
        for agent in ("hunter", "holder", "greedy"):
            (repository / "agents" / f"{agent}.md").write_text(AGENT)
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "Agents")
        super().__init__(home, repository)
        self.mirror = home.mirror(self.project.id)
        self._make_vault()
        self._store(folder)
        self.sweep = Sweep(self.values)

    def secret(self, label: str) -> Secret:
        return Secret(self.values[label])

    def _make_vault(self) -> None:
        vault, key_file = self.runtime.vault, str(self.config / "vault.key")
        slots = (SlotWish(kind="passphrase"), SlotWish(kind="keyfile", place=key_file))
        _, first = vault.init(slots, passphrase=self.secret("passphrase 1"))
        vault.set_passphrase(self.secret("passphrase 1"), self.secret("passphrase 2"))
        _, second = vault.add_slot(SlotWish(kind="recovery"))
        assert first and second
        for label, text in (("recovery key 1", first), ("recovery key 2", second)):
            self.values |= {label: text.encode(), f"{label} bare": text.replace("-", "").encode()}
        self.values["key file"] = Path(key_file).read_bytes()

    def _store(self, folder: Path) -> None:
        connector, kept = Exposure.CONNECTOR, Exposure.NONE
        self.put("ENV_KEY", "ENV_ALL", "ENV_PEM", "GONE", "MOVED", exposure=Exposure.ENVIRONMENT)
        self.put("MY_ENV", exposure=Exposure.ENVIRONMENT, only_me=True)
        self.put("MY_CONNECTOR", exposure=connector, only_me=True)
        self.put("EGRESS_KEY", exposure=Exposure.EGRESS, hosts=("api.example.com",))
        self.put("KEPT_KEY", exposure=kept)
        self.put("OPENAI_API_KEY")
        self.put("ROTATED 1", "CONNECTOR_ROTATED 1")
        self.runtime.secrets.expose(self.project, "CONNECTOR_ROTATED", connector)
        self.runtime.secrets.rotate(self.project, "CONNECTOR_ROTATED", self.secret("CONNECTOR_ROTATED 2"))
        self.command("secrets", "set", "CONNECTOR_KEY=-", "--scope", "connector", given="CONNECTOR_KEY")
        dotenv = folder / ".env"
        dotenv.write_bytes(b"IMPORTED='" + self.values["IMPORTED"] + b"'\n")
        self.command("secrets", "import", "--from", str(dotenv), "--scope", "environment")
        views = {view.identifier: view for view in self.runtime.secrets.list()}
        assert len(views) == 14 and views["OPENAI_API_KEY"].exposure is kept and views["OPENAI_API_KEY"].gateway

    def put(self, *labels: str, **options: object) -> None:
        for label in labels:
            self.runtime.secrets.set(self.project, label.split()[0], self.secret(label), **options)  # type: ignore[arg-type]

    def command(self, *arguments: str, given: str | None = None, status: int = 0) -> bytes:
        """What a command in a process of its own prints; it is asked for a value on standard input."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kortix_tui.cli.main", *arguments],
            input=self.values[given] if given else b"", capture_output=True, timeout=60, cwd=self.repository,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def at_terminal(self, tty: str | None) -> None:
        context = self.runtime.context
        context.actor = context.actor.model_copy(update={"tty": tty})

    def play(self) -> None:
        """Have the sessions do their worst."""
        self.at_terminal(None)
        hunt = script("hunt.py", "/home/agent/loot")
        spill = script("spill.py", *NAMES.split())
        sleeper = "sleep 1000 >/dev/null 2>&1 &\n"
        self.hunter = self.start(hunt, agent="hunter")
        self.at_terminal("/dev/pts/7")
        self.holder = self.start(spill, agent="holder")
        self.settle(self.hunter)
        self.settle(self.holder, 120)
        self.say(self.holder, "kortix secrets request REQUESTED --scope environment; kortix secrets ls --json")
        self.say(self.holder, "kortix secrets request REQUESTED_CONNECTOR --reason 'a key'")
        secrets = self.runtime.secrets
        for request in secrets.requests():
            if request.identifier in self.values:  # what the hunter wants in its environment too
                secrets.provide(request.id, self.secret(request.identifier))
        secrets.rotate(self.project, "ROTATED", self.secret("ROTATED 2"))
        secrets.unset(self.project, "GONE")
        secrets.expose(self.project, "MOVED", Exposure.CONNECTOR)
        self.runtime.sessions.prompt(
            self.holder.id, f"{sleeper}cat ~/*.kept\nbase64 ~/*.kept\n{spill}{hunt}", queue=True
        )
        self.at_terminal(None)
        self.greedy = self.start(f"{sleeper}env\n{hunt}", agent="greedy")
        self.settle(self.greedy)
        self.settle(self.holder, 120)
        for session in (self.hunter, self.holder, self.greedy):
            self._look_at(session)
        with AtTerminal("sessions", "shell", self.holder.id) as person:
            person.see("$ ")
            person.type("echo $ENV_KEY | base64 -w0; echo; echo en''d\n")
            self.shell_saw = person.see("end\r\n")
        self._handle_vault()
        self.runtime.sessions.stop(self.holder.id)
        self.until(self.holder, SessionStatus.STOPPED)

    def _look_at(self, session: SessionView) -> None:
        """Search a sandbox from outside, with more power than anybody has inside."""
        name, agent = f"kortix-{session.id}", session.agent
        self.loot[agent] = inside(session, "cat ~/loot", "1000")
        looks = {
            "files": inside(session, f"cd / && tar -cf - {FOLDERS}", "0", "1000"),
            "journal": inside(session, "cat /var/lib/kortix/* /var/lib/kortix/*/*", "0"),
            "processes": inside(session, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline", "0", "1000"),
            "root's processes": inside(session, "cat /proc/[0-9]*/environ", "0"),
            **memory(session),
        }
        for place, data in looks.items():
            assert len(data) > 100, place
            self.found[agent, place] = self.sweep.labels(data)
        volumes = engine("volume", "ls", "-q", "--filter", f"label=kortix.session={session.id}").split()
        for look in (
            ["inspect", name],
            ["logs", name],
            ["diff", name],
            ["volume", "inspect", *map(os.fsdecode, volumes)],
        ):
            self.found[agent, f"docker {look[0]}"] = self.sweep.labels(engine(*look))

    def _handle_vault(self) -> None:
        vault = self.runtime.vault
        self.backup = vault.export(passphrase=self.secret("export passphrase"))
        vault.lock()
        with pytest.raises(WrongKey):
            vault.unlock("passphrase", secret=self.secret("wrong passphrase"))
        time.sleep(1.1)  # the wait after a wrong key
        vault.unlock("passphrase", secret=self.secret("passphrase 2"))
        vault.lock()
        vault.unlock("recovery", secret=self.secret("recovery key 2"))
        vault.verify()
