"""Programs of tool servers, as far as no engine is needed: their entry, their way out, what a person is shown."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp.types import Tool
from pydantic import TypeAdapter
from seeded import Seeded

import kortix_tui.guest
from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.broker.connectors import mcp_tools
from kortix_tui.broker.connectors.calling import CallRefused, materialise
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.difference import difference
from kortix_tui.broker.connectors.mcp import ToolServers
from kortix_tui.broker.connectors.model import Catalogue, Materialised, McpCall
from kortix_tui.broker.network.client import Reach
from kortix_tui.broker.network.exchange import NotSent
from kortix_tui.broker.network.resolving import Unreachable
from kortix_tui.manifest.connectors import Connector, McpConnector
from kortix_tui.runtime import call_pages
from kortix_tui.runtime.egressing import MOST, EgressBusy, EgressCeiling, EgressDenied, Streams
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.tool_egress import ToolEgress
from kortix_tui.store import audit

ENTRY = Path(kortix_tui.guest.__file__).parent / "tool_server.py"
STDIO = {
    "slug": "desk", "provider": "mcp", "transport": "stdio", "image": "desk:1", "command": ["desk", "--fast lane"],
    "hosts": ["api.example.com"],
}  # fmt: skip
TOOL = Tool(name="addNote", description="Adds.", inputSchema={"type": "object"})


def enter(greeting: str, *command: str, rest: str = "") -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-I", "-S", str(ENTRY), *command]
    return subprocess.run(whole, input=greeting + rest, capture_output=True, text=True, timeout=60, env={**os.environ})


# The entry


def test_the_first_line_is_the_hosts_and_everything_after_it_the_programs() -> None:
    greeting = json.dumps({"environment": {"DESK_TOKEN": "canary"}, "proxy": None}) + "\n"
    done = enter(greeting, "sh", "-c", 'echo "$DESK_TOKEN ${HTTPS_PROXY-none}"; cat', rest="one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "canary none\none\ntwo\n", "")


def test_the_credential_is_in_no_argument_and_signals_are_as_they_should_be() -> None:
    look = ("sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline; grep SigIgn /proc/$$/status")
    alone = subprocess.run(look, capture_output=True, text=True, timeout=60).stdout
    assert "SigIgn" in alone and enter('{"environment": {"A": "canary"}}\n', *look).stdout == alone


@pytest.mark.parametrize(
    "greeting",
    ["", "{}", "[]\n", "no json\n", '{"environment"\n', "x" * (2 << 20)],
    ids=["nothing", "no end", "a list", "no json", "half", "too long"],
)
def test_without_the_hosts_line_nothing_runs(greeting: str) -> None:
    done = enter(greeting, "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (127, "") and done.stderr.startswith("tool server: ")


def test_a_program_that_is_not_there_is_named() -> None:
    done = enter("{}\n", "no-such-program")
    assert done.returncode == 127 and "no-such-program cannot be run: No such file" in done.stderr


# The way out


class Way:
    """A tool server's way to the network, with nothing at its end."""

    def __init__(self, ledger: Ledger, **settings: object) -> None:
        self.streams = list[asyncio.StreamWriter]()
        self.ledger = ledger
        self.egress = ToolEgress(
            "prj_acme", "desk", ("api.example.com", "*.corp.example"), Settings.model_validate(settings), ledger,
            lambda text: text.replace("canary", "[secret]"), reach=self._reach,
        )  # fmt: skip

    async def _reach(self, host: str, port: int) -> Streams:
        if host == "down.corp.example":
            raise Unreachable("nothing there")
        reader, writer = await asyncio.open_unix_connection(self.place)
        self.streams.append(writer)
        return reader, writer, "192.0.2.1"

    place: str

    def events(self) -> list[tuple[str, str, str]]:
        found = audit.read(self.ledger.store.connection, event="egress.")
        return [(one.event, one.scope, str(one.detail.get("code"))) for one in found]


@pytest.fixture
async def ledger(home: Home) -> AsyncIterator[Ledger]:
    seeded = Seeded(home)
    seeded.project()
    seeded.lead()
    assert seeded.lock is not None
    made = Ledger(seeded.store, seeded.lock.epoch)
    yield made
    await made.close()
    seeded.close()


@pytest.fixture
async def place(short_folder: Path) -> AsyncIterator[str]:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(hold, str(short_folder / "end.sock"))
    yield str(short_folder / "end.sock")
    server.close()


async def refused(way: Way, host: str, port: int = 443) -> type[KortixError]:
    with pytest.raises(KortixError) as caught:
        await way.egress.open("CONNECT", host, port)
    return caught.type


async def test_declared_hosts_only_under_the_operators_ceiling(ledger: Ledger, place: str) -> None:
    way = Way(ledger, egress={"deny": ["bad.corp.example"]})
    way.place = place
    passage = await way.egress.open("CONNECT", "a.corp.example", 8443)
    await passage.close(3, 5)
    assert await refused(way, "evil.example") is EgressDenied
    assert await refused(way, "corp.example") is EgressDenied
    assert await refused(way, "127.0.0.1") is EgressDenied
    assert await refused(way, "bad.corp.example") is EgressCeiling
    assert await refused(way, "down.corp.example") is Unreachable
    found = {(event, scope): code for event, scope, code in way.events()}
    assert found == {
        ("egress.connect", "host a.corp.example:8443"): "None", ("egress.close", "host a.corp.example:8443"): "None",
        ("egress.connect", "host evil.example:443"): "egress_denied",
        ("egress.connect", "host corp.example:443"): "egress_denied",
        ("egress.connect", "host 127.0.0.1:443"): "egress_denied",
        ("egress.connect", "host bad.corp.example:443"): "egress_ceiling",
        ("egress.connect", "host down.corp.example:443"): "unreachable",
    }  # fmt: skip


async def test_a_loop_of_refusals_is_written_once_and_without_secrets(ledger: Ledger, place: str) -> None:
    way = Way(ledger)
    way.place = place
    for _ in range(20):
        assert await refused(way, "canary.evil.example") is EgressDenied
    assert [scope for _, scope, _ in way.events()] in (
        ["host [secret].evil.example:443"], ["host [secret].evil.example:443"] * 2,  # a minute may end in between
    )  # fmt: skip


async def test_a_program_has_so_many_connections_and_gets_them_back(ledger: Ledger, place: str) -> None:
    way = Way(ledger)
    way.place = place
    held = [await way.egress.open("CONNECT", "api.example.com", 443) for _ in range(MOST)]
    assert await refused(way, "api.example.com") is EgressBusy
    await held[0].close(0, 0)
    held[0] = await way.egress.open("CONNECT", "api.example.com", 443)
    for passage in held:
        await passage.close(0, 0)


# What is pinned and shown


def connector() -> McpConnector:
    made: object = TypeAdapter(Connector).validate_python(STDIO)
    assert isinstance(made, McpConnector)
    return made


def found(image: str | None) -> Catalogue:
    return mcp_tools.catalogue([TOOL], title="desk", endpoint=f"stdio:desk:1@{image}", image=image)


def request(catalogue: Catalogue) -> Materialised:
    return materialise(
        catalogue.actions[0], {}, project_id="prj", connector=connector(), catalogue=catalogue, definition_hash="d",
        credential=None, credential_place=None,
    )  # fmt: skip


def test_a_call_names_the_program_and_the_image_that_was_accepted() -> None:
    one, other = request(found("sha256:1")), request(found("sha256:2"))
    assert isinstance(one.call, McpCall) and one.call.program is not None
    assert one.call.program.image == "sha256:1" and one.call.program.command == ("desk", "--fast lane")
    assert one.digest() != other.digest()
    with pytest.raises(CallRefused, match="kortix connectors sync desk"):
        request(found(None))


def test_another_image_is_a_difference_although_its_tools_are_the_same() -> None:
    old, new = found("sha256:1"), found("sha256:2")
    assert old.document_hash != new.document_hash
    assert difference(old, new).base_url == ("stdio:desk:1@sha256:1", "stdio:desk:1@sha256:2")


def test_a_person_is_shown_what_would_run() -> None:
    call = request(found("sha256:1")).call
    assert isinstance(call, McpCall)
    shown = call_pages.as_http(call)
    assert shown.url == "stdio:desk:1" and shown.headers == (
        ("tool", "addNote"), ("command", "desk '--fast lane'"), ("image", "sha256:1"),
        ("may reach", "api.example.com"),
    )  # fmt: skip


async def test_without_an_engine_programs_are_refused() -> None:
    servers = ToolServers(Reach())
    with pytest.raises(Refused, match="need Docker"):
        await servers.discover_program("prj", connector(), Attached())
    wish = request(found("sha256:1"))
    assert isinstance(wish.call, McpCall)
    with pytest.raises(NotSent, match="need Docker"):
        await servers.call(wish, wish.call, Attached())
    await servers.close()
