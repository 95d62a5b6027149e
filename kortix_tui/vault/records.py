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
    ValidationError,
    field_serializer,
    model_validator,
)

from kortix_tui.base.clock import to_text
from kortix_tui.base.words import Exposure
from kortix_tui.vault.cipher import (
    KEY_BYTES,
    NONCE_BYTES,
    Key,
    canonical,
    derive,
    from_base64,
    pad,
    seal,
    to_base64,
    unpad,
    unseal,
)
from kortix_tui.vault.errors import corrupt

SHARED: Final = "shared"
PROJECT: Final = "project"
"""The owner of what belongs to no person."""
MAX_VALUE_BYTES: Final = 65536
_PERSONAL: Final = "personal:"
_PURPOSE: Final = "kxv1/rec"
_FIELDS: Final = {"meta", "salt", "sealed"}
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


class StoredRecord:
    """A record as it stands in the file: `{meta, salt, sealed}`.

    Its shape is checked when it is used. A vault may hold thousands, a start needs none of them, and the file's MAC
    has vouched for all of them by then.
    """

    __slots__ = ("_meta", "raw")

    def __init__(self, raw: Any, meta: RecordMeta | None = None) -> None:
        self.raw = raw
        self._meta = meta

    @property
    def meta(self) -> RecordMeta:
        """The metadata.

        Raises:
            Corrupt: A field is missing, unknown or out of range.
        """
        if self._meta is None:
            try:
                self._meta = RecordMeta.model_validate(self.raw["meta"])
            except (ValidationError, KeyError):
                raise corrupt("the description of a secret cannot be read") from None
        return self._meta

    @property
    def scope(self) -> str:
        """The scope without the rest, as it is claimed."""
        return str(self.raw["meta"]["scope"])

    def is_filed_as(self, record_id: str) -> bool:
        """Whether the outer shape is right and the record says that this is its id."""
        raw = self.raw
        if not isinstance(raw, dict) or raw.keys() != _FIELDS:
            return False
        meta = raw["meta"]
        if not isinstance(meta, dict) or not isinstance(raw["salt"], str) or not isinstance(raw["sealed"], str):
            return False
        return meta.get("id") == record_id and isinstance(meta.get("scope"), str)


def seal_record(dek: Key, vault_id: str, meta: RecordMeta, value: bytes) -> StoredRecord:
    """Seal a value under a fresh subkey, which is used once; so the nonce may be zero."""
    salt = secrets.token_bytes(KEY_BYTES)
    fields = meta.model_dump(mode="json")
    sealed = seal(derive(dek, _PURPOSE, salt), _ZERO_NONCE, pad(value), _bound(vault_id, fields))
    return StoredRecord({"meta": fields, "salt": to_base64(salt), "sealed": to_base64(sealed)}, meta)


def open_record(dek: Key, vault_id: str, record: StoredRecord) -> bytes:
    """The value.

    Raises:
        NotOpened: The key, the value or any of the metadata is not what was sealed.
    """
    salt, sealed = from_base64(record.raw["salt"]), from_base64(record.raw["sealed"])
    key = derive(dek, _PURPOSE, salt)
    return unpad(unseal(key, _ZERO_NONCE, sealed, _bound(vault_id, record.raw["meta"])))


def _bound(vault_id: str, fields: dict[str, Any]) -> bytes:
    return canonical({"kind": "record", "vault": vault_id, "meta": fields})
