"""Looking for the values of secrets in commits that are about to be taken in.

Everything is searched that the new commits bring: files, their names, messages, people, also in commits whose work a
later one removes, and objects that nothing names. What a value looks like is not known here: the runtime lends a
`ValueFinder`. What is found is told by the secret's identifier and the place, never by the value.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kortix_tui.base.errors import DeadlineExceeded, GitFailed
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.repository import names
from kortix_tui.repository.process import Git, Limits, feed, tail

FOUND: Final = 20
"""Places after which the search ends: enough to know what is wrong."""

_SEARCH: Final = Limits(wall_s=60.0, cpu_s=60)
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_OBJECTS: Final = 1000
_PATH: Final = 200
_COMMIT_LINE: Final = re.compile(rb"(author|committer) ")


class ValueHit(Protocol):
    """One value in a piece of data."""

    @property
    def label(self) -> str:
        """The secret's identifier."""

    @property
    def start(self) -> int:
        """Its first byte."""

    @property
    def end(self) -> int:
        """The byte after its last."""


ValueFinder = Callable[[bytes], Sequence[ValueHit]]
"""Says where values are in a piece of data, in order and without overlap. Called in threads."""


@dataclass(frozen=True, slots=True)
class ValueScan:
    """What the runtime knows of values, for whoever takes commits in.

    Attributes:
        finder: The finder for the values of this moment; `None` when there are none, which costs nothing.
        barred: Why no branch may be changed now, in ASCII words (values that are not known cannot be found), or `None`.
    """

    finder: Callable[[], ValueFinder | None]
    barred: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value in a commit. All texts are safe to show, in ASCII.

    Attributes:
        identifier: The secret's.
        path: The file, or in words what else it is in.
        line: Counted from 1; `None` where there are no lines.
        commit: The newest commit that has it; `None` for an object that no commit has.
    """

    identifier: str
    path: str
    line: int | None = None
    commit: str | None = None

    @property
    def place(self) -> str:
        """The path, and the line where there is one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


def refusal(found: Sequence[FoundValue]) -> str:
    """Why commits are not taken, for the pusher."""
    first = found[0]
    of = f" (commit {first.commit[:12]})" if first.commit is not None else ""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"contains the value of a secret: {first.identifier} in {first.place}{of}{more}"


def ascii_words(text: str) -> str:
    """Safe in a terminal and in the protocol between git and its hook."""
    return visible_line(text).encode("ascii", "backslashreplace").decode("ascii")


async def search(
    git: Git, finder: ValueFinder, *, tips: Sequence[str], known: Iterable[str], also: Iterable[str] = ()
) -> tuple[FoundValue, ...]:
    """Search everything that `tips` reach and `known` do not.

    Args:
        git: For the repository, its quarantine included.
        finder: What to look for.
        tips: Commits.
        known: Commits that were searched, or are not the session's.
        also: Objects to search whoever names them.

    Raises:
        GitFailed: The objects could not be read.
        DeadlineExceeded: There is too much to search.
    """
    places = await _places(git, tips, known)
    for object_id in also:
        places.setdefault(object_id, _Place())
    found: dict[FoundValue, None] = dict.fromkeys(await asyncio.to_thread(_named, finder, places))
    try:
        async with asyncio.timeout(_SEARCH.wall_s):
            async for block in _blocks(git, list(places)):
                if len(found) >= FOUND:
                    break
                found |= dict.fromkeys(await asyncio.to_thread(_look, finder, block, places))
    except TimeoutError as error:
        raise DeadlineExceeded("The commits could not be searched in time.", hint="Push less at once.") from error
    return tuple(found)[:FOUND]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an object was met first."""

    path: bytes | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class _Object:
    id: str
    kind: str
    body: bytes


async def _places(git: Git, tips: Sequence[str], known: Iterable[str]) -> dict[str, _Place]:
    lines = [*(names.check_object_id(tip) for tip in tips), *(f"^{names.check_object_id(commit)}" for commit in known)]
    listed = await git.run(
        "rev-list", "--objects", "--in-commit-order", "--stdin", stdin="\n".join((*lines, "")).encode("ascii"),
        limits=_SEARCH,
    )  # fmt: skip
    places: dict[str, _Place] = {}
    commit: str | None = None
    for line in listed.stdout.split(b"\n"):
        name, space, path = line.partition(b" ")
        object_id = name.decode("ascii")
        # A commit stands alone on its line; what it brings follows it.
        if not space:
            commit = object_id
        if object_id:
            places[object_id] = _Place(path if space else None, commit)
    return places


async def _blocks(git: Git, ids: Sequence[str]) -> AsyncIterator[list[_Object]]:
    """All objects in pieces of about a MiB, so that a thread has something to do."""
    async with git.running("cat-file", "--batch", "--buffer", limits=_SEARCH) as running:
        errors = asyncio.create_task(tail(running.stderr))
        asking = asyncio.create_task(feed(running.stdin, "".join(f"{name}\n" for name in ids).encode("ascii")))
        try:
            block: list[_Object] = []
            size = 0
            for _ in ids:
                found = await _next(running.stdout)
                block.append(found)
                size += len(found.body)
                if size >= _BLOCK_BYTES or len(block) >= _BLOCK_OBJECTS:
                    yield block
                    block, size = [], 0
            if block:
                yield block
        finally:
            for task in (errors, asking):
                task.cancel()
            await asyncio.gather(errors, asking, return_exceptions=True)


async def _next(stdout: asyncio.StreamReader) -> _Object:
    head = (await stdout.readline()).decode("ascii", "replace").split()
    if len(head) != 3 or not head[2].isdigit():
        raise GitFailed("The objects of a push could not be read.")
    try:
        body = await stdout.readexactly(int(head[2]))
        await stdout.readexactly(1)
    except asyncio.IncompleteReadError as error:
        raise GitFailed("The objects of a push could not be read.") from error
    return _Object(head[0], head[1], body)


# ---- in a thread ------------------------------------------------------------------------------------------------


def _named(finder: ValueFinder, places: dict[str, _Place]) -> list[FoundValue]:
    """Values in whole paths: one may have a slash in it."""
    paths = {place.path: place.commit for place in places.values() if place.path}
    listing = b"\n".join(paths)
    found: dict[bytes, FoundValue] = {}
    for hit in finder(listing):
        start = listing.rfind(b"\n", 0, hit.start) + 1
        path = listing[start:].partition(b"\n")[0]
        # Everything below a folder of that name has it too.
        if not any(path.startswith(other + b"/") for other in found) and len(found) < FOUND:
            found[path] = _in_name(finder, hit, path, paths.get(path))
    return list(found.values())


def _look(finder: ValueFinder, block: Sequence[_Object], places: dict[str, _Place]) -> list[FoundValue]:
    return [found for item in block for found in _in_object(finder, item, places[item.id])]


def _in_object(finder: ValueFinder, item: _Object, place: _Place) -> Iterator[FoundValue]:
    first: dict[str, ValueHit] = {}  # each secret once, where it is first
    for hit in finder(item.body):
        first.setdefault(hit.label, hit)
    for hit in first.values():
        if item.kind == "tree":
            if (name := _entry(item, hit)) is not None:
                path = b"/".join(part for part in (place.path, name) if part)
                yield _in_name(finder, hit, path, place.commit)
        elif item.kind == "commit":
            yield _in_text(hit, item, _part_of_commit(item.body, hit.start), item.id)
        elif item.kind == "tag":
            yield _in_text(hit, item, "the text of tag", None)
        elif place.path is not None:
            line = item.body.count(b"\n", 0, hit.start) + 1
            yield FoundValue(ascii_words(hit.label), _shown(finder, place.path), line, place.commit)
        else:
            yield FoundValue(ascii_words(hit.label), f"object {item.id[:12]}, which no commit has")


def _in_name(finder: ValueFinder, hit: ValueHit, path: bytes, commit: str | None) -> FoundValue:
    return FoundValue(ascii_words(hit.label), f"the name of {_shown(finder, path)}", None, commit)


def _in_text(hit: ValueHit, item: _Object, part: str, commit: str | None) -> FoundValue:
    text = item.body.find(b"\n\n") + 2
    line = item.body.count(b"\n", text, hit.start) + 1 if hit.start >= text else None
    return FoundValue(ascii_words(hit.label), f"{part} {item.id[:12]}", line, commit)


def _part_of_commit(body: bytes, at: int) -> str:
    if at >= body.find(b"\n\n") + 2:
        return "the message of commit"
    who = _COMMIT_LINE.match(body, body.rfind(b"\n", 0, at) + 1)
    return f"the {who[1].decode('ascii')} of commit" if who is not None else "the head of commit"


def _entry(tree: _Object, hit: ValueHit) -> bytes | None:
    """The name in a tree that a hit is in; `None` when it is in the numbers between them."""
    at, width = 0, len(tree.id) // 2
    while at < len(tree.body):
        start = tree.body.index(b" ", at) + 1
        end = tree.body.index(b"\0", start)
        if start <= hit.start and hit.end <= end:
            return tree.body[start:end]
        at = end + 1 + width
    return None


def _shown(finder: ValueFinder, path: bytes) -> str:
    """A path without values, and short."""
    shown, at = b"", 0
    for hit in finder(path):
        shown += path[at : hit.start] + b"[...]"
        at = hit.end
    return shorten(ascii_words((shown + path[at:]).decode("utf-8", "surrogateescape")), _PATH).replace("…", "...")
