"""`network_egress`: where an agent's sandbox may connect to. Nothing, unless a rule says so."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kortix_tui.base.validation import Many, Part, wrong

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
