"""A manifest's text, cut and joined where the reader found things, and never written anew.

Whatever the text looks like, what comes out is read again and has to mean exactly what was expected; otherwise nothing
is edited.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import visible_line
from kortix_tui.base.yaml import YamlRefused, load
from kortix_tui.manifest.marks import Lines, Mapping, Node, Scalar, Sequence, last_character, mark

Splice = tuple[int, int, str]
"""From where to where to cut, and what to put there."""

_BY_HAND: Final = "Edit it by hand, commit it on the base branch, and run `kortix validate`."
# Other readers than ours, of YAML 1.1, take these for something else than a text.
_OTHER_READERS = re.compile(r"(?:y|n|yes|no|on|off|[-+.0-9][0-9_.:eExXa-fA-F+-]*)\Z", re.IGNORECASE)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#.*)?\Z")
_COLON = re.compile(r"[ \t]*:")
_BLOCK_ITEM = re.compile(r" *-[ \t]+\Z")
_KEY_INDENT = re.compile(r" *(?:- +)?\Z")
_BOM = "\ufeff"


class Draft:
    """One file's text, and what stands where in it.

    Attributes:
        file: How messages call the file.
        data: What the text means.
        root: Where its pieces stand; `None` for a text with nothing in it.
    """

    def __init__(self, source: bytes, file: str) -> None:
        document = load(source, file=file)
        self._bom = _BOM if source.startswith(_BOM.encode()) else ""
        self.text = source.decode("utf-8-sig")
        self.lines = Lines(self.text)
        self.file = visible_line(file)
        self.data: Any = document.data
        self.root = mark(self.text)

    def place_of(self, node: Node) -> str:
        """File and line of a node, for messages."""
        return f"{self.file}:{self.lines.number(node.start)}"

    def entry(self, node: Node | None, key: str) -> tuple[Scalar, Node]:
        """A key that the data has, and its value.

        Raises:
            InvalidInput: The reader and the marks disagree, as for a second byte order mark.
        """
        found = node.entry(key) if isinstance(node, Mapping) else None
        if found is None:
            raise InvalidInput(f"{self.file} cannot be edited safely.", hint=_BY_HAND)
        return found

    # ---- putting in ---------------------------------------------------------------------------------------

    def new_entry(self, mapping: Mapping, block: list[str], flow: str, path: str) -> list[Splice]:
        """One more key at the end of a mapping that has some, or is in flow style.

        Args:
            mapping: Where.
            block: The lines of the key and its value, in block style.
            flow: The same for flow style.
            path: For messages.
        """
        if mapping.flow:
            return self.into_flow(mapping, tuple(value for _, value in mapping.entries), flow)
        first = mapping.entries[0][0]
        before = self.text[self.lines.start(first.start) : first.start]
        if not _KEY_INDENT.match(before):
            self.by_hand(first, path)
        indent = " " * len(before)
        lines = (self.lines.newline(first.start) + indent).join(block)
        ends = [end for _, value in mapping.entries if (end := last_character(value)) is not None]
        if ends:
            return [self.new_line(ends[-1], indent + lines)]
        return [(first.start, first.start, lines + self.lines.newline(first.start) + indent)]

    def new_line(self, after: int, line: str) -> Splice:
        """A line below the one of a position."""
        end = self.lines.end(after)
        return (end, end, self.lines.newline(after) + line)

    def written(self, key: Scalar, value: Node, new: str) -> Splice:
        """Another text in the place of a value, which may be missing, and its colon too."""
        if value.start < value.end:
            return (value.start, value.end, new)
        colon = _COLON.match(self.text, key.end)
        at = colon.end() if colon else key.end
        return (at, at, f" {new}" if colon else f": {new}")

    def into_flow(self, whole: Sequence | Mapping, parts: tuple[Node, ...], new: str) -> list[Splice]:
        """One more part at the end of `[…]` or `{…}`, on a line of its own when the last part has one."""
        if not parts:
            opened = whole.start + 1
            return [(opened, opened, new + (" " if self.text[opened] == "#" else ""))]
        last = parts[-1]
        comma = self._comma(last.end, whole.end - 1)
        after = last.end if comma is None else comma + 1
        start, end = self.lines.start(last.start), self.lines.end(after)
        indent = self.text[start : last.start]
        alone = not indent.strip(" \t") and end < whole.end and _REST_OF_LINE.match(self.text[after:end])
        if isinstance(whole, Mapping) or not alone:
            return [(last.end, last.end, f", {new}")]
        line = self.lines.newline(after) + indent + new + ("" if comma is None else ",")
        return [*([(last.end, last.end, ",")] if comma is None else []), (end, end, line)]

    def before_in_flow(self, item: Node, new: str) -> Splice:
        """One more part before another one, on a line of its own when that one begins one."""
        indent = self.text[self.lines.start(item.start) : item.start]
        between = " " if indent.strip(" \t") else self.lines.newline(item.start) + indent
        return (item.start, item.start, f"{new},{between}")

    def item_prefix(self, item: Node, path: str) -> str:
        """What stands before an item of a list in block style: its indent and dash."""
        prefix = self.text[self.lines.start(item.start) : item.start]
        if not _BLOCK_ITEM.match(prefix):
            self.by_hand(item, path)
        return prefix

    # ---- taking out ---------------------------------------------------------------------------------------

    def out_of_block(self, key: Scalar, whole: Sequence, index: int, path: str) -> list[Splice]:
        """One item less in a list in block style: its lines go, comments on lines of their own around it stay."""
        item = whole.items[index]
        self.item_prefix(item, path)
        end = last_character(item)
        if end is None:
            self.by_hand(item, path)
        start, stop = self.lines.start(item.start), self.lines.span(max(item.start, end))[1]
        if stop == len(self.text) and start and self.lines.end(end) == stop:
            start = self.lines.end(start - 1)  # the last line has no break: the one before it goes
        if len(whole.items) > 1:
            return [(start, stop, "")]
        colon = _COLON.match(self.text, key.end)
        if colon is None:
            self.by_hand(key, path)
        return [(colon.end(), colon.end(), " []"), (start, stop, "")]  # a list without items has no block style

    def out_of_flow(self, whole: Sequence, index: int) -> list[Splice]:
        """One part less in `[…]`, with its comma; with its whole lines and comment when it has them to itself."""
        item, is_last = whole.items[index], index == len(whole.items) - 1
        before = whole.items[index - 1].end if index else None
        after = whole.end - 1 if is_last else whole.items[index + 1].start
        comma = self._comma(item.end, after)
        spare = self._comma(before, item.start) if is_last and comma is None and before is not None else None
        without_comma = [(spare, spare + 1, "")] if spare is not None else []
        end = self.lines.end(item.end)
        rest = self.text[item.end : end].lstrip(" \t").removeprefix(",")
        if (
            not self.text[self.lines.start(item.start) : item.start].strip(" \t")
            and end < whole.end
            and (comma is None or comma < end)
            and _REST_OF_LINE.match(rest)
        ):
            return [*without_comma, (self.lines.start(item.start), self.lines.span(item.end)[1], "")]
        if not is_last and comma is not None:
            plain = not self.text[comma + 1 : after].strip(" \t")
            return [(item.start, after if plain else comma + 1, "")]
        if before is not None and not self.text[before : item.start].replace(",", "", 1).strip(" \t"):
            return [(before, item.end, "")]
        if comma is not None:
            return [(item.start, comma + 1, "")]
        return [*without_comma, (item.start, item.end, "")]

    def _comma(self, start: int, end: int) -> int | None:
        """The comma between two parts of a flow collection, where else only space and comments can be."""
        at = start
        while at < end:
            if self.text[at] == ",":
                return at
            at = self.lines.end(at) if self.text[at] == "#" else at + 1
        return None

    # ---- the proof ----------------------------------------------------------------------------------------

    def edited(self, splices: list[Splice], expected: object, node: Node, path: str) -> bytes:
        """The edited file, when it means what is expected and nothing else.

        Raises:
            InvalidInput: It does not; `node` and `path` are named.
        """
        parts, at = list[str](), 0
        for start, end, new in sorted(splices, key=lambda splice: splice[0]):
            parts += [self.text[at:start], new]
            at = end
        edited = (self._bom + "".join(parts) + self.text[at:]).encode()
        try:
            found = load(edited, file=self.file).data
        except YamlRefused:
            self.by_hand(node, path)
        if not _same(found, expected):
            self.by_hand(node, path)
        return edited

    def by_hand(self, node: Node, path: str) -> NoReturn:
        """Refuse: only a person can edit this."""
        raise InvalidInput(
            f"{self.place_of(node)}: `{path}` is written in a way that cannot be edited safely.", hint=_BY_HAND
        )


def spelled(name: str, among: tuple[Node, ...] = ()) -> str:
    """A name as a text of YAML: quoted where its neighbours are, or where a reader would take it for something else."""
    styles = {item.style for item in among if isinstance(item, Scalar)}
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
