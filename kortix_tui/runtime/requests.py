"""What other processes ask the host to do: taken once, answered in the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import BaseModel

from kortix_tui.base.errors import InvalidInput, KortixError, StoreFailed
from kortix_tui.base.words import Outcome, RequestState
from kortix_tui.repository.merge import join_rescue
from kortix_tui.review.decision import DecideChange
from kortix_tui.review.merging import Merging
from kortix_tui.runtime.adding import add_project
from kortix_tui.runtime.calls import Calls
from kortix_tui.runtime.catalogues import Catalogues
from kortix_tui.runtime.context import Context, Failure
from kortix_tui.runtime.delivery import Custodian, value_scan
from kortix_tui.runtime.editing import Editing
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.projects import AddProject
from kortix_tui.runtime.pushes import Pushes
from kortix_tui.runtime.sessions import JoinRescue
from kortix_tui.runtime.views import JoinedRescue, MergeResult
from kortix_tui.store.audit import SYSTEM, Actor
from kortix_tui.store.database import Fenced, Transaction
from kortix_tui.store.models import Request

RETRY_S: Final = 5.0
log = logging.getLogger(__name__)
Handler = Callable[[Request, Actor], Awaitable[BaseModel]]


class Requests:
    """Takes pending requests and answers each in a task of its own."""

    def __init__(
        self,
        context: Context,
        ledger: Ledger,
        preparing: Preparing,
        merging: Merging,
        custodian: Custodian,
        catalogues: Catalogues,
        calls: Calls,
    ) -> None:
        self._context = context
        self._ledger = ledger
        self._preparing = preparing
        self._taken = set[str]()
        self._merging = merging
        self._custodian = custodian
        self._adding = asyncio.Lock()
        self._handlers: Final[dict[str, Handler]] = {
            "project.create": self._add_project,
            "change_request.merge": self._merge,
            "session.rescue.join": self._join_rescue,
            "manifest.edit": Editing(context, ledger, preparing).edit,
            "connector.sync": catalogues.sync,
            "connector.call.run": calls.operate,
        }

    def look(self, tasks: asyncio.TaskGroup) -> None:
        """Start what is pending."""
        query = f"SELECT {Request.columns()} FROM requests WHERE state = 'pending' ORDER BY created_at"
        for row in self._context.store.all(query):
            request = Request.of(row)
            if request.id not in self._taken:
                self._taken.add(request.id)
                tasks.create_task(self._take(request), name=f"request {request.id}")

    async def _take(self, request: Request) -> None:
        """Answer one; a store that cannot be written now leaves it pending or running, for later."""
        try:
            await self._answer(request)
        except StoreFailed:
            log.warning("request %s (%s) could not be answered", request.id, request.kind, exc_info=True)
            await asyncio.sleep(RETRY_S)
            with contextlib.suppress(StoreFailed):
                await self._ledger.write(lambda tx: hand_out(tx, request.id))
        finally:
            self._taken.discard(request.id)

    async def _answer(self, request: Request) -> None:
        actor = Actor.model_validate_json(request.actor)
        await self._move(request, RequestState.RUNNING, actor)
        try:
            handler = self._handlers.get(request.kind)
            if handler is None:
                raise InvalidInput(
                    f"This host does not know «{request.kind}».", hint="Update it: end it and try again."
                )
            result = await handler(request, actor)
        except (Fenced, StoreFailed):
            raise
        except KortixError as error:
            await self._move(request, RequestState.FAILED, actor, error=Failure.of(error).model_dump_json())
        except Exception as error:
            log.exception("request %s (%s) failed", request.id, request.kind)
            failure = Failure(code="failed", message=f"The host failed ({type(error).__name__}); its log has more.")
            await self._move(request, RequestState.FAILED, actor, error=failure.model_dump_json())
        else:
            await self._move(request, RequestState.DONE, actor, result=result.model_dump_json())

    async def _move(
        self,
        request: Request,
        state: RequestState,
        actor: Actor,
        *,
        result: str | None = None,
        error: str | None = None,
    ) -> None:
        def change(tx: Transaction) -> None:
            moment = "started_at" if state is RequestState.RUNNING else "ended_at"
            tx.execute(
                f"UPDATE requests SET state = ?, result = ?, error = ?, {moment} = ? WHERE id = ?",
                (state, result, error, tx.now_text, request.id),
            )
            outcome = {RequestState.DONE: Outcome.SUCCESS, RequestState.FAILED: Outcome.FAILURE}.get(
                state, Outcome.PENDING
            )
            tx.audit(f"request.{state}", scope=f"{request.kind} {request.id}", actor=actor, outcome=outcome)

        await self._ledger.write(change)

    async def _add_project(self, request: Request, actor: Actor) -> BaseModel:
        wanted = AddProject.model_validate_json(request.payload)
        async with self._adding:  # the same repository twice at once is one project
            return await add_project(self._context.home, self._ledger, wanted, actor)

    async def _merge(self, request: Request, actor: Actor) -> BaseModel:
        decision = DecideChange.model_validate_json(request.payload)
        row = self._context.store.one("SELECT project_id FROM change_requests WHERE id = ?", (decision.change_id,))
        if row is None:
            raise InvalidInput("That change request does not exist.", hint="See `kortix cr ls`.")
        project = self._ledger.project(row[0])
        mirror = await self._preparing.mirror(project.id)
        change = await self._merging.merge(mirror, project, decision, actor)
        return MergeResult(
            project=project.slug,
            number=change.number,
            merge_commit=change.merge_commit or "",
            reviewed_head=decision.reviewed_head,
            base_branch=change.base_branch,
            delivered_to=project.source,
        )

    async def _join_rescue(self, request: Request, actor: Actor) -> BaseModel:
        wanted = JoinRescue.model_validate_json(request.payload)
        session = self._ledger.session(wanted.session_id)
        if session is None or session.removed_at is not None:
            raise InvalidInput(
                "That session's branch is gone.", hint="Fetch the rescue ref itself: `kortix sessions show`."
            )
        mirror = await self._preparing.mirror(session.project_id)
        scan = value_scan(self._custodian, session.id)
        head = await join_rescue(mirror, session.id, wanted.n, scan=scan)
        await Pushes(session.id, self._ledger, mirror).catch_up()
        return JoinedRescue(session_id=session.id, n=wanted.n, head_commit=head)


def hand_out(tx: Transaction, request_id: str) -> None:
    """Give a running request out again: whoever took it cannot answer any more."""
    row = tx.execute("SELECT kind FROM requests WHERE id = ? AND state = 'running'", (request_id,)).fetchone()
    if row is not None:
        tx.execute("UPDATE requests SET state = 'pending', started_at = NULL WHERE id = ?", (request_id,))
        tx.audit("request.repeat", scope=f"{row[0]} {request_id}", actor=SYSTEM)
