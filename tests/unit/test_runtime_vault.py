"""The host's hold on the vault: opened, locked, changed, lost and found, from any process of the home."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyrage  # type: ignore[import-untyped]
import pytest
from desk import make_repository, wait_for
from vaulted import NEWER, PASSPHRASE, VALUE, Vaulted

from kortix_tui.base.errors import (
    Conflict,
    InvalidInput,
    KortixError,
    NotFound,
    StoreFailed,
    VaultFailed,
    VaultLocked,
    VaultMissing,
    VaultTampered,
    WrongKey,
)
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, VaultState
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.control_frames import Call, FromHost, Part, Rejected, pack, short_path
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.inbox import ItemKind
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.vault_calls import SetSecret, SlotWish
from kortix_tui.store import audit
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Transaction
from kortix_tui.vault import backup
from kortix_tui.vault.backup import BackupEntry
from kortix_tui.vault.records import PROJECT, SHARED, RecordMeta
from kortix_tui.vault.secret import Secret

Make = Callable[..., Vaulted]
IDENTITY = pyrage.x25519.Identity.generate()
"""Opens the backups of these tests at once; a passphrase takes a second each time, on purpose."""
KEY = Secret(str(IDENTITY).encode())
TO = (str(IDENTITY.to_public()),)


@pytest.fixture
def make(home: Home, short_folder: Path) -> Iterator[Make]:
    made: list[Vaulted] = []

    def vaulted(**options: object) -> Vaulted:
        made.append(Vaulted(home, short_folder / "repo", **options))  # type: ignore[arg-type]
        return made[-1]

    yield vaulted
    for one in made:
        one.runtime.close()


@pytest.fixture
def desk(make: Make) -> Vaulted:
    return make()


def state(desk: Vaulted) -> VaultState:
    return desk.runtime.vault.status().state


# Keys and locks


def test_without_a_vault_there_is_a_hint(home: Home, short_folder: Path) -> None:
    from desk import Desk

    desk = Desk(home, make_repository(short_folder / "repo"))
    with pytest.raises(VaultMissing, match="kortix vault init"):
        desk.runtime.secrets.set(desk.project, "A_TOKEN", Secret(VALUE))
    assert desk.runtime.vault.status().state is VaultState.MISSING
    assert desk.runtime.secrets.redact(VALUE.decode()) == VALUE.decode()
    desk.runtime.close()


def test_a_second_vault_is_refused(desk: Vaulted) -> None:
    with pytest.raises(VaultFailed, match="already"):
        desk.runtime.vault.init((SlotWish(kind="keyfile"),))


def test_a_locked_vault_gives_nothing_and_finds_nothing(desk: Vaulted) -> None:
    desk.store()
    assert desk.redacts(VALUE)
    assert desk.runtime.vault.lock().state is VaultState.LOCKED
    for act in (
        lambda: desk.store("OTHER"),
        lambda: desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEY", Secret(NEWER)),
        lambda: desk.runtime.secrets.unset(desk.project, "STRIPE_API_KEY"),
        lambda: desk.runtime.secrets.expose(desk.project, "STRIPE_API_KEY", Exposure.NONE),
        lambda: desk.runtime.vault.export(passphrase=Secret(b"x")),
        lambda: desk.runtime.vault.verify(),
    ):
        with pytest.raises(VaultLocked, match="kortix vault unlock"):
            act()
    assert [view.identifier for view in desk.runtime.secrets.list()] == ["STRIPE_API_KEY"]  # names are no secret
    assert desk.runtime.vault.unlock().state is VaultState.UNLOCKED
    assert desk.redacts(VALUE)


def test_wrong_keys_are_recorded_and_slow_down(make: Make) -> None:
    desk = make(quiet=False)
    desk.runtime.vault.lock()
    with pytest.raises(WrongKey, match="opens no slot"):
        desk.runtime.vault.unlock("passphrase", secret=Secret(b"guess"))
    with pytest.raises(WrongKey, match="before the next try"):
        desk.runtime.vault.unlock("passphrase", secret=Secret(PASSPHRASE))

    def opened() -> bool:
        try:
            return desk.runtime.vault.unlock("passphrase", secret=Secret(PASSPHRASE)).state is VaultState.UNLOCKED
        except WrongKey:
            return False

    wait_for(opened)
    assert "vault.unlock denied" in desk.events("vault.unlock")


def test_many_guesses_at_once_are_no_more_than_one(make: Make) -> None:
    from concurrent.futures import ThreadPoolExecutor

    desk = make(quiet=False)
    desk.runtime.vault.lock()

    def guess(number: int) -> str:
        with pytest.raises(WrongKey) as caught:
            desk.runtime.vault.unlock("passphrase", secret=Secret(f"guess {number}".encode()))
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(guess, range(8)))
    tried = [text for text in told if "before the next try" not in text]
    assert 1 <= len(tried) < 8
    assert len([event for event in desk.events("vault.unlock") if event.endswith("denied")]) == len(tried)


def test_a_key_file_that_cannot_be_used_is_told_with_the_reason(desk: Vaulted) -> None:
    desk.runtime.vault.lock()
    desk.key_file.chmod(0o644)
    with pytest.raises(VaultFailed, match="open to others") as caught:
        desk.runtime.vault.unlock()
    assert "chmod 600" in (caught.value.hint or "")
    desk.key_file.chmod(0o600)
    key = desk.key_file.read_bytes()
    desk.key_file.write_bytes(bytes(32))
    with pytest.raises(WrongKey):
        desk.runtime.vault.unlock()
    desk.key_file.write_bytes(key)
    assert desk.runtime.vault.unlock().state is VaultState.UNLOCKED


def test_the_passphrase_changes_only_with_the_present_one(make: Make) -> None:
    desk = make(quiet=False)
    with pytest.raises(WrongKey):
        desk.runtime.vault.set_passphrase(None, Secret(b"newer words"))
    with pytest.raises(WrongKey):
        desk.runtime.vault.set_passphrase(Secret(b"not it"), Secret(b"newer words"))
    desk.runtime.vault.set_passphrase(Secret(PASSPHRASE), Secret(b"newer words"))
    desk.runtime.vault.lock()
    assert desk.runtime.vault.unlock("passphrase", secret=Secret(b"newer words")).state is VaultState.UNLOCKED
    assert [slot.type for slot in desk.runtime.vault.status().slots].count("passphrase") == 1


def test_keys_come_and_go_and_the_last_stays(desk: Vaulted) -> None:
    desk.store()
    first = next(slot.id for slot in desk.runtime.vault.status().slots if slot.type == "keyfile")
    _, nothing = desk.runtime.vault.add_slot(SlotWish(kind="passphrase"), passphrase=Secret(PASSPHRASE))
    assert nothing is None
    _, paper = desk.runtime.vault.add_slot(SlotWish(kind="recovery"))
    assert paper is not None and paper != desk.recovery
    desk.runtime.vault.remove_slot(first)
    desk.runtime.vault.lock()
    with pytest.raises(VaultLocked):
        desk.runtime.vault.unlock()
    assert desk.recovery is not None
    with pytest.raises(WrongKey):  # the earlier paper is void
        desk.runtime.vault.unlock("recovery", secret=Secret(desk.recovery.encode()))
    wait_for(lambda: _opens(desk, paper))
    for slot in desk.runtime.vault.status().slots[:-1]:
        desk.runtime.vault.remove_slot(slot.id)
    with pytest.raises(VaultFailed):
        desk.runtime.vault.remove_slot(desk.runtime.vault.status().slots[0].id)


def _opens(desk: Vaulted, paper: str) -> bool:
    try:
        return desk.runtime.vault.unlock("recovery", secret=Secret(paper.lower().encode())).state is VaultState.UNLOCKED
    except WrongKey:
        return False


def test_rotating_the_keys_keeps_the_values(make: Make) -> None:
    desk = make(quiet=False)
    desk.store()
    before = desk.runtime.vault.status().generation
    with pytest.raises(InvalidInput, match="passphrase is needed"):
        desk.runtime.vault.rotate()
    with pytest.raises(WrongKey):
        desk.runtime.vault.rotate(passphrase=Secret(b"guess"))
    status, paper = desk.runtime.vault.rotate(passphrase=Secret(PASSPHRASE))
    assert status.generation == (before or 0) + 1 and paper != desk.recovery
    assert desk.runtime.vault.verify().ok and desk.redacts(VALUE)
    desk.runtime.vault.lock()
    assert desk.runtime.vault.unlock("passphrase", secret=Secret(PASSPHRASE)).state is VaultState.UNLOCKED


def test_an_unused_vault_locks_itself(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kortix_tui.runtime.custody.LOCK_LOOK_S", 0.05)
    desk = make(secrets={"lock_minutes": 0.0001})
    wait_for(lambda: state(desk) is VaultState.LOCKED)
    assert not [item for item in desk.runtime.inbox.list() if item.kind is ItemKind.VAULT], "nothing is in it"


# Secrets


def test_a_secret_lives(desk: Vaulted) -> None:
    change = desk.runtime.secrets.set(desk.project, "STRIPE_API_KEY", Secret(VALUE))
    assert change.created and change.secret.exposure is Exposure.ENVIRONMENT and change.secret.version == 1
    assert any("environment" in line for line in change.says)
    again = desk.runtime.secrets.set(desk.project, "stripe_api_key", Secret(NEWER))
    assert not again.created and again.secret.version == 2 and again.secret.id == change.secret.id
    moved = desk.runtime.secrets.expose(desk.project, "STRIPE_API_KEY", Exposure.CONNECTOR)
    assert moved.secret.exposure is Exposure.CONNECTOR and moved.secret.version == 2
    mine = desk.runtime.secrets.share(desk.project, "STRIPE_API_KEY", only_me=True)
    assert mine.secret.owner == desk.runtime.context.actor.name
    assert desk.runtime.secrets.share(desk.project, "STRIPE_API_KEY", only_me=False).secret.owner == "project"
    desk.runtime.secrets.unset(desk.project, "STRIPE_API_KEY")
    assert desk.runtime.secrets.list() == [] and not desk.redacts(NEWER)
    told = [event for event in desk.events("secret.") if event != "secret.list"]
    assert told == [
        "secret.create", "secret.rotate", "secret.expose", "secret.share", "secret.share", "secret.delete",
    ]  # fmt: skip


def test_model_keys_stay_with_the_gateway(desk: Vaulted) -> None:
    change = desk.runtime.secrets.set(desk.project, "ANTHROPIC_API_KEY", Secret(VALUE))
    assert change.secret.exposure is Exposure.NONE and change.secret.gateway
    explicit = desk.runtime.secrets.set(
        desk.project, "OPENAI_API_KEY", Secret(NEWER), exposure=Exposure.ENVIRONMENT, hosts=None
    )
    assert explicit.secret.exposure is Exposure.ENVIRONMENT


def test_the_operators_default_exposure_counts(make: Make) -> None:
    desk = make(secrets={"default_exposure": "connector"})
    assert desk.runtime.secrets.set(desk.project, "A_TOKEN", Secret(VALUE)).secret.exposure is Exposure.CONNECTOR


@pytest.mark.parametrize(
    ("identifier", "options", "value"),
    [
        ("bad identifier", {}, VALUE),
        ("", {}, VALUE),
        ("A_TOKEN", {"name": "PATH"}, VALUE),
        ("A_TOKEN", {"name": "KORTIX_TOKEN"}, VALUE),
        ("A_TOKEN", {}, b""),
        ("A_TOKEN", {}, b"short"),
        ("A_TOKEN", {}, b"a\0bcdefghijkl"),
        ("A_TOKEN", {}, b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7"),
        ("A_TOKEN", {}, b"x" * 65537),
        ("A_TOKEN", {"hosts": ("api.example.com",)}, VALUE),
        ("A_TOKEN", {"exposure": Exposure.EGRESS}, VALUE),
        ("A_TOKEN", {"exposure": Exposure.EGRESS, "hosts": ("*",)}, VALUE),
    ],
)
def test_what_cannot_be_a_secret_is_refused_without_showing_it(
    desk: Vaulted, identifier: str, options: dict[str, object], value: bytes
) -> None:
    with pytest.raises(InvalidInput) as caught:
        desk.store(identifier, value, **options)
    if value:
        assert value.decode("latin-1") not in str(caught.value)
    assert desk.runtime.secrets.list() == []


def test_create_and_rotate_say_what_they_expect(desk: Vaulted) -> None:
    desk.store(create=True)
    with pytest.raises(Conflict):
        desk.store(create=True)
    with pytest.raises(NotFound, match="Did you mean STRIPE_API_KEY"):
        desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEI", Secret(VALUE))
    with pytest.raises(Conflict):
        desk.store(only_me=True)
        desk.runtime.secrets.share(desk.project, "STRIPE_API_KEY", only_me=False)


def test_a_personal_secret_shadows_the_projects(desk: Vaulted) -> None:
    desk.store()
    desk.store(value=NEWER, only_me=True)
    assert {view.owner for view in desk.runtime.secrets.list()} == {"project", desk.runtime.context.actor.name}
    assert desk.runtime.secrets.find(desk.project, "STRIPE_API_KEY").owner != "project"


def _delivered(desk: Vaulted, session: str, secret: str, version: int) -> None:
    with desk.runtime.context.store.write() as tx:
        tx.execute("INSERT INTO deliveries VALUES (?, ?, ?, ?)", (session, secret, version, tx.now_text))
        tx.audit("secret.deliver", scope="test", actor=SYSTEM)


def test_a_version_that_was_in_a_sandbox_is_marked_until_the_next(desk: Vaulted) -> None:
    secret = desk.store()
    desk.runtime.stop_hosting()
    session = desk.start("true")
    for version in (1, 2):  # a turn may get a version before its row is written
        _delivered(desk, session.id, secret, version)
    desk.runtime.start_hosting()
    assert desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEY", Secret(NEWER)).secret.plain
    assert not desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEY", Secret(VALUE)).secret.plain


def test_an_old_value_is_found_as_long_as_a_sandbox_may_print_it(desk: Vaulted) -> None:
    secret = desk.store()
    desk.runtime.stop_hosting()
    session = desk.start("true")  # a row is enough
    _delivered(desk, session.id, secret, 1)
    desk.runtime.start_hosting()
    desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEY", Secret(NEWER))
    assert desk.redacts(VALUE) and desk.redacts(NEWER)
    desk.runtime.secrets.unset(desk.project, "STRIPE_API_KEY")
    assert desk.redacts(VALUE)
    desk.restart()
    wait_for(lambda: state(desk) is VaultState.UNLOCKED)
    assert desk.redacts(VALUE) and desk.runtime.secrets.list() == []
    assert desk.runtime.vault.verify().records == 1
    with desk.runtime.context.store.write() as tx:
        tx.execute("UPDATE sessions SET removed_at = ? WHERE id = ?", (tx.now_text, session.id))
        tx.audit("session.delete", scope="test", actor=SYSTEM)
    desk.store("OTHER_TOKEN", NEWER)
    assert not desk.redacts(VALUE)


def test_an_import_over_a_secret_keeps_finding_what_sandboxes_may_print(desk: Vaulted) -> None:
    secret = desk.store()
    data = desk.runtime.vault.export(recipients=TO)
    desk.runtime.secrets.rotate(desk.project, "STRIPE_API_KEY", Secret(NEWER))
    desk.runtime.stop_hosting()
    session = desk.start("true")
    _delivered(desk, session.id, secret, 2)
    desk.runtime.start_hosting()
    report = desk.runtime.vault.import_(data, KEY, identity=True, overwrite=True)
    assert report.changed == ("STRIPE_API_KEY",)
    assert desk.redacts(VALUE) and desk.redacts(NEWER)


# Other processes, and deaths


def test_any_process_reaches_the_vault_through_the_host(desk: Vaulted) -> None:
    viewer = Runtime(desk.home, desk.settings, operator_actor("cli"))
    viewer.secrets.set(desk.project, "STRIPE_API_KEY", Secret(VALUE))
    assert desk.redacts(VALUE)
    viewer.vault.lock()
    assert state(desk) is VaultState.LOCKED
    viewer.close()


def test_a_key_file_opens_it_after_a_take_over(desk: Vaulted) -> None:
    desk.store()
    viewer = Runtime(desk.home, desk.settings, operator_actor("cli"))
    viewer.start_hosting()
    desk.runtime.stop_hosting()
    wait_for(lambda: viewer.host().here)
    assert VALUE.decode() not in viewer.secrets.redact(VALUE.decode())
    viewer.close()


def test_what_a_person_locked_stays_locked_for_later_hosts(desk: Vaulted) -> None:
    desk.store()
    desk.runtime.vault.lock()
    desk.restart()
    with pytest.raises(VaultLocked):
        desk.store("OTHER")
    assert desk.runtime.vault.unlock().state is VaultState.UNLOCKED
    desk.restart()
    desk.store("OTHER")
    assert desk.runtime.vault.status().previous


def test_a_take_over_without_a_key_is_in_the_inbox(make: Make) -> None:
    desk = make(quiet=False)
    desk.store()
    desk.restart()
    wait_for(lambda: desk.runtime.inbox.list())
    (item,) = desk.runtime.inbox.list()
    assert item.kind is ItemKind.VAULT and item.reference == "vault" and "kortix vault unlock" in item.says
    desk.runtime.vault.unlock("passphrase", secret=Secret(PASSPHRASE))
    assert desk.runtime.inbox.list() == []
    desk.runtime.vault.lock()
    assert desk.runtime.inbox.list() == [], "a person locked it, and nobody waits"


KILLED = """
import sys
sys.path[:0] = sys.argv[4:]
from doomed_host import die, die_at_commit
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.vault.secret import Secret
from kortix_tui.vault import vault
runtime = Runtime(Home.locate(), Settings(), operator_actor("cli"))
runtime.start_hosting()
runtime.vault.unlock()
project = runtime.projects.list()[0]
if sys.argv[1] == "commit":
    die_at_commit(1)
else:
    write = vault.Vault._write
    def doomed(*arguments, **options):
        write(*arguments, **options)
        die()
    vault.Vault._write = doomed
values = [Secret(sys.argv[3].encode())] if sys.argv[3] else []
getattr(runtime.secrets, sys.argv[2])(project, "STRIPE_API_KEY", *values)
"""


@pytest.mark.parametrize("place", ["file", "commit"])
@pytest.mark.parametrize("act", ["set", "rotate", "unset"])
def test_a_death_in_the_middle_leaves_vault_and_index_in_step(desk: Vaulted, place: str, act: str) -> None:
    if act != "set":
        desk.store()
    desk.runtime.close()
    support = str(Path(__file__).parent.parent / "support")
    arguments = [place, act, "" if act == "unset" else NEWER.decode(), support]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=60, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    desk.runtime = Runtime(desk.home, desk.settings, operator_actor("cli"))
    desk.runtime.start_hosting()
    desk.runtime.vault.unlock()
    found = {view.identifier: view.version for view in desk.runtime.secrets.list()}
    # The vault was written before the death, so that is what counts, whatever the index knew.
    assert found == {"set": {"STRIPE_API_KEY": 1}, "rotate": {"STRIPE_API_KEY": 2}, "unset": {}}[act]
    assert desk.runtime.vault.verify().ok
    assert desk.redacts(NEWER) is (act != "unset")
    assert ("secret.reconcile" in " ".join(desk.events("secret."))) is (place == "file")
    assert desk.runtime.audit.verify().ok


def test_a_client_that_leaves_tears_nothing(desk: Vaulted) -> None:
    arguments = SetSecret(project_id=desk.project.id, identifier="STRIPE_API_KEY").model_dump_json()
    call = Call(verb=SetSecret.verb, arguments=arguments, sizes=(len(VALUE),), actor=operator_actor("cli"))
    with socket.socket(socket.AF_UNIX) as client, short_path(desk.home.control_socket) as name:
        client.connect(name)
        client.sendall(pack(call, VALUE))
    wait_for(lambda: desk.runtime.secrets.list())
    assert desk.redacts(VALUE)


# Faults of the file


def test_an_older_file_is_refused_until_a_person_accepts_it(desk: Vaulted) -> None:
    desk.store()
    shutil.copy2(desk.home.vault, desk.home.path / "copy")
    desk.store(value=NEWER)
    desk.runtime.close()
    (desk.home.path / "copy").replace(desk.home.vault)
    desk.runtime = Runtime(desk.home, desk.settings, operator_actor("cli"))
    desk.runtime.start_hosting()
    wait_for(lambda: state(desk) is VaultState.ROLLED_BACK)
    with pytest.raises(VaultFailed):
        desk.store("OTHER")
    assert any(item.kind is ItemKind.VAULT for item in desk.runtime.inbox.list())
    with pytest.raises(VaultTampered):
        desk.runtime.vault.unlock()
    assert desk.recovery is not None
    for guess in (None, 99):
        with pytest.raises(VaultTampered, match="not the one that was seen last"):
            desk.runtime.vault.repair(passphrase=None, recovery=Secret(desk.recovery.encode()), accept_generation=guess)
    assert state(desk) is VaultState.ROLLED_BACK
    generation = desk.runtime.vault.status().generation
    status = desk.runtime.vault.repair(
        passphrase=None, recovery=Secret(desk.recovery.encode()), accept_generation=generation
    )
    assert status.state is VaultState.UNLOCKED
    assert desk.redacts(VALUE) and not desk.redacts(NEWER)
    assert {view.version for view in desk.runtime.secrets.list()} == {1}


def test_a_change_by_somebody_without_the_key_locks_everything(desk: Vaulted) -> None:
    desk.store()
    raw = bytearray(desk.home.vault.read_bytes())
    raw[len(raw) // 2] ^= 1
    desk.home.vault.write_bytes(raw)
    with pytest.raises(VaultFailed):
        desk.store("OTHER")
    wait_for(lambda: state(desk) in (VaultState.TAMPERED, VaultState.CORRUPT))
    with pytest.raises(VaultFailed):
        desk.runtime.vault.unlock()


def test_a_torn_file_is_told_and_mended_from_the_one_before(desk: Vaulted) -> None:
    desk.store()
    desk.store("OTHER", NEWER)
    desk.runtime.close()
    raw = desk.home.vault.read_bytes()
    desk.home.vault.write_bytes(raw[: len(raw) // 2])
    desk.runtime = Runtime(desk.home, desk.settings, operator_actor("cli"))
    desk.runtime.start_hosting()
    wait_for(lambda: state(desk) is VaultState.CORRUPT)
    with pytest.raises(VaultFailed):
        desk.store("THIRD")
    assert desk.recovery is not None
    status = desk.runtime.vault.repair(passphrase=None, recovery=Secret(desk.recovery.encode()), from_previous=True)
    assert status.state is VaultState.UNLOCKED and desk.redacts(VALUE)


def test_a_missing_file_is_told(desk: Vaulted) -> None:
    desk.store()
    desk.runtime.close()
    desk.home.vault.unlink()
    desk.runtime = Runtime(desk.home, desk.settings, operator_actor("cli"))
    desk.runtime.start_hosting()
    wait_for(lambda: desk.runtime.vault.status().reason)
    assert desk.runtime.vault.status().state is VaultState.MISSING
    with pytest.raises(VaultMissing):
        desk.store("OTHER")
    (view,) = desk.runtime.secrets.list()
    assert view.identifier == "STRIPE_API_KEY", "the names survive"


# The record


def test_the_vault_holds_the_record_to_its_word(desk: Vaulted) -> None:
    desk.store()
    assert desk.runtime.audit.verify().ok
    desk.runtime.close()
    # Whoever has the home has the audit key too, and can write a chain that fits; the vault's key is elsewhere.
    raw = sqlite3.connect(desk.home.database)
    key = audit.load_key(desk.home)
    raw.execute("DROP TRIGGER audit_no_update")
    previous = audit.GENESIS
    for row in raw.execute("SELECT * FROM audit ORDER BY seq").fetchall():
        fields = list(row[1:10])
        if row[2] == "secret.create":
            fields[2] = "nothing happened"
        digest = audit._digest(key, row[0], previous, tuple(fields))
        raw.execute(
            "UPDATE audit SET scope = ?, prev = ?, hash = ? WHERE seq = ?", (fields[2], previous, digest, row[0])
        )
        previous = digest
    raw.commit()
    raw.close()
    desk.home.audit_head.unlink()
    store = Runtime(desk.home, desk.settings, operator_actor("cli"))
    report = store.audit.verify()
    assert not report.ok and "the vault" in str(report.fault)
    desk.key_file.rename(desk.key_file.with_name("elsewhere"))
    report = store.audit.verify()
    assert report.ok and "locked" in report.notes[0]
    desk.key_file.with_name("elsewhere").rename(desk.key_file)
    store.close()


# The socket


def _talk(desk: Vaulted, *frames: bytes) -> list[object]:
    answers: list[object] = []
    from kortix_tui.guest import wire

    with socket.socket(socket.AF_UNIX) as client, short_path(desk.home.control_socket) as name:
        client.settimeout(20)
        client.connect(name)
        for frame in frames:
            client.sendall(frame)
        client.shutdown(socket.SHUT_WR)
        decoder = wire.Decoder()
        while data := client.recv(65536):
            answers += [FromHost.validate_json(header) for header, _ in decoder.feed(data)]
    return answers


@pytest.mark.parametrize(
    "frames",
    [
        [pack(Call(verb="vault.lock", arguments="{", actor=operator_actor("cli")))],
        [pack(Call(verb="vault.lock", arguments='{"x": 1}', actor=operator_actor("cli")))],
        [pack(Call(verb="nothing", arguments="{}", actor=operator_actor("cli")))],
        [pack(Call(verb="secret.set", arguments="{}", sizes=(3,), actor=operator_actor("cli")), b"four")],
        [pack(Call(verb="secret.set", arguments="{}", sizes=(3,), actor=operator_actor("cli"), more=True), b"123")],
        [pack(Call(verb="vault.lock", arguments="{}", sizes=(1,), actor=operator_actor("cli")), b"x")],
        [pack(Part())],
        [b"\0\0\0\1garbage" * 10],
    ],
)
def test_wrong_calls_are_refused_and_the_host_goes_on(desk: Vaulted, frames: list[bytes]) -> None:
    (answer,) = _talk(desk, *frames)
    assert isinstance(answer, Rejected)
    assert state(desk) is VaultState.UNLOCKED


def test_nobody_else_may_call(desk: Vaulted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kortix_tui.runtime.control.os.geteuid", lambda: os.getuid() + 1)
    (answer,) = _talk(desk, pack(Call(verb="vault.lock", arguments="{}", actor=operator_actor("cli"))))
    assert isinstance(answer, Rejected) and answer.failure.message == "This home belongs to another user."


def test_two_writers_at_once_lose_nothing(desk: Vaulted) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: desk.store(f"TOKEN_{n}", VALUE + str(n).encode()), range(24)))
    assert len(desk.runtime.secrets.list()) == 24
    assert desk.runtime.vault.verify().records == 24


def test_the_same_secret_set_many_times_at_once_gets_a_version_each_time(desk: Vaulted) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: desk.store("TOKEN", VALUE + str(n).encode()), range(24)))
    assert [view.version for view in desk.runtime.secrets.list()] == [24]


def test_a_backup_with_what_cannot_be_a_secret_gives_the_rest(desk: Vaulted) -> None:
    made = {"project": "prj_elsewhere", "identifier": "GOOD", "name": "GOOD", "scope": SHARED, "owner": PROJECT,
            "exposure": Exposure.ENVIRONMENT, "version": 3, "created": datetime(2026, 1, 2, tzinfo=UTC)}  # fmt: skip
    entries = [
        BackupEntry(RecordMeta.model_validate(made | {"id": f"sec_{number}"} | change), Secret(value))
        for number, (change, value) in enumerate((
            ({}, VALUE),
            ({"project": "prj_third", "identifier": "good"}, NEWER),  # the same, once both are in one project
            ({"identifier": "loader", "name": "LD_PRELOAD"}, VALUE),
            ({"identifier": "weak", "name": "WEAK"}, b"aaaaaaaaaaaa"),
        ))
    ]  # fmt: skip
    data = backup.export(entries, at=datetime(2026, 1, 2, tzinfo=UTC), recipients=TO)
    report = desk.runtime.vault.import_(data, KEY, identity=True, project_id=desk.project.id)
    assert report.created == ("GOOD",) and len(report.skipped) == 3
    assert desk.redacts(VALUE) and not desk.redacts(NEWER)


def test_a_long_answer_arrives_whole(desk: Vaulted) -> None:
    many = [
        BackupEntry(
            RecordMeta(
                id=f"sec_{number}", project="prj_elsewhere", identifier=f"{'x' * 120}{number:05}", name="TOKEN",
                scope=SHARED, owner=PROJECT, exposure=Exposure.CONNECTOR, version=1,
                created=datetime(2026, 1, 2, tzinfo=UTC),
            ),
            Secret(VALUE),
        )
        for number in range(7000)
    ]  # fmt: skip
    data = backup.export(many, at=datetime(2026, 1, 2, tzinfo=UTC), recipients=TO)
    assert len(desk.runtime.vault.import_(data, KEY, identity=True).skipped) == 7000


def test_a_store_that_cannot_be_written_leaves_no_index_behind(desk: Vaulted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vault has the value already: it must be found in texts, and the next act must see it."""
    real, full = Ledger.write, [True]

    async def write(ledger: Ledger, change: Callable[[Transaction], object]) -> object:
        if full:
            raise StoreFailed("The disk is full.")
        return await real(ledger, change)

    monkeypatch.setattr(Ledger, "write", write)
    with pytest.raises(StoreFailed):
        desk.store()
    assert desk.redacts(VALUE) and desk.runtime.secrets.list() == []
    full.clear()
    desk.store(value=NEWER)
    assert {view.identifier: view.version for view in desk.runtime.secrets.list()} == {"STRIPE_API_KEY": 2}
    assert "secret.reconcile" in desk.events("secret.")
    assert desk.runtime.vault.verify().records == 1


def test_many_values_are_stored_in_one_write_or_not_at_all(desk: Vaulted) -> None:
    desk.store("TOKEN_7", VALUE)
    before = desk.runtime.vault.status().generation or 0
    values = [(f"TOKEN_{number}", Secret(NEWER + str(number).encode())) for number in range(120)]
    stored = desk.runtime.secrets.set_many(desk.project, values)
    assert desk.runtime.vault.status().generation == before + 1
    assert [one.created for one in stored].count(False) == 1
    assert {view.version for view in desk.runtime.secrets.list() if view.identifier == "TOKEN_7"} == {2}
    assert desk.redacts(NEWER + b"119") and not desk.redacts(VALUE)
    with pytest.raises(InvalidInput):
        desk.runtime.secrets.set_many(desk.project, [("FINE", Secret(VALUE)), ("WEAK", Secret(b"abc"))])
    assert len(desk.runtime.secrets.list()) == 120


def test_an_export_comes_back_in_another_home(desk: Vaulted, short_folder: Path) -> None:
    desk.store()
    desk.store("MINE", NEWER, only_me=True)
    data = desk.runtime.vault.export(passphrase=Secret(b"on a stick"))
    assert VALUE not in data
    quick = desk.runtime.vault.export(recipients=TO)
    os.environ["KORTIX_CONFIG_HOME"] = str(short_folder / "config2")
    other = Vaulted(Home(short_folder / "home2"), short_folder / "repo2")
    try:
        for wrong in ({"key": Secret(b"not it")}, {"key": KEY, "identity": True}):
            with pytest.raises(WrongKey):
                other.runtime.vault.import_(data, **wrong)
        report = other.runtime.vault.import_(data, Secret(b"on a stick"))
        assert len(report.skipped) == 2, "their project is not known there"
        report = other.runtime.vault.import_(quick, KEY, identity=True, project_id=other.project.id)
        assert other.project.slug != desk.project.slug
        assert set(report.created) == {"STRIPE_API_KEY", "MINE"} and other.redacts(VALUE)
        assert {view.owner for view in other.runtime.secrets.list()} == {"project", other.runtime.context.actor.name}
        for identifier in ("STRIPE_API_KEY", "MINE"):
            other.runtime.secrets.unset(other.project, identifier)
        (short_folder / "elsewhere").mkdir()
        namesake = other.runtime.projects.add(str(make_repository(short_folder / "elsewhere" / "repo")))
        assert namesake.slug == desk.project.slug
        assert set(other.runtime.vault.import_(quick, KEY, identity=True).created) == {"STRIPE_API_KEY", "MINE"}
        assert {view.project_id for view in other.runtime.secrets.list()} == {namesake.id}
    finally:
        other.runtime.close()


def test_errors_cross_the_socket_with_their_kind(desk: Vaulted) -> None:
    with pytest.raises(KortixError) as caught:
        desk.runtime.vault.remove_slot("slot_none")
    assert caught.value.hint is not None
    time.sleep(0)
