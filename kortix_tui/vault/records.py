"""One secret in the file: its metadata in clear but authenticated, its value sealed under a key of its own.

The metadata is the associated data of the ciphertext. Whoever changes an exposure or an owner in the file gets a
record that does not open any more.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_serializer,
    model_validator,
)

from kortix_tui.base.clock import to_text
from kortix_tui.base.words import Exposure
from kortix_tui.vault.cipher import (
    KEY_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    Key,
    canonical,
    derive,
    pad,
    seal,
    unpad,
    unseal,
)

SHARED: Final = "shared"
PROJECT: Final = "project"
"""The owner of what belongs to no person."""
MAX_VALUE_BYTES: Final = 65536
_PERSONAL: Final = "personal:"
_ZERO_NONCE: Final = bytes(NONCE_BYTES)


def _whole_milliseconds(moment: datetime) -> datetime:
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


Moment = Annotated[AwareDatetime, AfterValidator(_whole_milliseconds)]
"""UTC, cut to milliseconds as the file keeps it: what is bound to a ciphertext must come back the same."""
RowId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
Person = Annotated[str, StringConstraints(pattern=r"^[^\s\p{C}]{1,64}$")]
Scope = Annotated[str, StringConstraints(pattern=r"^(shared|personal:[^\s\p{C}]{1,64})$")]
_Host = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,255}$")]
_Slug = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]


def personal(user: str) -> str:
    """The scope of what only this person may read."""
    return _PERSONAL + user


def person_of(scope: str) -> str | None:
    """Whose a personal scope is; `None` for what is shared."""
    return scope.removeprefix(_PERSONAL) if scope.startswith(_PERSONAL) else None


class RecordMeta(BaseModel):
    """What the vault knows of a secret besides its value. Times are UTC, cut to milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: RowId
    project: RowId
    identifier: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,63}$")]
    scope: Scope
    owner: Person
    exposure: Exposure
    gateway: bool = False
    hosts: Annotated[tuple[_Host, ...], Field(max_length=64)] = ()
    connectors: Annotated[tuple[_Slug, ...], Field(max_length=64)] = ()
    version: Annotated[int, Field(ge=1, lt=2**53)]
    created: Moment
    retired: bool = False

    @model_validator(mode="after")
    def _personal_ones_are_their_owners(self) -> Self:
        if self.scope != SHARED and (self.scope != personal(self.owner) or self.owner == PROJECT):
            raise ValueError("a personal secret belongs to the person of its scope")
        return self

    @field_serializer("created", when_used="json")
    def _created(self, created: datetime) -> str:
        return to_text(created)

    @property
    def key(self) -> tuple[str, str, str]:
        """What must be unique among secrets in use: project, owner, and identifier without regard to case."""
        return self.project, self.owner, self.identifier.lower()


class StoredRecord(BaseModel):
    """A record as it stands in the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, val_json_bytes="base64", ser_json_bytes="base64"
    )

    meta: RecordMeta
    salt: Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    sealed: Annotated[bytes, Field(min_length=1 + TAG_BYTES, max_length=MAX_VALUE_BYTES + 64 + TAG_BYTES)]


def seal_record(dek: Key, vault_id: str, meta: RecordMeta, value: bytes) -> StoredRecord:
    """Seal a value under a fresh subkey, which is used once; so the nonce may be zero."""
    salt = secrets.token_bytes(KEY_BYTES)
    sealed = seal(derive(dek, "kxv1/rec", salt), _ZERO_NONCE, pad(value), _bound(vault_id, meta))
    return StoredRecord(meta=meta, salt=salt, sealed=sealed)


def open_record(dek: Key, vault_id: str, record: StoredRecord) -> bytes:
    """The value.

    Raises:
        NotOpened: The key, the value or any of the metadata is not what was sealed.
    """
    key = derive(dek, "kxv1/rec", record.salt)
    return unpad(unseal(key, _ZERO_NONCE, record.sealed, _bound(vault_id, record.meta)))


def _bound(vault_id: str, meta: RecordMeta) -> bytes:
    fields: dict[str, Any] = meta.model_dump(mode="json")
    return canonical({"kind": "record", "vault": vault_id, "meta": fields})
