"""Backups and the `age` program, which knows nothing of our code: each opens what the other wrote."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from packages import need

from kortix_tui.base.words import Exposure
from kortix_tui.vault import backup
from kortix_tui.vault.backup import BackupEntry, Lock
from kortix_tui.vault.records import RecordMeta
from kortix_tui.vault.secret import Secret

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUE = "sk_live_4eC39HqL\nzweite Zeile ä".encode()
WORDS = "correct horse battery staple"
META = RecordMeta(
    id="sec_1", project="prj_a", identifier="stripe-live", name="STRIPE_KEY", scope="shared", owner="project",
    exposure=Exposure.CONNECTOR, connectors=("stripe",), version=2, created=AT,
)  # fmt: skip
ENTRIES = [BackupEntry(META, Secret(VALUE), "shop")]
EXPECTED = {
    "format": "kortix-secrets",
    "version": 1,
    "exported": "2026-01-31T12:00:00.000Z",
    "secrets": [
        {
            "meta": {
                "id": "sec_1", "project": "prj_a", "identifier": "stripe-live", "name": "STRIPE_KEY", "scope": "shared",
                "owner": "project", "exposure": "connector", "gateway": False, "hosts": [], "connectors": ["stripe"],
                "version": 2, "created": "2026-01-31T12:00:00.000Z", "retired": False,
            },
            "project": "shop",
            "value": base64.b64encode(VALUE).decode(),
        }
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def age() -> None:
    need(age="age", age_keygen="age", script="bsdutils", ssh_keygen="openssh-client")


def run(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    ).stdout


def at_terminal(*command: object, typed: str) -> None:
    """Run what asks at its terminal, and answer."""
    line = shlex.join(str(word) for word in command)
    done = subprocess.run(
        ["script", "-qec", line, "/dev/null"], input=typed.encode(), capture_output=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def keys(folder: Path) -> tuple[str, Path]:
    """A recipient and its identity, made by age."""
    identity = folder / "identity.txt"
    run("age-keygen", "-o", identity)
    return run("age-keygen", "-y", identity).strip(), identity


@pytest.mark.parametrize("armored", [False, True])
def test_age_opens_a_backup_for_a_recipient(armored: bool, tmp_path: Path) -> None:
    recipient, identity = keys(tmp_path)
    file = tmp_path / "backup.age"
    file.write_bytes(backup.export(ENTRIES, at=AT, recipients=[recipient], armored=armored))
    assert json.loads(run("age", "-d", "-i", identity, file)) == EXPECTED


def test_age_opens_a_backup_for_an_ssh_key(tmp_path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id")
    file = tmp_path / "backup.age"
    file.write_bytes(backup.export(ENTRIES, at=AT, recipients=[(tmp_path / "id.pub").read_text()]))
    assert json.loads(run("age", "-d", "-i", tmp_path / "id", file)) == EXPECTED
    (found,) = backup.read(file.read_bytes(), identity=Secret((tmp_path / "id").read_bytes()))
    assert found.value.use("test") == VALUE


def test_age_opens_a_backup_with_a_passphrase(tmp_path: Path) -> None:
    file, plain = tmp_path / "backup.age", tmp_path / "plain.json"
    file.write_bytes(backup.export(ENTRIES, at=AT, passphrase=Secret(WORDS.encode())))
    at_terminal("age", "-d", "-o", plain, file, typed=f"{WORDS}\n")
    assert json.loads(plain.read_bytes()) == EXPECTED


@pytest.mark.parametrize("armored", [False, True])
def test_what_age_wrote_for_a_recipient_is_read(armored: bool, tmp_path: Path) -> None:
    recipient, identity = keys(tmp_path)
    plain, file = tmp_path / "plain.json", tmp_path / "made.age"
    plain.write_text(json.dumps(EXPECTED, indent=4))
    run("age", *["-a"] * armored, "-r", recipient, "-o", file, plain)
    data = file.read_bytes()
    assert backup.lock_of(data) is Lock.IDENTITY
    (found,) = backup.read(data, identity=Secret(identity.read_bytes()))
    assert (found.meta, found.value.use("test")) == (META, VALUE)


def test_what_age_wrote_with_a_passphrase_is_read(tmp_path: Path) -> None:
    plain, file = tmp_path / "plain.json", tmp_path / "made.age"
    plain.write_text(json.dumps(EXPECTED))
    at_terminal("age", "-p", "-a", "-o", file, plain, typed=f"{WORDS}\n{WORDS}\n")
    data = file.read_bytes()
    assert backup.lock_of(data) is Lock.PASSPHRASE
    (found,) = backup.read(data, passphrase=Secret(WORDS.encode()))
    assert (found.meta, found.value.use("test")) == (META, VALUE)
