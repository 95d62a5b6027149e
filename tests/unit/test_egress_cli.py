"""`kortix egress ls`, and what programs in a sandbox are told of the proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.guest.proxy import proxy_environment
from kortix_tui.store.audit import SYSTEM


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    made.project()
    made.project("other")
    yield made
    made.close()


def attempt(seeded: Seeded, session: str, host: str, at: str, **values: object) -> None:
    row = {
        "id": f"egr_{host}", "session_id": session, "at": at, "host": host, "port": 443, "method": "CONNECT",
        "outcome": "denied", "code": "egress_denied", "rule": None, "address": None, "bytes_out": 0, "bytes_in": 0,
        "ended_at": at,
    } | values  # fmt: skip
    with seeded.store.write() as tx:
        marks = ", ".join("?" * len(row))
        tx.execute(f"INSERT INTO egress ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        tx.audit("egress.connect", scope=f"host {host}:443", actor=SYSTEM)


@pytest.fixture
def session(seeded: Seeded) -> str:
    session, other = seeded.session(), seeded.session("prj_other")
    attempt(seeded, session, "evil.example", "2026-01-01T10:00:00.000000Z")
    done = {"outcome": "success", "code": None, "address": "192.0.2.1", "bytes_out": 900, "bytes_in": 3 << 20}
    attempt(seeded, session, "api.example.com", "2026-01-01T10:01:00.000000Z", rule="api.example.com", **done)
    attempt(
        seeded, other, "\x1b[31mpypi.example", "2026-01-01T10:02:00.000000Z", rule="preset pypi",
        **(done | {"ended_at": None, "bytes_in": 0}),
    )  # fmt: skip
    return session


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["egress", "ls", *words]) == 0
    return capsys.readouterr().out


def test_attempts_are_listed_with_what_became_of_them(session: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, open_one, done, denied = printed(capsys).splitlines()
    assert "␛[31mpypi.example:443" in open_one and " open " in open_one and "preset pypi" in open_one
    assert done.split()[2:] == [
        session, "builder", "api.example.com:443", "CONNECT", "success", "api.example.com", "900", "B", "3.0", "MiB",
    ]  # fmt: skip
    assert denied.split()[2:] == [session, "builder", "evil.example:443", "CONNECT", "denied", "egress_denied"]


def test_lists_are_narrowed(session: str, capsys: pytest.CaptureFixture[str]) -> None:
    def hosts(*words: str) -> list[str]:
        return [one["host"] for one in json.loads(printed(capsys, "--json", *words))]

    assert hosts() == ["\x1b[31mpypi.example", "api.example.com", "evil.example"]
    assert hosts("--denied") == ["evil.example"]
    assert hosts("--session", session[:6]) == ["api.example.com", "evil.example"]
    assert hosts("--project", "other") == ["\x1b[31mpypi.example"]
    assert hosts("--filter", "EVIL") == ["evil.example"]
    assert hosts("--limit", "1") == ["\x1b[31mpypi.example"]
    told = json.loads(printed(capsys, "--json", "--denied"))[0]
    assert (told["project"], told["session_title"], told["agent"], told["code"]) == (
        "acme", "Do it", "builder", "egress_denied",
    )  # fmt: skip


def test_nothing_to_list_and_an_unknown_session(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["egress", "ls"]) == 0
    assert "No attempt fits." in capsys.readouterr().err
    assert run(["egress", "ls", "--session", "kzzz"]) == 1


def test_programs_are_pointed_at_the_loopback_port_but_for_what_is_inside() -> None:
    told = proxy_environment("secret-token", 8118)
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        parts = urlsplit(told[name])
        assert (parts.scheme, parts.hostname, parts.port, parts.password) == ("http", "127.0.0.1", 8118, "secret-token")
    assert told["NO_PROXY"] == told["no_proxy"] and {"127.0.0.1", "localhost"} <= set(told["NO_PROXY"].split(","))
