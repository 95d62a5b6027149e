"""Which secrets a session gets: the rules, then the whole way from a real vault and a real base branch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bank import NEWER, OPERATOR, VALUE, Bank, open_bank
from desk import git
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kortix_tui.base.errors import Refused, VaultFailed, VaultLocked
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, PromptState
from kortix_tui.manifest.fields import SecretGrant
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime import delivery as module
from kortix_tui.runtime.delivery import Choice, Parcel, Standing, choose
from kortix_tui.runtime.vault_calls import ExposeSecret, UnlockVault, UnsetSecret
from kortix_tui.sandbox.frames import TurnOrder
from kortix_tui.store.models import Prompt

ALL = SecretGrant(everything=True)
NONE = SecretGrant()
ENV, EGRESS, CONNECTOR, OFF = Exposure.ENVIRONMENT, Exposure.EGRESS, Exposure.CONNECTOR, Exposure.NONE


@dataclass(frozen=True)
class Item:
    """A secret without a vault."""

    identifier: str
    name: str = ""
    owner: str = "project"
    exposure: Exposure = ENV
    id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.identifier.upper())
        object.__setattr__(self, "id", self.id or f"{self.owner}/{self.identifier}")


def named(*names: str) -> SecretGrant:
    return SecretGrant(names=names)


def standing(pinned: SecretGrant = ALL, base: SecretGrant = ALL, *, attended: bool = False) -> Standing:
    return Standing("op", attended, pinned, base)


def ids(choice: Choice[Item]) -> list[str]:
    return [item.id for item in choice.chosen]


@pytest.mark.parametrize(
    ("exposure", "pinned", "base", "goes"),
    [
        (ENV, ALL, ALL, True),
        (ENV, named("A"), ALL, True),
        (ENV, named("a"), named("A"), True),
        (ENV, ALL, NONE, False),
        (ENV, NONE, ALL, False),
        (ENV, named("A"), named("B"), False),
        (ENV, named("AB"), ALL, False),
        (CONNECTOR, named("A"), named("A"), False),
        (EGRESS, named("A"), named("A"), False),
        (OFF, ALL, ALL, False),
    ],
)
def test_both_grants_must_admit_it_and_only_one_exposure_enters(
    exposure: Exposure, pinned: SecretGrant, base: SecretGrant, goes: bool
) -> None:
    choice = choose([Item("A", exposure=exposure)], standing(pinned, base))
    assert ids(choice) == (["project/A"] if goes else []) and choice.notes == ()


@pytest.mark.parametrize(
    ("owner", "attended", "goes"),
    [("project", False, True), ("op", True, True), ("op", False, False), ("eve", True, False), ("eve", False, False)],
)
def test_a_persons_own_goes_to_that_person_at_a_terminal(owner: str, attended: bool, goes: bool) -> None:
    assert bool(choose([Item("A", owner=owner)], standing(attended=attended)).chosen) is goes


def test_a_persons_own_stands_before_the_projects_of_the_same_name() -> None:
    items = [Item("A"), Item("zz", "A", owner="op"), Item("B")]
    assert ids(choose(items, standing(attended=True))) == ["op/zz", "project/B"]
    assert ids(choose(items, standing())) == ["project/A", "project/B"]


@pytest.mark.parametrize(
    ("grant", "winner", "noted"),
    [
        (ALL, "project/alpha", True),
        (named("beta", "alpha"), "project/alpha", True),
        (named("beta"), "project/beta", False),
        (SecretGrant(everything=True, names=("beta",)), "project/beta", False),
    ],
)
def test_of_two_with_one_name_the_named_one_goes_then_the_first(grant: SecretGrant, winner: str, noted: bool) -> None:
    choice = choose([Item("beta", "KEY"), Item("alpha", "KEY")], standing(grant, grant))
    assert ids(choice) == [winner]
    assert choice.notes == (("KEY is the value of alpha; beta would have the same name.",) if noted else ())


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "KORTIX_TOKEN", "HTTPS_PROXY", "GIT_SSH", "lower"])
def test_a_name_that_is_not_allowed_never_goes_even_if_it_is_stored(name: str) -> None:
    choice = choose([Item("A", name)], standing())
    assert choice.chosen == () and "A does not go along" in choice.notes[0]


def test_a_base_branch_that_cannot_be_read_says_why_nothing_goes() -> None:
    choice = choose([Item("A")], replace(standing(base=NONE), fault="kortix.yaml on main is not valid"))
    assert choice.chosen == () and choice.notes == ("No secret goes along: kortix.yaml on main is not valid",)


NAMES = st.sampled_from(["A", "B", "C", "PATH"])
ITEMS = st.lists(
    st.builds(
        Item,
        st.sampled_from(["a", "b", "c", "d"]),
        NAMES,
        st.sampled_from(["project", "op", "eve"]),
        st.sampled_from(Exposure),
    ),
    max_size=12,
    unique_by=lambda item: item.id,
)
GRANTS = st.builds(
    SecretGrant, everything=st.booleans(), names=st.lists(st.sampled_from(["A", "b", "c", "D"])).map(tuple)
)


@given(ITEMS, GRANTS, GRANTS, st.booleans())
def test_whatever_is_chosen_may_be_chosen_and_nothing_that_may_be_is_left_without_a_reason(
    items: list[Item], pinned: SecretGrant, base: SecretGrant, attended: bool
) -> None:
    now = standing(pinned, base, attended=attended)
    chosen = choose(items, now).chosen
    assert choose(items[::-1], now).chosen == chosen
    assert len({item.name for item in chosen}) == len(chosen)
    for item in chosen:
        assert item.exposure is ENV and item.name != "PATH"
        assert item.owner == "project" or (attended and item.owner == "op")
        for grant in (pinned, base):
            assert grant.everything or grant.names_it(item.identifier)
    for item in items:
        if item.exposure is ENV and item.owner == "project" and item.name != "PATH" and now.admits(item):
            assert item.name in {one.name for one in chosen}
    # Less of a grant never gives more names.
    assert {one.name for one in choose(items, replace(now, base=NONE)).chosen} == set()
    assert {one.name for one in choose(items, replace(now, attended=False)).chosen} <= {one.name for one in chosen}


# The whole way


@pytest.fixture
async def bank(home: Home, short_folder: Path) -> AsyncIterator[Bank]:
    async with open_bank(home, short_folder) as made:
        yield made


async def test_what_is_granted_is_read_and_on_record_before_it_is_sent(bank: Bank) -> None:
    secret_id = await bank.store()
    await bank.store("OTHER", b"other_4bQ9xZ2mK7")
    parcel = await bank.parcel()
    assert dict(parcel.environment) == {"STRIPE_API_KEY": VALUE.decode()} and VALUE.decode() not in repr(parcel)
    assert bank.seeded.one("SELECT count(*) FROM deliveries") == (0,)
    await bank.delivery.record(bank.session, parcel, kind="turn", prompt="prm_1")
    assert bank.seeded.one("SELECT session_id, secret_id, version FROM deliveries") == (
        bank.session_id, secret_id, 1,
    )  # fmt: skip
    used, plain = bank.seeded.one("SELECT used_at, plain_at FROM secrets WHERE id = ?", secret_id)
    assert used is not None and plain == used
    events = bank.seeded.store.all("SELECT detail FROM audit WHERE event = 'secret.deliver'")
    assert len(events) == 1 and VALUE.decode() not in events[0][0] and '"version":1' in events[0][0]


async def test_the_next_turn_gets_the_new_version_and_the_old_mark_goes(bank: Bank) -> None:
    secret_id = await bank.store()
    await bank.deliver()
    await bank.store(value=NEWER)
    assert bank.seeded.one("SELECT plain_at FROM secrets WHERE id = ?", secret_id) == (None,)
    assert await bank.deliver() == {"STRIPE_API_KEY": NEWER.decode()}
    assert bank.seeded.store.all("SELECT version FROM deliveries ORDER BY version") == [(1,), (2,)]
    assert bank.custody.redactor.hits(VALUE) and bank.custody.redactor.hits(NEWER)


async def test_a_value_that_changed_since_it_was_read_is_not_sent(bank: Bank) -> None:
    await bank.store()
    parcel = await bank.parcel()
    await bank.store(value=NEWER)
    with pytest.raises(VaultFailed, match="changed in this moment"):
        await bank.delivery.record(bank.session, parcel, kind="turn")
    assert bank.seeded.one("SELECT count(*) FROM deliveries") == (0,)
    assert await bank.deliver() == {"STRIPE_API_KEY": NEWER.decode()}


async def test_what_the_vault_says_of_an_exposure_counts_and_not_the_index(bank: Bank) -> None:
    secret_id = await bank.store(exposure="connector")
    bank.seeded.set("secrets", secret_id, exposure="environment")
    assert await bank.deliver() == {}


async def test_a_secret_that_is_exposed_or_unset_counts_at_once(bank: Bank) -> None:
    secret_id = await bank.store()
    assert await bank.deliver() != {}
    await bank.acts.expose(ExposeSecret(secret_id=secret_id, exposure=CONNECTOR), OPERATOR)
    assert await bank.deliver() == {}
    await bank.acts.expose(ExposeSecret(secret_id=secret_id, exposure=ENV), OPERATOR)
    assert await bank.deliver() != {}
    await bank.acts.unset(UnsetSecret(secret_id=secret_id), OPERATOR)
    assert await bank.deliver() == {}


async def test_a_locked_vault_makes_who_gets_something_wait_and_nobody_else(bank: Bank) -> None:
    await bank.store()
    await bank.custody.lock(OPERATOR)
    with pytest.raises(VaultLocked, match="STRIPE_API_KEY") as waits:
        await bank.parcel()
    assert "kortix vault unlock" in str(waits.value)
    await bank.vault.unlock(UnlockVault(), (), OPERATOR)
    assert await bank.deliver() == {"STRIPE_API_KEY": VALUE.decode()}
    await bank.custody.lock(OPERATOR)
    bank.pin('{"everything":false,"names":["SOMETHING_ELSE"]}')
    assert await bank.parcel() == Parcel()


async def test_a_grant_that_was_taken_away_ends_the_wait(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    await bank.store()
    await bank.custody.lock(OPERATOR)
    bank.rewrite("[STRIPE_API_KEY]", "none")
    with pytest.raises(VaultLocked):  # nothing is fetched while it waits
        await bank.parcel()
    mirror = await Mirror.open(bank.seeded.home.mirror("prj_acme"))
    await mirror.fetch(str(bank.repository), base="main")
    assert await bank.parcel() == Parcel()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("secrets: [STRIPE_API_KEY]", "secrets: none", None),
        ("  teller:\n", "  teller:\n    enabled: false\n", "has no agent teller any more"),
        ("default_agent: script", "default_agent: nobody", "is not valid"),
    ],
)
async def test_what_a_person_tightens_counts_at_the_next_turn(bank: Bank, old: str, new: str, says: str | None) -> None:
    await bank.store()
    assert await bank.deliver() != {}
    bank.rewrite(old, new)
    assert await bank.deliver() == {} == await bank.deliver()
    said = [note for note in bank.notes if note.startswith("No secret goes along")]
    assert (len(said) == 1 and says in said[0]) if says else not said


async def test_a_base_branch_that_is_gone_gives_nothing(bank: Bank) -> None:
    await bank.store()
    git(bank.repository, "branch", "-m", "main", "trunk")
    assert await bank.deliver() == {} and "No secret goes along" in bank.notes[0]


async def test_a_source_that_cannot_be_reached_leaves_the_last_known_grant(bank: Bank) -> None:
    await bank.store()
    bank.repository.rename(bank.repository.with_name("elsewhere"))
    assert await bank.deliver() != {}
    assert "the source cannot be read now" in bank.notes[0]


async def test_without_a_vault_or_a_grant_nothing_is_asked(bank: Bank) -> None:
    bank.repository.rename(bank.repository.with_name("elsewhere"))  # whoever fetched would note it
    assert await bank.parcel() == Parcel()
    await bank.store("OTHER")
    assert await bank.parcel() == Parcel() and bank.notes == []


async def test_more_than_a_sandbox_takes_is_refused(bank: Bank) -> None:
    bank.rewrite("secrets: [STRIPE_API_KEY]", "secrets: all")
    bank.pin('{"everything":true,"names":[]}')
    for number in range(5):
        filler = f"{number}" + "".join(f"{step * 7919:x}" for step in range(12_000))
        await bank.store(f"BIG_{number}", filler.encode()[:60_000])
    with pytest.raises(Refused, match="a sandbox takes 256 KiB"):
        await bank.parcel()


async def test_an_order_shows_no_value_and_neither_does_an_error_about_one() -> None:
    order = TurnOrder(turn_id="t", command=("sh",), environment={"KEY": VALUE.decode()})
    assert VALUE.decode() not in repr(order) and VALUE.decode() not in str(order)
    with pytest.raises(ValidationError) as fault:
        TurnOrder.model_validate({"turn_id": "t", "command": ["sh"], "environment": {"KEY": [VALUE.decode()]}})
    assert VALUE.decode() not in str(fault.value)


async def test_a_prompt_that_waits_is_still_queued(bank: Bank) -> None:
    await bank.store()
    await bank.custody.lock(OPERATOR)
    with pytest.raises(VaultLocked):
        await bank.parcel()
    row = bank.seeded.store.one(f"SELECT {Prompt.columns()} FROM prompts WHERE session_id = ?", (bank.session_id,))
    assert Prompt.of(row or ()).state is PromptState.QUEUED
