"""A host's parts around a real vault, a real mirror, and one session; nothing of an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from desk import git, make_repository
from pydantic import TypeAdapter
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.manifest.plan import AgentPlan, plan_agent
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime.agent_secrets import AgentSecrets
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.delivery import Delivery, Parcel
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.runtime.preparing import Preparing, read_manifest
from kortix_tui.runtime.secret_acts import SecretActs
from kortix_tui.runtime.vault_acts import VaultActs
from kortix_tui.runtime.vault_calls import InitVault, SetSecret, SlotWish
from kortix_tui.sandbox.images import Images
from kortix_tui.store.audit import Actor
from kortix_tui.store.models import Session

OPERATOR = Actor(kind="human", name="op", via="cli", tty="/dev/pts/1")
VALUE = b"sk_live_51HqLyjWDarjtT1zdp7dc"
NEWER = b"sk_live_51HqLyjWDnewerVALUE77"


class Bank:
    """A session of agent `teller`, whose grant names `STRIPE_API_KEY`, and all that decides what it gets."""

    def __init__(
        self, seeded: Seeded, ledger: Ledger, preparing: Preparing, custody: Custody, repository: Path
    ) -> None:
        self.seeded, self.ledger, self.custody, self.repository = seeded, ledger, custody, repository
        self.delivery = Delivery(ledger, preparing, custody)
        self.acts, self.vault = SecretActs(custody), VaultActs(custody)
        self.notes: list[str] = []
        self.session_id = ""

    @property
    def session(self) -> Session:
        found = self.ledger.session(self.session_id)
        assert found is not None
        return found

    @property
    def agent(self) -> AgentSecrets:
        """The verbs behind the session's door."""
        return AgentSecrets(self.session_id, self.ledger, self.delivery, self.notes.append)

    async def store(self, identifier: str = "STRIPE_API_KEY", value: bytes = VALUE, **fields: object) -> str:
        wanted = SetSecret.model_validate({"project_id": "prj_acme", "identifier": identifier, **fields})
        return (await self.acts.set(wanted, value, OPERATOR)).secret_id

    async def parcel(self) -> Parcel:
        return await self.delivery.parcel(self.session, self.notes.append)

    async def deliver(self) -> dict[str, str]:
        parcel = await self.parcel()
        await self.delivery.record(self.session, parcel, kind="turn")
        return dict(parcel.environment)

    def pin(self, secrets: str) -> None:
        """Have the session's plan grant other secrets than the manifest did, as JSON."""
        plan, grant = self.ledger.plan(self.session_id), '{"everything":false,"names":["STRIPE_API_KEY"]}'
        assert plan is not None and grant in plan
        self.seeded.set("sessions", self.session_id, plan=plan.replace(grant, secrets))

    def rewrite(self, old: str, new: str) -> None:
        """Commit another manifest to the base branch."""
        manifest = self.repository / "kortix.yaml"
        manifest.write_text(manifest.read_text().replace(old, new))
        git(self.repository, "commit", "-qam", "Rewrite")


@asynccontextmanager
async def open_bank(home: Home, folder: Path) -> AsyncIterator[Bank]:
    """A bank with an open vault and no secret."""
    repository = make_repository(folder / "repo")
    seeded = Seeded(home)
    seeded.lead()
    assert seeded.lock is not None
    seeded.project(source=str(repository))
    mirror, _ = await Mirror.create_from(home.mirror("prj_acme"), str(repository))
    commit = await mirror.copy_base("main")
    plan = plan_agent(await read_manifest(mirror, commit), "teller")

    async def no_engine() -> None:
        raise AssertionError("no engine is needed to deliver")

    loop = LoopThread()
    context = Context(seeded.store, Settings(), OPERATOR, loop)
    ledger = Ledger(seeded.store, seeded.lock.epoch)
    preparing = Preparing(context, ledger, Images(no_engine, cache=folder))  # type: ignore[arg-type]
    custody = Custody(context, ledger, lambda: None)
    bank = Bank(seeded, ledger, preparing, custody, repository)
    stored = TypeAdapter(AgentPlan).dump_json(plan).decode()
    bank.session_id = seeded.session(agent="teller", base_commit=commit, plan=stored)
    wish = SlotWish(kind="keyfile", place=str(folder / "keys" / "vault.key"))
    await bank.vault.init(InitVault(slots=(wish,)), (), OPERATOR)
    try:
        yield bank
    finally:
        await custody.close()
        await ledger.close()
        seeded.close()
        loop.close()
