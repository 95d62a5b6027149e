"""Backups as age files: what comes back, and what is refused before it costs anything."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import VaultFailed, WrongKey
from kortix_tui.base.words import Exposure
from kortix_tui.vault import backup
from kortix_tui.vault.backup import BackupEntry, BadBackup, Lock
from kortix_tui.vault.records import MAX_VALUE_BYTES, RecordMeta
from kortix_tui.vault.secret import Secret

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
IDENTITY = pyrage.x25519.Identity.generate()
KEY = Secret(str(IDENTITY).encode())
TO = (str(IDENTITY.to_public()),)
SSH_KEY = """-----BEGIN OPENSSH PRIVATE KEY-----
garbage-canary
-----END OPENSSH PRIVATE KEY-----
"""


def entry(number: int, value: bytes = b"v", **changes: Any) -> BackupEntry:
    fields: dict[str, Any] = {
        "id": f"sec_{number}", "project": "prj_a", "identifier": f"key-{number}", "name": f"KEY_{number}",
        "scope": "shared", "owner": "project", "exposure": Exposure.CONNECTOR, "hosts": ("api.example.com",),
        "connectors": ("stripe",), "version": 3, "created": AT,
    }  # fmt: skip
    return BackupEntry(RecordMeta.model_validate(fields | changes), Secret(value))


def shown(entries: list[BackupEntry]) -> list[tuple[RecordMeta, bytes]]:
    return [(one.meta, one.value.use("test")) for one in entries]


def sealed(document: Any) -> bytes:
    """A file that somebody else wrote for us."""
    plain = document if isinstance(document, bytes) else json.dumps(document).encode()
    return bytes(pyrage.encrypt(plain, [IDENTITY.to_public()]))


def refused(data: bytes, error: type[VaultFailed] = BadBackup) -> str:
    with pytest.raises(error) as caught:
        backup.read(data, identity=KEY)
    assert caught.value.hint
    return caught.value.message


ENTRIES = [
    entry(1, b"sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
    entry(2, "-----BEGIN KEY-----\nä\n".encode(), exposure=Exposure.NONE, gateway=True, hosts=(), connectors=()),
    entry(3, b"x" * MAX_VALUE_BYTES, scope="personal:ada", owner="ada", retired=True),
]
DOCUMENT: dict[str, Any] = json.loads(pyrage.decrypt(backup.export(ENTRIES, at=AT, recipients=TO), [IDENTITY]))


@pytest.mark.parametrize("armored", [False, True])
def test_what_goes_in_comes_out(armored: bool) -> None:
    data = backup.export(ENTRIES, at=AT, recipients=TO, armored=armored)
    assert data.startswith(b"-----BEGIN AGE ENCRYPTED FILE-----" if armored else b"age-encryption.org/v1")
    assert b"sk_live" not in data and backup.lock_of(data) is Lock.IDENTITY
    assert shown(backup.read(data, identity=KEY)) == shown(ENTRIES)
    assert shown(backup.read(b"\n" * armored + data, identity=KEY)) == shown(ENTRIES)


def test_a_passphrase_opens_what_it_closed() -> None:
    data = backup.export(ENTRIES, at=AT, passphrase=Secret("pässphrase".encode()))
    assert backup.lock_of(data) is Lock.PASSPHRASE
    assert shown(backup.read(data, passphrase=Secret("pässphrase".encode()))) == shown(ENTRIES)
    with pytest.raises(WrongKey, match="does not open") as caught:
        backup.read(data, passphrase=Secret(b"wrong-canary"))
    assert "canary" not in str(caught.value)
    with pytest.raises(WrongKey, match="locked with a passphrase"):
        backup.read(data, identity=KEY)


def test_the_document_is_as_documented() -> None:
    assert list(DOCUMENT) == ["format", "version", "exported", "secrets"]
    assert (DOCUMENT["format"], DOCUMENT["version"]) == ("kortix-secrets", 1)
    assert DOCUMENT["exported"] == "2026-01-31T12:00:00.000Z"
    first = DOCUMENT["secrets"][0]
    assert list(first) == ["meta", "project", "value"] and first["meta"]["identifier"] == "key-1"
    assert base64.b64decode(first["value"]) == b"sk_live_4eC39HqLyjWDarjtT1zdp7dc"


def test_an_empty_backup() -> None:
    assert backup.read(backup.export([], at=AT, recipients=TO), identity=KEY) == []


def test_an_identity_file_with_comments_and_several_keys() -> None:
    other = pyrage.x25519.Identity.generate()
    file = f"# created: 2026-01-31\n# public key: {TO[0]}\n\n{other}\r\n{IDENTITY}\n"
    assert len(backup.read(backup.export(ENTRIES, at=AT, recipients=TO), identity=Secret(file.encode()))) == 3


@pytest.mark.parametrize("key", [b"", b"# nothing\n", b"AGE-SECRET-KEY-1CANARY", b"canary", SSH_KEY.encode(), b"\xff"])
def test_what_is_no_identity(key: bytes) -> None:
    with pytest.raises(WrongKey) as caught:
        backup.read(backup.export([], at=AT, recipients=TO), identity=Secret(key))
    assert "canary" not in str(caught.value).lower()


def test_the_wrong_identity_or_none() -> None:
    data = backup.export(ENTRIES, at=AT, recipients=TO)
    with pytest.raises(WrongKey, match="does not open"):
        backup.read(data, identity=Secret(str(pyrage.x25519.Identity.generate()).encode()))
    with pytest.raises(WrongKey, match="locked for recipients"):
        backup.read(data, passphrase=Secret(b"x"))


def test_wrong_orders() -> None:
    for given_keys in ({}, {"passphrase": Secret(b"x"), "recipients": TO}):
        with pytest.raises(BadBackup, match="not both"):
            backup.export(ENTRIES, at=AT, **given_keys)  # type: ignore[arg-type]
    for wrong in (
        "",
        "age1x",
        "ssh-ed25519 AAAA",
        "age1yubikey1qwt50d05nh5vutpdzmlg5wn80xq5negm4uj9ghv0snvdd3yysf5yw3rhl3t",
    ):
        with pytest.raises(BadBackup, match="is not a recipient"):
            backup.export(ENTRIES, at=AT, recipients=(wrong,))
    with pytest.raises(BadBackup, match="at most"):
        backup.export(ENTRIES, at=AT, recipients=TO * 33)
    with pytest.raises(WrongKey, match="empty"):
        backup.export(ENTRIES, at=AT, passphrase=Secret(b""))


def test_every_flipped_byte_and_every_cut_is_refused() -> None:
    data = backup.export([entry(1)], at=AT, recipients=TO)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        refused(bytes(changed), VaultFailed)
        refused(data[:place], VaultFailed)


def header(*stanzas: bytes) -> bytes:
    return b"age-encryption.org/v1\n" + b"".join(b"-> %s\nAAAA\n" % one for one in stanzas) + b"--- AAAA\n" + b"x" * 40


SALT = b"rF0/NwblUHHTpgQgRpe5CQ"


@pytest.mark.parametrize("factor", [22, 23, 30, 63, 99])
def test_a_hostile_work_factor_is_refused_by_its_number(factor: int) -> None:
    data = header(b"scrypt %s %d" % (SALT, factor))
    with pytest.raises(BadBackup, match=rf"2\^{factor} steps"):
        backup.read(data, passphrase=Secret(b"x"))
    armored = b"-----BEGIN AGE ENCRYPTED FILE-----\n" + base64.encodebytes(data) + b"-----END AGE ENCRYPTED FILE-----\n"
    with pytest.raises(BadBackup, match=rf"2\^{factor} steps"):
        backup.read(armored, passphrase=Secret(b"x"))


@pytest.mark.parametrize(
    "data",
    [
        header(b"X25519 AAAA", b"scrypt %s 10" % SALT), header(b"scrypt %s 10" % SALT, b"scrypt %s 10" % SALT),
        header(b"scrypt %s" % SALT), header(b"scrypt %s 010" % SALT), header(b"scrypt %s +9" % SALT),
        header(b"scrypt %s 1e9" % SALT), header(b"scrypt %s 9999999999" % SALT), header(b"scrypt  10"),
        header(b"scrypt"),
        b"", b"age-encryption.org/v1", b"age-encryption.org/v2\n--- x\n", b"age-encryption.org/v1\n" + b"-> a\n" * 9,
        b"\x00" * 100, b"-----BEGIN AGE ENCRYPTED FILE-----\n",
        b"-----BEGIN AGE ENCRYPTED FILE-----\n!!\n-----END AGE ENCRYPTED FILE-----",
        b"age-encryption.org/v1\n" + b"x" * 70_000 + b"\n--- AAAA\n",
    ],
    ids=lambda data: f"{len(data)} bytes",
)  # fmt: skip
def test_what_is_no_age_file(data: bytes) -> None:
    assert "not a whole age file" in refused(data)


def test_many_recipients_cost_nothing() -> None:
    assert "more than 64" in refused(header(*[b"X25519 AAAA"] * 2000))
    assert len(backup.read(backup.export(ENTRIES, at=AT, recipients=TO * 32), identity=KEY)) == 3


def test_a_huge_file_is_not_looked_at() -> None:
    assert "larger than 64 MiB" in refused(bytes(backup.MAX_BYTES + 1))


def test_too_much_to_back_up() -> None:
    with pytest.raises(BadBackup, match="at most 32 MiB"):
        backup.export([entry(number, b"x" * MAX_VALUE_BYTES) for number in range(400)], at=AT, recipients=TO)


def changed(**changes: Any) -> dict[str, Any]:
    return DOCUMENT | changes


def with_entry(**changes: Any) -> dict[str, Any]:
    return changed(secrets=[DOCUMENT["secrets"][0] | changes])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"not JSON", "the top"), (b"\xff\xfe", "the top"), (b"[" * 100_000, "the top"), ([], "the top"),
        ({"passwords": []}, "exported"), (changed(version=2), "version"), (changed(format="other"), "format"),
        (changed(extra=1), "extra"), (changed(secrets={"a": 1}), "secrets"),
        (changed(exported="yesterday"), "exported"),
        (with_entry(value="not base64!canary"), "base64"), (with_entry(value=""), "base64"),
        (with_entry(value=5), "value"),
        (with_entry(meta={}), "meta"), (with_entry(extra=1), "extra"),
        (with_entry(meta=DOCUMENT["secrets"][0]["meta"] | {"name": "canary\x1b[31m"}), "name"),
        (with_entry(meta=DOCUMENT["secrets"][0]["meta"] | {"exposure": "everywhere"}), "exposure"),
        (with_entry(meta=DOCUMENT["secrets"][0]["meta"] | {"scope": "personal:eve"}), "meta"),
        (changed(secrets=DOCUMENT["secrets"][:1] * 2), "twice"),
        (changed(**{"\x1b]0;canary\x07": 1}), "␛"),
    ],
)  # fmt: skip
def test_what_is_inside_is_checked_and_not_quoted(document: Any, words: str) -> None:
    said = refused(sealed(document))
    assert words in said and "\x1b" not in said and ("canary" not in said or "␛" in words)


@given(st.binary(max_size=300))
def test_anything_is_refused(data: bytes) -> None:
    refused(data, VaultFailed)
    refused(b"age-encryption.org/v1\n" + data, VaultFailed)
