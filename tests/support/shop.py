"""An API outside with an OpenAPI document, over TLS on loopback, and an operator with a connector to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from desk import git
from tls import LOOPBACK, Answer, LocalCa, Received, TlsServer
from vaulted import Vaulted

from kortix_tui.base.paths import Home

TOKEN = "shop-canary-1Lq8vT2mZ9pLw4"
BEARER = {"type": "http", "scheme": "bearer"}
SEED = """\
connectors:
  - slug: billing-api
    provider: openapi
    spec: %s
    policies:
      - match: "get_*"
        action: always_run
      - match: "*"
        action: require_approval
"""
"""The excerpt of the seed documents as written, but for the host."""


def operation(name: str, **fields: object) -> dict[str, Any]:
    return {"operationId": name, "responses": {"200": {"description": "ok"}}} | fields


def document(schemes: dict[str, Any] | None = None, paths: dict[str, Any] | None = None) -> dict[str, Any]:
    """A small document; its server is where it came from."""
    given = {"auth": BEARER} if schemes is None else schemes
    return {
        "openapi": "3.0.3",
        "info": {"title": "Billing", "version": "1"},
        "servers": [{"url": "/v1"}],
        "components": {"securitySchemes": given},
        "security": [{name: []} for name in given],
        "paths": {
            "/invoices": {"get": operation("getInvoices"), "post": operation("createInvoice")},
            "/invoices/{id}": {
                "get": operation(
                    "getInvoice",
                    parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                )
            },
        }
        | (paths or {}),
    }


class Shop:
    """The API. Its document is at `/openapi.json`; everything else wants a credential where `wants` says so.

    Attributes:
        document: What it publishes now.
        wants: A request's header and its value; without it every request is good.
    """

    def __init__(self, ca: LocalCa) -> None:
        self.ca = ca
        self.document: dict[str, Any] | bytes = document()
        self.wants: tuple[str, str] | None = ("authorization", f"Bearer {TOKEN}")
        self.server = TlsServer(self._answer, ca=ca)

    @property
    def spec(self) -> str:
        return self.server.url("/openapi.json")

    @property
    def calls(self) -> list[Received]:
        """What came beside requests for the document."""
        return [one for one in self.server.received if not one.target.startswith("/openapi.json")]

    def _answer(self, request: Received) -> Answer:
        if request.target.startswith("/openapi.json"):
            found = self.document
            return Answer(200, found if isinstance(found, bytes) else json.dumps(found).encode())
        if self.wants is not None and request.header(self.wants[0]) != self.wants[1]:
            return Answer(401, b'{"error": "who are you"}')
        return Answer(200, json.dumps({"seen": request.target}).encode())


class ShopDesk(Vaulted):
    """An operator who may reach this machine's loopback, and trusts the tests' authority."""

    def __init__(self, home: Home, folder: Path, ca: LocalCa, **settings: object) -> None:
        reach = {"allow_private": list(LOOPBACK), "ca_certificates": [str(ca.file)]}
        super().__init__(home, folder, **{"connectors": reach, **settings})

    def declare(self, connectors: str, *, agents: str = "", **files: str) -> None:
        """Commit connectors to the base branch; `files` by name, `__` written for `/` and `_dot_` for a dot."""
        manifest = "kortix_version: 2\ndefault_agent: script\npolicy: {default_mode: risk}\n"
        manifest += connectors + "agents:\n  script:\n    kortix_permissions: [project.gitops.push]\n" + agents
        (self.repository / "kortix.yaml").write_text(manifest)
        for name, text in files.items():
            (self.repository / name.replace("_dot_", ".")).write_text(text)
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-qm", "Declare connectors")
        self.runtime.connectors.refresh(self.project)

    def everything(self) -> bytes:
        """Every byte of the home and the settings' folder, except the vault's own encrypted ones."""
        places = [self.home.path, Path(os.environ["KORTIX_CONFIG_HOME"])]
        files = [path for place in places for path in place.rglob("*") if path.is_file()]
        return b"".join(path.read_bytes() for path in files)


@contextmanager
def open_shop(folder: Path) -> Iterator[Shop]:
    """The API, running."""
    shop = Shop(LocalCa(folder / "ca"))
    with shop.server:
        yield shop
