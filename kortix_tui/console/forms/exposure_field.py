"""Choosing where a value may go, with what each choice means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from kortix_tui.base.words import Exposure
from kortix_tui.console.forms.form import Incomplete, chosen, line
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.runtime.secret_words import MEANING

GATEWAY_ONLY: Final = "model gateway only"
_ORDER: Final = (Exposure.ENVIRONMENT, Exposure.CONNECTOR, Exposure.EGRESS, Exposure.NONE)


@dataclass(frozen=True)
class Placement:
    """Where a value may go.

    Attributes:
        exposure: `None` leaves it to the runtime.
        hosts: Where an egress-enforced value may be sent.
        gateway: Whether the model gateway may use a value that nobody else gets.
    """

    exposure: Exposure | None
    hosts: tuple[str, ...] = ()
    gateway: bool = False


class ExposureField(Vertical):
    """The choice, its meaning below it, and hosts where they matter."""

    DEFAULT_CSS = """
    ExposureField { height: auto; }
    """

    def __init__(
        self,
        *,
        present: Placement | None = None,
        usual: tuple[str, str] | None = None,
        gateway: bool = False,
        egress: bool = True,
        id: str = "placement",
    ) -> None:
        """Make the field.

        Args:
            present: What is chosen first.
            usual: Word and meaning of leaving it to the runtime, where that is a choice.
            gateway: Whether the model gateway is a choice of its own.
            egress: Whether `egress-enforced`, which needs hosts, is a choice.
            id: The widget's id.
        """
        super().__init__(id=id)
        self._meanings: dict[str, tuple[Placement, str]] = {}
        if usual is not None:
            self._meanings[usual[0]] = (Placement(None), usual[1])
        for exposure in _ORDER:
            if exposure is Exposure.EGRESS and not egress:
                continue
            self._meanings[exposure.value] = (Placement(exposure), MEANING[exposure])
        if gateway:
            meaning = "the value stays on the host; the model gateway uses it for calls of models"
            self._meanings[GATEWAY_ONLY] = (Placement(Exposure.NONE, gateway=True), meaning)
        self._hosts = " ".join(present.hosts) if present else ""
        self._first = next(
            (
                word
                for word, (placement, _) in self._meanings.items()
                if present and (placement.exposure, placement.gateway) == (present.exposure, present.gateway)
            ),
            next(iter(self._meanings)),
        )

    def compose(self) -> ComposeResult:
        """Choice, meaning, hosts."""
        yield chosen("Exposure", list(self._meanings), self._first, id="exposure")
        yield plain("", classes="meaning", id="meaning")
        yield line("Hosts", Input(self._hosts, id="hosts", placeholder="api.example.com, others after a space"))

    def on_mount(self) -> None:
        """Say what the first choice means."""
        self._explain()

    @on(ChoiceField.Changed, "#exposure")
    def _explain(self) -> None:
        placement, meaning = self._meanings[self._word]
        self.query_one("#meaning", Static).update(Content(f"{meaning[:1].upper()}{meaning[1:]}."))
        hosts = self.query_one("#hosts", Input)
        if hosts.parent is not None:
            hosts.parent.set_class(placement.exposure is not Exposure.EGRESS, "hidden")

    @property
    def _word(self) -> str:
        return self.query_one("#exposure", ChoiceField).value or self._first

    @property
    def placement(self) -> Placement:
        """What is chosen.

        Raises:
            Incomplete: An egress-enforced value has no host.
        """
        placement = self._meanings[self._word][0]
        if placement.exposure is not Exposure.EGRESS:
            return placement
        hosts: Sequence[str] = self.query_one("#hosts", Input).value.replace(",", " ").split()
        if not hosts:
            raise Incomplete("Name at least one host that the value may be sent to.")
        return Placement(Exposure.EGRESS, tuple(hosts))
