"""The agent's `kortix` command against a real door, with real git."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kortix_tui.base.words import SecretRequestState
from kortix_tui.guest import cli
from tests.support.door import SmallHost, open_door

SID = "kaaaaaaaaaaa"


@dataclass
class Agent:
    """Runs the command in a clone, as an agent would."""

    host: SmallHost
    folder: Path
    environment: dict[str, str]

    async def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", cli.__file__, *arguments, cwd=self.folder / "clone",
            env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder / "clone", env=self.environment, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def commit(self, name: str) -> str:
        (self.folder / "clone" / name).write_text(name)
        self.git("add", name)
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
async def agent(short_folder: Path) -> AsyncIterator[Agent]:
    host = SmallHost(SID, agent_token="tok")
    people = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(short_folder), "GIT_CONFIG_NOSYSTEM": "1", **people,
        "KORTIX_DOOR": str(short_folder / "d" / "door.sock"), "KORTIX_TOKEN": "tok",
        "KORTIX_PATIENCE": "1",
    }  # fmt: skip
    agent = Agent(host, short_folder, environment)
    (short_folder / "clone").mkdir()
    agent.git("init", "-q", "-b", "main", str(short_folder / "seed"))
    agent.git("-C", str(short_folder / "seed"), "commit", "-q", "--allow-empty", "-m", "one")
    agent.git("clone", "-q", "--bare", str(short_folder / "seed"), str(short_folder / "origin.git"))
    agent.git("-C", str(short_folder / "origin.git"), "branch", SID, "main")
    agent.git("clone", "-q", "-b", SID, str(short_folder / "origin.git"), ".")
    async with open_door(short_folder / "d", host):
        yield agent


async def test_opening_a_change_pushes_first(agent: Agent) -> None:
    head = agent.commit("file")
    status, out, err = await agent.run("cr", "open", "--title", "A title", "--description", "Why", "--json")
    assert status == 0 and err == ""
    assert json.loads(out) == {"number": 1, "status": "open", "title": "A title", "head_commit": head, "url": None}
    assert agent.git("ls-remote", "origin", f"refs/heads/{SID}").split()[0] == head
    assert agent.host.proposals[0].description == "Why"
    assert (await agent.run("cr", "ls"))[1] == "#1  open  A title\n"
    assert "title: A title" in (await agent.run("cr", "show", "1"))[1]


async def test_a_detached_head_is_pushed_to_the_session_branch(agent: Agent) -> None:
    agent.git("checkout", "-q", "--detach")
    head = agent.commit("file")
    assert (await agent.run("cr", "open", "--title", "x"))[0] == 0
    assert agent.git("ls-remote", "origin", f"refs/heads/{SID}").split()[0] == head


async def test_commits_that_were_changed_since_are_pushed_again(agent: Agent) -> None:
    agent.commit("file")
    assert (await agent.run("cr", "open", "--title", "x"))[0] == 0
    agent.git("commit", "-q", "--amend", "-m", "better")
    assert (await agent.run("cr", "open", "--title", "x"))[0] == 0
    assert agent.host.proposals[-1].head_commit == agent.git("ls-remote", "origin", f"refs/heads/{SID}").split()[0]


async def test_without_pushing_only_the_proposal_is_made(agent: Agent) -> None:
    head = agent.commit("file")
    assert (await agent.run("cr", "open", "--title", "x", "--no-push"))[0] == 0
    assert agent.git("ls-remote", "origin", f"refs/heads/{SID}").split()[0] != head
    assert agent.host.proposals[0].head_commit == head


async def test_nothing_to_propose_is_refused_and_open_work_is_warned_of(agent: Agent) -> None:
    (agent.folder / "clone" / "new").write_text("x")
    status, out, err = await agent.run("cr", "open", "--title", "x")
    assert (status, out) == (1, "") and "no commits" in err and "git commit" in err
    agent.commit("file")
    status, _, err = await agent.run("cr", "open", "--title", "x")
    assert status == 0 and "not committed" in err


async def test_a_refusal_of_the_host_is_passed_on(agent: Agent) -> None:
    agent.commit("file")
    status, _, err = await agent.run("cr", "open", "--title", "refuse me")
    assert status == 1 and err == "kortix: The host has not seen that commit.\nPush it first.\n"
    status, out, _ = await agent.run("cr", "open", "--title", "refuse me", "--json")
    assert status == 1 and json.loads(out)["error"]["code"] == "refused"


async def test_a_push_that_fails_opens_nothing(agent: Agent) -> None:
    agent.commit("file")
    agent.git("remote", "set-url", "--push", "origin", "/no/such/place")
    status, _, err = await agent.run("cr", "open", "--title", "x")
    assert status == 1 and "git push" in err and agent.host.proposals == []


async def test_merging_is_refused_and_on_record(agent: Agent) -> None:
    status, _, err = await agent.run("cr", "merge", "1")
    assert status == 1 and "merge is default-deny for agents" in err
    assert agent.host.denied == 1
    status, out, _ = await agent.run("cr", "merge", "--json")
    assert status == 1 and json.loads(out)["error"]["code"] == "agent_human_only_action"


async def test_facts_and_empty_lists(agent: Agent) -> None:
    assert f"branch: {SID}" in (await agent.run("info"))[1]
    assert json.loads((await agent.run("info", "--json"))[1])["project"] == "acme"
    assert (await agent.run("cr", "ls"))[1] == "There are no change requests.\n"
    assert (await agent.run("cr", "show", "7"))[0] == 1


async def test_secrets_are_listed_without_values(agent: Agent) -> None:
    status, out, err = await agent.run("secrets", "ls")
    assert (status, err) == (0, "") and out == "stripe-live  delivered  $STRIPE_KEY\nTOKEN        missing\n"
    assert json.loads((await agent.run("secrets", "ls", "--json"))[1])[1] == {
        "identifier": "TOKEN", "name": None, "exposure": None, "state": "missing",
    }  # fmt: skip


async def test_a_secret_is_asked_for_and_stays_on_the_host_unless_said_otherwise(agent: Agent) -> None:
    status, out, _ = await agent.run("secrets", "request", "TOKEN", "--reason", "to deploy")
    assert status == 0 and "A person was asked for TOKEN (connector). Request srq_token is open." in out
    await agent.run("secrets", "request", "TOKEN", "--scope", "environment")
    assert [(one.identifier, one.exposure, one.reason) for one in agent.host.secrets.wishes] == [
        ("TOKEN", "connector", "to deploy"), ("TOKEN", "environment", ""),
    ]  # fmt: skip
    status, _, err = await agent.run("secrets", "request", "stripe-live")
    assert status == 1 and "is stored and granted" in err and "$STRIPE_KEY" in err


@pytest.mark.parametrize(
    ("state", "status", "says"),
    [
        (SecretRequestState.PROVIDED, 0, "TOKEN was provided. It comes with the next prompt"),
        (SecretRequestState.DECLINED, 1, "A person declined to give TOKEN."),
    ],
)
async def test_waiting_ends_with_a_persons_answer(
    agent: Agent, state: SecretRequestState, status: int, says: str
) -> None:
    words = ("secrets", "request", "TOKEN", "--scope", "environment", "--wait")
    running = asyncio.create_task(agent.run(*words))
    async with asyncio.timeout(60):
        while not agent.host.secrets.looks:
            await asyncio.sleep(0.05)
    agent.host.secrets.states["TOKEN"] = state
    found, out, err = await running
    assert found == status and says in out + err


async def test_waiting_has_an_end(agent: Agent) -> None:
    status, out, _ = await agent.run("secrets", "request", "TOKEN", "--wait", "--timeout", "0", "--json")
    assert status == 1 and json.loads(out)["error"]["code"] == "timeout"


async def test_no_verb_stores_or_shows_a_value(agent: Agent) -> None:
    for words in (("set", "TOKEN=x"), ("set",), ("set", "TOKEN", "x")):
        status, out, err = await agent.run("secrets", *words)
        assert (status, out) == (1, "") and "Only a person stores values" in err
    status, out, _ = await agent.run("secrets", "set", "A=b", "--json")
    assert status == 1 and json.loads(out)["error"]["code"] == "agent_human_only_action"
    for verb in ("get", "show", "value", "read", "export"):
        assert (await agent.run("secrets", verb, "TOKEN"))[0] == 2


async def test_help_has_examples_and_wrong_use_is_status_two(agent: Agent) -> None:
    status, out, _ = await agent.run("--help")
    assert status == 0 and "kortix cr open --title" in out
    for words in ((), ("cr",), ("cr", "open"), ("sessions",), ("cr", "show", "x"), ("secrets",)):
        assert (await agent.run(*words))[0] == 2


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"KORTIX_DOOR": "/no/such/socket"}, "does not answer"),
        ({"KORTIX_TOKEN": ""}, "no token"),
        ({"KORTIX_TOKEN": "wrong"}, "missing or wrong"),
    ],
)
async def test_a_door_that_does_not_open(agent: Agent, environment: dict[str, str], words: str) -> None:
    status, _, err = await agent.run("info", **environment)
    assert status == 1 and words in err
