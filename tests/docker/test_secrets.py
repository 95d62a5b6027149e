"""Secrets in real sandboxes: who gets which value, how it gets there, and where it is not (invariants I2, I3)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import git, sweep, wait_for
from vaulted import NEWER, PASSPHRASE, VALUE, Vaulted

from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, PromptState, SessionStatus
from kortix_tui.runtime.views import SessionView
from kortix_tui.vault.secret import Secret

pytestmark = pytest.mark.docker

# The value itself never shows: it is blacked out. Its digest does.
SHOW = 'printf %s "${STRIPE_API_KEY-absent}" | sha256sum | cut -c-16'
OWN = b"sk_own_9fK2qLmZx7TtWbVn4RcE"


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:16]


ABSENT = digest(b"absent")


@contextlib.contextmanager
def vaulted(home: Home, folder: Path, *, quiet: bool) -> Iterator[Vaulted]:
    desk = Vaulted(home, folder / "repo", quiet=quiet)
    yield desk
    install = desk.runtime.context.store.install_id
    desk.runtime.close()
    sweep(install)


@pytest.fixture
def desk(home: Home, short_folder: Path) -> Iterator[Vaulted]:
    with vaulted(home, short_folder, quiet=True) as made:
        yield made


@pytest.fixture
def locking(home: Home, short_folder: Path) -> Iterator[Vaulted]:
    """A desk whose vault a person opens: after a change of hosts it is locked."""
    with vaulted(home, short_folder, quiet=False) as made:
        yield made


def at_terminal(desk: Vaulted, tty: str | None) -> None:
    """The same operator, at a terminal or without one."""
    context = desk.runtime.context
    context.actor = context.actor.model_copy(update={"tty": tty})


def shown(desk: Vaulted, session: SessionView) -> list[str]:
    """What the turns printed, one word a line."""
    return [line for line in desk.text(session).splitlines() if len(line) == 16 and " " not in line]


def listed(desk: Vaulted, session: SessionView) -> dict[str, str]:
    """What the agent is told of secrets."""
    token = desk.runtime.context.store.one("SELECT agent_token FROM sessions WHERE id = ?", (session.id,))
    assert token is not None
    text = desk.shell(session, f"KORTIX_TOKEN={token[0]} kortix secrets ls --json")
    return {one["identifier"]: one["state"] for one in json.loads(text)}


def deliveries(desk: Vaulted, session: SessionView) -> list[int]:
    rows = desk.runtime.context.store.all(
        "SELECT version FROM deliveries WHERE session_id = ? ORDER BY version", (session.id,)
    )
    return [row[0] for row in rows]


def tighten(desk: Vaulted, old: str, new: str) -> None:
    manifest = desk.repository / "kortix.yaml"
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))
    git(desk.repository, "commit", "-qam", "Tighten")


def test_a_granted_secret_is_in_the_environment_of_programs_and_nowhere_else(desk: Vaulted) -> None:
    desk.store()
    session, prompt = desk.run(f"{SHOW}; sleep 1000 >/dev/null 2>&1 &", agent="teller")
    assert prompt.state is PromptState.FINISHED
    assert shown(desk, session) == [digest(VALUE)]

    name = f"kortix-{session.id}"
    for look in (["docker", "inspect", name], ["docker", "logs", name], ["docker", "diff", name]):
        found = subprocess.run(look, capture_output=True, timeout=60, check=True)
        assert VALUE not in found.stdout + found.stderr
    # Every file, but what the kernel shows of processes.
    places = "find / \\( -path /proc -o -path /sys \\) -prune -o -type f"
    search = f"{places} -exec grep -lF -- {VALUE.decode()} {{}} + 2>/dev/null || true"
    assert desk.shell(session, search, user="0") == ""
    # The programs of the turn have it, the supervisor and the forwarder have not.
    holders = "grep -lF -- %s /proc/[0-9]*/environ 2>/dev/null | xargs -r dirname | while read p; do cat $p/comm; done"
    assert set(desk.shell(session, holders % VALUE.decode(), user="1000").split()) <= {"sleep"}
    desk.say(session, "echo it is $STRIPE_API_KEY")  # from here on the sandbox's own journal has it, as its output
    assert "it is [redacted:STRIPE_API_KEY]" in desk.text(session)
    for path in desk.home.path.rglob("*"):
        if path.is_file():
            assert VALUE not in path.read_bytes(), path
    events = [event for event in desk.runtime.audit.list(event="secret.deliver") if event.session_id == session.id]
    assert len(events) == 2
    assert events[1].detail["secrets"][0]["identifier"] == "STRIPE_API_KEY"
    assert events[1].detail["to"] == {"kind": "turn", "prompt": prompt.id}
    view = desk.runtime.secrets.find(desk.project, "STRIPE_API_KEY")
    assert view.plain and view.used_at is not None and [held.session_id for held in view.held_by] == [session.id]


def test_without_a_grant_a_secret_is_absent_and_named_as_not_granted(desk: Vaulted) -> None:
    desk.store()
    desk.store("OTHER_TOKEN", b"gh_0aZ9bY8cX7dW6eV5", exposure=Exposure.CONNECTOR)
    session, _ = desk.run(SHOW)
    assert shown(desk, session) == [ABSENT]
    assert listed(desk, session) == {"STRIPE_API_KEY": "not granted", "OTHER_TOKEN": "not granted"}
    greedy, _ = desk.run(f"{SHOW}; printenv OTHER_TOKEN || echo none", agent="greedy")
    assert shown(desk, greedy) == [digest(VALUE)] and "\nnone\n" in desk.text(greedy)
    assert listed(desk, greedy) == {"STRIPE_API_KEY": "delivered", "OTHER_TOKEN": "not granted"}
    assert deliveries(desk, session) == []


def test_a_grant_that_the_base_branch_took_away_counts_at_the_next_prompt(desk: Vaulted) -> None:
    desk.store()
    session, _ = desk.run(SHOW, agent="teller")
    tighten(desk, "secrets: [STRIPE_API_KEY]", "secrets: [OTHER]")
    desk.say(session, SHOW)
    assert shown(desk, session) == [digest(VALUE), ABSENT]
    assert listed(desk, session) == {"STRIPE_API_KEY": "not granted"}
    # Given back to new sessions and, as it was pinned, to this one; a broken manifest gives nothing to anybody.
    tighten(desk, "secrets: [OTHER]", "secrets: all")
    desk.say(session, SHOW)
    tighten(desk, "default_agent: script", "default_agent: nobody")
    desk.say(session, SHOW)
    assert shown(desk, session)[2:] == [digest(VALUE), ABSENT]
    assert "No secret goes along: kortix.yaml on main is not valid" in desk.text(session)


def test_a_new_value_comes_with_the_next_prompt(desk: Vaulted) -> None:
    desk.store()
    session, _ = desk.run(SHOW, agent="teller")
    desk.store(value=NEWER)
    assert desk.runtime.secrets.find(desk.project, "STRIPE_API_KEY").stale == 1
    assert listed(desk, session) == {"STRIPE_API_KEY": "granted"}
    desk.say(session, f"{SHOW}; echo {VALUE.decode()}")
    assert shown(desk, session) == [digest(VALUE), digest(NEWER)]
    assert VALUE.decode() not in desk.text(session)  # what the sandbox had before is found in its output still
    assert desk.runtime.secrets.find(desk.project, "STRIPE_API_KEY").stale == 0
    assert deliveries(desk, session) == [1, 2]


def test_a_turn_that_gets_a_secret_waits_while_the_vault_is_locked(desk: Vaulted) -> None:
    desk.store()
    busy, _ = desk.run("true", agent="teller")
    desk.runtime.sessions.prompt(busy.id, "echo began; sleep 3; echo ended")
    wait_for(lambda: "began" in desk.text(busy))
    desk.runtime.vault.lock()

    waiting = desk.start(SHOW, agent="teller")
    other, prompt = desk.run("echo needs none", agent="script")
    assert prompt.state is PromptState.FINISHED and other.reason is None
    wait_for(lambda: desk.view(waiting).reason == "vault_locked")
    view = desk.view(waiting)
    assert view.status is SessionStatus.RUNNING and view.queued == 1
    assert "STRIPE_API_KEY" in (view.reason_text or "") and "kortix vault unlock" in (view.reason_text or "")
    assert waiting.id in desk.runtime.vault.status().waiting
    # What ran goes on; what it says is held inside, for it may hold values.
    wait_for(lambda: desk.view(busy).reason == "vault_locked")
    assert "ended" not in desk.text(busy)
    assert listed(desk, waiting) == {"STRIPE_API_KEY": "granted"}

    desk.runtime.vault.unlock()
    assert desk.settle(waiting).state is PromptState.FINISHED
    assert desk.settle(busy).state is PromptState.FINISHED
    assert shown(desk, waiting) == [digest(VALUE)] and "ended" in desk.text(busy)
    assert desk.view(waiting).reason is None and desk.view(busy).reason is None


def test_a_turn_goes_on_under_the_next_host_although_the_vault_is_locked(locking: Vaulted) -> None:
    desk = locking
    desk.store()
    session = desk.start(f"echo began; sleep 4; {SHOW}; echo $STRIPE_API_KEY", agent="teller")
    wait_for(lambda: "began" in desk.text(session))
    desk.restart()
    wait_for(lambda: desk.view(session).reason == "vault_locked")
    assert "began" in desk.text(session) and shown(desk, session) == []
    desk.runtime.vault.unlock("passphrase", secret=Secret(PASSPHRASE))
    assert desk.settle(session).state is PromptState.FINISHED
    assert shown(desk, session) == [digest(VALUE)]
    assert "[redacted:STRIPE_API_KEY]" in desk.text(session) and VALUE.decode() not in desk.text(session)
    assert len(desk.runtime.audit.list(event="secret.deliver")) == 1


def test_a_session_that_had_values_starts_again_when_the_vault_is_open(desk: Vaulted) -> None:
    desk.store()
    session, _ = desk.run(SHOW, agent="teller")
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    desk.runtime.vault.lock()
    desk.runtime.sessions.resume(session.id)
    wait_for(lambda: desk.view(session).reason == "vault_locked")
    assert desk.view(session).status is SessionStatus.PROVISIONING
    desk.run("echo a session without values starts")
    desk.runtime.vault.unlock()
    assert desk.until(session, SessionStatus.RUNNING).reason is None
    desk.say(session, SHOW)
    assert shown(desk, session) == [digest(VALUE)] * 2


def test_a_prompt_that_waited_for_the_vault_can_be_taken_back(desk: Vaulted) -> None:
    desk.store()
    desk.runtime.vault.lock()
    session = desk.start(SHOW, agent="teller")
    wait_for(lambda: desk.view(session).reason == "vault_locked")
    desk.runtime.sessions.remove_prompt(desk.last(session).id)
    wait_for(lambda: desk.view(session).reason is None)


def test_a_persons_own_secret_is_for_sessions_that_the_person_alone_leads(desk: Vaulted) -> None:
    at_terminal(desk, "/dev/pts/7")
    desk.store()
    desk.store(value=OWN, only_me=True, create=True)
    session, _ = desk.run(SHOW, agent="teller")
    assert desk.view(session).attended
    desk.say(session, SHOW)
    assert shown(desk, session) == [digest(OWN)] * 2
    at_terminal(desk, None)
    desk.say(session, SHOW)
    at_terminal(desk, "/dev/pts/7")
    desk.say(session, SHOW)  # for good
    assert shown(desk, session)[2:] == [digest(VALUE)] * 2 and not desk.view(session).attended
    at_terminal(desk, None)
    unattended, _ = desk.run(SHOW, agent="teller")
    assert shown(desk, unattended) == [digest(VALUE)]


def test_a_persons_shell_has_what_a_turn_would_get(desk: Vaulted) -> None:
    desk.store()
    session, _ = desk.run("true", agent="teller")
    environment = {"KORTIX_HOME": str(desk.home.path), "KORTIX_CONFIG_HOME": os.environ["KORTIX_CONFIG_HOME"]}
    with AtTerminal("sessions", "shell", session.id, **environment) as person:
        person.see("$ ")
        person.type(SHOW + "\n")
        person.see(digest(VALUE))
    detail = [event.detail["to"] for event in desk.runtime.audit.list(event="secret.deliver")]
    assert {"kind": "shell"} in detail


def test_an_agent_asks_for_a_secret_and_gets_it_with_the_next_prompt(desk: Vaulted) -> None:
    session, _ = desk.run(
        "kortix secrets ls; kortix secrets request STRIPE_API_KEY --scope environment --reason 'to test payments';"
        " kortix secrets set X=y || true",
        agent="teller",
    )
    text = desk.text(session)
    assert "STRIPE_API_KEY  missing" in text and "A person was asked for STRIPE_API_KEY (environment)" in text
    assert "Only a person stores values" in text
    assert "The agent asks for the secret STRIPE_API_KEY: to test payments" in text
    request = desk.runtime.secrets.requests()[0]
    assert (request.session_id, request.exposure, request.granted) == (session.id, Exposure.ENVIRONMENT, True)
    desk.runtime.secrets.provide(request.id, Secret(VALUE))
    desk.say(session, f"{SHOW}; kortix secrets ls; kortix secrets request STRIPE_API_KEY || true")
    text = desk.text(session)
    assert shown(desk, session) == [digest(VALUE)] and "STRIPE_API_KEY  delivered  $STRIPE_API_KEY" in text
    assert "is stored and granted" in text


def test_a_secret_in_a_change_request_or_a_push_does_not_get_out(desk: Vaulted) -> None:
    desk.store()
    session, _ = desk.run(
        "echo safe > new.txt; git add new.txt; git commit -qm New;"
        ' kortix cr open --title "Key $STRIPE_API_KEY" --description "It is $STRIPE_API_KEY."',
        agent="teller",
    )
    change = desk.runtime.changes.show(desk.project, 1).change
    assert change.title == "Key [redacted:STRIPE_API_KEY]" and "[redacted:STRIPE_API_KEY]" in change.description
    with contextlib.suppress(AssertionError):
        desk.say(session, "echo $STRIPE_API_KEY > key.txt; git add key.txt; git commit -qm Key; git push origin HEAD")
    assert "contains the value of a secret: STRIPE_API_KEY in key.txt:1" in desk.text(session)
    mirror = desk.home.mirror(desk.project.id)
    assert "key.txt" not in git(mirror, "ls-tree", "--name-only", session.id)
