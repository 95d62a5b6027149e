"""`network_egress`: where an agent's sandbox may connect to. Nothing, unless a rule says so."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from kortix_tui.base.validation import Many, Part, wrong

PRESETS: Final[Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]] = {
    "pypi": (("pypi.org", "files.pythonhosted.org"), (443,)),
    "npm": (("registry.npmjs.org",), (443,)),
    "debian": (("deb.debian.org", "security.debian.org"), (80, 443)),
}
"""Hosts and ports that a package manager needs. Whoever may reach them may also send to them."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _check_host(text: str) -> str:
    host = text.casefold()
    if "://" in host or "/" in host:
        raise wrong(f"`{text}` is a URL, not a host", "Write the host alone, such as `api.example.com`.")
    if _is_address(host):
        raise wrong(f"`{text}` is an address, not a host name", "Name the host: addresses are checked when connecting.")
    if ":" in host:
        raise wrong(f"`{text}` holds a port", "Write the port under `ports:`.")
    wild = host.startswith("*.")
    labels = host.removeprefix("*.").split(".")
    if len(host) > 253 or not all(_LABEL.match(label) for label in labels) or labels[-1].isdigit():
        raise wrong(
            f"`{text}` is not a host name", "Write an exact host, or `*.` and a suffix such as `*.example.com`."
        )
    if wild and len(labels) < 2:
        raise wrong(f"`{text}` is too wide", "A suffix needs two parts or more, such as `*.example.com`.")
    return host


HostName = Annotated[str, AfterValidator(_check_host)]
Port = Annotated[int, Field(ge=1, le=65535)]


def covers(pattern: str, host: str) -> bool:
    """Whether an exact host, or `*.` and a suffix, is about this host; both in lower case."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def covered(patterns: Iterable[str], host: str) -> bool:
    """Whether any of an operator's patterns is about this host; `*` alone is about every one."""
    return any(pattern == "*" or covers(pattern.casefold(), host) for pattern in patterns)


class EgressRule(Part):
    """One allowed destination."""

    host: HostName
    ports: Annotated[Many[Port], Field(min_length=1)] = (443,)


class NetworkEgress(Part):
    """The allow list. The operator's ceiling applies on top."""

    version: Literal[1]
    default: Literal["deny"] = "deny"
    rules: Annotated[Many[EgressRule], Field(max_length=200)] = ()
    presets: Many[Literal["pypi", "npm", "debian"]] = ()

    def allowing(self, host: str, port: int) -> str | None:
        """The rule or preset that allows this destination, in words.

        Args:
            host: A name in lower case.
            port: Where on it.
        """
        for rule in self.rules:
            if port in rule.ports and covers(rule.host, host):
                return rule.host
        for preset in self.presets:
            hosts, ports = PRESETS[preset]
            if host in hosts and port in ports:
                return f"preset {preset}"
        return None

    @property
    def opens(self) -> bool:
        """Whether it allows anything at all."""
        return bool(self.rules or self.presets)
