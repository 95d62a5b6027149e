"""The demo's help desk: a real process at a real port, in a demo's own folder."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from desk import git, wait_for

from kortix_tui.base.errors import NotFound
from kortix_tui.base.paths import Home, assets
from kortix_tui.base.settings import Settings
from kortix_tui.cli.main import run
from kortix_tui.runtime.demo import SUPPORT, Demo, make_demo, remove_demo
from kortix_tui.runtime.demo_desk import HelpDesk
from kortix_tui.runtime.demo_home import settings_for, wake_desk
from kortix_tui.runtime.facade import Runtime

REPLY = {"to": "marta.lindqvist@mail.example", "subject": "Re: Boots", "text": "A new pair is on its way."}


@pytest.fixture
def demo(home: Home, short_folder: Path) -> Iterator[Demo]:
    made = make_demo(short_folder / "demo", SUPPORT)
    yield made
    if made.folder.exists():
        remove_demo(made)


@pytest.fixture
def desk(demo: Demo) -> HelpDesk:
    return HelpDesk(demo.folder / "helpdesk")


@pytest.fixture
def client(demo: Demo, desk: HelpDesk) -> Iterator[httpx.Client]:
    assert demo.token is not None
    token = demo.token.use("a test").decode()
    with httpx.Client(
        base_url=desk.url, headers={"authorization": f"Bearer {token}"}, trust_env=False, timeout=20
    ) as made:
        yield made


def pid_of(desk: HelpDesk) -> int:
    return int(json.loads((desk.folder / "process.json").read_text())["pid"])


def stored(desk: HelpDesk) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in json.loads((desk.folder / "tickets.json").read_text())}


def test_twelve_tickets_are_open_and_read_one_by_one(client: httpx.Client) -> None:
    lines = client.get("/tickets", params={"status": "open"}).json()["tickets"]
    assert [one["id"] for one in lines] == [f"T-{number}" for number in range(101, 113)]
    assert all("text" not in one for one in lines)
    assert client.get("/tickets", params={"status": "answered"}).json() == {"tickets": []}
    texts = [client.get(f"/tickets/{one['id']}").json()["text"] for one in lines]
    assert len({text for text in texts if len(text) > 80}) == 12


def test_nobody_is_served_without_the_token(client: httpx.Client, desk: HelpDesk, demo: Demo) -> None:
    for header in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic YTpi"},
        {"authorization": "Bearer"},
    ):
        refused = httpx.put(f"{desk.url}/tickets/T-101/draft", json={"text": "Hi"}, headers=header, trust_env=False)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert "draft" not in stored(desk)["T-101"]
    assert demo.token is not None
    token = demo.token.use("a test")
    assert not [path for path in demo.folder.rglob("*") if path.is_file() and token in path.read_bytes()]


def test_a_draft_is_kept_and_a_reply_is_sent_once(client: httpx.Client, desk: HelpDesk) -> None:
    assert client.put("/tickets/T-101/draft", json={"text": "First"}).json()["status"] == "open"
    assert client.put("/tickets/T-101/draft", json={"text": "Sécond"}).json()["draft"] == "Sécond"
    sent = client.post("/tickets/T-101/reply", json=REPLY)
    assert sent.status_code == 201 and sent.json()["status"] == "answered"
    again = client.post("/tickets/T-101/reply", json={**REPLY, "text": "Another"})
    assert again.status_code == 409 and "answered already" in again.json()["error"]
    assert client.put("/tickets/T-101/draft", json={"text": "Late"}).status_code == 409
    kept = stored(desk)["T-101"]
    assert (kept["draft"], kept["reply"]["text"]) == ("Sécond", REPLY["text"])
    assert client.get("/tickets", params={"status": "answered"}).json()["tickets"][0]["id"] == "T-101"


def test_of_racing_replies_one_is_sent(client: httpx.Client, desk: HelpDesk) -> None:
    def send(number: int) -> int:
        return client.post("/tickets/T-101/reply", json={**REPLY, "text": f"Reply {number}"}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(send, range(8))) == [201] + [409] * 7


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/tickets/T-101/reply", {**REPLY, "to": "somebody@else.example"}, 422),
        ("POST", "/tickets/T-999/reply", REPLY, 404),
        ("POST", "/tickets/T-101/reply", {**REPLY, "text": "  "}, 400),
        ("POST", "/tickets/T-101/reply", {**REPLY, "cc": "all"}, 400),
        ("PUT", "/tickets/T-101/draft", ["text"], 400),
        ("PUT", "/tickets/T-101/draft", {"text": "x" * 70_000}, 413),
        ("GET", "/tickets?status=closed", None, 400),
        ("GET", "/tickets/../../etc/passwd", None, 404),
        ("POST", "/tickets", {}, 404),
    ],
)
def test_what_it_does_not_understand_changes_nothing(
    client: httpx.Client, desk: HelpDesk, method: str, path: str, body: object, status: int
) -> None:
    before = stored(desk)
    assert client.request(method, path, json=body).status_code == status
    assert stored(desk) == before
    assert client.get("/tickets").status_code == 200


def test_it_comes_back_with_its_tickets_when_the_demo_is_opened_again(
    client: httpx.Client, desk: HelpDesk, demo: Demo
) -> None:
    client.post("/tickets/T-101/reply", json=REPLY)
    first = pid_of(desk)
    wake_desk(demo.home)
    assert pid_of(desk) == first, "it lives: nothing to do"
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not desk.alive)
    wake_desk(demo.home)
    assert desk.alive and pid_of(desk) != first
    assert client.post("/tickets/T-101/reply", json=REPLY).status_code == 409


def test_a_port_that_another_program_took_stops_nothing_else(
    demo: Demo, desk: HelpDesk, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(desk.url.rpartition(":")[2])
    desk.end()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        wake_desk(demo.home)
    assert not desk.alive and "could not be started" in caplog.text


def test_it_ends_with_the_demo_and_with_its_folder(demo: Demo, desk: HelpDesk, short_folder: Path) -> None:
    process = Path(f"/proc/{pid_of(desk)}")
    assert desk.alive and b"demo_helpdesk.py" in (process / "cmdline").read_bytes()
    remove_demo(demo)
    assert not process.exists()
    (short_folder / "other").mkdir()
    left, _ = HelpDesk.make(short_folder / "other")
    other = pid_of(left)
    (left.folder / "tickets.json").unlink()
    wait_for(lambda: os.waitpid(other, os.WNOHANG)[0] == other)


def test_a_later_process_of_the_same_number_is_left_alone(desk: HelpDesk) -> None:
    real = (desk.folder / "process.json").read_text()
    ours = json.dumps({"pid": os.getpid(), "started": "long ago"})
    (desk.folder / "process.json").write_text(ours)
    assert not desk.alive
    desk.end()
    (desk.folder / "process.json").write_text(real)


def test_only_a_demos_home_may_reach_this_machine(demo: Demo, short_folder: Path) -> None:
    settings = Settings.model_validate({"connectors": {"allow_private": ["10.1.0.0/16"]}})

    def opened(home: Home) -> tuple[str, ...]:
        return settings_for(home, settings).connectors.allow_private

    with Runtime.open(home=demo.home) as runtime:
        assert runtime.context.settings.connectors.allow_private == ("127.0.0.1/32",)
    assert opened(demo.home) == ("10.1.0.0/16", "127.0.0.1/32")
    assert settings_for(demo.home, settings).model_dump(exclude={"connectors"}) == settings.model_dump(
        exclude={"connectors"}
    )
    plain = make_demo(short_folder / "plain")
    for other in (Home(demo.folder / "other"), Home(short_folder / "home"), plain.home, Home(demo.repository / "home")):
        assert opened(other) == ("10.1.0.0/16",)
    demo.folder.chmod(0o755)  # now somebody else could have put the marker there
    assert opened(demo.home) == ("10.1.0.0/16",)
    demo.folder.chmod(0o700)


def test_the_copy_names_the_port_in_its_first_commit_and_is_whole_otherwise(demo: Demo, desk: HelpDesk) -> None:
    manifest = git(demo.repository, "show", "HEAD:kortix.yaml")
    assert f"base_url: {desk.url}\n" in manifest and ":4180" not in manifest
    assert git(demo.repository, "status", "--porcelain") == ""
    assert git(demo.repository, "rev-list", "--count", "HEAD") == "1"
    shipped = assets("sample-projects") / SUPPORT
    names = [
        path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    changed = [name for name in names if (shipped / name).read_bytes() != (demo.repository / name).read_bytes()]
    assert [str(name) for name in changed] == ["kortix.yaml"]


def test_an_unknown_demo_is_answered_with_those_that_there_are(
    home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotFound):
        make_demo(short_folder / "x", "northwind")
    assert not (short_folder / "x").exists()
    assert run(["demo", "northwind", "--no-console"]) == 1
    told = capsys.readouterr().err
    assert "no demo northwind" in told and "acme-api, northwind-support" in told
