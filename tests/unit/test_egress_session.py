"""Which hosts a session may reach, and what is written of every attempt: real manifests, mirror, store and sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from bank import OPERATOR, VALUE, Bank, open_bank
from desk import git
from pydantic import TypeAdapter

from kortix_tui.base.errors import KortixError
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import EgressSettings
from kortix_tui.base.words import Outcome
from kortix_tui.broker.network.resolving import Unreachable, connect
from kortix_tui.manifest.egress import NetworkEgress, covered, covers
from kortix_tui.manifest.plan import AgentPlan, plan_agent
from kortix_tui.repository.names import branch_ref
from kortix_tui.runtime import egressing
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.egress import EgressLog
from kortix_tui.runtime.egressing import EgressBusy, EgressCeiling, EgressDenied, Rules, SessionEgress

RULES = "network_egress: {version: 1, rules: [{host: api.example.com}, {host: '*.corp.example', ports: [443, 8443]}]}"
NO_RULES = "network_egress: {version: 1}"
LOOPBACK = ("127.0.0.0/8",)


def egress(**fields: object) -> NetworkEgress:
    return NetworkEgress.model_validate({"version": 1, **fields})


# Rules alone


@pytest.mark.parametrize(
    ("pattern", "host", "fits"),
    [
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "api.example.com.evil.example", False),
        ("api.example.com", "xapi.example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("*.example.com", "a.example.com.evil.example", False),
    ],
)
def test_patterns_are_exact_or_a_suffix(pattern: str, host: str, fits: bool) -> None:
    assert covers(pattern, host) is fits
    assert covered((pattern.upper(),), host) is fits
    assert covered(("*",), host) and not covered((), host)


def test_rules_and_presets_allow_a_host_and_its_ports_and_nothing_else() -> None:
    rules = egress(rules=[{"host": "api.example.com"}, {"host": "*.x.example", "ports": [22]}], presets=["debian"])
    assert rules.allowing("api.example.com", 443) == "api.example.com"
    assert rules.allowing("a.x.example", 22) == "*.x.example"
    for host, port in (("api.example.com", 80), ("a.x.example", 443), ("example.com", 443), ("127.0.0.1", 443)):
        assert rules.allowing(host, port) is None
    assert not egress().opens and egress(presets=["npm"]).opens


def test_presets_name_the_hosts_of_three_package_managers() -> None:
    found = {
        (preset, host, port)
        for preset in ("pypi", "npm", "debian")
        for host in (
            "pypi.org",
            "files.pythonhosted.org",
            "registry.npmjs.org",
            "deb.debian.org",
            "security.debian.org",
        )
        for port in (80, 443)
        if egress(presets=[preset]).allowing(host, port) == f"preset {preset}"
    }
    assert found == {
        ("pypi", "pypi.org", 443), ("pypi", "files.pythonhosted.org", 443), ("npm", "registry.npmjs.org", 443),
        ("debian", "deb.debian.org", 80), ("debian", "deb.debian.org", 443),
        ("debian", "security.debian.org", 80), ("debian", "security.debian.org", 443),
    }  # fmt: skip


OPEN = egress(rules=[{"host": "api.example.com"}, {"host": "*.x.example"}])


def rules(
    pinned: NetworkEgress | None = OPEN, base: NetworkEgress | None = OPEN, fault: str | None = None, **ceiling: object
) -> Rules:
    return Rules(pinned, base, fault, EgressSettings.model_validate(ceiling), "robin", "main")


@pytest.mark.parametrize(
    ("given", "host", "error", "words"),
    [
        (rules(), "other.example", EgressDenied, "No network_egress rule of agent robin allows other.example:443"),
        (rules(pinned=None), "api.example.com", EgressDenied, "No network_egress rule"),
        (rules(), "169.254.169.254", EgressDenied, "is an address"),
        (rules(), "::1", EgressDenied, "is an address"),
        (rules(base=None), "api.example.com", EgressDenied, "main does not allow it any more"),
        (rules(base=egress()), "api.example.com", EgressDenied, "main does not allow it any more"),
        (rules(base=None, fault="kortix.yaml on main is not valid"), "api.example.com", EgressDenied, "is not valid"),
        (rules(deny=["api.example.com"]), "api.example.com", EgressCeiling, "operator's settings"),
        (rules(deny=["*.EXAMPLE.com"]), "api.example.com", EgressCeiling, "operator's settings"),
        (rules(allow=["*.x.example"]), "api.example.com", EgressCeiling, "operator's settings"),
        (rules(allow=[]), "api.example.com", EgressCeiling, "operator's settings"),
    ],
)
def test_what_one_of_the_three_does_not_allow_is_refused(
    given: Rules, host: str, error: type[KortixError], words: str
) -> None:
    with pytest.raises(error, match=words.replace(".", r"\.")):
        given.allowing(host, 443)


def test_what_all_three_allow_is_allowed() -> None:
    assert rules(allow=["api.example.com"]).allowing("api.example.com", 443) == "api.example.com"
    assert rules(deny=["a.x.example"]).allowing("b.x.example", 443) == "*.x.example"
    # Widened on the base branch only, or pinned wider than the base: the narrower counts.
    with pytest.raises(EgressDenied):
        rules(pinned=egress(rules=[{"host": "api.example.com"}])).allowing("a.x.example", 443)


# The whole way


class Desk:
    """A session of an agent with rules, a server that every name leads to, and the record of both."""

    def __init__(self, bank: Bank, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bank, self.port = bank, port
        self.addresses = dict[str, tuple[str, ...]]()
        self.lookups = 0
        self._patch = monkeypatch
        self._patch.setattr(egressing, "connect", partial(connect, resolver=self.resolve))
        self.told: Callable[[str], str] = lambda text: bank.custody.redactor.text(text)
        self.made = list[SessionEgress]()

    async def resolve(self, host: str, port: int, /) -> tuple[str, ...]:
        self.lookups += 1
        return self.addresses.get(host, ("127.0.0.1",))

    async def pin(self, rules: str) -> None:
        """Give the agent these rules on the base branch, and the session a plan from there."""
        await self.base(rules)
        preparing = self.bank.delivery._preparing
        mirror = await preparing.mirror("prj_acme")
        commit = await mirror.resolve(branch_ref("main"))
        assert commit is not None
        plan = plan_agent(await preparing.report("prj_acme", mirror, commit), "teller")
        stored = TypeAdapter(AgentPlan).dump_json(plan).decode()
        self.bank.seeded.set("sessions", self.bank.session_id, plan=stored)

    async def base(self, rules: str) -> None:
        """The agent's rules on the base branch, in the mirror too."""
        self.commit(rules)
        mirror = await self.bank.delivery._preparing.mirror("prj_acme")
        await mirror.fetch(str(self.bank.repository), base="main", wall_s=60)

    def commit(self, rules: str) -> None:
        """The agent's rules on the base branch of the source."""
        lines = (self.bank.repository / "kortix.yaml").read_text().splitlines(keepends=True)
        at = lines.index("  teller:\n")
        kept = [line for line in lines if not line.startswith("    network_egress")]
        (self.bank.repository / "kortix.yaml").write_text("".join([*kept[: at + 1], f"    {rules}\n", *kept[at + 1 :]]))
        git(self.bank.repository, "commit", "-q", "--allow-empty", "-am", "Rules")

    def service(self, **ceiling: object) -> SessionEgress:
        ceiling.setdefault("allow_private", LOOPBACK)
        made = SessionEgress(
            self.bank.session_id, EgressSettings.model_validate(ceiling), self.bank.ledger,
            self.bank.delivery._preparing, self.bank.notes.append, self.told,
        )  # fmt: skip
        self.made.append(made)
        return made

    def rows(self) -> list[tuple[object, ...]]:
        return self.bank.seeded.store.all(
            "SELECT host, method, outcome, code, rule, address, bytes_out, bytes_in, ended_at IS NOT NULL FROM egress"
            " ORDER BY rowid"
        )

    def events(self) -> list[tuple[str, str, str, dict[str, object]]]:
        found = self.bank.seeded.store.all(
            "SELECT event, scope, outcome, detail FROM audit WHERE event LIKE 'egress.%' ORDER BY seq"
        )
        return [(event, scope, outcome, json.loads(detail)) for event, scope, outcome, detail in found]


@pytest.fixture
async def desk(home: Home, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with open_bank(home, short_folder) as bank:
        made = Desk(bank, port, monkeypatch)
        await made.pin(RULES.replace("443, 8443", f"443, {port}"))
        try:
            yield made
        finally:
            for service in made.made:
                await service.close()
            server.close()


async def test_a_connection_is_on_record_before_a_byte_goes_through_and_after_it(desk: Desk) -> None:
    service = desk.service()
    passage = await service.open("CONNECT", "a.corp.example", desk.port)
    assert desk.rows() == [("a.corp.example", "CONNECT", "success", None, "*.corp.example", "127.0.0.1", 0, 0, 0)]
    await passage.close(10, 20)
    assert desk.rows() == [("a.corp.example", "CONNECT", "success", None, "*.corp.example", "127.0.0.1", 10, 20, 1)]
    one, other = desk.events()
    assert one[:3] == ("egress.connect", f"host a.corp.example:{desk.port}", "success")
    assert one[3]["address"] == "127.0.0.1" and one[3]["rule"] == "*.corp.example"
    assert other[:3] == ("egress.close", f"host a.corp.example:{desk.port}", "success")
    assert other[3]["bytes_out"] == 10 and other[3]["egress"] == one[3]["egress"]


async def test_what_cannot_be_recorded_is_not_connected(desk: Desk) -> None:
    service = desk.service()
    desk.bank.seeded.leave()
    desk.bank.seeded.lead()  # another host, of a newer epoch
    with pytest.raises(KortixError, match="took over"):
        await service.open("CONNECT", "a.corp.example", desk.port)
    assert desk.rows() == [] and not service._open


async def test_what_no_rule_allows_is_refused_and_never_looked_up(desk: Desk) -> None:
    service = desk.service()
    for host, port in (("evil.example", 443), ("169.254.169.254", 80), ("api.example.com", 80)):
        with pytest.raises(EgressDenied):
            await service.open("CONNECT", host, port)
    assert desk.lookups == 0
    assert [(row[0], row[2], row[3], row[8]) for row in desk.rows()] == [
        ("evil.example", "denied", "egress_denied", 1),
        ("169.254.169.254", "denied", "egress_denied", 1),
        ("api.example.com", "denied", "egress_denied", 1),
    ]
    assert desk.events()[0][:3] == ("egress.connect", "host evil.example:443", "denied")
    assert "A connection to evil.example:443 was refused (egress_denied)" in desk.bank.notes[0]


async def test_a_name_that_leads_inside_is_refused(desk: Desk) -> None:
    desk.addresses = {"a.corp.example": ("192.0.2.1", "10.0.0.1"), "api.example.com": ("169.254.169.254",)}
    service = desk.service(allow_private=("169.254.0.0/16",))
    for host in ("a.corp.example", "b.corp.example", "api.example.com"):
        with pytest.raises(KortixError) as caught:
            await service.open("CONNECT", host, 443)
        assert caught.value.code == "address_refused"
    assert [(row[2], row[3]) for row in desk.rows()] == [("denied", "address_refused")] * 3


async def test_a_host_that_does_not_answer_is_a_failure_not_a_denial(desk: Desk) -> None:
    service = desk.service()
    closed = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    await desk.pin(RULES.replace("443, 8443", str(port)))
    with pytest.raises(Unreachable):
        await service.open("CONNECT", "a.corp.example", port)
    assert [(row[2], row[3]) for row in desk.rows()] == [("failure", "unreachable")]


async def test_the_operators_ceiling_is_below_every_rule(desk: Desk) -> None:
    service = desk.service(deny=["*.corp.example"])
    with pytest.raises(EgressCeiling):
        await service.open("CONNECT", "a.corp.example", desk.port)
    assert desk.rows()[0][3] == "egress_ceiling"


async def test_a_rule_that_the_base_branch_takes_away_counts_at_the_next_connection_and_ends_open_ones(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = desk.service()
    open_one = await service.open("CONNECT", "a.corp.example", desk.port)
    await desk.base(NO_RULES)
    with pytest.raises(EgressDenied, match="was allowed, and is not now"):
        await service.open("CONNECT", "a.corp.example", desk.port)
    with pytest.raises(ConnectionAbortedError):
        await open_one.reader.read(1)
    await open_one.close(5, 6)
    assert [(row[2], row[3], row[6]) for row in desk.rows()] == [
        ("denied", "egress_denied", 5), ("denied", "egress_denied", 0),
    ]  # fmt: skip
    assert any("was cut (egress_denied)" in note for note in desk.bank.notes)


async def test_the_source_is_asked_again_when_its_last_word_is_old(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    service = desk.service()
    await (await service.open("CONNECT", "a.corp.example", desk.port)).close(0, 0)
    desk.commit(NO_RULES)  # in the operator's checkout; nothing has fetched it
    await (await service.open("CONNECT", "a.corp.example", desk.port)).close(0, 0)
    monkeypatch.setattr(egressing, "FRESH_S", 0.0)
    with pytest.raises(EgressDenied):
        await service.open("CONNECT", "a.corp.example", desk.port)


async def test_open_connections_are_held_against_the_rules_without_a_new_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egressing, "WATCH_S", 0.05)
    service = desk.service()
    passage = await service.open("CONNECT", "a.corp.example", desk.port)
    await desk.base(NO_RULES)
    with pytest.raises(ConnectionAbortedError):
        async with asyncio.timeout(30):
            await passage.reader.read(1)
    await passage.close(0, 0)


@pytest.mark.parametrize(
    "broken", ["kortix_permissions: [project.gitops.push]\n    nonsense: 1", "enabled: false", "network_egress:"]
)
async def test_a_base_branch_that_is_not_valid_or_has_no_such_agent_allows_nothing(desk: Desk, broken: str) -> None:
    service = desk.service()
    await desk.base(broken.replace("network_egress:", "network_egress: {version: 2}"))
    with pytest.raises(EgressDenied):
        await service.open("CONNECT", "a.corp.example", desk.port)


async def test_a_base_branch_that_allows_more_does_not_widen_a_running_session(desk: Desk) -> None:
    await desk.base(RULES.replace("rules: [", "rules: [{host: new.example}, ").replace("8443", str(desk.port)))
    service = desk.service()
    with pytest.raises(EgressDenied):
        await service.open("CONNECT", "new.example", 443)
    await (await service.open("CONNECT", "a.corp.example", desk.port)).close(0, 0)


async def test_a_source_that_is_away_is_said_once_and_the_last_word_counts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egressing, "FRESH_S", 0.0)
    desk.bank.repository.rename(desk.bank.repository.with_name("away"))
    service = desk.service()
    for _ in range(3):
        await (await service.open("CONNECT", "a.corp.example", desk.port)).close(0, 0)
    assert len([note for note in desk.bank.notes if "cannot be read now" in note]) == 1


async def test_a_loop_of_refused_attempts_does_not_flood_the_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kortix_tui.runtime.egress_record.MINUTE_S", 10**9)
    service = desk.service()
    for _ in range(30):
        with pytest.raises(EgressDenied):
            await service.open("CONNECT", "evil.example", 443)
    assert len(desk.rows()) == 1 and len(desk.events()) == 1 and len(desk.bank.notes) == 1
    await service.close()
    last = desk.events()[-1]
    assert last[:3] == ("egress.repeat", "host evil.example:443", "denied") and last[3]["attempts"] == 30

    monkeypatch.setattr("kortix_tui.runtime.egress_record.MOST_HOSTS", 3)
    service = desk.service()
    for number in range(20):
        with pytest.raises(EgressDenied):
            await service.open("CONNECT", f"h{number}.evil.example", 443)
    await service.close()
    hosts = [row[0] for row in desk.rows()[1:]]
    assert hosts == ["h0.evil.example", "h1.evil.example", "h2.evil.example", "*"]
    assert desk.events()[-1][3]["attempts"] == 17


async def test_connections_are_limited_in_number_and_in_a_minute(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egressing, "MOST", 2)
    service = desk.service()
    first, second = [await service.open("CONNECT", "a.corp.example", desk.port) for _ in range(2)]
    with pytest.raises(EgressBusy):
        await service.open("CONNECT", "a.corp.example", desk.port)
    await first.close(0, 0)
    await (await service.open("CONNECT", "a.corp.example", desk.port)).close(0, 0)
    await second.close(0, 0)
    monkeypatch.setattr(egressing, "MOST_A_MINUTE", 0)
    with pytest.raises(EgressBusy, match="in a minute"):
        await service.open("CONNECT", "a.corp.example", desk.port)
    assert [(row[2], row[3]) for row in desk.rows() if row[3]] == [("failure", "egress_busy")]


async def test_a_secret_in_a_hosts_name_is_not_stored(desk: Desk) -> None:
    await desk.bank.store(value=VALUE.lower())
    service = desk.service()
    spelled = VALUE.decode().lower()
    with pytest.raises(EgressDenied):
        await service.open("CONNECT", f"{spelled}.evil.example", 443)
    await (await service.open("CONNECT", f"{spelled}.corp.example", desk.port)).close(0, 0)
    told = json.dumps([desk.rows(), desk.events(), desk.bank.notes])
    assert spelled not in told and "[redacted:STRIPE_API_KEY].evil.example" in told


async def test_what_an_earlier_host_left_open_is_ended_by_the_next(desk: Desk) -> None:
    passage = await desk.service().open("CONNECT", "a.corp.example", desk.port)
    passage.writer.close()
    again = desk.service()
    await again.begin()
    assert [(row[2], row[3], row[8]) for row in desk.rows()] == [("failure", "host_gone", 1)]
    assert desk.events()[-1][0] == "egress.close"
    before = len(desk.events())
    await again.begin()
    assert len(desk.events()) == before


async def test_attempts_are_listed_newest_first_and_by_outcome(desk: Desk) -> None:
    service = desk.service()
    await (await service.open("CONNECT", "a.corp.example", desk.port)).close(1, 2)
    with pytest.raises(EgressDenied):
        await service.open("GET", "evil.example", 80)
    store = desk.bank.seeded.store
    log = EgressLog(Context(store, None, OPERATOR, None))  # type: ignore[arg-type]
    both = log.list()
    assert [(one.host, one.outcome, one.project, one.agent) for one in both] == [
        ("evil.example", Outcome.DENIED, "acme", "teller"), ("a.corp.example", Outcome.SUCCESS, "acme", "teller"),
    ]  # fmt: skip
    assert log.list(outcomes=(Outcome.DENIED,)) == both[:1] and log.list(limit=1) == both[:1]
    assert log.list(session_id=desk.bank.session_id) == both and log.list(session_id="kaaaaaaaaaaa") == []
    assert log.list(project=desk.bank.ledger.project("prj_acme")) == both
