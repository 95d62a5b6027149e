"""What a person adds to a decision about a call: a note to the agent, or a rule for calls like it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk, Verdict
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen, line
from kortix_tui.console.forms.secret_forms import project_of
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.table import Cell, Column, Row, VirtualTable
from kortix_tui.runtime.call_memory import Remember, paths

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.source import Source
    from kortix_tui.runtime.connector_views import ApprovalView, CallRuleView, DecisionResult
    from kortix_tui.runtime.edits import EditResult

MOST_NOTE: Final = 2000
MOST_VALUE: Final = 200
MOST_ROWS: Final = 6
TIMES: Final = 10
MOST_TIMES: Final = 10_000
SPANS: Final = {"8 hours": 8.0, "1 hour": 1.0, "1 day": 24.0, "7 days": 168.0, "30 days": 720.0}
LASTING: Final = "good, as a change request"
MOST_CONDITIONS: Final = 10
SESSION, EVERYONE = "only this session", "every session of the project"
BOUND_COLUMNS: Final = (
    Column("sign", "", 1), Column("path", "ARGUMENT", 24), Column("value", "VALUE", 20, grow=True)
)  # fmt: skip


class GuardedInput(Input):
    """Takes no key before the dialog was seen: enter in it decides."""

    def on_key(self, event: events.Key) -> None:
        """Drop what was typed for something else."""
        if isinstance(self.screen, Form):
            self.screen.drop_early(event)


class DenyForm(Form):
    """No to a call, with a word for the agent."""

    sends = "denies it"
    working = "Denying…"

    def __init__(
        self,
        console: KortixApp,
        view: ApprovalView,
        facts: list[tuple[str, str]],
        done: Callable[[DecisionResult], None],
    ) -> None:
        super().__init__(console, f"Deny {view.connector}.{view.action}?", done)
        self._view = view
        self._pairs = facts

    def fields(self) -> Iterable[Widget]:
        """What is denied, and the note."""
        yield Static(self.facts(self._pairs), id="facts", markup=False)
        yield plain("")
        yield line("Note", GuardedInput(id="note", max_length=MOST_NOTE, placeholder="for the agent; may be empty"))
        yield plain("")
        yield plain("Nothing is sent. The agent is told, with your note, and goes on without it.")

    def act(self) -> Act:
        """Deny exactly what was shown."""
        view, note = self._view, self.text("#note") or None
        return lambda source: source.approvals.decide(
            view.id, digest=view.digest or "", approve=False, note=note, terminal=True, pinned=True
        )


class BoundTable(VirtualTable):
    """The arguments of a call; space binds or frees the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "list_select", "Bind or free it", show=False)]


class RememberForm(Form):
    """Yes to a call and to later ones of the same shape, so often and so long."""

    DEFAULT_CSS = """
    RememberForm > #box { width: 92; }
    RememberForm BoundTable { background: $surface; }
    """
    sends = "approves and remembers"
    working = "Approving…"

    def __init__(
        self,
        console: KortixApp,
        view: ApprovalView,
        facts: list[tuple[str, str]],
        done: Callable[[CallRuleView | DecisionResult | EditResult], None],
    ) -> None:
        super().__init__(console, f"Approve {view.connector}.{view.action}, and calls like it?", done)
        self._view = view
        self._pairs = facts
        self._values = paths(json.loads(view.arguments))
        self._free: set[str] = set()
        self._table = BoundTable(BOUND_COLUMNS, empty="It has no arguments.", id="bound")

    def fields(self) -> Iterable[Widget]:
        """What is approved now, what later ones must have in common with it, and the limits."""
        yield Static(self.facts(self._pairs), id="facts", markup=False)
        yield plain("")
        yield plain(
            "Later calls run without asking if they have the same arguments, and those with ● the same value. "
            "space binds or frees one."
        )
        self._table.styles.height = min(len(self._values), MOST_ROWS) + 1
        yield self._table
        yield plain("")
        yield line("Calls", GuardedInput(str(TIMES), id="times", type="integer", max_length=5))
        yield chosen("For", [*SPANS, LASTING], id="span")
        yield plain("", classes="meaning hidden", id="lasting")
        yield chosen("Who", [SESSION, EVERYONE], id="reach")
        if self._view.risk is Risk.DESTRUCTIVE:
            yield line("To be sure", GuardedInput(id="name", placeholder=f"type {self._view.action}"))

    def first(self) -> Widget:
        """The arguments come first."""
        return self._table

    def prepare(self) -> None:
        """Everything is bound until it is freed."""
        self._show()

    def _show(self) -> None:
        self._table.set_rows(
            Row(
                path,
                {
                    "sign": Cell("○" if path in self._free else "●", "warning" if path in self._free else "success"),
                    "path": Cell(visible_line(path)),
                    "value": Cell("any value" if path in self._free else visible_line(written(value)), "muted"),
                },
            )
            for path, value in self._values.items()
        )
        self._table.repaint()

    @on(ChoiceField.Changed, "#span")
    def _span(self, event: ChoiceField.Changed) -> None:
        """A lasting rule is a permission: it is written into the policy, and this call goes on waiting."""
        lasting = event.value == LASTING
        self.query_one("#lasting", Static).update(
            Content("A rule in kortix.yaml, which counts once you merge it. This call still waits for your decision.")
        )
        for name, shown in {"lasting": lasting, "times": not lasting, "reach": not lasting}.items():
            self.show_only(**{name: shown})

    @on(VirtualTable.Selected, "#bound")
    def _turned(self, event: VirtualTable.Selected) -> None:
        event.stop()
        self._free ^= {event.row_id}
        self._show()

    def act(self) -> Act:
        """Approve exactly what was shown, and remember its shape."""
        view, bound = self._view, tuple(path for path in self._values if path not in self._free)
        if self._values and not bound:
            raise Incomplete("Bind at least one argument. To let every call run, change the connector's policy.")
        if self.choice("#span") == LASTING:
            return self._lasting(bound)
        times = self.text("#times")
        if not times.isdigit() or not 1 <= int(times) <= MOST_TIMES:
            raise Incomplete(f"How many calls? A number from 1 to {MOST_TIMES:,}.")
        if view.risk is Risk.DESTRUCTIVE and self.text("#name") != view.action:
            raise Incomplete(f"Type {view.action} to be sure: it may destroy something.")
        remember = Remember(
            arguments=bound,
            most=int(times),
            hours=SPANS[self.choice("#span")],
            this_session=self.choice("#reach") == SESSION,
        )
        return lambda source: _remembered(source, view, remember)

    def _lasting(self, bound: tuple[str, ...]) -> Act:
        """Propose a rule: the action, with the bound values as its conditions."""
        from pydantic import ValidationError

        from kortix_tui.broker.conditions import value_text
        from kortix_tui.manifest.policies import Condition

        view, project = self._view, project_of(self.console, self._view.project)
        if len(bound) > MOST_CONDITIONS:
            raise Incomplete(f"A rule takes {MOST_CONDITIONS} conditions at most: free some arguments.")
        conditions = []
        for path in bound:
            text = value_text(self._values[path])
            try:
                conditions.append(Condition(arg=path, match=exactly(text or "")))
            except ValidationError as error:
                raise Incomplete(
                    f"A rule cannot name the value of {visible_line(path)}: free it, or edit kortix.yaml."
                ) from error
        return lambda source: source.edits.set_rule(
            project, connector=view.connector, match=view.action, verdict=Verdict.RUN, conditions=conditions
        )


def _remembered(source: Source, view: ApprovalView, wish: Remember) -> CallRuleView | DecisionResult:
    """Approve, and give what is remembered; only the decision where that cannot be read."""
    done = source.approvals.decide(
        view.id, digest=view.digest or "", approve=True, remember=wish, terminal=True, pinned=True
    )
    try:
        return next((rule for rule in source.approvals.rules() if rule.from_call == view.id), done)
    except KortixError:
        return done  # it is approved, whatever cannot be read afterwards


def exactly(text: str) -> str:
    """A match of a rule that only this text has, letters' case aside."""
    simple = text == text.strip() and "*" not in text and not text.startswith("/") and "\n" not in text
    return text if simple else f"/^{re.escape(text)}\\Z/"


def written(value: object) -> str:
    """A value in one line, as JSON, cut where a list has no room for it."""
    return shorten(json.dumps(value, ensure_ascii=False), MOST_VALUE)
