"""What can be typed after `:` and picked in the palette: one registry, so both always offer the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

Run = Callable[[str], None]
Complete = Callable[[str], Iterable[str]]


def _nothing(_: str) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        names: What is typed; the first is shown, the others are short forms.
        title: What the palette says.
        run: Does it; gets the rest of the line.
        argument: Word for what it takes, or empty.
        complete: Gives possible arguments for what was typed of one.
        enabled: Whether it can be done now.
        hint: Its key and the command line that does the same, for the palette.
    """

    names: tuple[str, ...]
    title: str
    run: Run
    argument: str = ""
    complete: Complete = _nothing
    enabled: Callable[[], bool] = field(default=lambda: True)
    hint: str = ""


@dataclass(frozen=True)
class Unknown:
    """A line that is no command, with the ones that come near."""

    line: str
    near: tuple[str, ...]

    @property
    def message(self) -> str:
        """What to tell the person."""
        word = self.line.split(" ", 1)[0]
        if self.near:
            return f"No command {word}. Did you mean {', '.join(self.near)}?"
        return f"No command {word}. Tab completes; ctrl+p lists all."


class CommandRegistry:
    """Commands by name."""

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        self._commands: list[Command] = []
        self._names: dict[str, Command] = {}
        for command in commands:
            self.add(command)

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands)

    def add(self, command: Command) -> None:
        """Register a command.

        Raises:
            ValueError: One of its names is taken.
        """
        for name in command.names:
            if name in self._names:
                raise ValueError(f"two commands are called {name}")
            self._names[name] = command
        self._commands.append(command)

    def find(self, line: str) -> tuple[Command, str] | Unknown:
        """The command of a typed line and its argument; a unique beginning of a name is enough."""
        word, _, rest = line.strip().partition(" ")
        command = self._names.get(word)
        if command is None:
            fitting = {id(found): found for name, found in self._names.items() if word and name.startswith(word)}
            if len(fitting) != 1:
                return Unknown(line.strip(), tuple(found.names[0] for found in fitting.values())[:5])
            command = next(iter(fitting.values()))
        return command, rest.strip()

    def completions(self, line: str) -> list[str]:
        """What a line could become."""
        word, space, rest = line.lstrip().partition(" ")
        if not space:
            return sorted(command.names[0] for command in self._commands if command.names[0].startswith(word))
        found = self.find(word)
        if isinstance(found, Unknown):
            return []
        return [f"{word} {value}" for value in found[0].complete(rest.strip()) if value.startswith(rest.strip())]
