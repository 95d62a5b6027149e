"""The ways to authenticate that a document declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.model import AuthHint
from kortix_tui.broker.connectors.openapi.references import References
from kortix_tui.broker.connectors.openapi.servers import Servers

_FLOWS: Final = {
    "authorizationCode": "authorization_code",
    "clientCredentials": "client_credentials",
    "deviceAuthorization": "device",
}
_PLACES: Final = ("header", "query", "cookie")


class Security:
    """A document's security schemes.

    Attributes:
        hints: What can be served here, without doubles: first what the document asks for as a whole, then what its
            operations ask for, then what it only declares.
        places: `(place, name)` of the keys that the host fills in; the name in small letters.
        notes: Schemes that are not served.
    """

    def __init__(self, document: Mapping[str, Any], references: References, servers: Servers) -> None:
        self._references = references
        self._servers = servers
        self.notes: list[str] = []
        components = document.get("components")
        declared = components.get("securitySchemes") if isinstance(components, Mapping) else None
        schemes = declared if isinstance(declared, Mapping) else {}
        wanted = [name for name in _wanted(document) if name in schemes]
        found = [self._hint(name, schemes[name]) for name in dict.fromkeys([*wanted, *schemes])]
        self.hints = tuple(dict.fromkeys(hint for hint in found if hint is not None))
        self.places = frozenset((hint.place, hint.name.casefold()) for hint in self.hints if hint.name)

    def _hint(self, name: str, node: object) -> AuthHint | None:
        try:
            scheme = self._references.follow(node)
        except InvalidInput as error:
            self.notes.append(f"The security scheme {name} cannot be read: {error.message}")
            return None
        place, key = scheme.get("in"), scheme.get("name")
        match scheme.get("type"), str(scheme.get("scheme")).casefold():
            case "http", "basic":
                return AuthHint(type="basic")
            case "http", "bearer":
                return AuthHint(type="bearer")
            case "apiKey", _ if place in _PLACES and isinstance(key, str) and key:
                return AuthHint(type="api_key", place=place, name=key)
            case "oauth2", _:
                return self._oauth(scheme.get("flows"))
        self.notes.append(f"The security scheme {name} is not served here.")
        return None

    def _oauth(self, flows: object) -> AuthHint:
        known: dict[str, Mapping[str, Any]] = {
            _FLOWS.get(str(name), str(name)): flow
            for name, flow in (flows.items() if isinstance(flows, Mapping) else [])
            if isinstance(flow, Mapping)
        }
        scopes = [scope for flow in known.values() for scope in _names(flow.get("scopes"))]
        return AuthHint(
            type="oauth2",
            flows=tuple(known),
            token_url=self._url(known, "tokenUrl"),
            authorization_url=self._url(known, "authorizationUrl"),
            scopes=tuple(dict.fromkeys(scopes)),
        )

    def _url(self, flows: Mapping[str, Mapping[str, Any]], key: str) -> str | None:
        for name in ("authorization_code", "client_credentials", "device", *flows):
            if name in flows and (url := self._servers.resolved(flows[name].get(key))):
                return url
        return None


def _wanted(document: Mapping[str, Any]) -> Iterable[str]:
    """Names of schemes in the order in which the document asks for them."""
    yield from _requirements(document.get("security"))
    paths = document.get("paths")
    for item in paths.values() if isinstance(paths, Mapping) else []:
        for operation in item.values() if isinstance(item, Mapping) else []:
            if isinstance(operation, Mapping):
                yield from _requirements(operation.get("security"))


def _requirements(security: object) -> Iterable[str]:
    for choice in security if isinstance(security, list) else []:
        yield from choice if isinstance(choice, Mapping) else []


def _names(value: object) -> list[str]:
    return list(value) if isinstance(value, Mapping) else []
