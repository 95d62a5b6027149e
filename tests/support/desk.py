"""Real sessions: a real engine, a real repository, and an agent that runs its prompt as a shell script."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import PromptState, SessionStatus
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.views import SessionView
from kortix_tui.store.models import Project, Prompt

MANIFEST = """\
kortix_version: 2
default_agent: script
policy:
  default_mode: risk
agents:
  script:
    kortix_permissions: [project.gitops.push, project.review.submit]
  reader: {}
  blind:
    repository_access: false
  teller:
    secrets: [STRIPE_API_KEY]
    kortix_permissions: [project.gitops.push]
  greedy:
    secrets: all
"""
AGENT = """\
---
description: Runs its prompt as a shell script.
harness: command
command: [sh, -s]
---
You run what you are given.
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git as the operator would."""
    done = subprocess.run(
        ["git", "-c", "user.name=Op", "-c", "user.email=op@example.invalid", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> object:
    """Wait for a condition, never for a time."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.02)
    return found


def make_repository(folder: Path) -> Path:
    """The operator's own repository, with `main` checked out."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kortix.yaml").write_text(MANIFEST)
    (folder / "agents").mkdir()
    for name in ("script", "reader", "blind", "teller", "greedy"):
        (folder / "agents" / f"{name}.md").write_text(AGENT)
    (folder / "hello.txt").write_text("hello\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    return folder


class Desk:
    """An operator at work."""

    def __init__(self, home: Home, repository: Path, **settings: object) -> None:
        self.home = home
        self.repository = repository
        self.settings = Settings.model_validate(settings)
        self.runtime = Runtime(home, self.settings, operator_actor("cli"))
        self.runtime.start_hosting()
        self.project: Project = self.runtime.projects.add(str(repository))

    def restart(self) -> None:
        """Close the process's runtime and open a new one."""
        self.runtime.close()
        self.runtime = Runtime(self.home, self.settings, operator_actor("cli"))
        self.runtime.start_hosting()

    @contextmanager
    def ruled(self, **settings: object) -> Iterator[None]:
        """The operator changes the settings and starts anew, for as long as the block runs."""
        before, self.settings = self.settings, Settings.model_validate(settings)
        self.restart()
        try:
            yield
        finally:
            self.settings = before
            self.restart()

    def shell(self, session: SessionView, script: str, *, user: str = "1000") -> str:
        """Do something in the sandbox behind everybody's back."""
        command = ["docker", "exec", "-u", user, f"kortix-{session.id}", "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, script: str, **options: object) -> SessionView:
        """A new session that runs a script."""
        return self.runtime.sessions.new(script, project=self.project, **options)  # type: ignore[arg-type]

    def view(self, session: SessionView) -> SessionView:
        return self.runtime.sessions.find(session.id)

    def last(self, session: SessionView) -> Prompt:
        return self.runtime.sessions.prompts(session.id)[-1]

    def settle(self, session: SessionView, seconds: float = 60.0) -> Prompt:
        """Wait until the session has answered all prompts."""

        def done() -> bool:
            view = self.view(session)
            if view.status is SessionStatus.FAILED:
                raise AssertionError(f"{view.reason}: {view.reason_text}\n{self.text(session)}")
            states = {prompt.state for prompt in self.runtime.sessions.prompts(session.id)}
            return not states & {PromptState.QUEUED, PromptState.RUNNING}

        wait_for(done, seconds)
        return self.last(session)

    def run(self, script: str, **options: object) -> tuple[SessionView, Prompt]:
        """Run a script in a new session to its end."""
        session = self.start(script, **options)
        prompt = self.settle(session)
        return self.view(session), prompt

    def say(self, session: SessionView, script: str) -> Prompt:
        """Another prompt, to its end."""
        self.runtime.sessions.prompt(session.id, script, queue=True)
        return self.settle(session)

    def text(self, session: SessionView) -> str:
        """Everything that the session printed, with the host's notes."""
        return "".join(
            record.text + ("\n" if record.kind == "note" else "")
            for record in self.runtime.sessions.records(session.id).read(100_000)
        )

    def until(self, session: SessionView, status: SessionStatus) -> SessionView:
        wait_for(lambda: self.view(session).status is status)
        return self.view(session)

    def gone(self, session: SessionView) -> None:
        self.runtime.sessions.remove(session.id)
        wait_for(lambda: self.view(session).removed_at is not None)


def sweep(install: str) -> None:
    """Remove what a test's home left on the engine."""
    mark = f"label=kortix.install={install}"
    for listing, removal in (
        (["docker", "ps", "-aq", "--filter", mark], ["docker", "rm", "-f", "-v"]),
        (["docker", "volume", "ls", "-q", "--filter", mark], ["docker", "volume", "rm", "-f"]),
    ):
        found = subprocess.run(listing, capture_output=True, text=True, timeout=60).stdout.split()
        if found:
            subprocess.run([*removal, *found], capture_output=True, timeout=120)
