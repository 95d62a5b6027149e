"""Edits of what an agent may use, in the text of a manifest: comments, order, style and every other byte stay.

The text is cut and joined at the places where the reader found things, and never written anew. Whatever the text looks
like, the result is read again and has to mean exactly the old data with the one change; otherwise nothing is edited.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final, NoReturn

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.yaml import YamlRefused, load
from kortix_tui.manifest.agents import AGENT_ALIASES
from kortix_tui.manifest.assembly import MANIFEST
from kortix_tui.manifest.marks import Lines, Mapping, Node, Scalar, Sequence, last_character, mark

GRANT_KEYS: Final = ("secrets", "connectors", "connectors_required", "skills", "apps", "kortix_permissions")
"""The keys of an agent that hold a grant by name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_EVERYTHING = ("all", "*")
# Other readers than ours, of YAML 1.1, take these for something else than a text.
_OTHER_READERS = re.compile(r"(?:y|n|yes|no|on|off|[-+.0-9][0-9_.:eExXa-fA-F+-]*)\Z", re.IGNORECASE)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#.*)?\Z")
_COLON = re.compile(r"[ \t]*:")
_BLOCK_ITEM = re.compile(r" *-[ \t]+\Z")
_BOM = "\ufeff"

_Splice = tuple[int, int, str]


def add_to_grant(
    source: bytes, agent: str, key: str, name: str, *, replace_all: bool = False, file: str = MANIFEST
) -> bytes:
    """Name one more thing in `agents.<agent>.<key>`.

    Args:
        source: The file that declares the agent.
        agent: The agent's name.
        key: One of `GRANT_KEYS`.
        name: What is granted.
        replace_all: Where the grant is `all`: write a list of only this name instead.
        file: How messages call the file.

    Returns:
        The edited file; the very same bytes when the agent has that grant already.

    Raises:
        NotFound: The file declares no such agent.
        Refused: The grant of secrets is `all`, which names no secret.
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    grant = _Grant(source, agent, key, name, file)
    if grant.everything and not replace_all:
        if key != "secrets":
            return source
        raise Refused(
            f"{grant.place}: `{grant.path}` is `all`: every secret that goes into the environment is granted already.",
            hint="One that is kept outside the sandbox has to be named: replace `all` by the list of what it may use.",
        )
    if grant.held and not grant.everything:
        return source
    return grant.changed([*([] if grant.everything else grant.names), name], grant.adding())


def remove_from_grant(source: bytes, agent: str, key: str, name: str, *, file: str = MANIFEST) -> bytes:
    """Take a name out of `agents.<agent>.<key>`; the arguments are those of `add_to_grant`.

    Returns:
        The edited file; the very same bytes when the agent has no such grant.

    Raises:
        NotFound: The file declares no such agent.
        Refused: The grant is `all`, which has no names to take away.
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    while True:
        grant = _Grant(source, agent, key, name, file)
        if grant.everything:
            raise Refused(
                f"{grant.place}: `{grant.path}` is `all`; a single name cannot be taken out of it.",
                hint="Write the list of what the agent may use in its place.",
            )
        if not grant.held:
            return source
        index = grant.held[-1]
        source = grant.changed([*grant.names[:index], *grant.names[index + 1 :]], grant.removing(index))


class _Grant:
    """One grant in one text: what it says, where it stands, and how to change it.

    Attributes:
        place: File and line, for messages.
        path: The key's path, for messages.
        everything: The grant is `all`.
        names: What it names, in order.
        held: Indexes of `names` that mean the name that is asked about.
    """

    def __init__(self, source: bytes, agent: str, key: str, name: str, file: str) -> None:
        if key not in GRANT_KEYS:
            raise InvalidInput(f"`{visible_line(shorten(key, 60))}` is no grant.", hint=choose(key, GRANT_KEYS))
        if not _NAME.match(name) or name in _EVERYTHING:
            raise InvalidInput(
                f"`{visible_line(shorten(name, 140))}` cannot be granted by name.",
                hint="Use letters, digits, `_`, `.` and `-`, at most 128, beginning with a letter or digit.",
            )
        document = load(source, file=file)
        self._bom = _BOM if source.startswith(_BOM.encode()) else ""
        self._text = source.decode("utf-8-sig")
        self._lines = Lines(self._text)
        self._data: Any = document.data
        self._agent, self._name, self._file = agent, name, visible_line(file)
        agents = self._data.get("agents") if isinstance(self._data, dict) else None
        if not isinstance(agents, dict) or agent not in agents:
            known = agents if isinstance(agents, dict) else {}
            raise NotFound(
                f"{self._file} declares no agent `{visible_line(shorten(agent, 60))}`.", hint=choose(agent, known)
            )
        self._entry = self._entry_of(mark(self._text), ("agents", agent))
        declared = agents[agent]
        if declared is not None and not isinstance(declared, dict):
            raise InvalidInput(
                f"{self._place_of(self._entry[0])}: the agent `{agent}` is not a mapping.",
                hint="Write `key: value` below it, one a line.",
            )
        written = declared or {}
        old = next((old for old, new in AGENT_ALIASES.items() if new == key and old in written), key)
        self._key = key if key in written else old
        self._grant = self._entry[1].entry(self._key) if isinstance(self._entry[1], Mapping) else None
        self.place = self._place_of((self._grant or self._entry)[0])
        self.path = f"agents.{agent}.{self._key}"
        self._read(written.get(self._key), fold=key == "secrets")

    def _read(self, value: object, *, fold: bool) -> None:
        self.everything = isinstance(value, str) and value in _EVERYTHING
        self.names: list[str] = []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            self.names = value
        elif value is not None and value != "none" and not self.everything:
            raise InvalidInput(
                f"{self.place}: `{self.path}` is neither a list of names nor `all` or `none`.",
                hint="Write `[name, name]`.",
            )
        wanted = self._name.casefold() if fold else self._name
        self.held = [n for n, item in enumerate(self.names) if (item.casefold() if fold else item) == wanted]

    def _entry_of(self, node: Node | None, path: tuple[str, ...]) -> tuple[Scalar, Node]:
        found: tuple[Scalar, Node] | None = None
        for step in path:
            found = node.entry(step) if isinstance(node, Mapping) else None
            if found is None:  # only if the reader and the marks disagree, as for a second byte order mark
                raise InvalidInput(f"{self._file} cannot be edited safely.", hint=self._hint())
            node = found[1]
        assert found is not None  # noqa: S101 - the path has steps
        return found

    # ---- the two changes ---------------------------------------------------------------------------------

    def adding(self) -> list[_Splice]:
        """Where to cut, and what to put there, for one more name."""
        if self._grant is None:
            return self._new_key(f"{self._key}: [{_spelled(self._name)}]")
        key, value = self._grant
        if not isinstance(value, Sequence):
            return [self._written(key, value, f"[{_spelled(self._name)}]")]
        item = _spelled(self._name, value)
        if value.flow:
            return self._into_flow(value, value.items, item)
        last = value.items[-1]
        prefix = self._text[self._lines.start(last.start) : last.start]
        if not _BLOCK_ITEM.match(prefix):
            self._by_hand(last)
        return [self._new_line(last.end, prefix + item)]

    def removing(self, index: int) -> list[_Splice]:
        """Where to cut for one name less."""
        assert self._grant is not None and isinstance(self._grant[1], Sequence)  # noqa: S101 - it names something
        key, value = self._grant[0], self._grant[1]
        if value.flow:
            return self._out_of_flow(value, index)
        item = value.items[index]
        if not _BLOCK_ITEM.match(self._text[self._lines.start(item.start) : item.start]):
            self._by_hand(item)
        line = (*self._lines.span(item.start), "")
        if len(value.items) > 1:
            return [line]
        colon = _COLON.match(self._text, key.end)
        if colon is None:
            self._by_hand(key)
        return [(colon.end(), colon.end(), " []"), line]  # a list without items has no block style

    def _new_key(self, entry: str) -> list[_Splice]:
        key, agent = self._entry
        if not isinstance(agent, Mapping):
            return [self._written(key, agent, f"{{{entry}}}")]
        if agent.flow:
            return self._into_flow(agent, tuple(value for _, value in agent.entries), entry)
        first = agent.entries[0][0]
        indent = self._text[self._lines.start(first.start) : first.start]
        if indent.strip(" "):
            self._by_hand(first)
        ends = [end for _, value in agent.entries if (end := last_character(value)) is not None]
        if ends:
            return [self._new_line(ends[-1], indent + entry)]
        return [(first.start, first.start, entry + self._lines.newline(first.start) + indent)]

    def _new_line(self, after: int, line: str) -> _Splice:
        """A line below the one of a position."""
        end = self._lines.end(after)
        return (end, end, self._lines.newline(after) + line)

    def _written(self, key: Scalar, value: Node, new: str) -> _Splice:
        """Another text in the place of a value, which may be missing, and its colon too."""
        if value.start < value.end:
            return (value.start, value.end, new)
        colon = _COLON.match(self._text, key.end)
        at = colon.end() if colon else key.end
        return (at, at, f" {new}" if colon else f": {new}")

    def _into_flow(self, whole: Sequence | Mapping, parts: tuple[Node, ...], new: str) -> list[_Splice]:
        """One more part at the end of `[…]` or `{…}`, on a line of its own when the last part has one."""
        if not parts:
            opened = whole.start + 1
            return [(opened, opened, new + (" " if self._text[opened] == "#" else ""))]
        last = parts[-1]
        comma = self._comma(last.end, whole.end - 1)
        after = last.end if comma is None else comma + 1
        start, end = self._lines.start(last.start), self._lines.end(after)
        indent = self._text[start : last.start]
        alone = not indent.strip(" \t") and end < whole.end and _REST_OF_LINE.match(self._text[after:end])
        if isinstance(whole, Mapping) or not alone:
            return [(last.end, last.end, f", {new}")]
        line = self._lines.newline(after) + indent + new + ("" if comma is None else ",")
        return [*([(last.end, last.end, ",")] if comma is None else []), (end, end, line)]

    def _out_of_flow(self, whole: Sequence, index: int) -> list[_Splice]:
        """One part less in `[…]`, with its comma; with its whole line and comment when it has one of its own."""
        item, is_last = whole.items[index], index == len(whole.items) - 1
        before = whole.items[index - 1].end if index else None
        after = whole.end - 1 if is_last else whole.items[index + 1].start
        comma = self._comma(item.end, after)
        spare = self._comma(before, item.start) if is_last and comma is None and before is not None else None
        without_comma = [(spare, spare + 1, "")] if spare is not None else []
        end = self._lines.end(item.end)
        rest = self._text[item.end : end].lstrip(" \t").removeprefix(",")
        if (
            not self._text[self._lines.start(item.start) : item.start].strip(" \t")
            and end < whole.end
            and (comma is None or comma < end)
            and _REST_OF_LINE.match(rest)
        ):
            return [*without_comma, (*self._lines.span(item.start), "")]
        if not is_last and comma is not None:
            plain = not self._text[comma + 1 : after].strip(" \t")
            return [(item.start, after if plain else comma + 1, "")]
        if before is not None and not self._text[before : item.start].replace(",", "", 1).strip(" \t"):
            return [(before, item.end, "")]
        if comma is not None:
            return [(item.start, comma + 1, "")]
        return [*without_comma, (item.start, item.end, "")]

    def _comma(self, start: int, end: int) -> int | None:
        """The comma between two parts of a flow collection, where else only space and comments can be."""
        at = start
        while at < end:
            if self._text[at] == ",":
                return at
            at = self._lines.end(at) if self._text[at] == "#" else at + 1
        return None

    # ---- the proof ---------------------------------------------------------------------------------------

    def changed(self, names: list[str], splices: list[_Splice]) -> bytes:
        """The edited file, when it means the old data with these names and nothing else."""
        expected = copy.deepcopy(self._data)
        agents = expected["agents"]
        agents[self._agent] = {**(agents[self._agent] or {}), self._key: names}
        parts, at = list[str](), 0
        for start, end, new in sorted(splices, key=lambda splice: splice[0]):
            parts += [self._text[at:start], new]
            at = end
        edited = (self._bom + "".join(parts) + self._text[at:]).encode()
        try:
            found = load(edited, file=self._file).data
        except YamlRefused:
            self._by_hand((self._grant or self._entry)[0])
        if not _same(found, expected):
            self._by_hand((self._grant or self._entry)[0])
        return edited

    def _place_of(self, node: Node) -> str:
        return f"{self._file}:{self._lines.number(node.start)}"

    def _hint(self) -> str:
        return "Edit it by hand, commit it on the base branch, and run `kortix validate`."

    def _by_hand(self, node: Node) -> NoReturn:
        raise InvalidInput(
            f"{self._place_of(node)}: `{self.path}` is written in a way that cannot be edited safely.",
            hint=self._hint(),
        )


def _spelled(name: str, among: Sequence | None = None) -> str:
    """A name as a text of YAML: quoted where its neighbours are, or where a reader would take it for something else."""
    styles = {item.style for item in among.items if isinstance(item, Scalar)} if among is not None else set[str]()
    if len(styles) == 1 and (style := styles.pop()) in ("'", '"'):
        return f"{style}{name}{style}"
    if _OTHER_READERS.match(name) or not isinstance(load(name.encode(), file="").data, str):
        return f'"{name}"'
    return name


def _same(one: object, other: object) -> bool:
    """Equal, where `1`, `1.0` and `true` are three things."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
