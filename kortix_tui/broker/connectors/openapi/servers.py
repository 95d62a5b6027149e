"""Where a document's operations go, and which of them the connector's base URL serves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

from kortix_tui.base.text import shorten, visible_line

_VARIABLE = re.compile(r"\{([^{}]*)\}")
_LONGEST: Final = 2048
_NO_SERVER: Final = "The document names no server; add `base_url` to the connector."


class Servers:
    """One base URL for a whole connector: scheme, host and port are pinned by it, whatever a part of the document says.

    Attributes:
        base_url: The connector's own, else the first usable server of the document; no slash at its end.
        notes: What a person should know of the choice.
    """

    def __init__(self, document: Mapping[str, Any], base_url: str | None, source_url: str | None) -> None:
        self._source_url = source_url
        self._documented = self._first_of_document(document)
        chosen = base_url or self._documented
        self.base_url = chosen.rstrip("/") if chosen else None
        self.notes: list[str] = []
        if base_url and self._documented and self._documented != self.base_url:
            self.notes.append(
                f"The document names the server {_shown(self._documented)}; the connector's `base_url` is used instead."
            )
        if self.base_url is None:
            self.notes.append(_NO_SERVER)
        elif not base_url and self.base_url.startswith("http:"):
            self.notes.append(f"The server {_shown(self.base_url)} is not encrypted.")

    def place(self, path: str, *own: object) -> tuple[str, str | None]:
        """An operation's path below the base URL, and why it cannot be called.

        Args:
            path: As the document has it.
            own: The `servers` of the operation and of its path; the first that is there counts.
        """
        path = path if path.startswith("/") else f"/{path}"
        if self.base_url is None:
            return path, _NO_SERVER
        named = next((servers for servers in own if servers), None)
        if named is None:
            return path, None
        usable = self._usable(named)
        if self._documented in usable or self.base_url in usable:
            return path, None
        base = urlsplit(self.base_url)
        for url in usable:
            parts = urlsplit(url)
            below = parts.path.removeprefix(base.path)
            if _origin(parts) == _origin(base) and parts.path.startswith(base.path) and below[:1] in ("", "/"):
                return below + path, None
        where = _shown(usable[0]) if usable else "a server that cannot be used"
        return path, f"It goes to {where}, and this connector to {_shown(self.base_url)}."

    def resolved(self, url: object) -> str | None:
        """Another URL of the document, for example of a token: absolute, or `None` when it cannot be used."""
        if not isinstance(url, str):
            return None
        return _checked(urljoin(self.base_url or self._source_url or "", url))

    def _first_of_document(self, document: Mapping[str, Any]) -> str | None:
        if document.get("servers"):
            usable = self._usable(document["servers"])
        else:
            usable = next((found for servers in _below(document) if (found := self._usable(servers))), [])
            if not usable and self._source_url:
                usable = self._usable([{"url": "/"}])
        return usable[0] if usable else None

    def _usable(self, servers: object) -> list[str]:
        """Those that have all they need, https first."""
        found = []
        for server in servers if isinstance(servers, list) else []:
            url = _filled(server) if isinstance(server, Mapping) else None
            if url is not None and self._source_url and "://" not in url:
                url = urljoin(self._source_url, url)
            checked = _checked(url) if url is not None else None
            if checked:
                found.append(checked.rstrip("/"))
        return sorted(found, key=lambda url: not url.startswith("https:"))


def _below(document: Mapping[str, Any]) -> Iterable[object]:
    """The servers of paths and operations, in the document's order."""
    paths = document.get("paths")
    for item in paths.values() if isinstance(paths, Mapping) else []:
        if isinstance(item, Mapping):
            yield item.get("servers")
            yield from (part.get("servers") for part in item.values() if isinstance(part, Mapping))


def _filled(server: Mapping[str, Any]) -> str | None:
    """A server's URL with its variables' defaults; `None` where one has none."""
    url, variables = server.get("url"), server.get("variables")
    if not isinstance(url, str):
        return None
    for name in _VARIABLE.findall(url):
        variable = variables.get(name) if isinstance(variables, Mapping) else None
        default = variable.get("default") if isinstance(variable, Mapping) else None
        if default is None or isinstance(default, dict | list):
            return None
        url = url.replace(f"{{{name}}}", str(default))
    return url


def _checked(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return None
    plain = not (parts.query or parts.fragment or parts.username or parts.password or "@" in parts.netloc)
    written = len(url) <= _LONGEST and url.isascii() and all(33 <= ord(char) < 127 for char in url)
    return url if known and plain and written and "\\" not in url else None


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _shown(url: str) -> str:
    return shorten(visible_line(url), 120)
