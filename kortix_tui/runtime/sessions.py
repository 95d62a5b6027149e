"""Sessions as the operator handles them: every call is a read or one audited write of what is wanted."""

from __future__ import annotations

import secrets
from typing import Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import Ambiguous, InvalidInput, KortixError, NotFound, Refused
from kortix_tui.base.ids import new_id, new_session_id
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Activity, Outcome, PromptState, SessionStatus, Wanted
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.decisions import is_attended
from kortix_tui.runtime.views import JoinedRescue, RemovalPreview, SessionDetail, SessionView
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Change, Project, Prompt, Rescue, Session
from kortix_tui.store.records import RecordReader

MAX_PROMPT_BYTES: Final = 8 * 1024 * 1024
MIN_PREFIX: Final = 4
JOIN_S: Final = 120.0
LOOK_S: Final = 10.0
EDIT_ORIGIN: Final = "edit"
"""Sessions that the host made for an edit of the manifest: a branch and a change request, no agent and no sandbox."""

_VIEW = (
    f"SELECT {', '.join('s.' + name for name in Session.model_fields)}, p.slug,"
    " (SELECT count(*) FROM prompts q WHERE q.session_id = s.id AND q.state = 'queued'),"
    " (SELECT count(*) FROM rescues r WHERE r.session_id = s.id),"
    " c.number, c.status FROM sessions s JOIN projects p ON p.id = s.project_id"
    " LEFT JOIN change_requests c ON c.session_id = s.id AND c.number ="
    " (SELECT max(number) FROM change_requests x WHERE x.session_id = s.id)"
)


WAKE = (
    "wanted = 'running', reason = NULL, reason_text = NULL,"
    " status = CASE WHEN status IN ('stopped', 'failed') THEN 'provisioning' ELSE status END"
)
"""Have a session run. One that is still being stopped stays what it is until it is; then it starts again."""


class JoinRescue(BaseModel):
    """Request `session.rescue.join`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    n: int


class Sessions:
    """The session verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # Reading

    def list(self, *, project: Project | None = None, removed: bool = False) -> list[SessionView]:
        """Sessions, newest first; removed ones, and those that are only an edit of the manifest, on request."""
        self._context.reading("session.list", scope=f"project {project.slug}" if project else "all projects")
        clauses, values = ["1"], list[str]()
        if project is not None:
            clauses.append("s.project_id = ?")
            values.append(project.id)
        if not removed:
            clauses.append(f"s.removed_at IS NULL AND s.origin != '{EDIT_ORIGIN}'")
        query = f"{_VIEW} WHERE {' AND '.join(clauses)} ORDER BY s.created_at DESC, s.id"
        return [SessionView.of(row) for row in self._context.store.all(query, values)]

    def find(self, reference: str) -> SessionView:
        """The session of an id or of a unique prefix of at least four characters.

        Raises:
            NotFound: None fits.
            Ambiguous: Several fit; the message names them.
        """
        text = reference.strip().lower()
        if not text.isalnum() or len(text) < MIN_PREFIX or len(text) > 12:
            raise NotFound(
                f"«{visible_line(shorten(reference, 40))}» is no session id.",
                hint="Give an id, or at least its first 4 characters; see `kortix sessions ls`.",
            )
        rows = self._context.store.all(
            f"{_VIEW} WHERE substr(s.id, 1, ?) = ? ORDER BY s.removed_at IS NOT NULL, s.created_at DESC",
            (len(text), text),
        )
        if not rows:
            raise NotFound(f"No session begins with {text}.", hint="See `kortix sessions ls --all`.")
        found = [SessionView.of(row) for row in rows]
        if len(found) > 1:
            raise Ambiguous(f"{text} fits {', '.join(view.id for view in found[:5])}.", hint="Give more characters.")
        return found[0]

    def show(self, reference: str) -> SessionDetail:
        """A session with its prompts, rescues and change requests."""
        view, store = self.find(reference), self._context.store
        self._context.reading(
            "session.read", scope=f"session {view.id}", project_id=view.project_id, session_id=view.id
        )
        prompts = store.all(f"SELECT {Prompt.columns()} FROM prompts WHERE session_id = ? ORDER BY n", (view.id,))
        rescues = store.all(f"SELECT {Rescue.columns()} FROM rescues WHERE session_id = ? ORDER BY n", (view.id,))
        changes = store.all(
            f"SELECT {Change.columns()} FROM change_requests WHERE session_id = ? ORDER BY number", (view.id,)
        )
        saved = tuple(Rescue.of(row) for row in rescues)
        return SessionDetail(
            session=view,
            prompts=tuple(Prompt.of(row) for row in prompts),
            rescues=saved,
            joined_rescues=self._joined(view, saved),
            changes=tuple(Change.of(row) for row in changes),
            isolation=self._context.settings.docker.runtime or "runc",
        )

    def _joined(self, view: SessionView, rescues: tuple[Rescue, ...]) -> tuple[int, ...]:
        """Which rescued work the session's branch contains; none where git cannot tell, as then joining says why."""
        head, context = view.head_commit, self._context
        if not rescues or head is None:
            return ()
        from kortix_tui.repository.mirror import Mirror

        async def look() -> tuple[int, ...]:
            mirror = await Mirror.open(context.home.mirror(view.project_id))
            return tuple([each.n for each in rescues if await mirror.is_ancestor(each.commit_id, head)])

        try:
            return context.loop.call(look(), deadline_s=LOOK_S)
        except KortixError:
            return ()

    def prompts(self, session_id: str) -> tuple[Prompt, ...]:
        """A session's prompts in order."""
        rows = self._context.store.all(
            f"SELECT {Prompt.columns()} FROM prompts WHERE session_id = ? ORDER BY n", (session_id,)
        )
        return tuple(Prompt.of(row) for row in rows)

    def records(self, session_id: str, *, tail: int | None = None) -> RecordReader:
        """Follow what a session printed, from the start or from about `tail` records before the end."""
        self._context.reading("session.transcript.read", scope=f"session {session_id}", session_id=session_id)
        folder = self._context.home.records(session_id)
        return RecordReader.tail(folder, tail) if tail is not None else RecordReader(folder)

    # Writing what is wanted

    def new(
        self,
        prompt: str,
        *,
        project: Project,
        agent: str | None = None,
        title: str | None = None,
        base_branch: str | None = None,
        template: str | None = None,
        idle_minutes: float | None = None,
    ) -> SessionView:
        """Store a session and its first prompt; the host starts it.

        Args:
            prompt: What the agent is asked; kept before anything starts.
            project: Where it works.
            agent: An agent of the manifest; its default agent when absent.
            title: What people read in lists; the prompt's first line when absent.
            base_branch: Branch to start from; the project's base when absent.
            template: A template of the manifest, before the agent's and the project's choice.
            idle_minutes: Minutes of idleness after which it stops.

        Raises:
            InvalidInput: The prompt is empty or too large.
        """
        text = _checked_prompt(prompt)
        context, identity = self._context, new_session_id()
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        shown = shorten(visible_line(title.strip() if title and title.strip() else first), 120)
        minutes = idle_minutes if idle_minutes is not None else context.settings.sandbox.idle_minutes
        attended = is_attended(context.actor)
        with context.store.write() as tx:
            if tx.execute("SELECT removed_at FROM projects WHERE id = ?", (project.id,)).fetchone()[0] is not None:
                raise NotFound(f"Project {project.slug} was removed.", hint="See `kortix projects ls`.")
            tx.execute(
                "INSERT INTO sessions (id, project_id, title, agent, status, activity, wanted, base_branch, template,"
                " idle_minutes, owner, origin, attended, agent_token, created_at, updated_at, active_at)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    identity, project.id, shown, agent or "", SessionStatus.PROVISIONING, Activity.IDLE, Wanted.RUNNING,
                    base_branch or project.base_branch, template, minutes, context.actor.name, context.actor.via,
                    attended, secrets.token_hex(32),
                    tx.now_text, tx.now_text, tx.now_text,
                ),
            )  # fmt: skip
            prompt_id = insert_prompt(tx, identity, text)
            tx.audit(
                "session.create", scope=f"project {project.slug}", actor=context.actor, project_id=project.id,
                session_id=identity, agent=agent, prompt=prompt_id, bytes=len(text.encode()), attended=attended,
            )  # fmt: skip
        return self.find(identity)

    def prompt(self, reference: str, text: str, *, queue: bool = False) -> Prompt:
        """Add a prompt to a session; wakes it when it is stopped.

        A prompt of anybody but the session's own person at a terminal takes that person's own secrets from it for good.

        Args:
            reference: Session id or prefix.
            text: What the agent is asked next.
            queue: Accept it also while a turn runs; it waits for its turn.

        Raises:
            Refused: A turn runs and `queue` is off, or the session was removed.
        """
        body, view, context = _checked_prompt(text), self.find(reference), self._context
        attended = is_attended(context.actor) and context.actor.name == view.owner
        _check_agent(view)
        with context.store.write() as tx:
            row = tx.execute("SELECT wanted, removed_at FROM sessions WHERE id = ?", (view.id,)).fetchone()
            if row[1] is not None or row[0] == Wanted.REMOVED:
                raise Refused(f"Session {view.id} was removed.", hint="Start a new one with `kortix sessions new`.")
            busy = tx.execute(
                "SELECT 1 FROM prompts WHERE session_id = ? AND state IN ('queued', 'running')", (view.id,)
            ).fetchone()
            if busy and not queue:
                raise Refused(
                    f"Session {view.id} is still at work.", hint="Add --queue to have this prompt wait for its turn."
                )
            prompt_id = insert_prompt(tx, view.id, body)
            tx.execute(
                f"UPDATE sessions SET updated_at = ?, active_at = ?, attended = attended AND ?, {WAKE} WHERE id = ?",
                (tx.now_text, tx.now_text, attended, view.id),
            )
            tx.audit(
                "session.prompt.send", scope=f"session {view.id}", actor=context.actor, project_id=view.project_id,
                session_id=view.id, prompt=prompt_id, bytes=len(body.encode()), attended=attended,
            )  # fmt: skip
        row = context.store.one(f"SELECT {Prompt.columns()} FROM prompts WHERE id = ?", (prompt_id,))
        assert row is not None  # noqa: S101 - written above
        return Prompt.of(row)

    def remove_prompt(self, prompt_id: str) -> None:
        """Take a queued prompt out of the queue.

        Raises:
            Refused: Its turn has started already.
        """
        context = self._context
        with context.store.write() as tx:
            row = tx.execute("SELECT session_id, state FROM prompts WHERE id = ?", (prompt_id,)).fetchone()
            if row is None:
                raise NotFound(f"No prompt {visible_line(prompt_id)}.", hint="See `kortix sessions show ID`.")
            if row[1] != PromptState.QUEUED:
                raise Refused(f"That prompt is {row[1]} already.", hint="`kortix sessions stop` ends a running turn.")
            tx.execute(
                "UPDATE prompts SET state = ?, ended_at = ? WHERE id = ?", (PromptState.REMOVED, tx.now_text, prompt_id)
            )
            tx.audit(
                "session.prompt.delete",
                scope=f"session {row[0]}",
                actor=context.actor,
                session_id=row[0],
                prompt=prompt_id,
            )

    def stop(self, reference: str) -> SessionView:
        """Want the session stopped: its work is saved first, its disk is kept. Stopped already: no change."""
        return self._want(reference, Wanted.STOPPED, "session.stop")

    def resume(self, reference: str) -> SessionView:
        """Want the session running again on the same disk."""
        view = self.find(reference)
        if view.removed_at is not None or view.wanted is Wanted.REMOVED:
            raise Refused(f"Session {view.id} was removed.", hint="Start a new one with `kortix sessions new`.")
        _check_agent(view)
        return self._want(reference, Wanted.RUNNING, "session.start")

    def remove(self, reference: str) -> SessionView:
        """Want sandbox and disk gone. Uncommitted and unpushed work is saved to a rescue ref first; the row stays."""
        return self._want(reference, Wanted.REMOVED, "session.delete")

    def removal_preview(self, reference: str) -> RemovalPreview:
        """What `remove` will keep and lose, to be shown before anybody says yes."""
        view = self.find(reference)
        running = view.status in (SessionStatus.RUNNING, SessionStatus.PROVISIONING)
        kept = "Pushed commits, the transcript and the change request stay."
        saved = "Uncommitted and unpushed work is saved to a rescue ref first."
        lost = "Ignored files, installed packages and everything else on the sandbox's disk are lost."
        return RemovalPreview(session=view, running=running, has_volumes=True, note=f"{kept} {saved} {lost}")

    def join_rescue(self, reference: str, n: int) -> JoinedRescue:
        """Bring rescued work onto the session's branch, because a person asks for it.

        Raises:
            NotFound: There is no such rescue.
            Refused: The branch has it already, or they conflict.
        """
        view = self.find(reference)
        return self._context.request(
            "session.rescue.join",
            JoinRescue(session_id=view.id, n=n),
            JoinedRescue,
            scope=f"session {view.id}",
            deadline_s=JOIN_S,
            project_id=view.project_id,
            session_id=view.id,
        )

    def _want(self, reference: str, wanted: Wanted, event: str) -> SessionView:
        view, context = self.find(reference), self._context
        with context.store.write() as tx:
            row = tx.execute("SELECT wanted, removed_at, status FROM sessions WHERE id = ?", (view.id,)).fetchone()
            if row[1] is not None:
                return view
            if row[0] == Wanted.REMOVED and wanted is not Wanted.REMOVED:
                raise Refused(f"Session {view.id} is being removed.")
            if row[0] == wanted and row[2] != SessionStatus.FAILED:
                return view
            change = WAKE if wanted is Wanted.RUNNING else f"wanted = '{wanted}'"
            tx.execute(
                f"UPDATE sessions SET updated_at = ?, active_at = ?, {change} WHERE id = ?",
                (tx.now_text, tx.now_text, view.id),
            )
            tx.audit(
                event, scope=f"session {view.id}", actor=context.actor, outcome=Outcome.PENDING,
                project_id=view.project_id, session_id=view.id,
            )  # fmt: skip
        return self.find(view.id)


def insert_prompt(tx: Transaction, session_id: str, text: str, *, created_by: str = "operator") -> str:
    """Queue a prompt in the caller's transaction; returns its id."""
    identity = new_id("prm")
    tx.execute(
        "INSERT INTO prompts (id, session_id, n, text, state, created_by, created_at)"
        " SELECT ?, ?, coalesce(max(n), 0) + 1, ?, 'queued', ?, ? FROM prompts WHERE session_id = ?",
        (identity, session_id, text, created_by, tx.now_text, session_id),
    )
    return identity


def _check_agent(view: SessionView) -> None:
    if view.origin == EDIT_ORIGIN:
        raise Refused(
            f"Session {view.id} is an edit of the manifest: it has no agent.",
            hint="Review its change request: `kortix cr ls`.",
        )


def _checked_prompt(text: str) -> str:
    if not text.strip():
        raise InvalidInput("The prompt is empty.", hint="Say what the agent should do: -p 'Fix the failing test'.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput("The prompt is not valid UTF-8 text.", hint="Save it as UTF-8 and pass it again.") from error
    if size > MAX_PROMPT_BYTES:
        raise InvalidInput(
            f"The prompt has {size:,} bytes; at most {MAX_PROMPT_BYTES:,} are taken.",
            hint="Put the material into a file of the repository and name it in the prompt.",
        )
    if "\x00" in text:
        raise InvalidInput("The prompt contains a NUL character.", hint="Remove it: no program takes it as text.")
    return text
