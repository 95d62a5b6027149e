"""Three-dot differences: what a session changed since it left the base, read from the bare mirror.

Nothing configured or written by anybody takes part: no external program, no text conversion, no attributes. Sizes are
looked at before contents, and everything has a cap, so that no change can be too large to be listed.
"""

from __future__ import annotations

from dataclasses import dataclass

from kortix_tui.repository import names
from kortix_tui.repository.difference import DiffSummary, FileChange, FileKind, FileStatus
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.process import Git, Limits

MOST_FILES = 20_000
MOST_BYTES = 2 << 20
"""Of a patch."""
LARGE_BYTES = 1 << 20
"""A file above this is listed, but not compared line by line."""
_RENAMES_UP_TO = 2_000
_COMPARED_BYTES = 64 << 20
_LISTED_BYTES = 8 << 20
_LIMITS = Limits(wall_s=30.0, cpu_s=20, output_bytes=16 << 20)


@dataclass(frozen=True, slots=True)
class _Raw:
    old_mode: str
    new_mode: str
    old_id: str
    new_id: str
    status: str
    path: bytes
    old_path: bytes | None


_KINDS = {"120000": FileKind.SYMLINK, "160000": FileKind.SUBMODULE, "100755": FileKind.EXECUTABLE}
_STATUSES = {
    "A": FileStatus.ADDED,
    "D": FileStatus.DELETED,
    "R": FileStatus.RENAMED,
    "C": FileStatus.COPIED,
    "T": FileStatus.RETYPED,
}


async def merge_base(mirror: Mirror, base: str, head: str) -> str:
    """Where head left base; the empty tree when they have nothing in common, so that everything is shown."""
    found = await mirror.git.run("merge-base", names.check_object_id(base), names.check_object_id(head), ok=(0, 1))
    return found.text if found.status == 0 else mirror.object_format.empty_tree


async def summary(mirror: Mirror, base: str, head: str) -> DiffSummary:
    """Every path that differs between head and the place where it left base."""
    origin = await merge_base(mirror, base, head)
    git = _git(mirror)
    raw, truncated = await _changed(git, origin, head)
    sizes = await _sizes(mirror, raw)
    total = sum(sizes.values())
    if len(raw) <= _RENAMES_UP_TO and total <= _COMPARED_BYTES and not truncated:
        raw, _ = await _changed(git, origin, head, "-M")
    counts = await _counts(git, origin, head, renames=any(entry.old_path for entry in raw)) if not truncated else {}
    files = tuple(sorted((_file(entry, sizes, counts) for entry in raw), key=lambda file: file.path))
    return DiffSummary(
        base=base,
        head=head,
        merge_base=origin,
        files=files,
        additions=sum(file.additions or 0 for file in files),
        deletions=sum(file.deletions or 0 for file in files),
        truncated=truncated,
    )


async def patch(
    mirror: Mirror,
    base: str,
    head: str,
    *,
    path: str | None = None,
    context: int = 3,
    ignore_space_at_eol: bool = False,
    max_bytes: int = MOST_BYTES,
) -> str:
    """The unified difference as text, untrusted; undecodable bytes are surrogates.

    Args:
        mirror: Where the commits are.
        base: The base commit.
        head: The head commit.
        path: Only this path (and where it was renamed from); all when absent.
        context: Unchanged lines around each change.
        ignore_space_at_eol: Leave out changes of line ends and trailing space.
        max_bytes: Longer text is cut at a line's end, followed by a line that says so.
    """
    origin = await merge_base(mirror, base, head)
    git = _git(mirror)
    places: list[str] = []
    if path is not None:
        places = [path]
        wanted = path.encode("utf-8", "surrogateescape")
        if await _is_small(mirror, git, origin, head):
            entries, _ = await _changed(git, origin, head, "-M")
            places += [_text(entry.old_path) for entry in entries if entry.path == wanted and entry.old_path]
    arguments = [
        "--literal-pathspecs", "diff-tree", "-r", "-p", "-M", f"-U{max(0, min(context, 1000))}", "--full-index",
        "--no-color", "--no-ext-diff", "--no-textconv", "--no-commit-id", "--src-prefix=a/", "--dst-prefix=b/",
        *(["--ignore-space-at-eol"] if ignore_space_at_eol else []), origin, names.check_object_id(head), "--", *places,
    ]  # fmt: skip
    text = await _start_of(git, arguments, max_bytes)
    return text.decode("utf-8", "surrogateescape")


async def _is_small(mirror: Mirror, git: Git, origin: str, head: str) -> bool:
    raw, truncated = await _changed(git, origin, head)
    if truncated or len(raw) > _RENAMES_UP_TO:
        return False
    return sum((await _sizes(mirror, raw)).values()) <= _COMPARED_BYTES


def _git(mirror: Mirror) -> Git:
    return mirror.git.having(
        f"attr.tree={mirror.object_format.empty_tree}",
        f"core.bigFileThreshold={LARGE_BYTES}",
        f"diff.renameLimit={_RENAMES_UP_TO}",
        "diff.algorithm=histogram",
        "core.quotePath=false",
    )


async def _changed(git: Git, origin: str, head: str, *options: str) -> tuple[list[_Raw], bool]:
    listed = await _start_of(
        git,
        [
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-abbrev",
            "--no-commit-id",
            *options,
            origin,
            names.check_object_id(head),
        ],
        _LISTED_BYTES,
        mark=b"",
    )
    entries: list[_Raw] = []
    fields = iter(listed.split(b"\0"))
    for facts in fields:
        if not facts.startswith(b":"):
            break
        old_mode, new_mode, old_id, new_id, status = facts[1:].decode("ascii").split(" ")
        first = next(fields, None)
        second = next(fields, None) if status[0] in "RC" else None
        if first is None or (status[0] in "RC" and second is None):
            break
        path, old_path = (first, None) if second is None else (second, first)
        if len(entries) == MOST_FILES:
            return entries, True
        entries.append(_Raw(old_mode, new_mode, old_id, new_id, status[0], path, old_path))
    return entries, len(listed) >= _LISTED_BYTES


async def _sizes(mirror: Mirror, entries: list[_Raw]) -> dict[str, int]:
    wanted = {
        object_id
        for entry in entries
        for mode, object_id in ((entry.old_mode, entry.old_id), (entry.new_mode, entry.new_id))
        if mode not in ("000000", "160000")
    }
    if not wanted:
        return {}
    listed = await mirror.git.run(
        "cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer",
        stdin="".join(f"{object_id}\n" for object_id in sorted(wanted)).encode("ascii"),
    )  # fmt: skip
    pairs = (line.split(" ") for line in listed.text.splitlines())
    return {object_id: int(size) for object_id, size in pairs if size.isdigit()}


async def _counts(git: Git, origin: str, head: str, *, renames: bool) -> dict[bytes, tuple[int, int] | None]:
    """Added and deleted lines by path; `None` for what git holds for binary or too large."""
    listed = await git.run(
        "diff-tree", "-r", "-z", "--numstat", "--no-ext-diff", "--no-textconv", "--no-commit-id",
        *(["-M"] if renames else ["--no-renames"]), origin, names.check_object_id(head), limits=_LIMITS,
    )  # fmt: skip
    counts: dict[bytes, tuple[int, int] | None] = {}
    fields = iter(listed.stdout.split(b"\0"))
    for line in fields:
        if not line:
            break
        added, deleted, path = line.split(b"\t", 2)
        if not path:
            next(fields)
            path = next(fields)
        counts[path] = None if added == b"-" else (int(added), int(deleted))
    return counts


def _file(entry: _Raw, sizes: dict[str, int], counts: dict[bytes, tuple[int, int] | None]) -> FileChange:
    counted = counts.get(entry.path)
    old_size, new_size = sizes.get(entry.old_id, 0), sizes.get(entry.new_id, 0)
    large = max(old_size, new_size) > LARGE_BYTES
    return FileChange(
        path=_text(entry.path),
        old_path=_text(entry.old_path) if entry.old_path is not None else None,
        status=_STATUSES.get(entry.status, FileStatus.MODIFIED),
        kind=_kind(entry.new_mode),
        old_kind=_kind(entry.old_mode),
        additions=counted[0] if counted else None,
        deletions=counted[1] if counted else None,
        binary=entry.path in counts and counted is None and not large,
        too_large=large,
        old_size=old_size,
        new_size=new_size,
    )


def _kind(mode: str) -> FileKind:
    return FileKind.ABSENT if mode == "000000" else _KINDS.get(mode, FileKind.FILE)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


async def _start_of(
    git: Git, arguments: list[str], limit: int, *, mark: bytes = b"\\ The rest is not shown.\n"
) -> bytes:
    """Run git, keep the beginning of what it prints and end it when there is more."""
    output = await git.run(*arguments, limits=_LIMITS, cut_at=limit, what="diff-tree")
    if len(output.stdout) <= limit:
        return output.stdout
    if not mark:
        return output.stdout[:limit]
    whole = output.stdout[:limit]
    return whole[: whole.rfind(b"\n") + 1] + mark
