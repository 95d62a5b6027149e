"""What every part of the runtime shares, and how a process asks the host to act."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from kortix_tui.base import errors
from kortix_tui.base.clock import Clock, to_text
from kortix_tui.base.errors import DeadlineExceeded, KortixError
from kortix_tui.base.ids import new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import Outcome, RequestState
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.store import lock
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store
from kortix_tui.store.models import Request

POLL_S: Final = 0.02
READ_WINDOW: Final = timedelta(minutes=5)
"""A read of the same thing by the same person counts once in this time: a refreshing console does not flood the log."""

R = TypeVar("R", bound=BaseModel)


_KINDS: Final[dict[str, type[KortixError]]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KortixError)
}


class Failure(BaseModel):
    """An error that crosses from the host to the process that asked."""

    code: str
    message: str
    hint: str | None = None

    @classmethod
    def of(cls, error: KortixError) -> Failure:
        """Keep what a person needs of it; a layer's own error becomes the base error that it refines."""
        codes = {kind: code for code, kind in _KINDS.items()}
        code = next(codes[kind] for kind in type(error).__mro__ if kind in codes)
        return cls(code=code, message=error.message, hint=error.hint)

    def error(self) -> KortixError:
        """The error again."""
        return _KINDS.get(self.code, KortixError)(self.message, hint=self.hint)


@dataclass
class Context:
    """One process's view of a home."""

    store: Store
    settings: Settings
    actor: Actor
    loop: LoopThread
    ensure_host: Callable[[], None] = field(default=lambda: None)
    """Set by the facade: makes sure that some process, this one if need be, is the host."""

    @property
    def home(self) -> Home:
        """The home."""
        return self.store.home

    @property
    def clock(self) -> Clock:
        """The store's clock."""
        return self.store.clock

    def reading(self, event: str, *, scope: str, project_id: str | None = None, session_id: str | None = None) -> None:
        """Record that the operator read a governed thing; repeated reads within `READ_WINDOW` are one event."""
        since = to_text(self.clock.now() - READ_WINDOW)
        key = (self.actor.label, event, scope)
        query = "SELECT 1 FROM seen WHERE performed_by = ? AND event = ? AND scope = ? AND at > ?"
        if self.store.one(query, (*key, since)):
            return
        with self.store.write() as tx:
            tx.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", (*key, tx.now_text))
            tx.audit(event, scope=scope, actor=self.actor, project_id=project_id, session_id=session_id)

    def request(
        self,
        kind: str,
        payload: BaseModel,
        answer: type[R],
        *,
        scope: str,
        deadline_s: float,
        project_id: str | None = None,
        session_id: str | None = None,
    ) -> R:
        """Ask the host to do `kind` and wait for its answer. The request survives both processes.

        Raises:
            KortixError: What the host answered, of the same type.
            DeadlineExceeded: No answer in time; the request stays and may still be done.
        """
        identity = new_id("req")
        with self.store.write() as tx:
            tx.execute(
                "INSERT INTO requests (id, kind, payload, state, actor, created_at) VALUES (?,?,?,?,?,?)",
                (
                    identity,
                    kind,
                    payload.model_dump_json(),
                    RequestState.PENDING,
                    self.actor.model_dump_json(),
                    tx.now_text,
                ),
            )
            tx.audit(
                kind, scope=scope, actor=self.actor, outcome=Outcome.PENDING, project_id=project_id,
                session_id=session_id, request=identity,
            )  # fmt: skip
        end = time.monotonic() + deadline_s
        self.ensure_host()
        while time.monotonic() < end:
            row = self.store.one(f"SELECT {Request.columns()} FROM requests WHERE id = ?", (identity,))
            request = Request.of(row) if row else None
            if request and request.state is RequestState.DONE:
                return answer.model_validate_json(request.result or "{}")
            if request and request.state is RequestState.FAILED:
                raise Failure.model_validate_json(
                    request.error or json.dumps({"code": "failed", "message": "?"})
                ).error()
            time.sleep(POLL_S)
            if not lock.is_locked(self.store):
                self.ensure_host()
        raise DeadlineExceeded(
            f"The host did not answer within {deadline_s:.0f} s; the request stays and may still be done.",
            hint="See `kortix host` for the process that should answer.",
        )


def operator_actor(via: str) -> Actor:
    """The person at this terminal: operating-system user, terminal and the command that started us."""
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    try:
        tty: str | None = os.ttyname(0)
    except OSError:
        tty = None
    return Actor(kind="human", name=name, via=via, tty=tty, parent=_parent_command())


def _parent_command() -> str | None:
    try:
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
