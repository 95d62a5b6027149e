"""The registry of commands as Textual's palette wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.command_line import Command

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp


class PaletteCommands(Provider):
    """Offers the registry to Textual's palette."""

    @property
    def _commands(self) -> list[Command]:
        app: KortixApp = self.app  # type: ignore[assignment]
        return [command for command in app.commands if command.enabled() and not command.argument]

    async def discover(self) -> Hits:
        """Everything that can be done now."""
        for command in self._commands:
            yield DiscoveryHit(Content(visible_line(command.title)), lambda run=command.run: run(""), help=command.hint)

    async def search(self, query: str) -> Hits:
        """What matches."""
        matcher = self.matcher(query)
        for command in self._commands:
            score = matcher.match(f"{command.title} {command.names[0]}")
            if score > 0:
                yield Hit(
                    score, Content(visible_line(command.title)), lambda run=command.run: run(""), help=command.hint
                )
