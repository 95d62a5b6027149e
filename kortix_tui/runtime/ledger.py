"""The host's own writes: each one transition with its audit event, fenced by the host's epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import (
    Activity,
    CallState,
    Exposure,
    Outcome,
    PromptState,
    SecretRequestState,
    SessionStatus,
    Wanted,
)
from kortix_tui.review.opening import Proposal, move_head, open_change
from kortix_tui.runtime.call_ledger import close as close_call
from kortix_tui.runtime.call_ledger import settle_activity
from kortix_tui.store.audit import SYSTEM, Actor
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Call, Change, Project, Prompt, Rescue, SecretRequest, Session

if TYPE_CHECKING:
    from kortix_tui.vault.records import RecordMeta

OPEN_REQUESTS: Final = 20
ALL_REQUESTS: Final = 100
"""How many values one session may ask a person for: at a time, and in all."""
T = TypeVar("T")


class Ledger:
    """Transitions of sessions and prompts, written off the event loop, in order."""

    def __init__(self, store: Store, epoch: int) -> None:
        self.store = store
        self.epoch = epoch
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kortix-ledger")

    async def write(self, change: Callable[[Transaction], T], *, anchor: bool = True) -> T:
        """Run one fenced transaction in the ledger's thread; `anchor` as in `Store.write`."""

        def run() -> T:
            with self.store.write(epoch=self.epoch, anchor=anchor) as tx:
                return change(tx)

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def close(self) -> None:
        """Wait for the writes that were asked for, take no more."""
        await asyncio.to_thread(self._pool.shutdown)

    # Reading; a read of one row takes microseconds and never waits for a writer

    def session(self, session_id: str) -> Session | None:
        """The session's row."""
        row = self.store.one(f"SELECT {Session.columns()} FROM sessions WHERE id = ?", (session_id,))
        return Session.of(row) if row else None

    def project(self, project_id: str) -> Project:
        """The project's row, also of a removed project."""
        row = self.store.one(f"SELECT {Project.columns()} FROM projects WHERE id = ?", (project_id,))
        assert row is not None  # noqa: S101 - sessions reference projects by foreign key
        return Project.of(row)

    def plan(self, session_id: str) -> str | None:
        """The pinned plan of a session as JSON."""
        row = self.store.one("SELECT plan FROM sessions WHERE id = ?", (session_id,))
        return row[0] if row else None

    def prompt(self, session_id: str, *states: PromptState) -> Prompt | None:
        """The oldest prompt in one of these states."""
        marks = ", ".join("?" * len(states))
        row = self.store.one(
            f"SELECT {Prompt.columns()} FROM prompts WHERE session_id = ? AND state IN ({marks}) ORDER BY n LIMIT 1",
            (session_id, *states),
        )
        return Prompt.of(row) if row else None

    def rescue_numbers(self, session_id: str) -> set[int]:
        """The numbers of the rescues that are noted."""
        return {row[0] for row in self.store.all("SELECT n FROM rescues WHERE session_id = ?", (session_id,))}

    def locks(self, session_id: str) -> tuple[str | None, str]:
        """The key that the session's supervisor was given, if any, and the token of its agent."""
        row = self.store.one("SELECT channel_key, agent_token FROM sessions WHERE id = ?", (session_id,))
        return (row[0], row[1]) if row else (None, "")

    # Sessions

    async def move(
        self,
        session: Session,
        event: str,
        *,
        status: SessionStatus | None = None,
        activity: Activity | None = None,
        wanted: Wanted | None = None,
        reason: str | None = None,
        text: str | None = None,
        outcome: Outcome = Outcome.SUCCESS,
    ) -> None:
        """Change what is known of a session. A reason belongs to its status and goes with it.

        What a person wanted meanwhile counts: `wanted` is changed only when it still is what `session` says, and a
        session that is wanted again is not called stopped.
        """

        def change(tx: Transaction) -> None:
            now_wanted = tx.execute("SELECT wanted FROM sessions WHERE id = ?", (session.id,)).fetchone()[0]
            values: dict[str, Any] = {"reason": reason, "reason_text": text, "updated_at": tx.now_text}
            if status is not None:
                values["status"] = status
                if status is SessionStatus.RUNNING:
                    values |= {"started_at": tx.now_text, "stopped_at": None}
                if status in (SessionStatus.STOPPED, SessionStatus.FAILED):
                    values |= {"stopped_at": tx.now_text, "activity": Activity.IDLE}
                if now_wanted == Wanted.RUNNING != session.wanted:
                    values |= {"status": SessionStatus.PROVISIONING, "reason": None, "reason_text": None}
            if activity is not None:
                values |= {"activity": activity, "active_at": tx.now_text}
            if wanted is not None and now_wanted == session.wanted:
                values["wanted"] = wanted
            assignments = ", ".join(f"{name} = ?" for name in values)
            tx.execute(f"UPDATE sessions SET {assignments} WHERE id = ?", (*values.values(), session.id))
            if status is SessionStatus.RUNNING:
                settle_activity(tx, session.id)
            self._audit(tx, event, session, outcome=outcome, reason=reason)

        await self.write(change)

    async def fall_idle(self, session: Session, text: str) -> bool:
        """Want an idle session stopped, unless a prompt or a person came in this very moment."""

        def change(tx: Transaction) -> bool:
            still = tx.execute(
                "SELECT 1 FROM sessions s WHERE id = ? AND wanted = ? AND active_at = ? AND NOT EXISTS (SELECT 1"
                " FROM prompts WHERE session_id = s.id AND state IN ('queued', 'running')) AND NOT EXISTS (SELECT 1"
                " FROM calls WHERE session_id = s.id AND state IN ('pending', 'approved', 'executing'))",
                (session.id, Wanted.RUNNING, to_text(session.active_at)),
            ).fetchone()
            if still is None:
                return False
            tx.execute(
                "UPDATE sessions SET wanted = ?, reason = 'idle', reason_text = ?, updated_at = ? WHERE id = ?",
                (Wanted.STOPPED, text, tx.now_text, session.id),
            )
            self._audit(tx, "session.idle", session, reason="idle")
            return True

        return await self.write(change)

    async def pin(
        self, session: Session, *, base_commit: str, agent: str, template: str, image: str | None, plan: str
    ) -> None:
        """Note the base commit that governs the session, and what it says (I3)."""

        def change(tx: Transaction) -> None:
            tx.execute(
                "UPDATE sessions SET base_commit = ?, head_commit = coalesce(head_commit, ?), agent = ?, template = ?,"
                " image = ?, plan = ?, updated_at = ? WHERE id = ?",
                (base_commit, base_commit, agent, template, image, plan, tx.now_text, session.id),
            )
            tx.execute(
                "UPDATE projects SET fetched_at = ?, base_commit = ? WHERE id = ? AND base_branch = ?",
                (tx.now_text, base_commit, session.project_id, session.base_branch),
            )
            self._audit(tx, "session.plan.pin", session, base=base_commit, agent=agent, template=template)

        await self.write(change)

    async def use_image(self, session: Session, image: str) -> None:
        """Note the image that the sandbox is made from."""

        def change(tx: Transaction) -> None:
            tx.execute("UPDATE sessions SET image = ? WHERE id = ?", (image, session.id))
            self._audit(tx, "sandbox.image.use", session, image=image)

        await self.write(change)

    async def give_key(self, session: Session, key: str | None) -> None:
        """Note the supervisor's channel key before it is sent, or forget it when the volumes are new."""

        def change(tx: Transaction) -> None:
            tx.execute("UPDATE sessions SET channel_key = ? WHERE id = ?", (key, session.id))
            self._audit(tx, "sandbox.channel.key.issue" if key else "sandbox.channel.key.revoke", session)

        await self.write(change)

    async def removed(self, session: Session) -> None:
        """Sandbox and volumes are gone."""

        def change(tx: Transaction) -> None:
            tx.execute(
                "UPDATE sessions SET removed_at = ?, status = ?, activity = ?, stopped_at = coalesce(stopped_at, ?),"
                " updated_at = ? WHERE id = ?",
                (tx.now_text, SessionStatus.STOPPED, Activity.IDLE, tx.now_text, tx.now_text, session.id),
            )
            tx.execute(
                "UPDATE prompts SET state = 'removed', ended_at = ? WHERE session_id = ? AND state = 'queued'",
                (tx.now_text, session.id),
            )
            rows = tx.execute(
                f"SELECT {Call.columns()} FROM calls WHERE session_id = ? AND state IN ('pending', 'approved')",
                (session.id,),
            ).fetchall()
            for call in map(Call.of, rows):
                close_call(tx, call, CallState.SUPERSEDED, "session_removed", "Its session was removed.")
            self._audit(tx, "session.deleted", session)

        await self.write(change)

    # Prompts

    async def start_prompt(self, session: Session, prompt: Prompt) -> bool:
        """A turn begins; written before the supervisor is told. Not when prompt or session are not wanted any more."""

        def change(tx: Transaction) -> bool:
            wanted = tx.execute(
                "SELECT 1 FROM prompts p JOIN sessions s ON s.id = p.session_id"
                " WHERE p.id = ? AND p.state = 'queued' AND s.wanted = ?",
                (prompt.id, Wanted.RUNNING),
            ).fetchone()
            if wanted is None:
                return False
            tx.execute("UPDATE prompts SET state = 'running', started_at = ? WHERE id = ?", (tx.now_text, prompt.id))
            tx.execute(
                "UPDATE sessions SET activity = ?, active_at = ?, updated_at = ? WHERE id = ?",
                (Activity.WORKING, tx.now_text, tx.now_text, session.id),
            )
            self._audit(tx, "session.turn.start", session, prompt=prompt.id)
            return True

        return await self.write(change)

    async def end_prompt(
        self, session: Session, prompt: Prompt, state: PromptState, *, exit_code: int | None, message: str | None
    ) -> None:
        """A turn has ended; its work was saved before this is written."""

        def change(tx: Transaction) -> None:
            tx.execute(
                "UPDATE prompts SET state = ?, exit_code = ?, message = ?, ended_at = ? WHERE id = ?",
                (state, exit_code, message, tx.now_text, prompt.id),
            )
            tx.execute(
                "UPDATE sessions SET activity = ?, active_at = ?, updated_at = ? WHERE id = ?",
                (Activity.IDLE, tx.now_text, tx.now_text, session.id),
            )
            settle_activity(tx, session.id)
            good = state is PromptState.FINISHED
            outcome = Outcome.SUCCESS if good else Outcome.FAILURE
            self._audit(tx, "session.turn.end", session, outcome=outcome, prompt=prompt.id, exit_code=exit_code)

        await self.write(change)

    # Secrets

    async def deliver(self, session: Session, secrets: Sequence[RecordMeta], to: Mapping[str, str]) -> None:
        """Values go into the sandbox; written before they are sent. One event for each turn or shell that gets them."""

        def change(tx: Transaction) -> None:
            for secret in secrets:
                tx.execute(
                    "INSERT OR IGNORE INTO deliveries (session_id, secret_id, version, at) VALUES (?, ?, ?, ?)",
                    (session.id, secret.id, secret.version, tx.now_text),
                )
                tx.execute(
                    "UPDATE secrets SET used_at = ?, plain_at ="
                    " CASE WHEN version <= ? THEN coalesce(plain_at, ?) ELSE plain_at END WHERE id = ?",
                    (tx.now_text, secret.version, tx.now_text, secret.id),
                )
            told = [{"identifier": one.identifier, "version": one.version, "secret": one.id} for one in secrets]
            self._audit(tx, "secret.deliver", session, secrets=told, to=dict(to))

        await self.write(change)

    # Git

    async def accept_head(
        self, session: Session, *, n: int, commit: str, files: int, additions: int, deletions: int, project: str
    ) -> None:
        """The session pushed its branch."""

        def change(tx: Transaction) -> None:
            tx.execute("INSERT OR IGNORE INTO heads VALUES (?, ?, ?, ?)", (session.id, n, commit, tx.now_text))
            tx.execute(
                "UPDATE sessions SET head_commit = ?, files = ?, additions = ?, deletions = ?, updated_at = ?"
                " WHERE id = ?",
                (commit, files, additions, deletions, tx.now_text, session.id),
            )
            move_head(tx, session.id, commit, (files, additions, deletions))
            actor = agent_actor(session)
            tx.audit(
                "session.git.push", scope=f"branch {project}/{session.id}", actor=actor, project_id=session.project_id,
                session_id=session.id, head=commit,
            )  # fmt: skip

        await self.write(change)

    async def rescued(self, session: Session, rescue: Rescue) -> None:
        """Work was saved to a rescue ref."""

        def change(tx: Transaction) -> None:
            tx.execute(
                "INSERT OR IGNORE INTO rescues VALUES (?, ?, ?, ?, ?, ?, ?)",
                (rescue.session_id, rescue.n, rescue.commit_id, rescue.ref, rescue.reason, rescue.files, tx.now_text),
            )
            self._audit(tx, "session.work.rescue", session, ref=rescue.ref, commit=rescue.commit_id)

        await self.write(change)

    # What the agent asks

    async def open_change(self, session: Session, proposal: Proposal, project: str) -> Change:
        """The agent opens its change request."""
        return await self.write(
            lambda tx: open_change(tx, session, proposal, project=project, actor=agent_actor(session))
        )

    async def ask_secret(
        self, session: Session, identifier: str, exposure: Exposure, reason: str
    ) -> tuple[SecretRequest, bool]:
        """The agent asks a person for a value; whether that is new. Asked again, the open request is the answer.

        Raises:
            Refused: It asked for too many already.
        """

        def change(tx: Transaction) -> tuple[SecretRequest, bool]:
            columns = SecretRequest.columns()
            query = f"SELECT {columns} FROM secret_requests WHERE session_id = ?"
            same = f"{query} AND identifier = ? COLLATE NOCASE AND state = 'open'"
            if (row := tx.execute(same, (session.id, identifier)).fetchone()) is not None:
                return SecretRequest.of(row), False
            total, still_open = tx.execute(
                "SELECT count(*), coalesce(sum(state = 'open'), 0) FROM secret_requests WHERE session_id = ?",
                (session.id,),
            ).fetchone()
            if still_open >= OPEN_REQUESTS or total >= ALL_REQUESTS:
                limit = f"{OPEN_REQUESTS} requests are open" if total < ALL_REQUESTS else f"{ALL_REQUESTS} were made"
                raise Refused(f"No more can be asked for: {limit} in this session.", hint="Say it in your answer.")
            identity = new_id("req")
            tx.execute(
                f"INSERT INTO secret_requests ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
                (
                    identity, session.project_id, session.id, identifier, exposure, reason, SecretRequestState.OPEN,
                    tx.now_text,
                ),
            )  # fmt: skip
            tx.audit(
                "secret_request.create", scope=f"secret {identifier}", actor=agent_actor(session),
                project_id=session.project_id, session_id=session.id, request=identity, exposure=exposure.value,
            )  # fmt: skip
            row = tx.execute(f"SELECT {columns} FROM secret_requests WHERE id = ?", (identity,)).fetchone()
            return SecretRequest.of(row), True

        return await self.write(change)

    async def denied(self, session: Session, event: str, *, scope: str, **detail: Any) -> None:
        """Record what an agent tried and may not do."""

        def change(tx: Transaction) -> None:
            tx.audit(
                event, scope=scope, actor=agent_actor(session), outcome=Outcome.DENIED, project_id=session.project_id,
                session_id=session.id, **detail,
            )  # fmt: skip

        await self.write(change)

    @staticmethod
    def _audit(
        tx: Transaction, event: str, session: Session, *, outcome: Outcome = Outcome.SUCCESS, **detail: Any
    ) -> None:
        tx.audit(
            event, scope=f"session {session.id}", actor=SYSTEM, outcome=outcome, project_id=session.project_id,
            session_id=session.id, **detail,
        )  # fmt: skip


def agent_actor(session: Session) -> Actor:
    """The agent of a session, acting through its door."""
    return Actor(kind="agent", name=session.agent or "agent", via="sandbox")
