"""The way to the network from real sandboxes: what is allowed gets through, and all of it is on record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import git, wait_for
from egress_scene import FILES, PLAIN, Outside, outside

from kortix_tui.base.paths import Home
from kortix_tui.base.words import PromptState, SessionStatus
from kortix_tui.runtime import egressing
from kortix_tui.runtime.views import SessionView

pytestmark = pytest.mark.docker


@pytest.fixture
def desk(home: Home, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    with outside(home, short_folder, monkeypatch) as made:
        yield made


def trusting(desk: Outside, script: str) -> str:
    """A script after the authority's certificate was put where it says."""
    return f"cat > /tmp/ca.pem <<'END'\n{desk.ca.file.read_text()}END\n{script}"


def fetch(url: str) -> str:
    """Print what is at an address, or why it cannot be had; as any Python program does it."""
    code = (
        "import ssl, urllib.request as u\n"
        "try:\n"
        " c = ssl.create_default_context()\n"
        " c.load_verify_locations('/tmp/ca.pem')\n"
        f" print('got', u.urlopen({url!r}, timeout=30, context=c).read().decode().strip())\n"
        "except Exception as e:\n"
        " print('failed', e)\n"
    )
    return f"python3 - <<'END'\n{code}END\n"


def lines(desk: Outside, session: SessionView) -> list[str]:
    return [line for line in desk.text(session).splitlines() if line.startswith(("got ", "failed ", "env "))]


def test_programs_reach_what_is_allowed_by_the_usual_environment(desk: Outside, short_folder: Path) -> None:
    bare = short_folder / "files" / "repo.git"
    git(short_folder, "clone", "-q", "--bare", str(desk.repository), str(bare))
    git(bare, "update-server-info")
    head = git(bare, "rev-parse", "HEAD")
    session, prompt = desk.run(
        trusting(
            desk,
            fetch(f"https://{FILES}:{desk.tls}/hello.txt")
            + fetch(f"http://{PLAIN}:{desk.plain}/hello.txt")
            + f"echo got $(GIT_SSL_CAINFO=/tmp/ca.pem git ls-remote https://{FILES}:{desk.tls}/repo.git HEAD)\n"
            + f"echo got $(GIT_SSL_CAINFO=/tmp/ca.pem git clone -q https://{FILES}:{desk.tls}/repo.git /tmp/clone "
            "&& git -C /tmp/clone log -1 --format=%H)\n"
            "git fetch -q origin && echo got door; echo env $NO_PROXY $no_proxy",
        ),
        agent="caller",
    )
    assert prompt.state is PromptState.FINISHED, desk.text(session)
    assert lines(desk, session) == [
        "got hello from outside", "got hello from outside", f"got {head} HEAD", f"got {head}", "got door",
        "env 127.0.0.1,localhost,::1 127.0.0.1,localhost,::1",
    ]  # fmt: skip
    wait_for(lambda: all(one["ended_at"] for one in desk.attempts()))
    first, second, *rest = desk.attempts()
    assert (first["method"], first["host"], first["port"], first["outcome"], first["rule"]) == (
        "CONNECT", FILES, desk.tls, "success", FILES,
    )  # fmt: skip
    assert first["address"] == "127.0.0.1" and int(str(first["bytes_in"])) > 500 and int(str(first["bytes_out"])) > 300
    assert (second["method"], second["host"], second["rule"]) == ("GET", PLAIN, "*.corp.example")
    assert {one["host"] for one in rest} == {FILES}  # and nothing of the git door
    events = [event for event in desk.runtime.audit.list(event="egress.") if event.session_id == session.id]
    assert {event.event for event in events} == {"egress.connect", "egress.close"}
    assert len(events) == 2 * len(desk.attempts()) and {event.performed_by for event in events} == {"agent caller"}
    assert desk.runtime.audit.verify().ok


def test_what_is_not_allowed_is_refused_with_a_reason_and_listed(desk: Outside) -> None:
    session, _ = desk.run(
        trusting(
            desk,
            fetch(f"https://evil.example:{desk.tls}/")
            + fetch(f"http://evil.example:{desk.plain}/")
            + fetch(f"https://{FILES}/hello.txt"),
        ),
        agent="caller",
    )
    refused = lines(desk, session)
    assert len(refused) == 3 and all(line.startswith("failed ") for line in refused)
    assert "Refused by kortix: egress_denied" in refused[0] and "egress_denied" in refused[1]
    assert "A connection to evil.example" in desk.text(session)
    environment = {**os.environ, "KORTIX_HOME": str(desk.home.path)}
    command = [sys.executable, "-m", "kortix_tui.cli.main", "egress", "ls", "--denied", "--session", session.id]
    plain = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert plain.stdout.count("egress_denied") == 3 and f"evil.example:{desk.tls}" in plain.stdout
    told = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, timeout=60).stdout
    )
    assert [(one["host"], one["outcome"], one["agent"]) for one in told] == [
        (FILES, "denied", "caller"), ("evil.example", "denied", "caller"), ("evil.example", "denied", "caller"),
    ]  # fmt: skip


def test_an_agent_without_rules_has_no_proxy_and_what_it_tries_is_on_record(desk: Outside) -> None:
    url = f"http://{PLAIN}:{desk.plain}/hello.txt"
    session, _ = desk.run(
        trusting(
            desk,
            "echo env ${HTTP_PROXY-none} ${https_proxy-none}\n"
            + fetch(url)
            + "export http_proxy=http://kortix:$KORTIX_TOKEN@127.0.0.1:8118\n"
            + fetch(url),
        )
    )
    first, second, third = lines(desk, session)
    assert first == "env none none"
    assert second.startswith("failed ") and "egress_denied" not in second  # there is not even a name server
    assert "egress_denied" in third
    assert [(one["host"], one["outcome"]) for one in desk.attempts()] == [(PLAIN, "denied")]


HOLD = """
import base64, os, socket, time
s = socket.create_connection(('127.0.0.1', 8118))
a = base64.b64encode(('k:' + os.environ['KORTIX_TOKEN']).encode()).decode()
s.sendall(f'CONNECT {HOST} HTTP/1.1\\r\\nHost: {HOST}\\r\\nProxy-Authorization: Basic {a}\\r\\n\\r\\n'.encode())
print('got', s.recv(100).split(b'\\r\\n')[0].decode(), flush=True)
open('/tmp/held', 'w').close()
try:
    s.settimeout(120)
    print('got end', s.recv(1), flush=True)
except OSError as error:
    print('got end', type(error).__name__, flush=True)
open('/tmp/ended', 'w').close()
"""


def holding(host: str) -> str:
    return f"python3 - <<'END' &\n{HOLD.replace('{HOST}', host)}END\n"


def test_a_rule_that_is_taken_away_ends_what_is_open_and_refuses_what_comes(
    desk: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egressing, "WATCH_S", 0.2)
    monkeypatch.setattr(egressing, "FRESH_S", 0.0)
    place = f"{FILES}:{desk.tls}"
    session = desk.start(trusting(desk, holding(place) + "wait"), agent="caller")
    wait_for(lambda: "got HTTP/1.1 200" in desk.text(session))
    desk.withdraw()
    wait_for(lambda: "got end" in desk.text(session))
    desk.settle(session)
    wait_for(lambda: all(one["ended_at"] for one in desk.attempts()))
    assert [(one["host"], one["outcome"], one["code"]) for one in desk.attempts()] == [
        (FILES, "denied", "egress_denied")
    ]
    desk.say(session, trusting(desk, fetch(f"https://{place}/hello.txt")))
    assert "egress_denied" in lines(desk, session)[-1]


def test_a_tunnel_ends_with_its_session_and_a_change_of_hosts_and_is_on_record(desk: Outside) -> None:
    place = f"{FILES}:{desk.tls}"
    hold = holding(place) + "while [ ! -e /tmp/held ]; do sleep 0.1; done\n"
    session, _ = desk.run(hold, agent="caller")
    assert [one["ended_at"] for one in desk.attempts()] == [None]
    desk.restart()
    wait_for(lambda: desk.attempts()[0]["ended_at"])
    assert desk.shell(session, "while [ ! -e /tmp/ended ]; do sleep 0.1; done; echo over") == "over"
    desk.say(session, f"rm /tmp/held\n{hold}")
    assert desk.attempts()[-1]["ended_at"] is None
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    wait_for(lambda: all(one["ended_at"] for one in desk.attempts()))
    assert len(desk.attempts()) == 2


def test_a_persons_shell_has_the_same_way_out(desk: Outside) -> None:
    session, _ = desk.run("true", agent="caller")
    environment = {"KORTIX_HOME": str(desk.home.path), "KORTIX_CONFIG_HOME": os.environ["KORTIX_CONFIG_HOME"]}
    with AtTerminal("sessions", "shell", session.id, **environment) as person:
        person.see("$ ")
        code = f"import urllib.request as u; print(u.urlopen('http://{PLAIN}:{desk.plain}/hello.txt').read())"
        person.type(f'python3 -c "{code}"\n')
        person.see("hello from outside")
    assert desk.attempts()[-1]["outcome"] == "success"
