"""One call carried to its end: decided by policy, memory or a person, sent at most once, on record (invariant I5).

What changes the world is written as `executing`, committed, before its first byte leaves; a read that policy lets run
is, before its answer is handed out. Whatever this process leaves under way when it dies, the next host calls `unknown`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import KortixError, VaultFailed
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import CallState, Risk, Verdict
from kortix_tui.broker.connectors.calling import CallRefused, blocked
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.model import Decision, Materialised, RuleSource
from kortix_tui.broker.services import CallWish
from kortix_tui.runtime import call_ledger, call_memory
from kortix_tui.runtime.agent_secrets import storable, unescaped
from kortix_tui.runtime.call_ledger import End, NewCall
from kortix_tui.runtime.call_limits import Limits
from kortix_tui.runtime.call_making import Caller, CallMaking, Prepared
from kortix_tui.runtime.call_reports import Head
from kortix_tui.runtime.call_writes import LateWrites
from kortix_tui.runtime.connection_choice import NotConnected
from kortix_tui.runtime.connection_rows import note_use
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.outputs import Outputs
from kortix_tui.runtime.sending import Sending, Sent
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Call

if TYPE_CHECKING:
    from kortix_tui.runtime.custody import Custody
    from kortix_tui.runtime.host_credentials import HostCredentials

RETRY_S: Final = 5.0
SMALL: Final = 64 << 10
"""Bytes of an answer that is kept in the same go as its row: that is faster than another thread's start."""
MOST_PENDING: Final = 20
"""Calls of one session that may wait for a person at a time."""
KEPT_ARGUMENTS: Final = 16 << 10
"""Characters of a refused call's arguments that are kept."""
log = logging.getLogger(__name__)
_Then = Callable[[], Awaitable[None]]


@dataclass
class Run:
    """One call that came in during this term, until it is written down.

    Attributes:
        begun: When it came in.
        recorded: Set when a row of it exists.
        done: Set when it has ended, waits for a person, or could not be taken.
        waiters: How many callers wait for it at this moment.
        call: Its row, once it exists.
        body: Of its answer.
        error: Why it could not be taken.
    """

    id: str
    caller: Caller
    wish: CallWish
    begun: datetime
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    waiters: int = 0
    call: Call | None = None
    body: bytes | None = None
    error: KortixError | None = None


class Carrying:
    """Carries calls; shared by all sessions of one term.

    Args:
        ledger: Where everything is written, fenced by the term's epoch.
        making: Finds out what a wish means.
        custody: Has the vault.
        credentials: Knows what a connection adds to a request.
        sending: The way out.
        outputs: Where answers are kept.
        expire: How long a call waits for a person.
        waits: Whether somebody waits for a call at this moment.
    """

    def __init__(
        self,
        ledger: Ledger,
        making: CallMaking,
        custody: Custody,
        credentials: Callable[[], HostCredentials],
        sending: Sending,
        outputs: Outputs,
        *,
        expire: timedelta,
        waits: Callable[[str], bool],
    ) -> None:
        self._ledger = ledger
        self._making = making
        self._custody = custody
        self._credentials = credentials
        self._sending = sending
        self._outputs = outputs
        self._expire = expire
        self._waits = waits
        self.late = LateWrites(ledger)
        self._limits = Limits()
        self._deciding = defaultdict[str, asyncio.Lock](asyncio.Lock)

    # A new call

    async def take(self, run: Run) -> None:
        """Refuse it, ask a person, or run it to its end; its row is in `run` then.

        Raises:
            KortixError: It could not be written down, and was not sent.
        """
        prepared: Prepared | None = None
        wish, reason = run.wish, self._storable(run.caller, run.wish.reason)
        names = {name: self._line(run.caller, getattr(wish, name)) for name in ("connector", "action", "account")}
        run.wish = wish.model_copy(update=names)
        try:
            self._limits.count(run.caller.session_id, run.wish.connector)
            if await self._hold_a_value(run.caller, run.wish.arguments):
                run.wish = run.wish.model_copy(update={"arguments": "{}"})  # nothing of them is kept
                raise CallRefused(
                    "secret_in_arguments", "The arguments hold the value of a secret: it would leave in clear.",
                    hint="The host puts credentials in; leave them out.",
                )  # fmt: skip
            prepared = await self._making.prepare(run.caller, run.wish)
            async with self._limits.flying(run.caller.session_id, run.wish.connector):
                # What limits count is decided and written before the next one of the project is decided.
                counting = self._deciding[run.caller.project_id] if prepared.limited else contextlib.nullcontext()
                async with counting:
                    then = await self._settle(run, prepared, reason)
                if then is not None:
                    await then()
        except CallRefused as refusal:
            await self._refuse(run, prepared, refusal, reason)

    def _storable(self, caller: Caller, text: str) -> str:
        """A text of the caller's without values that the vault knows; the operator's own words stay as they are."""
        return text if caller.session_id is None else storable(self._custody, caller.session_id, text)

    async def _hold_a_value(self, caller: Caller, arguments: str) -> bool:
        """Whether arguments spell a value that the vault knows, also by way of JSON's escapes."""
        if self._storable(caller, arguments) != arguments:
            return True
        if caller.session_id is None or "\\" not in arguments:
            return False
        plain = await asyncio.to_thread(unescaped, arguments)
        return self._storable(caller, plain) != plain

    def _line(self, caller: Caller, name: str | None) -> str | None:
        """A name that the caller made up, as it may be stored and shown."""
        return None if name is None else visible_line(self._storable(caller, name))

    async def _settle(self, run: Run, prepared: Prepared, reason: str) -> _Then | None:
        """Decide, and write it down; what is left to do after that."""
        decision = self._making.judge(run.caller, prepared) if prepared.limited else prepared.decision
        if (refusal := blocked(decision, run.wish.connector, run.wish.action)) is not None:
            raise refusal
        asks, rule_id = decision.verdict is Verdict.ASK, None
        if asks:
            granted, rule_id = self._without_asking(run.caller, prepared.request)
            asks = granted is None
            decision = granted or decision
        new = _new(run, prepared, decision, reason)
        if asks:
            await self._ask(run, new)
            return None
        attached = await self._attach(prepared.request)
        if new.risk is Risk.READ and rule_id is None and not prepared.limited:
            return partial(self._read, run, new, prepared.request, attached)
        if not await self._begin(run, new, rule_id):  # used up in this very moment
            await self._ask(run, _new(run, prepared, self._making.judge(run.caller, prepared), reason))
            return None
        return partial(self._send_begun, run, new, prepared.request, attached)

    def _without_asking(self, caller: Caller, request: Materialised) -> tuple[Decision | None, str | None]:
        """What lets a call run that policy asks a person about: the person's own call, or what one remembered."""
        if caller.session_id is None:
            if not caller.attended:
                raise CallRefused(
                    "needs_person", "Policy asks a person about this call.", hint="Make it in a terminal of your own."
                )
            return Decision(verdict=Verdict.RUN, rule=RuleSource(source="operator")), None
        rule = call_memory.matching(self._ledger.store, request, caller.session_id)
        if rule is None:
            return None, None
        return Decision(verdict=Verdict.RUN, rule=RuleSource(source="memory", rule_id=rule.id)), rule.id

    async def _refuse(self, run: Run, prepared: Prepared | None, refusal: CallRefused, reason: str) -> None:
        decision = refusal.decision or Decision(verdict=Verdict.BLOCK, rule=RuleSource(source="host"))
        new = _new(run, prepared, decision, reason)
        if prepared is None:
            new = new.model_copy(update={"arguments": self._readable(run)})
        change = partial(call_ledger.refuse, new=new, code=refusal.word, message=str(refusal))
        run.call = await self._ledger.write(change)

    def _readable(self, run: Run) -> str:
        """What is kept of arguments that nobody has read strictly."""
        import rfc8785

        from kortix_tui.broker.connectors.arguments import read_arguments

        if len(run.wish.arguments) > KEPT_ARGUMENTS:
            return "{}"
        with contextlib.suppress(KortixError):
            text = rfc8785.dumps(read_arguments(run.wish.arguments)).decode()
            if self._storable(run.caller, text) == text:
                return text
        return "{}"

    async def _ask(self, run: Run, new: NewCall) -> None:
        expires_at = self._ledger.store.clock.now() + self._expire

        def change(tx: Transaction) -> Call:
            waiting = tx.execute(
                "SELECT count(*) FROM calls WHERE session_id = ? AND state = 'pending'", (new.session_id,)
            ).fetchone()[0]
            call, is_new = call_ledger.ask(tx, new, expires_at)
            if is_new and waiting >= MOST_PENDING:
                raise CallRefused(
                    "too_many_pending", f"{waiting} calls of this session wait for a person already.",
                    hint="End your turn; you are told what becomes of them.",
                )  # fmt: skip
            if not is_new and call.left_at is not None:
                call_ledger.come_back(tx, call.id)
            return call

        run.call = await self._ledger.write(change)

    async def _attach(self, request: Materialised) -> Attached:
        """The credential's parts, before anything is written: without them nothing is sent."""
        if request.credential is None:
            return Attached()
        try:
            return await self._credentials().attach(request)
        except KortixError as error:
            raise CallRefused(error.code, error.message, hint=error.hint) from None

    async def _begin(self, run: Run, new: NewCall, rule_id: str | None, *, anchor: bool = True) -> bool:
        def change(tx: Transaction) -> Call | None:
            if rule_id is not None and not call_memory.consume(tx, rule_id):
                return None
            return call_ledger.begin(tx, new)

        run.call = await self._ledger.write(change, anchor=anchor)
        run.recorded.set()
        return run.call is not None

    async def _send_begun(self, run: Run, new: NewCall, request: Materialised, attached: Attached) -> None:
        sent = await self._sending.send(request, attached, self._custody.redactor)
        run.call = await self._finish(new.id, new.session_id, request, sent, self._waited(run)) or run.call
        run.body = sent.body

    async def _read(self, run: Run, new: NewCall, request: Materialised, attached: Attached) -> None:
        """A read that policy lets run: its row is written while it is under way, and its end together with others'.

        Nothing is handed out that is not on record. A death before the end is written leaves a read that may have run.
        """
        recording = asyncio.create_task(self._begin(run, new, None, anchor=False))
        try:
            sent = await self._sending.send(request, attached, self._custody.redactor)
            await recording
        finally:
            recording.cancel()
        assert run.call is not None  # noqa: S101 - recorded
        end = _end_of(new.id, sent)
        if len(sent.body) > SMALL:
            end = await asyncio.to_thread(self._kept, new.id, new.session_id, sent)
        collected = self._waited(run)() or new.session_id is None

        def change(tx: Transaction) -> None:
            kept = end if len(sent.body) > SMALL else self._kept(new.id, new.session_id, sent)
            _note_use(tx, request)
            call_ledger.finish(tx, new.id, kept, collected=collected)

        self.late.add(new.id, change)
        run.call, run.body = call_ledger.ended(run.call, end, self._ledger.store.clock.now(), collected), sent.body
        await self._rejected(request, sent)

    def _waited(self, run: Run) -> Callable[[], bool]:
        return lambda: run.waiters > 0 or self._waits(run.id)

    # An approved call

    async def execute_approved(self, caller: Caller, call: Call) -> float | None:
        """Send an approved call, once. Returns seconds to wait where it cannot be sent yet.

        The points at which this process may die: before `executing` is committed, the next host sends it; after that,
        the next host calls it `unknown` and nobody sends it again.
        """
        request = Materialised.model_validate_json(call.request or "")
        if request.digest() != call.digest:
            await self._supersede(call, "changed", "The stored request is not what was approved.")
            return None
        if (refusal := await self._making.why_not(caller, call)) is not None:
            await self._supersede(call, refusal.word, str(refusal))
            return None
        try:
            self._storable(caller, "")  # nor may its answer be stored while values in it cannot be recognised
            attached = await self._credentials().attach(request) if request.credential is not None else Attached()
        except VaultFailed:
            return RETRY_S
        except NotConnected as error:
            await self._supersede(call, error.code, str(error))
            return None
        except KortixError as error:
            unsent = Sent(End(CallState.FAILED, code="not_sent", message=str(error)), {}, b"")
            if await self._use(call) is not None:
                await self._finish(call.id, call.session_id, request, unsent, lambda: self._waits(call.id))
            return None
        if await self._use(call) is None:
            return None  # decided otherwise, expired, or used by another host
        sent = await self._sending.send(request, attached, self._custody.redactor)
        await self._finish(call.id, call.session_id, request, sent, lambda: self._waits(call.id))
        return None

    async def _use(self, call: Call) -> Call | None:
        return await self._ledger.write(partial(call_ledger.begin_approved, call_id=call.id, digest=call.digest or ""))

    async def _supersede(self, call: Call, word: str, message: str) -> None:
        await self._ledger.write(
            partial(call_ledger.close, call=call, state=CallState.SUPERSEDED, code=word, message=message)
        )

    # Its end

    async def _finish(
        self, call_id: str, session_id: str | None, request: Materialised, sent: Sent, waits: Callable[[], bool]
    ) -> Call | None:
        end = await asyncio.to_thread(self._kept, call_id, session_id, sent)

        def change(tx: Transaction) -> Call | None:
            _note_use(tx, request)
            return call_ledger.finish(tx, call_id, end, collected=waits() or session_id is None)

        call = await self._ledger.write(change)
        await self._rejected(request, sent)
        return call

    def _kept(self, call_id: str, session_id: str | None, sent: Sent) -> End:
        """Keep the answer; what cannot be kept is told by its absence. Blocking."""
        end = _end_of(call_id, sent)
        if end.output is None:
            return end
        try:
            self._outputs.write(session_id, end.output, sent.body)
        except OSError:
            log.warning("the answer of call %s could not be kept", call_id)
            return replace(end, output=None)
        return end

    async def _rejected(self, request: Materialised, sent: Sent) -> None:
        """A token that the server does not take is renewed before the next call."""
        if sent.rejected and request.credential is not None:
            with contextlib.suppress(KortixError):
                await self._credentials().rejected(request.credential)


def _new(run: Run, prepared: Prepared | None, decision: Decision, reason: str) -> NewCall:
    caller, wish = run.caller, run.wish
    return NewCall(
        id=run.id, project_id=caller.project_id, session_id=caller.session_id, key=wish.key, connector=wish.connector,
        action=wish.action, account=prepared.account if prepared else wish.account,
        risk=prepared.risk if prepared else Risk.READ, verdict=decision.verdict, rule=decision.rule, reason=reason,
        arguments=prepared.request.arguments if prepared else "{}", request=prepared.request if prepared else None,
        actor=caller.actor,
    )  # fmt: skip


def _end_of(call_id: str, sent: Sent) -> End:
    """The end as it is written down, if the answer can be kept."""
    if sent.end.status is None or sent.end.state is CallState.UNKNOWN:
        return sent.end
    head = Head(headers=dict(sent.headers), truncated=sent.truncated).model_dump_json()
    return replace(sent.end, reply=head, output=f"{call_id}.out" if sent.body else None)


def _note_use(tx: Transaction, request: Materialised) -> None:
    if request.credential is not None:
        note_use(tx, request.credential)
