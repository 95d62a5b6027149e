"""The bytes of the file: magic, length, canonical JSON body, HMAC.

Reading checks shape and limits only. Nothing of it is authentic before `is_authentic` has said so, which needs the
root key, which needs an open slot: until then every number in the file is treated as an attacker's.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_serializer, model_validator

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.cipher import MAC_BYTES, Key, canonical, same, sign
from kortix_tui.vault.errors import corrupt
from kortix_tui.vault.keys import WrappedKey
from kortix_tui.vault.records import Moment, Scope, StoredRecord
from kortix_tui.vault.slots import MAX_SLOTS, StoredSlot

MAGIC: Final = b"KXVAULT\x01"
HEAD_BYTES: Final = len(MAGIC) + 4
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
MAX_RECORDS: Final = 20_000
MAX_GENERATION: Final = 2**53 - 1
_LENGTH: Final = struct.Struct(">I")

VaultId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Generation = Annotated[int, Field(ge=1, le=MAX_GENERATION)]


class AuditAnchor(BaseModel):
    """The head of the audit chain when it was noted here: who lacks a slot of the vault cannot forge it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    seq: Annotated[int, Field(ge=0, lt=2**53)]
    hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    at: Moment

    @field_serializer("at", when_used="json")
    def _at(self, at: Moment) -> str:
        return to_text(at)


class Header(BaseModel):
    """Everything in the body except the records."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    format: Literal[1] = 1
    id: VaultId
    gen: Generation
    root_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    slots: Annotated[tuple[StoredSlot, ...], Field(min_length=1, max_length=MAX_SLOTS)]
    deks: Annotated[dict[Scope, WrappedKey], Field(max_length=MAX_RECORDS)]
    anchor: AuditAnchor | None = None

    @model_validator(mode="after")
    def _slots_differ(self) -> Self:
        if len({slot.info.id for slot in self.slots}) != len(self.slots):
            raise ValueError("two slots have one id")
        return self

    @property
    def owners(self) -> frozenset[str]:
        """Everybody who has a slot."""
        return frozenset(slot.info.owner for slot in self.slots)


@dataclass(frozen=True)
class Body:
    """Everything in the file."""

    header: Header
    recs: dict[str, StoredRecord]


def split(data: bytes) -> tuple[memoryview, bytes]:
    """The body and the MAC of a file.

    Raises:
        Corrupt: It is not a whole vault.
    """
    view = memoryview(data)
    if len(data) < HEAD_BYTES + MAC_BYTES or not data.startswith(MAGIC):
        raise corrupt("it is not a vault, or was cut")
    (length,) = _LENGTH.unpack(view[len(MAGIC) : HEAD_BYTES])
    if length != len(data) - HEAD_BYTES - MAC_BYTES:
        raise corrupt("its length is not what it says")
    return view[HEAD_BYTES:-MAC_BYTES], data[-MAC_BYTES:]


def parse(data: bytes) -> Body:
    """The body of a file, in shape and within limits, but not authentic yet.

    Raises:
        Corrupt: It is not a whole vault.
    """
    text, _ = split(data)
    document = load_json(bytes(text))
    listed = document.pop("recs", None)
    header = parse_header(document)
    if not isinstance(listed, dict) or len(listed) > MAX_RECORDS:
        raise corrupt("the list of secrets cannot be read")
    recs = {key: StoredRecord(raw) for key, raw in listed.items()}
    for key, record in recs.items():
        if not record.is_filed_as(key) or record.scope not in header.deks:
            raise corrupt("a secret has no shape, another id or an unknown scope")
    return Body(header, recs)


def load_json(text: bytes) -> dict[str, Any]:
    """The JSON object of the body.

    Raises:
        Corrupt: It is none.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise corrupt("its content cannot be read") from None
    if not isinstance(document, dict):
        raise corrupt("its content cannot be read")
    return document


def parse_header(document: dict[str, Any]) -> Header:
    """The header, from the body without its records.

    Raises:
        Corrupt: A field is missing, unknown or out of range.
    """
    try:
        return Header.model_validate_json(canonical(document), strict=True)
    except (ValueError, RecursionError):  # pydantic's failure is a ValueError too
        raise corrupt("a key slot or a number in it is out of range") from None


def encode(body: Body, file_key: Key) -> bytes:
    """The file of a body.

    Raises:
        VaultFailed: It would be larger than what is read again.
    """
    document = body.header.model_dump(mode="json")
    document["recs"] = {key: record.raw for key, record in body.recs.items()}
    text = canonical(document)
    if HEAD_BYTES + len(text) + MAC_BYTES > MAX_FILE_BYTES:
        raise VaultFailed(
            f"The vault would be larger than {MAX_FILE_BYTES // 2**20} MiB.", hint="Remove secrets that nobody uses."
        )
    head = MAGIC + _LENGTH.pack(len(text))
    return b"".join((head, text, sign(file_key, head, text)))


def is_authentic(data: bytes, file_key: Key) -> bool:
    """Whether the file is exactly what a holder of the root key wrote."""
    return same(sign(file_key, memoryview(data)[:-MAC_BYTES]), data[-MAC_BYTES:])
