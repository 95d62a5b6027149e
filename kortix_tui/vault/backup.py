"""Backups of secrets as age files (age-encryption.org/v1), which `age` and `rage` open without this program.

Inside is one JSON document:

    {"format": "kortix-secrets", "version": 1, "exported": "2026-01-31T12:00:00.000Z",
     "secrets": [{"meta": {"identifier": "STRIPE_KEY", …}, "value": "<base64>"}, …]}

A file that somebody else wrote is checked before anything is derived from it: the cost of a passphrase stands in its
header, where nothing is authenticated yet.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import VaultFailed, WrongKey
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.vault.records import MAX_VALUE_BYTES, Moment, RecordMeta
from kortix_tui.vault.secret import Secret

MAX_BYTES: Final = 64 << 20
"""Of the file, which bounds everything inside too: age does not compress."""
MAX_ENTRIES: Final = 20_000
MAX_RECIPIENTS: Final = 32
MAX_STANZAS: Final = 2 * MAX_RECIPIENTS
"""Entries of a header: writers may add some that mean nothing, so that readers do not rely on the number."""
MAX_WORK_FACTOR: Final = 21
"""Of scrypt: 2 GiB of memory and some seconds. `age` writes 18; `pyrage` writes what takes a machine a second."""

_MAX_HEADER: Final = 64 * 1024
_VERSION_LINE: Final = b"age-encryption.org/v1"
_ARMOR_BEGIN: Final = b"-----BEGIN AGE ENCRYPTED FILE-----"
_ARMOR_END: Final = b"-----END AGE ENCRYPTED FILE-----"
_WORK_FACTOR: Final = re.compile(rb"[1-9][0-9]?\Z")


class BadBackup(VaultFailed):
    """The file is no backup of ours, or too costly to read."""

    code = "bad_backup"


class Lock(StrEnum):
    """What opens a backup."""

    PASSPHRASE = "passphrase"  # noqa: S105 - a word, no password
    IDENTITY = "identity"


@dataclass(frozen=True)
class BackupEntry:
    """One secret with its value, and how its project was called where it comes from."""

    meta: RecordMeta
    value: Secret
    project: str | None = None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class _Entry(_Part):
    meta: RecordMeta
    project: Annotated[str, Field(max_length=128)] | None = None
    value: Annotated[str, Field(repr=False, max_length=4 * MAX_VALUE_BYTES)]


class _Document(_Part):
    format: Literal["kortix-secrets"] = "kortix-secrets"
    version: Literal[1] = 1
    exported: Moment
    secrets: Annotated[tuple[_Entry, ...], Field(max_length=MAX_ENTRIES, repr=False)]

    @field_serializer("exported", when_used="json")
    def _exported(self, exported: datetime) -> str:
        return to_text(exported)


def export(
    entries: Sequence[BackupEntry],
    *,
    at: datetime,
    passphrase: Secret | None = None,
    recipients: Sequence[str] = (),
    armored: bool = False,
) -> bytes:
    """Write a backup.

    Args:
        entries: What goes in.
        at: When, for the reader.
        passphrase: Opens it; UTF-8. Give this or `recipients`.
        recipients: Public keys that open it: `age1…`, `ssh-ed25519 …` or `ssh-rsa …`.
        armored: As text, for mail and paper.

    Raises:
        BadBackup: Neither or both kinds of key were given, a recipient is not valid, or there is too much to back up.
    """
    if (passphrase is None) == (not recipients):
        raise BadBackup("A backup needs a passphrase or recipients, not both.", hint="Give one of the two.")
    if len(recipients) > MAX_RECIPIENTS or len(entries) > MAX_ENTRIES:
        raise BadBackup(
            f"A backup has at most {MAX_ENTRIES} secrets and {MAX_RECIPIENTS} recipients.",
            hint="Export project by project.",
        )
    plain = _write(entries, at)
    if len(plain) > MAX_BYTES // 2:
        raise BadBackup(f"A backup has at most {MAX_BYTES >> 21} MiB.", hint="Export project by project.")
    import pyrage  # type: ignore[import-untyped]

    try:
        if passphrase is not None:
            words = _text(passphrase, "the passphrase")
            return bytes(pyrage.passphrase.encrypt(plain, words, armored=armored))
        return bytes(pyrage.encrypt(plain, [_recipient(text) for text in recipients], armored=armored))
    except pyrage.EncryptError as error:
        raise BadBackup(f"The backup could not be encrypted: {_words(error)}.", hint="Check the recipients.") from error


def lock_of(data: bytes) -> Lock:
    """What a backup asks for, from its header alone.

    Raises:
        BadBackup: It is no age file, or reading it could cost too much.
    """
    return _inspect(_binary(data))


def read(data: bytes, *, passphrase: Secret | None = None, identity: Secret | None = None) -> list[BackupEntry]:
    """Open a backup. Slow for passphrases: scrypt takes about a second, and memory.

    Args:
        data: The file, armored or not.
        passphrase: For a backup that asks for one (`lock_of`).
        identity: For one that was made for recipients: content of an age identity file, or of an OpenSSH private key.

    Raises:
        WrongKey: The key does not open it. (Or a byte of it was changed: age does not tell these apart.)
        BadBackup: It is no backup of ours, or reading it could cost too much.
    """
    import pyrage

    binary = _binary(data)
    lock = _inspect(binary)
    try:
        if lock is Lock.PASSPHRASE:
            if passphrase is None:
                raise WrongKey("This backup is locked with a passphrase.", hint="Give its passphrase.")
            plain = pyrage.passphrase.decrypt(binary, _text(passphrase, "the passphrase"))
        else:
            if identity is None:
                raise WrongKey("This backup is locked for recipients.", hint="Give the file of a recipient's identity.")
            plain = pyrage.decrypt(binary, _identities(identity))
    except pyrage.DecryptError:
        hint = f"Check the {lock}. If it is right, the file was changed or damaged: take another copy."
        raise WrongKey(f"The {lock} does not open this backup.", hint=hint) from None
    return _parse(bytes(plain))


def _write(entries: Iterable[BackupEntry], at: datetime) -> bytes:
    stored = tuple(
        _Entry(
            meta=entry.meta,
            project=entry.project,
            value=base64.b64encode(entry.value.use("write a backup")).decode(),
        )
        for entry in entries
    )
    return _Document(exported=at, secrets=stored).model_dump_json(indent=1).encode()


def _parse(plain: bytes) -> list[BackupEntry]:
    try:
        document = _Document.model_validate_json(plain)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = shorten(visible_line(".".join(str(step) for step in first["loc"])), 120)
        raise BadBackup(
            f"The backup opens, but what is inside is not as this version writes it (at `{place or 'the top'}`).",
            hint="Use the version of this program that wrote it, or open it with `age` and set the secrets one by one.",
        ) from None
    found = [BackupEntry(entry.meta, _value(entry), entry.project) for entry in document.secrets]
    if len({entry.meta.id for entry in found}) < len(found):
        raise BadBackup("The backup names a secret twice.", hint="Open it with `age` and set the secrets one by one.")
    return found


def _value(entry: _Entry) -> Secret:
    try:
        value = base64.b64decode(entry.value, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not 1 <= len(value) <= MAX_VALUE_BYTES:
        raise BadBackup(
            f"The backup's value of {entry.meta.identifier} is not base64 of 1 to {MAX_VALUE_BYTES} bytes.",
            hint="Open it with `age` and look at that entry.",
        )
    return Secret(value)


def _binary(data: bytes) -> bytes:
    """The file without armor, so that what is inspected is what is opened."""
    if len(data) > MAX_BYTES:
        raise BadBackup(f"The file is larger than {MAX_BYTES >> 20} MiB: no backup is.", hint="Choose the right file.")
    stripped = data.strip(b" \t\r\n")
    if not stripped.startswith(_ARMOR_BEGIN):
        return data
    if not stripped.endswith(_ARMOR_END):
        raise _not_age()
    body = stripped[len(_ARMOR_BEGIN) : -len(_ARMOR_END)]
    try:
        return base64.b64decode(body.replace(b"\r", b"").replace(b"\n", b""), validate=True)
    except (binascii.Error, ValueError):
        raise _not_age() from None


def _inspect(binary: bytes) -> Lock:
    lines = binary[:_MAX_HEADER].split(b"\n")
    stanzas: list[list[bytes]] = []
    if lines[0] != _VERSION_LINE:
        raise _not_age()
    for line in lines[1:]:
        if line.startswith(b"---"):
            break
        if line.startswith(b"->"):
            stanzas.append(line[2:].split())
        if len(stanzas) > MAX_STANZAS:
            raise BadBackup(
                f"The file is for more than {MAX_STANZAS} recipients: it is not read.",
                hint="Choose a file of your own.",
            )
    else:
        raise _not_age()
    scrypt = [stanza for stanza in stanzas if stanza[:1] == [b"scrypt"]]
    if not scrypt:
        return Lock.IDENTITY
    factor = scrypt[0][2] if len(stanzas) == 1 and len(scrypt[0]) == 3 else b""
    if not _WORK_FACTOR.match(factor):
        raise _not_age()
    if int(factor) > MAX_WORK_FACTOR:
        raise BadBackup(
            f"A passphrase for this file costs 2^{int(factor)} steps of scrypt; at most 2^{MAX_WORK_FACTOR} are done.",
            hint="If you trust the file, open it with `age` and encrypt it again.",
        )
    return Lock.PASSPHRASE


def _not_age() -> BadBackup:
    return BadBackup("The file is not a whole age file.", hint="Choose a file that `kortix vault export` wrote.")


def _text(secret: Secret, what: str) -> str:
    try:
        text = secret.use(f"use {what} of a backup").decode()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise WrongKey(f"{what.capitalize()} is empty or not UTF-8.", hint="Give it again.")
    return text


def _recipient(text: str) -> Any:
    import pyrage

    text = text.strip()
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise BadBackup(
            f"`{shorten(visible_line(text), 80)}` is not a recipient: {_words(error)}.",
            hint="A recipient is a public key: `age1…` as age-keygen prints it, or a line of an SSH public key file.",
        ) from error


def _identities(identity: Secret) -> list[Any]:
    import pyrage

    text = _text(identity, "the identity")
    try:
        if "-----BEGIN" in text:
            return [pyrage.ssh.Identity.from_buffer(text.encode())]
        lines = [line.strip() for line in text.splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        found = [pyrage.x25519.Identity.from_str(line) for line in keys[:MAX_RECIPIENTS]]
    except pyrage.IdentityError:  # its text may quote the key
        found = []
    if not found:
        raise WrongKey(
            "This is not the private key of a recipient.",
            hint="Give the file that age-keygen made (`AGE-SECRET-KEY-1…`), or an SSH key without a passphrase.",
        ) from None
    return found


def _words(error: Exception) -> str:
    return shorten(visible_line(str(error)), 120).rstrip(".")
