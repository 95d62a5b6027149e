"""Tool servers over stdio: real programs in containers of their own, from the manifest to the answer."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import sweep, wait_for
from egress_scene import serving
from engine import docker, inspect
from shop import ShopDesk
from tls import LocalCa
from tool_program import SERVER, tool_containers, tool_image

from kortix_tui.base.errors import KortixError, NotFound
from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState, Risk
from kortix_tui.broker.connectors import mcp
from kortix_tui.broker.network.resolving import connect
from kortix_tui.broker.services import CallReport
from kortix_tui.runtime import tool_egress
from kortix_tui.vault.secret import Secret
from tests.support.node_packages import node_program

pytestmark = pytest.mark.docker
CANARY = "canary-Zx81-Qm4-tool-token"
API = "api.corp.example"
WORD = hashlib.sha256(CANARY.encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tool_image(tmp_path_factory.mktemp("tools") / "image", {"server.py": SERVER}) as name:
        yield name


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest.fixture
def desk(home: Home, short_folder: Path, ca: LocalCa, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShopDesk]:
    async def resolve(host: str, port: int, /) -> tuple[str, ...]:
        return ("127.0.0.1",)

    monkeypatch.setattr(tool_egress, "connect", partial(connect, resolver=resolve))
    made = ShopDesk(home, short_folder / "repo", ca)
    install = made.runtime.context.store.install_id
    yield made
    made.runtime.close()
    try:
        assert tool_containers(install) == []
    finally:
        sweep(install)


def declare(desk: ShopDesk, image: str, *arguments: str, hosts: str = "[]", auth: bool = True) -> None:
    command = json.dumps(["python3", "server.py", *arguments])
    desk.declare(
        f"connectors:\n  - slug: tools\n    provider: mcp\n    transport: stdio\n    image: {image}\n"
        f"    command: {command}\n    hosts: {hosts}\n"
        f"    auth: {'{type: bearer, name: DESK_TOKEN}' if auth else '{type: none}'}\n"
        "    policies: [{match: '*', action: always_run}]\n"
    )
    if auth:
        desk.runtime.connections.connect(desk.project, "tools", Secret(CANARY.encode()))


def ready(desk: ShopDesk, image: str, *arguments: str, hosts: str = "[]", auth: bool = True) -> None:
    declare(desk, image, *arguments, hosts=hosts, auth=auth)
    assert desk.runtime.connectors.sync(desk.project, "tools").state == "accepted"


def call(desk: ShopDesk, action: str, **arguments: object) -> CallReport:
    return desk.runtime.calls.call(desk.project, "tools", action, json.dumps(arguments))


def text(desk: ShopDesk, action: str, **arguments: object) -> str:
    report = call(desk, action, **arguments)
    assert report.state is CallState.DONE, report
    return report.body or ""


def the_container(desk: ShopDesk) -> str:
    (found,) = tool_containers(desk.runtime.context.store.install_id)
    return found


def test_a_program_is_read_connected_and_called(desk: ShopDesk, image: str) -> None:
    declare(desk, image)
    result = desk.runtime.connectors.sync(desk.project, "tools")
    identity = docker("image", "inspect", "-f", "{{.Id}}", image).strip()
    assert (result.state, result.actions, result.base_url) == ("accepted", 5, f"stdio:{image}@{identity}")
    catalogue = desk.runtime.connectors.catalogue(desk.project, "tools")
    assert catalogue is not None and catalogue.image == identity
    assert {one.name: one.risk for one in catalogue.actions}["who_am_i"] is Risk.READ
    assert tool_containers(desk.runtime.context.store.install_id) == []  # what was asked is gone

    seen: dict[str, Any] = json.loads(text(desk, "who_am_i"))
    assert seen == {
        "token": WORD, "uid": 1000, "capabilities": "0000000000000000", "no_new_privileges": "1", "arguments": [],
        "folder": "/srv", "networks": ["lo"], "image": "yes", "writes_root": False, "writes_home": True, "proxy": False,
    }  # fmt: skip
    first = the_container(desk)
    assert [text(desk, "add"), text(desk, "add")] == ["1", "2"]  # one program, and its state, for all calls
    assert the_container(desk) == first
    assert desk.runtime.audit.verify().ok


def test_the_container_is_hardened_and_the_credential_is_nowhere_to_be_seen(desk: ShopDesk, image: str) -> None:
    ready(desk, image)
    told = text(desk, "tell")
    assert told.startswith("the token is ") and CANARY not in told
    container = the_container(desk)
    found = inspect(container)
    host, config = found["HostConfig"], found["Config"]
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and not host["Privileged"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert "no-new-privileges" in host["SecurityOpt"] and any("seccomp=" in option for option in host["SecurityOpt"])
    assert host["PidsLimit"] == 256 and host["Memory"] == host["MemorySwap"] == 512 << 20
    assert host["LogConfig"]["Type"] == "none" and host["AutoRemove"] and found["Mounts"] == []
    assert config["User"] == "1000:1000" and config["Labels"]["kortix.connector"] == "tools"
    assert CANARY not in json.dumps(found)
    assert CANARY not in docker("top", container, "-eo", "pid,args")
    assert CANARY.encode() not in desk.everything()
    with pytest.raises(subprocess.CalledProcessError):
        docker("logs", container)


def test_only_declared_hosts_are_reached_and_all_is_on_record(
    desk: ShopDesk, image: str, ca: LocalCa, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "hello.txt").write_text("hello from outside")
    with serving(files, ca.server_context(API)) as (port, seen):
        ready(desk, image, hosts=f"[{API}]")
        told = partial(text, desk, "fetch", ca=ca.file.read_text())
        assert told(url=f"https://{API}:{port}/hello.txt") == "hello from outside"
        assert "egress_denied" in told(url=f"https://evil.example:{port}/hello.txt")
        assert "egress_denied" in told(url="http://169.254.169.254/latest/meta-data")
        assert len(seen) == 1
    mounts = inspect(the_container(desk))["Mounts"]
    assert [(mount["Destination"], mount["RW"]) for mount in mounts] == [("/run/kortix", False)]
    wait_for(lambda: desk.events("egress.close"))
    events = [event for event in desk.runtime.audit.list(event="egress.") if event.event == "egress.connect"]
    assert {(event.scope, event.outcome.value) for event in events} == {
        (f"host {API}:{port}", "success"), (f"host evil.example:{port}", "denied"),
        ("host 169.254.169.254:80", "denied"),
    }  # fmt: skip
    assert {event.detail["connector"] for event in events} == {"tools"}


def test_without_declared_hosts_there_is_no_way_out(desk: ShopDesk, image: str) -> None:
    ready(desk, image, auth=False)
    assert text(desk, "fetch", url="https://api.corp.example/").startswith("failed: ")
    assert desk.events("egress.") == []


def test_a_program_that_dies_in_a_call_may_have_run_it_and_the_next_call_starts_another(
    desk: ShopDesk, image: str
) -> None:
    ready(desk, image)
    assert text(desk, "add") == "1"
    report = call(desk, "crash")
    assert (report.state, report.code) == (CallState.UNKNOWN, "may_have_run")
    assert "its program ended: going down with" in (report.message or "") and CANARY not in str(report)
    assert text(desk, "add") == "1"


def test_a_program_that_does_not_start_says_why_without_its_credential(desk: ShopDesk, image: str) -> None:
    declare(desk, image, "refuse")
    with pytest.raises(KortixError) as caught:
        desk.runtime.connectors.sync(desk.project, "tools")
    assert "its program ended: no licence for" in str(caught.value) and CANARY not in str(caught.value)
    desk.declare(
        f"connectors:\n  - {{slug: tools, provider: mcp, transport: stdio, image: '{image}',"
        " command: [no-such-program]}\n"
    )
    with pytest.raises(KortixError, match="no-such-program cannot be run: No such file"):
        desk.runtime.connectors.sync(desk.project, "tools")
    desk.declare(
        "connectors:\n  - {slug: tools, provider: mcp, transport: stdio, image: 'kortix-no-such:1', command: [x]}\n"
    )
    with pytest.raises(NotFound, match="kortix-no-such:1"):
        desk.runtime.connectors.sync(desk.project, "tools")


def test_a_message_without_end_is_cut_off(desk: ShopDesk, image: str) -> None:
    declare(desk, image, "long", auth=False)
    with pytest.raises(KortixError, match="more than 16 MiB"):
        desk.runtime.connectors.sync(desk.project, "tools")


def test_another_image_of_the_same_name_waits_for_a_person(desk: ShopDesk, image: str, tmp_path: Path) -> None:
    name = f"{image}-moving"
    docker("tag", image, name)
    try:
        ready(desk, name, auth=False)
        with tool_image(tmp_path / "other", {"server.py": SERVER}) as other:
            docker("tag", other, name)
            assert json.loads(text(desk, "who_am_i"))["uid"] == 1000  # still in the image that was accepted
            result = desk.runtime.connectors.sync(desk.project, "tools")
            assert (result.state, result.changed) == ("pending", True)
            assert result.difference is not None and result.difference.base_url is not None
    finally:
        docker("rmi", name)


def test_a_program_that_nobody_calls_ends(desk: ShopDesk, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "IDLE_S", 0.2)
    ready(desk, image, "stubborn")
    text(desk, "add")
    install = desk.runtime.context.store.install_id
    wait_for(lambda: not tool_containers(install))
    assert text(desk, "add") == "1"


HOST = """
import os, signal, sys
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
runtime = Runtime(Home.locate(), Settings(), operator_actor("cli"), kind="serve")
runtime.start_hosting()
report = runtime.calls.call(runtime.projects.list()[0], "tools", "add", "{}")
print(report.state.value, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_host_left_ends_with_the_next_start(desk: ShopDesk, image: str) -> None:
    ready(desk, image, "stubborn", hosts=f"[{API}]", auth=False)
    install = desk.runtime.context.store.install_id
    desk.runtime.close()
    environment = {**os.environ, "KORTIX_HOME": str(desk.home.path)}
    done = subprocess.run([sys.executable, "-c", HOST], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (-signal.SIGKILL, "done"), done.stderr
    assert len(tool_containers(install)) == 1 and len(list(desk.home.tools.iterdir())) == 1
    desk.restart()
    wait_for(lambda: not tool_containers(install))
    wait_for(lambda: desk.events("tool_server."))
    assert desk.events("tool_server.") == ["tool_server.orphan.remove"]
    assert list(desk.home.tools.iterdir()) == []
    assert text(desk, "add") == "1"


def test_the_reference_server_runs_as_it_is(desk: ShopDesk, tmp_path: Path) -> None:
    program = node_program("@modelcontextprotocol/server-everything", "2026.8.31", "mcp-server-everything")
    node = Path(subprocess.run(["which", "node"], capture_output=True, text=True, check=True).stdout.strip()).resolve()
    with tool_image(tmp_path / "node", {"node": node, "node_modules": program.parents[1]}) as image:
        main = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
        desk.declare(
            f"connectors:\n  - slug: tools\n    provider: mcp\n    transport: stdio\n    image: {image}\n"
            f"    command: [./node, {main}, stdio]\n    policies: [{{match: '*', action: always_run}}]\n"
        )
        assert desk.runtime.connectors.sync(desk.project, "tools").actions >= 10
        assert "hi there" in text(desk, "echo", message="hi there")
        desk.restart()  # its image can go only when nothing runs in it
