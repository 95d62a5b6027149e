"""`.env` files, as `kortix secrets import --from .env` reads them.

The parser is python-dotenv's, so that quotes, comments and `export` mean what they mean elsewhere. Nothing is expanded:
a value with `${…}` in it is taken as it stands, and said so. No message quotes a value.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.vault.secret import Secret

MAX_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class DotenvEntry:
    """One assignment. The name is as written; `rules.check_name` decides about it."""

    name: str
    value: Secret
    line: int


@dataclass(frozen=True)
class DotenvNote:
    """Something that a person should know about a line."""

    line: int
    message: str


@dataclass(frozen=True)
class DotenvFile:
    """What a file holds, in its order; of a name that is set twice, the last."""

    entries: tuple[DotenvEntry, ...]
    notes: tuple[DotenvNote, ...]


def read_dotenv(data: bytes) -> DotenvFile:
    """Read a `.env` file's content.

    Raises:
        InvalidInput: It is too long, not UTF-8, or a line cannot be read. A value that is silently left out would be
            missed much later.
    """
    from dotenv.parser import parse_stream

    if len(data) > MAX_BYTES:
        raise InvalidInput(f"The file is larger than {MAX_BYTES >> 20} MiB.", hint="Choose a `.env` file.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The file is not UTF-8 text.", hint="Choose a `.env` file, or save it as UTF-8.") from None
    found = dict[str, DotenvEntry]()
    notes = list[DotenvNote]()
    for binding in parse_stream(io.StringIO(text, newline="")):
        # The parser counts the blank lines before an assignment to it.
        original = binding.original.string
        line = binding.original.line + original[: len(original) - len(original.lstrip())].count("\n")
        if binding.error:
            raise InvalidInput(
                f"Line {line} of the file cannot be read.",
                hint="Write `NAME=value`; quote values that have spaces or `#`.",
            )
        if binding.key is None:
            continue
        shown = shorten(visible_line(binding.key), 80)
        if not binding.value:
            notes.append(DotenvNote(line, f"`{shown}` has no value and is left out."))
            continue
        if "${" in binding.value:
            notes.append(DotenvNote(line, f"`{shown}` has `${{…}}` in it, which is kept as it stands."))
        if binding.key in found:
            notes.append(DotenvNote(line, f"`{shown}` is set again; the later value counts."))
        found[binding.key] = DotenvEntry(binding.key, Secret(binding.value.encode()), line)
    return DotenvFile(tuple(found.values()), tuple(notes))
