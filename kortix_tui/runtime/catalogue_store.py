"""The catalogues of actions that are in force: kept in the store, one for each connector as the manifest defines it."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from typing import Any, Final

import rfc8785
from pydantic import ValidationError

from kortix_tui.base.errors import StoreFailed
from kortix_tui.broker.connectors.model import Catalogue
from kortix_tui.manifest.connectors import Connector
from kortix_tui.store.database import Store

_LARGEST: Final = 64 << 20
_MOST_EXACT: Final = 1 << 53


def definition_hash(connector: Connector) -> str:
    """SHA-256, in hexadecimal, of a connector's entry in the manifest without its policies."""
    entry = connector.model_dump(mode="json", by_alias=True, exclude={"policies"})
    return hashlib.sha256(rfc8785.dumps(_exact(entry))).hexdigest()


def _exact(value: Any) -> Any:
    """The same data, where integers that canonical JSON cannot hold (a schema's `maximum`) are texts."""
    match value:
        case dict():
            return {key: _exact(item) for key, item in value.items()}
        case list():
            return [_exact(item) for item in value]
        case int() if abs(value) >= _MOST_EXACT:
            return f"integer {value}"
        case _:
            return value


def pack(catalogue: Catalogue) -> bytes:
    """A catalogue as the store keeps it."""
    return zlib.compress(catalogue.model_dump_json().encode())


def unpack(body: bytes) -> Catalogue:
    """A catalogue from what the store keeps. The last ones are remembered: reading a large one takes a while.

    Raises:
        StoreFailed: It is damaged.
    """
    return _unpacked(bytes(body))


@lru_cache(maxsize=32)
def _unpacked(body: bytes) -> Catalogue:
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(body, _LARGEST)
        if not reader.eof:
            raise ValueError("it is cut off or too large")
        return Catalogue.model_validate_json(text)
    except (zlib.error, ValueError, ValidationError) as error:
        raise StoreFailed(
            "A stored catalogue of actions cannot be read.", hint="Read it again: `kortix connectors sync CONNECTOR`."
        ) from error


def accepted(store: Store, project_id: str, connector: str, definition: str) -> Catalogue | None:
    """What a connector can do, as a person accepted it; `None` when it was never read in this definition.

    Args:
        store: Where it is kept.
        project_id: Whose connector.
        connector: Its slug.
        definition: Its `definition_hash`.

    Raises:
        StoreFailed: It is damaged.
    """
    row = store.one(
        "SELECT body FROM catalogues WHERE project_id = ? AND connector = ? AND definition = ? AND state = 'accepted'",
        (project_id, connector, definition),
    )
    return None if row is None else unpack(row[0])
