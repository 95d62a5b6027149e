"""Servers that a sandbox may reach by name, and a desk whose agents have rules for them."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, git, make_repository, sweep
from tls import LocalCa

from kortix_tui.base.paths import Home
from kortix_tui.broker.network.resolving import connect
from kortix_tui.runtime import egressing

FILES = "files.corp.example"
PLAIN = "plain.corp.example"
LOOPBACK = ("127.0.0.1",)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, answers a POST with its length, and prints nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{len(body)} {self.headers['Host']} {self.headers.get('Proxy-Authorization')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:
        self.server.seen.append((self.command, self.path))  # type: ignore[attr-defined]


@contextmanager
def serving(folder: Path, context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """A file server on loopback: its port, and what was asked of it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    server.daemon_threads = False
    seen = list[tuple[str, str]]()
    server.seen = seen  # type: ignore[attr-defined]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Outside(Desk):
    """A desk with a TLS server and a plain one outside, which the agent `caller` may reach and `script` may not.

    Attributes:
        names: Where other names than the servers' lead to.
    """

    def __init__(
        self, home: Home, folder: Path, tls: int, plain: int, patch: pytest.MonkeyPatch, ca: LocalCa, **settings: object
    ) -> None:
        self.tls, self.plain, self.ca = tls, plain, ca
        self.names: dict[str, tuple[str, ...]] = {}
        patch.setattr(egressing, "connect", partial(connect, resolver=self.resolve))
        repository = make_repository(folder / "repo")
        manifest = repository / "kortix.yaml"
        manifest.write_text(f"{manifest.read_text()}  caller:\n    {self.rules}\n")
        (repository / "agents" / "caller.md").write_text((repository / "agents" / "script.md").read_text())
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "Caller")
        super().__init__(home, repository, **settings)

    @property
    def rules(self) -> str:
        return (
            f"network_egress: {{version: 1, rules: [{{host: {FILES}, ports: [{self.tls}]}},"
            f" {{host: '*.corp.example', ports: [{self.plain}]}}]}}"
        )

    async def resolve(self, host: str, port: int, /) -> tuple[str, ...]:
        return self.names.get(host, LOOPBACK)

    def withdraw(self) -> None:
        """Take the agent's rules away on the base branch."""
        manifest = self.repository / "kortix.yaml"
        manifest.write_text(manifest.read_text().replace(self.rules, "network_egress: {version: 1}"))
        git(self.repository, "commit", "-qam", "Withdraw")

    def attempts(self) -> list[Mapping[str, object]]:
        """What is on record of all sessions, oldest first."""
        return [one.model_dump(mode="json") for one in reversed(self.runtime.egress.list())]


@contextmanager
def outside(home: Home, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Outside]:
    """The desk and its servers; nothing of them stays."""
    ca, files = LocalCa(folder / "ca"), folder / "files"
    files.mkdir()
    (files / "hello.txt").write_text("hello from outside\n")
    with serving(files, ca.server_context(FILES)) as (tls, _), serving(files) as (plain, _):
        desk = Outside(home, folder, tls, plain, patch, ca, egress={"allow_private": ["127.0.0.0/8"]})
        try:
            yield desk
        finally:
            install = desk.runtime.context.store.install_id
            desk.runtime.close()
            sweep(install)
