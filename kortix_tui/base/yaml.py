"""YAML from people and agents, read without surprises.

The files of a project can be written by an agent, so this reader takes a small, plain part of YAML and
refuses the rest: no anchors and aliases (bombs), no tags (constructors), no duplicate keys (two readers, two
meanings), no keys that are not text, one document, limited in size, depth and number of nodes. Plain scalars
follow the YAML 1.2 core schema: `no`, `on`, `12:30` and `2026-01-01` are text, as an author means them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.faults import Fault, Path, Place

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_LONGEST_INT = 18
_MOST_FAULTS = 25
_HINTS = (
    ("mapping values are not allowed", "Put a text that contains `: ` in quotes, or check the indentation."),
    ("could not find expected ':'", "A key needs a colon and a space after it."),
    ("expected <block end>", "Check the indentation: keys of one mapping begin in the same column."),
    ("did not find expected key", "Check the indentation: keys of one mapping begin in the same column."),
    ("did not find expected '-' indicator", "Check the indentation: items of one list begin in the same column."),
    ("cannot start any token", "Put a text that begins with a special character in quotes."),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a document may hold."""

    bytes: int = 256 * 1024
    depth: int = 32
    nodes: int = 50_000


DEFAULT_LIMITS = Limits()


class YamlRefused(InvalidInput):
    """A text is not the plain YAML that is read here.

    Attributes:
        faults: Everything that was found, in the order of the text.
    """

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        first = faults[0]
        super().__init__(f"{first.location}: {first.message}", hint=first.hint)
        self.faults = faults


@dataclass(frozen=True)
class Document:
    """Plain data and where each piece of it stands.

    Attributes:
        file: Name for messages.
        data: `None`, bool, int, float, str, list or dict with text keys, nested.
        keys: Place of each key (for list items: of the item).
        values: Place of each value.
    """

    file: str
    data: object
    keys: dict[Path, Place] = field(default_factory=dict, repr=False)
    values: dict[Path, Place] = field(default_factory=dict, repr=False)

    def key_place(self, path: Path) -> Place:
        """Where the key stands; the nearest piece above it when it is not there."""
        return self._nearest(self.keys, path)

    def value_place(self, path: Path) -> Place:
        """Where the value begins; the nearest piece above it when it is not there."""
        return self._nearest(self.values, path)

    def _nearest(self, places: dict[Path, Place], path: Path) -> Place:
        for length in range(len(path), 0, -1):
            place = places.get(path[:length])
            if place is not None:
                return place
        return self.values.get((), Place(self.file, 1, 1))


def load(raw: bytes, *, file: str, limits: Limits = DEFAULT_LIMITS, first_line: int = 1) -> Document:
    """Read one document.

    Args:
        raw: The file's bytes.
        file: Name for messages.
        limits: What is too much.
        first_line: The line of the file on which `raw` begins, for YAML inside another text.

    Raises:
        YamlRefused: It is not the plain YAML described above.
    """
    text = _decode(raw, file, limits)
    return _Reader(text, file, limits, first_line).document()


def _decode(raw: bytes, file: str, limits: Limits) -> str:
    def refuse(code: str, message: str, hint: str, line: int = 0) -> NoReturn:
        raise YamlRefused((Fault.at(Place(file, line, 1 if line else 0), (), message, code=code, hint=hint),))

    if len(raw) > limits.bytes:
        refuse(
            "too_large",
            f"the file is larger than {limits.bytes // 1024} KiB",
            "Split it with `imports:`, or move long texts into files of their own.",
        )
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        refuse("not_text", "the file contains a NUL character", "Save it as plain UTF-8 text.", line)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        refuse("not_utf8", "the file is not UTF-8 text", "Save it as UTF-8.", line)


class _Reader:
    """Builds plain data from PyYAML's parse events; depth is bounded, so recursion is.

    Events and marks are `Any`: PyYAML's C and Python parsers have classes of their own for the same things.
    """

    def __init__(self, text: str, file: str, limits: Limits, first_line: int) -> None:
        self._text = text
        self._file = file
        self._limits = limits
        self._offset = first_line
        self._nodes = 0
        self._faults: list[Fault] = []
        self._keys: dict[Path, Place] = {}
        self._values: dict[Path, Place] = {}

    def document(self) -> Document:
        import yaml

        loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        data: object = None
        seen = False
        try:
            events: Iterator[Any] = yaml.parse(self._text, Loader=loader)
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if seen:
                        self._refuse(
                            event.start_mark,
                            (),
                            "several_documents",
                            "the file holds more than one document",
                            "Keep one document and remove the `---` lines between them.",
                        )
                    seen = True
                    data = self._node(next(events), events, ())
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, max(0, error.position)) + self._offset
            fault = Fault.at(
                Place(self._file, line, 1),
                (),
                "a control character stands in the text",
                code="not_text",
                hint="Remove it, or write it as an escape in double quotes.",
            )
            self._stop(fault)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or "cannot be read"
            hint = self._hint(problem, mark)
            message = f"not valid YAML: {problem}" + (f" ({error.context})" if error.context else "")
            self._stop(Fault.at(self._place(mark), (), message, code="not_yaml", hint=hint))
        if self._faults:
            raise YamlRefused(tuple(self._faults))
        return Document(self._file, data, self._keys, self._values)

    def _node(self, event: Any, events: Iterator[Any], path: Path) -> object:
        import yaml

        self._nodes += 1
        if self._nodes > self._limits.nodes:
            self._refuse(
                event.start_mark, path, "too_many", f"more than {self._limits.nodes} values", "Make the file smaller."
            )
        if len(path) > self._limits.depth:
            self._refuse(
                event.start_mark,
                path[:4],
                "too_deep",
                f"nested more than {self._limits.depth} levels",
                "Make it flatter.",
            )
        self._values[path] = self._place(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            self._refuse(
                event.start_mark,
                path,
                "alias",
                "anchors (&name) and aliases (*name) are not read here",
                "Write the value out where it is used.",
            )
        if getattr(event, "tag", None):
            self._note(event.start_mark, path, "tag", "tags (!name) are not read here", "Remove the tag; quote a text.")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[object] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                here = (*path, len(items))
                self._keys[here] = self._place(event.start_mark)
                items.append(self._node(event, events, here))
            return items
        return self._mapping(events, path)

    def _mapping(self, events: Iterator[Any], path: Path) -> dict[str, object]:
        import yaml

        mapping: dict[str, object] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            mark = event.start_mark
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(
                    mark, path, "key_not_text", "a key must be a text", "Write `key: value`, with a plain key."
                )
            key = event.value
            here = (*path, key)
            if event.anchor or event.tag:
                self._refuse(mark, here, "alias", "a key cannot have an anchor or a tag", "Write the key plainly.")
            if event.implicit[0] and not isinstance(_plain(key), str):
                self._note(mark, path, "key_not_text", f"the key {key} is not a text", "Put the key in quotes.")
            if key == "<<":
                self._note(mark, here, "alias", "merge keys (<<) are not read here", "Write the values out.")
            if key in mapping:
                first = self._keys[here].line
                self._note(
                    mark, here, "duplicate_key", f"the key `{key}` is already on line {first}", "Keep one of them."
                )
            else:
                self._keys[here] = self._place(mark)
            value = self._node(next(events), events, here)
            mapping.setdefault(key, value)
        return mapping

    def _scalar(self, event: Any, path: Path) -> object:
        text: str = event.value
        if not event.implicit[0]:
            return text
        value = _plain(text)
        if value is _TOO_BIG:
            self._note(
                event.start_mark, path, "number", "the number is too large or not finite", "Quote it if it is a text."
            )
            return None
        return value

    def _hint(self, problem: str, mark: Any) -> str:
        line = self._text.splitlines()[mark.line : mark.line + 1] if mark else []
        if line and "\t" in line[0][: len(line[0]) - len(line[0].lstrip())]:
            return "Indent with spaces, not tabs."
        return next((hint for part, hint in _HINTS if part in problem), "Check this line and the one before it.")

    def _place(self, mark: Any) -> Place:
        return (
            Place(self._file, mark.line + self._offset, mark.column + 1) if mark else Place(self._file, self._offset, 1)
        )

    def _note(self, mark: Any, path: Path, code: str, message: str, hint: str) -> None:
        self._faults.append(Fault.at(self._place(mark), path, message, code=code, hint=hint))
        if len(self._faults) >= _MOST_FAULTS:
            raise YamlRefused(tuple(self._faults))

    def _refuse(self, mark: Any, path: Path, code: str, message: str, hint: str) -> NoReturn:
        self._stop(Fault.at(self._place(mark), path, message, code=code, hint=hint))

    def _stop(self, fault: Fault) -> NoReturn:
        raise YamlRefused((*self._faults, fault))


_TOO_BIG = object()


def _plain(text: str) -> object:
    """Resolve an unquoted scalar by the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    first = text[0]
    if first not in "+-.0123456789":
        return text
    if _INT.match(text):
        if len(text) > _LONGEST_INT:
            return _TOO_BIG
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.match(text):
        value = float(text)
        return value if abs(value) != float("inf") else _TOO_BIG
    return _TOO_BIG if _NOT_FINITE.match(text) else text


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The YAML head of a Markdown file, and the rest."""

    head: bytes | None
    body: str
    first_line: int


def split_front_matter(raw: bytes, *, file: str, limits: Limits = DEFAULT_LIMITS) -> FrontMatter:
    """Split a text that may begin with YAML between two `---` lines.

    Raises:
        YamlRefused: It is no UTF-8 text, too large, or the head is never closed.
    """
    text = _decode(raw, file, limits).replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return FrontMatter(None, text.strip("\n"), 1)
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            head = "\n".join(lines[1:number]) + "\n"
            return FrontMatter(head.encode(), "\n".join(lines[number + 1 :]).strip("\n"), 2)
    raise YamlRefused(
        (
            Fault.at(
                Place(file, 1, 1),
                (),
                "the front matter is not closed",
                code="not_yaml",
                hint="End it with a line `---`.",
            ),
        )
    )
