"""A runtime in memory for console tests. `tests/console/test_source_contract.py` holds it to what the real one does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_calls import MemoryApprovals, MemoryConnections, MemoryConnectors, MemoryPolicies
from memory_secrets import MemoryEdits, MemoryInbox, MemorySecrets, MemoryVault, fill

from kortix_tui.base.errors import Conflict, NotFound, Refused
from kortix_tui.base.words import Activity, ChangeStatus, PromptState, SessionStatus, Wanted
from kortix_tui.repository.difference import DiffSummary, FileChange, FileKind, FileStatus
from kortix_tui.runtime.views import (
    ChangeDetail,
    ChangeView,
    HostView,
    MergePreview,
    MergeResult,
    RemovalPreview,
    SessionView,
)
from kortix_tui.store.models import HostRow, Project, Prompt
from kortix_tui.store.records import Record

NOW = datetime(2026, 3, 14, 12, 4, 30, tzinfo=UTC)
BASE = "3f2a91c04d77" + "0" * 28


class FixedClock:
    """Time that stands still until it is moved."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now
        self.seconds = 0.0  # below any real clock, so that it decides

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self.seconds

    def pass_guard(self) -> None:
        """Let the time go by in which dialogs ignore keys."""
        self.seconds += 1.0


def a_project(slug: str) -> Project:
    return Project(
        id=f"prj_{slug}", slug=slug, source=f"/src/{slug}", kind="checkout", base_branch="main", base_commit=BASE,
        owner="dana", created_at=NOW, fetched_at=NOW,
    )  # fmt: skip


def a_session(number: int, title: str, **changes: Any) -> SessionView:
    created = NOW - timedelta(minutes=changes.pop("minutes", 12))
    values: dict[str, Any] = {
        "id": "k" + f"{number:011d}".translate(str.maketrans("0189", "abcd")),
        "project_id": "prj_acme-api", "title": title, "agent": "refactor", "status": SessionStatus.RUNNING,
        "activity": Activity.WORKING, "wanted": Wanted.RUNNING, "reason": None, "reason_text": None,
        "base_branch": "main", "base_commit": BASE, "head_commit": None, "template": None, "image": None,
        "idle_minutes": 15, "owner": "dana", "origin": "console", "files": 0, "additions": 0, "deletions": 0,
        "attempts": 0, "created_at": created, "updated_at": created, "active_at": created, "started_at": created,
        "stopped_at": None, "removed_at": None, "project": "acme-api", "queued": 0, "rescued": 0, "change": None,
        "change_status": None,
    }  # fmt: skip
    return SessionView(**(values | changes))


def a_change(number: int, session: SessionView, title: str, **changes: Any) -> ChangeView:
    created = NOW - timedelta(minutes=changes.pop("minutes", 5))
    values: dict[str, Any] = {
        "id": f"chg_{number}", "project_id": session.project_id, "number": number, "session_id": session.id,
        "title": title, "description": "", "status": ChangeStatus.OPEN, "base_branch": "main", "base_commit": BASE,
        "head_commit": f"{number}a7c{'0' * 37}"[:40], "merge_commit": None, "reviewed_head": None,
        "opened_by": f"agent of {session.id}", "decided_by": None, "created_at": created, "updated_at": created,
        "decided_at": None, "project": session.project, "session_title": session.title, "files": 3, "additions": 7,
        "deletions": 2, "shown_head": None,
    }  # fmt: skip
    return ChangeView(**(values | changes))


class MemoryRecords:
    """A record that grows when the test says so."""

    def __init__(self, records: list[Record], start: int) -> None:
        self._records = records
        self._next = start

    def read(self, limit: int = 2000) -> Sequence[Record]:
        found = self._records[self._next : self._next + limit]
        self._next += len(found)
        return found


class MemorySource:
    """Satisfies `kortix_tui.console.source.Source`."""

    def __init__(self) -> None:
        self.project_rows: list[Project] = []
        self.session_rows: list[SessionView] = []
        self.change_rows: list[ChangeView] = []
        self.record_rows: dict[str, list[Record]] = {}
        self.patches: dict[str, str] = {}
        self.previews: dict[str, MergePreview] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.version = 1
        self.hosting = False
        self.failure: Exception | None = None
        self.sessions = MemorySessions(self)
        self.changes = MemoryChanges(self)
        self.projects = MemoryProjects(self)
        self.secrets = MemorySecrets(self)
        self.vault = MemoryVault(self)
        self.inbox = MemoryInbox(self)
        self.edits = MemoryEdits(self)
        self.approvals = MemoryApprovals(self)
        self.connectors = MemoryConnectors(self)
        self.connections = MemoryConnections(self)
        self.policies = MemoryPolicies(self)

    def start_hosting(self) -> None:
        self.hosting = True
        self.version += 1

    def host(self) -> HostView:
        row = HostRow(epoch=1, pid=4711, kind="console", started_at=NOW, beat_at=NOW)
        return HostView(host=row if self.hosting else None, silent=False, here=self.hosting)

    def unfinished(self) -> int:
        return sum(row.wanted != Wanted.STOPPED for row in self.session_rows)

    def data_version(self) -> int:
        if self.failure is not None:
            raise self.failure
        return self.version

    # What tests do.

    def replace_session(self, session: SessionView) -> SessionView:
        self.session_rows = [session if row.id == session.id else row for row in self.session_rows]
        self.version += 1
        return session

    def replace_change(self, change: ChangeView) -> ChangeView:
        self.change_rows = [change if row.id == change.id else row for row in self.change_rows]
        self.version += 1
        return change

    def print(self, session_id: str, text: str, **fields: Any) -> None:
        """What the session prints."""
        rows = self.record_rows.setdefault(session_id, [])
        values: dict[str, Any] = {"source": "sandbox", "kind": "output", "turn": "t1", "stream": "stdout"}
        at = NOW + timedelta(seconds=len(rows))
        rows.append(Record(n=len(rows) + 1, at=at, text=text, **(values | fields)))


class MemorySessions:
    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def list(self) -> list[SessionView]:
        return list(self._source.session_rows)

    def find(self, reference: str) -> SessionView:
        for row in self._source.session_rows:
            if len(reference) >= 4 and row.id.startswith(reference):
                return row
        raise NotFound(f"No session begins with {reference}.")

    def new(self, prompt: str, *, project: Project, agent: str | None = None) -> SessionView:
        number = len(self._source.session_rows) + 500
        row = a_session(
            number, prompt.splitlines()[0], status=SessionStatus.PROVISIONING, activity=Activity.IDLE,
            agent=agent or "", project=project.slug, project_id=project.id, minutes=0, queued=1,
        )  # fmt: skip
        self._source.session_rows.insert(0, row)
        self._source.version += 1
        self._source.calls.append(("new", prompt, project.slug, agent))
        return row

    def prompt(self, reference: str, text: str, *, queue: bool = False) -> Prompt:
        row = self.find(reference)
        self._source.calls.append(("prompt", row.id, text, queue))
        self._source.replace_session(row.model_copy(update={"queued": row.queued + 1, "wanted": Wanted.RUNNING}))
        return Prompt(
            id="prm_1", session_id=row.id, n=2, text=text, state=PromptState.QUEUED, exit_code=None, message=None,
            created_by="operator", created_at=NOW, started_at=None, ended_at=None,
        )  # fmt: skip

    def stop(self, reference: str) -> SessionView:
        self._source.calls.append(("stop", reference))
        return self._source.replace_session(self.find(reference).model_copy(update={"wanted": Wanted.STOPPED}))

    def resume(self, reference: str) -> SessionView:
        self._source.calls.append(("resume", reference))
        row = self.find(reference)
        # One that was to be stopped but still runs goes on as it is.
        status = row.status if row.status is SessionStatus.RUNNING else SessionStatus.PROVISIONING
        return self._source.replace_session(row.model_copy(update={"wanted": Wanted.RUNNING, "status": status}))

    def remove(self, reference: str) -> SessionView:
        self._source.calls.append(("remove", reference))
        return self._source.replace_session(self.find(reference).model_copy(update={"wanted": Wanted.REMOVED}))

    def removal_preview(self, reference: str) -> RemovalPreview:
        row = self.find(reference)
        note = "Pushed commits stay. Uncommitted work is saved to a rescue ref first. Everything else is lost."
        running = row.status in {SessionStatus.RUNNING, SessionStatus.PROVISIONING}
        return RemovalPreview(session=row, running=running, has_volumes=True, note=note)

    def records(self, session_id: str, *, tail: int | None = None) -> MemoryRecords:
        rows = self._source.record_rows.setdefault(session_id, [])
        return MemoryRecords(rows, max(0, len(rows) - tail) if tail is not None else 0)


class MemoryProjects:
    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def list(self) -> list[Project]:
        return list(self._source.project_rows)


class MemoryChanges:
    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def list(self) -> list[ChangeView]:
        return list(self._source.change_rows)

    def _find(self, project: Project, number: int) -> ChangeView:
        for row in self._source.change_rows:
            if (row.project, row.number) == (project.slug, number):
                return row
        raise NotFound(f"Project {project.slug} has no change request {number}.")

    def show(self, project: Project, number: int) -> ChangeDetail:
        row = self._find(project, number)
        row = self._source.replace_change(row.model_copy(update={"shown_head": row.head_commit}))
        kind = FileKind.FILE
        files = (FileChange(path="acme/charges.py", status=FileStatus.MODIFIED, kind=kind, old_kind=kind),)
        summary = DiffSummary(
            base=BASE, head=row.head_commit, merge_base=BASE, files=files, additions=row.additions,
            deletions=row.deletions,
        )  # fmt: skip
        default = MergePreview(
            base_commit=BASE, head_commit=row.head_commit, can_merge=True, up_to_date=False, fast_forward=True
        )
        preview = self._source.previews.get(row.id, default) if row.status is ChangeStatus.OPEN else None
        return ChangeDetail(change=row, head_commit=row.head_commit, summary=summary, preview=preview)

    def patch(self, project: Project, number: int, *, head: str | None = None) -> str:
        return self._source.patches.get(self._find(project, number).id, "")

    def merge(self, project: Project, number: int, *, at: str | None = None) -> MergeResult:
        row = self._find(project, number)
        self._source.calls.append(("merge", number, at))
        if row.status is not ChangeStatus.OPEN:
            raise Refused(f"Change request {number} is {row.status}.")
        if at != row.head_commit:
            raise Conflict(f"Change request {number} is at {row.head_commit[:12]} now: it moved.")
        commit = "9e1f" + "0" * 36
        update = {"status": ChangeStatus.MERGED, "merge_commit": commit, "decided_by": "dana", "decided_at": NOW}
        self._source.replace_change(row.model_copy(update=update))
        return MergeResult(
            project=project.slug, number=number, merge_commit=commit, reviewed_head=row.head_commit,
            base_branch="main", delivered_to=project.source,
        )  # fmt: skip

    def close(self, project: Project, number: int) -> ChangeView:
        row = self._find(project, number)
        self._source.calls.append(("close", number))
        if row.status is not ChangeStatus.OPEN:
            raise Refused(f"Change request {number} is {row.status}.")
        update = {"status": ChangeStatus.CLOSED, "decided_by": "dana", "decided_at": NOW}
        return self._source.replace_change(row.model_copy(update=update))

    def reopen(self, project: Project, number: int) -> ChangeView:
        row = self._find(project, number)
        self._source.calls.append(("reopen", number))
        if row.status is not ChangeStatus.CLOSED:
            raise Refused(f"Change request {number} is {row.status}.")
        update = {"status": ChangeStatus.OPEN, "decided_by": None, "decided_at": None}
        return self._source.replace_change(row.model_copy(update=update))


PATCH = "\n".join(
    [
        "diff --git a/acme/charges.py b/acme/charges.py",
        "index 1111111..2222222 100644",
        "--- a/acme/charges.py",
        "+++ b/acme/charges.py",
        "@@ -12,9 +12,10 @@ class Ledger:",
        ' """Money in, money out."""',
        " ",
        "-def charge(amount: int) -> Receipt:",
        '+def charge(amount: int, currency: str = "EUR") -> Receipt:',
        "     # The gateway wants minor units.",
        "     if amount <= 0:",
        '-        raise ValueError("amount must be positive")',
        '+        raise ValueError(f"amount must be positive, got {amount}")',
        "+    check(currency)",
        "     return Receipt(amount)",
        " ",
        " def refund(receipt: Receipt) -> None:",
        "@@ -40,3 +42,4 @@ def refund(receipt: Receipt) -> None:",
        " \treturn None",
        " ",
        " total = 0",
        '+if role != "user\u202e\u2066":  # check',
        "diff --git a/tests/test_charges.py b/tests/test_charges.py",
        "new file mode 100644",
        "--- /dev/null",
        "+++ b/tests/test_charges.py",
        "@@ -0,0 +1,3 @@",
        "+def test_charge():",
        '+    assert charge(100, "EUR").amount == 100',
        '+    print("支払い完了")',
        "\\ No newline at end of file",
        "diff --git a/logo.png b/logo.png",
        "index 3333333..4444444 100644",
        "Binary files a/logo.png and b/logo.png differ",
        "diff --git a/old.md b/new.md",
        "similarity index 100%",
        "rename from old.md",
        "rename to new.md",
        "",
    ]
)


def a_day() -> MemorySource:
    """A home as it looks on a working day."""
    source = MemorySource()
    source.project_rows = [a_project("acme-api"), a_project("web")]
    first = a_session(1, "Add a currency to every charge", minutes=12, files=3, additions=48, deletions=19)
    first = first.model_copy(update={"change": 3, "change_status": "open", "head_commit": "3a7c" + "0" * 36})
    second = a_session(2, "Fix the login redirect", minutes=31, project="web", project_id="prj_web", agent="")
    source.session_rows = [
        first,
        second.model_copy(update={"additions": 6, "deletions": 3, "queued": 1}),
        a_session(3, "Migrate the ledger 支払い", minutes=44, activity=Activity.WAITING, rescued=1),
        a_session(4, "Bump dependencies", minutes=60, status=SessionStatus.PROVISIONING, activity=Activity.IDLE),
        a_session(
            5, "Docs pass", minutes=600, status=SessionStatus.STOPPED, wanted=Wanted.STOPPED, activity=Activity.IDLE,
            reason="idle", reason_text="Stopped after 15 idle minutes.", additions=120, deletions=4, change=2,
            change_status="merged",
        ),
        a_session(
            6, "Flaky tests", minutes=3000, status=SessionStatus.FAILED, wanted=Wanted.STOPPED,
            activity=Activity.IDLE, reason="image",
            reason_text="The image python:3.12 could not be pulled. Check its name, then resume.",
        ),
    ]  # fmt: skip
    rows = source.session_rows
    description = "Adds `currency` to every charge.\n\n- code and tests\n- the default stays EUR"
    source.change_rows = [
        a_change(1, rows[4], "Typos", minutes=900, status=ChangeStatus.CLOSED, decided_by="dana", decided_at=NOW),
        a_change(
            2, rows[4], "Docs pass", minutes=500, status=ChangeStatus.MERGED, decided_by="dana", decided_at=NOW,
            merge_commit="77e1" + "0" * 36,
        ),
        a_change(3, rows[0], "Add a currency to every charge", minutes=9, description=description),
        a_change(4, rows[2], "Migrate the ledger [b]now[/b]", minutes=4),
    ]  # fmt: skip
    source.patches["chg_3"] = PATCH
    source.print(first.id, "session started", source="host", kind="note", stream=None)
    source.print(first.id, "reading acme/charges.py\nfound 3 callers of \x1b[36mcharge\x1b[0m\n")
    source.print(first.id, "\x1b[32mPASSED\x1b[0m tests/test_charges.py::test_charge\n")
    source.print(first.id, "\x1b[1;31mFAILED\x1b[0m tests/test_refund.py::test_partial\n")
    source.print(first.id, "warning: deprecated call\n", stream="stderr")
    source.print(first.id, "fixing the call in acme/refunds.py … ")
    source.print(first.id, "done\n41 passed")
    source.print(second.id, "following the redirect\n")
    fill(source)
    return source
