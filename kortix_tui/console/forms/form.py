"""What all forms share: fields, one act of the runtime, and staying open until it has been done.

A failure is said where the person can do something about it, and nothing that was typed is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kortix_tui.base.errors import KortixError
from kortix_tui.console.widgets.bar import Bar, Part
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import Dialog, heading, plain
from kortix_tui.console.widgets.masked_entry import LABEL_CELLS, MaskedEntry
from kortix_tui.runtime.secret_sources import Secret

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.source import Source

Act = Callable[["Source"], Any]
"""What the runtime is to do; it may block."""


class Incomplete(Exception):
    """What is in the fields cannot be sent; the message says why."""


class Form(Dialog[None]):
    """Asks, sends with ctrl+s, says what went wrong. Subclasses give the fields and make the act of them."""

    DEFAULT_CSS = """
    Form .line { height: 1; }
    Form .line Input { width: 1fr; }
    Form .label { width: 14; }
    Form Bar { background: $surface; }
    Form .meaning { padding: 0 0 0 14; color: $foreground 70%; }
    Form .hidden { display: none; }
    """
    sends: str = "stores"
    working: str = "Working…"

    def __init__(self, console: KortixApp, title: str, done: Callable[[Any], None]) -> None:
        """Make the form.

        Args:
            console: Whose bridge takes the act.
            title: What is asked for.
            done: Gets the act's answer; the form is closed by then.
        """
        super().__init__(clock=console.clock.monotonic)
        self.console = console
        self._title = title
        self._done = done
        self._busy = False
        self._given: list[Secret] = []

    # What a subclass gives.

    @abstractmethod
    def fields(self) -> Iterable[Widget]:
        """The widgets between title and help."""

    @abstractmethod
    def act(self) -> Act:
        """What to do.

        Raises:
            Incomplete: A field cannot be used as it is.
        """

    # The dialog.

    def compose(self) -> ComposeResult:
        """Title, fields, help, complaint."""
        with Vertical(id="box"):
            yield heading(self._title)
            yield plain("")
            yield from self.fields()
            yield plain("")
            yield Static(self.send_hint(self.sends), id="help", markup=False)
            yield Static(Content(""), id="complaint", markup=False)

    def on_mount(self) -> None:
        """Begin at the right field."""
        self.prepare()
        self.first().focus()

    def prepare(self) -> None:
        """Fit the fields to what is chosen first."""

    def first(self) -> Widget:
        """The field to begin with: the first that takes text, unless a subclass knows better."""
        taking = self._taking()
        return taking[0] if taking else self.query(ChoiceField).first()

    def on_key(self, event: events.Key) -> None:
        """Send and leave."""
        if event.key == "ctrl+s":
            event.stop()
            if not self.drop_early(event):
                self.submit()
        elif event.key == "escape":
            event.stop()
            self.dismiss(None)

    @on(Input.Submitted)
    @on(MaskedEntry.Submitted)
    def _entered(self, event: Input.Submitted | MaskedEntry.Submitted) -> None:
        """Enter goes to the next field, and sends from the last one."""
        event.stop()
        taking = self._taking()
        following = taking[taking.index(event.control) + 1 :] if event.control in taking else []
        if following:
            following[0].focus()
        else:
            self.submit()

    def _taking(self) -> list[Widget]:
        """The fields that take text now, from above."""
        return [field for field in self.focus_chain if isinstance(field, Input | MaskedEntry)]

    def submit(self) -> None:
        """Send, unless something is missing or on its way already."""
        if self._busy:
            return
        try:
            act = self.act()
        except Incomplete as fault:
            self.complain(str(fault))
            return
        self._busy = True
        self.query_one("#complaint", Static).update(Content.styled(self.working, self.style_of("muted")))
        self.console.bridge.submit(act, self._answered, self._failed)

    def _answered(self, answer: Any) -> None:
        self._wipe()
        if self.is_attached:
            self.dismiss(None)
        self._done(answer)

    def _failed(self, error: KortixError) -> None:
        self._wipe()
        self._busy = False
        if self.is_attached:
            self.failed(error)
        else:
            self.console.say_failed(error)

    def _wipe(self) -> None:
        for secret in self._given:
            secret.wipe()
        self._given.clear()

    def failed(self, error: KortixError) -> None:
        """Say what went wrong; a subclass may do more."""
        self.complain(str(error))

    # Fields.

    def text(self, selector: str) -> str:
        """What is in a plain field."""
        return self.query_one(selector, Input).value.strip()

    def choice(self, selector: str) -> str:
        """What is chosen.

        Raises:
            Incomplete: There is nothing to choose from.
        """
        value = self.query_one(selector, ChoiceField).value
        if value is None:
            raise Incomplete("There is nothing to choose from.")
        return value

    def masked(self, selector: str, what: str) -> Secret:
        """What is in a masked field.

        Raises:
            Incomplete: It is empty or cannot be used.
        """
        entry = self.query_one(selector, MaskedEntry)
        if entry.fault:
            raise Incomplete(f"{what}: {entry.fault}.")
        if entry.empty:
            raise Incomplete(f"{what} is empty.")
        secret = entry.secret()
        self._given.append(secret)
        return secret

    def show_only(self, **shown: bool) -> None:
        """Show or hide fields by their id, with `_` for `-`."""
        for name, wanted in shown.items():
            field = self.query_one(f"#{name.replace('_', '-')}")
            holder = field.parent if isinstance(field.parent, Horizontal) else field
            assert isinstance(holder, Widget)  # noqa: S101 - a field has a parent
            if wanted and holder.has_class("hidden") and isinstance(field, MaskedEntry):
                field.wait()
            holder.set_class(not wanted, "hidden")


class Label(Bar):
    """The label of a plain field."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="label")
        self._text = text

    def left(self) -> Sequence[Part]:
        """The label."""
        return (Part(self._text, "muted"),)


def line(label: str, field: Input) -> Horizontal:
    """A plain field with its label."""
    return Horizontal(Label(label), field, classes="line")


def chosen(label: str, values: Sequence[str], value: str | None = None, *, id: str) -> ChoiceField:
    """A choice whose values stand under those of the other fields."""
    return ChoiceField(label, values, value, cells=LABEL_CELLS, id=id)
