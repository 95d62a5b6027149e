"""Secrets, vault and inbox in memory do what the real ones do: the same tests run against both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from console_source import MemorySource, a_project, a_session
from memory_secrets import a_request
from seeded import Seeded
from vaulted import Vaulted

from kortix_tui.base.errors import Conflict, NotFound, VaultLocked, WrongKey
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, VaultState
from kortix_tui.console.source import Source
from kortix_tui.runtime.inbox import ItemKind
from kortix_tui.runtime.vault_calls import SlotWish
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.models import Project
from kortix_tui.vault.secret import Secret

PASSPHRASE = b"correct horse battery"
VALUE = b"sk_live_51HqLyjWDarjtT1zdp7dc"
NEWER = b"sk_live_51HqLyjWDnewerVALUE77"


class Stage:
    """A source with one project and an open vault that only a passphrase opens."""

    def __init__(self, source: Source, recovery: str, ask: Callable[[], str]) -> None:
        self.source = source
        self.recovery = recovery
        self.ask = ask
        """An agent asks for a value; gives the request's id."""

    @property
    def project(self) -> Project:
        return self.source.projects.list()[0]

    def store(self, identifier: str = "STRIPE_API_KEY", value: bytes = VALUE) -> None:
        self.source.secrets.set(self.project, identifier, Secret(value))


def in_memory() -> Stage:
    memory = MemorySource()
    memory.project_rows = [a_project("acme")]
    memory.vault.slots = []
    _, recovery = memory.vault.init((SlotWish(kind="passphrase"),), passphrase=Secret(PASSPHRASE))
    assert recovery
    session = a_session(1, "Do it", project="acme", project_id="prj_acme")
    memory.session_rows = [session]

    def ask() -> str:
        memory.secrets.request_rows.append(a_request(1, session, "LEDGER_TOKEN", reason="it says 401"))
        return memory.secrets.request_rows[-1].id

    return Stage(memory, recovery, ask)


def real(home: Home, folder: Path) -> tuple[Stage, Vaulted]:
    desk = Vaulted(home, folder, quiet=False)
    assert desk.recovery
    seeded = Seeded(home)

    def ask() -> str:
        session = seeded.session(desk.project.id, status="stopped", wanted="stopped")
        with seeded.store.write() as tx:
            tx.execute(
                "INSERT INTO secret_requests (id, project_id, session_id, identifier, exposure, reason, state,"
                " created_at) VALUES ('req_1', ?, ?, 'LEDGER_TOKEN', 'connector', 'it says 401', 'open', ?)",
                (desk.project.id, session, tx.now_text),
            )
            tx.audit("secret_request.create", scope="secret LEDGER_TOKEN", actor=SYSTEM)
        seeded.close()
        return "req_1"

    return Stage(desk.runtime, desk.recovery, ask), desk


@pytest.fixture(params=["memory", "real"])
def stage(request: pytest.FixtureRequest, short_folder: Path) -> Iterator[Stage]:
    if request.param == "memory":
        yield in_memory()
        return
    made, desk = real(request.getfixturevalue("home"), short_folder / "repo")
    yield made
    desk.runtime.close()


def test_it_satisfies_the_protocol(stage: Stage) -> None:
    source: Source = stage.source
    for part, names in {
        "secrets": (
            "list", "show", "requests", "set", "set_many", "rotate", "unset", "share", "expose", "provide", "decline",
        ),
        "vault": (
            "status", "init", "unlock", "lock", "set_passphrase", "add_slot", "remove_slot", "rotate", "verify",
            "repair", "export", "import_",
        ),
        "inbox": ("list",),
        "edits": ("grant",),
    }.items():  # fmt: skip
        assert all(callable(getattr(getattr(source, part), name)) for name in names)


def test_a_secret_is_stored_rotated_and_forgotten(stage: Stage) -> None:
    secrets, project = stage.source.secrets, stage.project
    made = secrets.set(project, "STRIPE_API_KEY", Secret(VALUE), create=True)
    assert (made.created, made.secret.version, made.secret.owner) == (True, 1, "project")
    assert made.secret.exposure is Exposure.ENVIRONMENT
    assert made.says
    with pytest.raises(Conflict):
        secrets.set(project, "stripe_api_key", Secret(VALUE), create=True)
    with pytest.raises(NotFound):
        secrets.set(project, "OTHER", Secret(VALUE), create=False)
    again = secrets.rotate(project, "STRIPE_API_KEY", Secret(NEWER))
    assert (again.created, again.secret.id, again.secret.version) == (False, made.secret.id, 2)
    assert [row.identifier for row in secrets.list()] == ["STRIPE_API_KEY"]
    assert stage.source.vault.status().secrets == 1
    secrets.unset(project, "STRIPE_API_KEY")
    assert secrets.list() == []


def test_values_of_a_file_are_stored_at_once(stage: Stage) -> None:
    stage.store("B_TOKEN")
    values = [("A_TOKEN", Secret(VALUE)), ("B_TOKEN", Secret(NEWER))]
    stored = stage.source.secrets.set_many(stage.project, values, exposure=Exposure.CONNECTOR, only_me=None)
    assert [one.created for one in stored] == [True, False]
    rows = {row.identifier: row for row in stage.source.secrets.list(project=stage.project)}
    assert {name: row.version for name, row in rows.items()} == {"A_TOKEN": 1, "B_TOKEN": 2}
    assert rows["A_TOKEN"].exposure is Exposure.CONNECTOR
    assert [one.secret_id for one in stored] == [rows["A_TOKEN"].id, rows["B_TOKEN"].id]


def test_exposure_and_owner_change(stage: Stage) -> None:
    secrets, project = stage.source.secrets, stage.project
    stage.store()
    kept = secrets.expose(project, "STRIPE_API_KEY", Exposure.NONE, gateway=True).secret
    assert (kept.exposure, kept.gateway) == (Exposure.NONE, True)
    mine = secrets.share(project, "STRIPE_API_KEY", only_me=True).secret
    assert mine.owner != "project"
    assert secrets.share(project, "STRIPE_API_KEY", only_me=False).secret.owner == "project"


def test_the_page_has_every_agent(stage: Stage) -> None:
    stage.store()
    detail = stage.source.secrets.show(stage.project, "STRIPE_API_KEY")
    assert detail.secret.identifier == "STRIPE_API_KEY"
    assert detail.manifest_fault is None
    assert all(one.granted is (one.agent in detail.secret.agents) and one.why for one in detail.reach)
    assert detail.reach
    with pytest.raises(NotFound):
        stage.source.secrets.show(stage.project, "OTHER")


def test_lock_and_unlock(stage: Stage) -> None:
    vault = stage.source.vault
    stage.store()
    assert vault.status().state is VaultState.UNLOCKED
    assert vault.lock().state is VaultState.LOCKED
    with pytest.raises(VaultLocked):
        stage.store()
    assert [row.identifier for row in stage.source.secrets.list()] == ["STRIPE_API_KEY"]
    with pytest.raises(VaultLocked):
        vault.unlock()
    with pytest.raises(WrongKey):
        vault.unlock("passphrase", secret=Secret(b"wrong horse battery"))


def test_both_typed_keys_open(stage: Stage) -> None:
    vault = stage.source.vault
    vault.lock()
    assert vault.unlock("passphrase", secret=Secret(PASSPHRASE)).state is VaultState.UNLOCKED
    vault.lock()
    assert vault.unlock("recovery", secret=Secret(stage.recovery.encode())).state is VaultState.UNLOCKED


def test_keys_come_and_go(stage: Stage, short_folder: Path) -> None:
    vault = stage.source.vault
    before = vault.status()
    assert [slot.type for slot in before.slots] == ["passphrase", "recovery"]
    status, text = vault.add_slot(SlotWish(kind="keyfile", place=str(short_folder / "other.key")))
    assert text is None
    assert (status.generation or 0) > (before.generation or 0)
    added = next(slot for slot in status.slots if slot.type == "keyfile")
    assert added.place == str(short_folder / "other.key")
    assert "keyfile" not in [slot.type for slot in vault.remove_slot(added.id).slots]
    with pytest.raises(WrongKey):
        vault.set_passphrase(Secret(b"wrong horse battery"), Secret(b"another passphrase"))
    vault.set_passphrase(Secret(PASSPHRASE), Secret(b"another passphrase"))
    with pytest.raises(WrongKey):
        vault.rotate(passphrase=Secret(PASSPHRASE))
    rotated, text = vault.rotate(passphrase=Secret(b"another passphrase"))
    assert text
    assert rotated.state is VaultState.UNLOCKED


def test_whole_and_backed_up(stage: Stage) -> None:
    vault = stage.source.vault
    stage.store()
    check = vault.verify()
    assert (check.ok, check.records, check.faults) == (True, 1, ())
    assert vault.export(passphrase=Secret(b"for the backup")).startswith(b"age-encryption.org/v1\n")


def test_what_agents_ask_for(stage: Stage) -> None:
    secrets, inbox = stage.source.secrets, stage.source.inbox
    assert list(secrets.requests()) == []
    request_id = stage.ask()
    (request,) = secrets.requests()
    assert (request.id, request.identifier, request.project) == (request_id, "LEDGER_TOKEN", stage.project.slug)
    (item,) = inbox.list()
    assert (item.kind, item.reference, item.title) == (ItemKind.SECRET, request_id, "LEDGER_TOKEN: it says 401")
    given = secrets.provide(request_id, Secret(VALUE)).secret
    assert (given.identifier, given.exposure) == ("LEDGER_TOKEN", Exposure.CONNECTOR)
    assert list(secrets.requests()) == []
    assert inbox.list() == []
    with pytest.raises(NotFound):
        secrets.decline(request_id)


def test_no_is_an_answer(stage: Stage) -> None:
    stage.source.secrets.decline(stage.ask())
    assert list(stage.source.secrets.requests()) == []
    assert stage.source.secrets.list() == []
