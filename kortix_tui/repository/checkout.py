"""The operator's own checkout: whether it can take a merge, and moving it forward.

The order is: look (changes nothing) → bring the objects in → update index and files (`read-tree -m -u`, which verifies
everything before it writes anything) → move the branch by compare-and-swap. A crash before the last step leaves the
branch where it was and files that are some old, some new; `refs/kortix/incoming` marks that, and the next look
recognises it (every file is exactly the old or the new one) and goes on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import Conflict, GitFailed
from kortix_tui.base.text import visible_line
from kortix_tui.repository import names
from kortix_tui.repository.errors import DeliveryRefused
from kortix_tui.repository.process import Git, operator

_IN_PROGRESS = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or am",
    "BISECT_LOG": "a bisect",
}
_EXCEPTED_FILTERS = frozenset({"lfs"})
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Worktree:
    """A checkout of a repository: its folder, and git's own folder for it."""

    path: Path
    git_dir: Path


@dataclass(frozen=True, slots=True)
class _Change:
    path: bytes
    old_mode: str
    old_id: str
    new_mode: str
    new_id: str


def in_progress(git_dir: Path) -> str | None:
    """What is going on in a checkout that a merge must not disturb, in words."""
    return next((words for name, words in _IN_PROGRESS.items() if (git_dir / name).exists()), None)


async def worktree_with(source: Path, branch: str) -> Worktree | None:
    """The checkout, among all worktrees of a repository, that has the branch checked out.

    Raises:
        DeliveryRefused: It is there twice, its folder is gone, or the branch is being rebased.
    """
    git = operator(source)
    listed = await git.run("worktree", "list", "--porcelain", "-z")
    found: list[Path] = []
    for record in listed.stdout.split(b"\0\0"):
        facts = dict(line.partition(b" ")[::2] for line in record.split(b"\0") if line)
        place = Path(os.fsdecode(facts.get(b"worktree", b"")))
        if facts.get(b"branch", b"").decode("utf-8", "surrogateescape") == names.branch_ref(branch):
            found.append(place)
        elif b"detached" in facts and b"prunable" not in facts:
            await _not_rebased(place, branch)
    if not found:
        return None
    shown = visible_line(branch)
    if len(found) > 1:
        raise DeliveryRefused(
            f"{shown} is checked out in {len(found)} places.", hint="Switch all but one of them to another branch."
        )
    if not _is_there(found[0]):
        raise DeliveryRefused(
            f"{shown} is checked out in {visible_line(str(found[0]))}, which is gone.",
            hint=f"Run: git -C {visible_line(str(source))} worktree prune",
        )
    return Worktree(found[0], await _git_dir(found[0]))


def _is_there(folder: Path) -> bool:
    return folder.is_dir()


async def _git_dir(place: Path) -> Path:
    return Path((await operator(place).run("rev-parse", "--absolute-git-dir")).text)


async def _not_rebased(place: Path, branch: str) -> None:
    git_dir = await _git_dir(place)
    for name in ("rebase-merge/head-name", "rebase-apply/head-name"):
        with contextlib.suppress(OSError):
            if (git_dir / name).read_text("utf-8", "surrogateescape").strip() == names.branch_ref(branch):
                raise DeliveryRefused(
                    f"{visible_line(branch)} is being rebased in {visible_line(str(place))}.",
                    hint="Finish it with git rebase --continue, or leave it with git rebase --abort.",
                )


class Landing:
    """Moving one checkout from `old` to `new`.

    Args:
        worktree: The checkout.
        branch: The branch that it has checked out.
        old: Where the branch is.
        new: Where it shall be: a descendant.
        objects: An object folder that has `new`, while the checkout itself may not have it yet.
        lock: A descriptor that every git which writes keeps open.
    """

    def __init__(
        self, worktree: Worktree, branch: str, old: str, new: str, objects: Path, *, lock: int | None = None
    ) -> None:
        self._worktree = worktree
        self._branch = branch
        self._old = names.check_object_id(old)
        self._new = names.check_object_id(new)
        git = operator(worktree.path) if lock is None else operator(worktree.path).holding(lock)
        self._git = git.having(
            environment={"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects), "GIT_LITERAL_PATHSPECS": "1"}
        )

    async def check(self) -> bool:
        """Whether the checkout can take it; changes nothing.

        Returns:
            Whether an earlier attempt was cut off in the middle and is to be completed.

        Raises:
            DeliveryRefused: With the reason and the way out.
        """
        place = visible_line(str(self._worktree.path))
        if busy := in_progress(self._worktree.git_dir):
            raise DeliveryRefused(
                f"{busy.capitalize()} is in progress in {place}.", hint="Finish or abort it there, then merge again."
            )
        if (self._worktree.git_dir / "index.lock").exists():
            raise DeliveryRefused(
                f"Another git command is running in {place}, or one was killed.",
                hint="If none runs, remove index.lock in its git folder, then merge again.",
            )
        changes = await self._changes()
        await self._no_filter(changes)
        async with self._quiet() as git:
            if refusal := await self._obstacle(git, place, changes):
                if await self._cut_off(git, await _dirty(git), changes):
                    return True
                raise refusal
        return False

    async def land(self, *, resume: bool) -> None:
        """Update files and index, then the branch. Nothing is written unless everything can be.

        Args:
            resume: As `check` said.

        Raises:
            DeliveryRefused: Something is in the way now.
            Conflict: The branch moved in the meantime; files are put back.
        """
        filters = await self._quiet_filters()
        git = self._git.having(environment=filters)
        if not resume:
            await git.run("update-index", "-q", "--refresh", ok=(0, 1))
        how = ("--reset", "-u", self._new) if resume else ("-m", "-u", self._old, self._new)
        try:
            await git.run("read-tree", *how)
        except GitFailed as error:
            # Refused before it wrote anything, or broken off by a full disk, say.
            await self._put_back()
            raise DeliveryRefused(
                f"The checkout could not be updated: {error.message}", hint="Clear the way there, then merge again."
            ) from error
        try:
            await self._git.run(
                "update-ref", "-m", "kortix: merge", names.branch_ref(self._branch), self._new, self._old
            )
        except GitFailed as error:
            await self._put_back()
            raise Conflict(
                f"{visible_line(self._branch)} moved in the source just now.", hint="Look again, then merge."
            ) from error

    async def _put_back(self) -> None:
        """Undo a half-way update, if that is all that differs."""
        changes = await self._changes()
        async with self._quiet() as look:
            if not await self._cut_off(look, await _dirty(look), changes):
                return
        git = self._git.having(environment=await self._quiet_filters())
        absent = "0" * len(self._old)
        staged = set((await git.run("ls-files", "-z")).fields())
        for change in changes:
            written = change.old_id == absent and change.path not in staged
            if written and await self._content(git, change.path, absent) == change.new_id:
                os.unlink(self._place(change.path))  # noqa: PTH108 - a path of bytes
        await git.run("read-tree", "--reset", "-u", self._old)

    def _place(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self._worktree.path), path)  # noqa: PTH118 - a path of bytes

    async def _changes(self) -> list[_Change]:
        listed = await self._git.run(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-commit-id", self._old, self._new
        )
        fields = listed.fields()
        changes = []
        for facts, path in zip(fields[::2], fields[1::2], strict=True):
            old_mode, new_mode, old_id, new_id, _ = facts[1:].decode("ascii").split(" ")
            changes.append(_Change(path, old_mode, old_id, new_mode, new_id))
        return changes

    # ---- filters --------------------------------------------------------------------------------------------

    async def _filters(self) -> frozenset[str]:
        """The filters that the person configured, which git would run on files: all but the excepted."""
        listed = await self._git.run(
            "config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$", ok=(0, 1)
        )
        keys = {field.decode("utf-8", "surrogateescape") for field in listed.fields()}
        return frozenset(key.partition(".")[2].rpartition(".")[0] for key in keys) - _EXCEPTED_FILTERS

    async def _quiet_filters(self) -> dict[str, str]:
        """Variables that switch these filters off, whatever a file's attributes say."""
        start = int(self._git.environment.get("GIT_CONFIG_COUNT", "0") or "0")
        pairs = [
            (f"filter.{name}.{key}", value)
            for name in sorted(await self._filters())
            for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        ]
        variables = {"GIT_CONFIG_COUNT": str(start + len(pairs))}
        for number, (key, value) in enumerate(pairs, start):
            variables[f"GIT_CONFIG_KEY_{number}"] = key
            variables[f"GIT_CONFIG_VALUE_{number}"] = value
        return variables

    async def _no_filter(self, changes: list[_Change]) -> None:
        """Refuse when attributes, old or new, would send a changed file through one of these filters."""
        filters = await self._filters()
        if not filters:
            return
        paths = b"".join(change.path + b"\0" for change in changes)
        with tempfile.TemporaryDirectory(prefix="kortix-") as folder:
            for commit in (self._old, self._new):
                index = {"GIT_INDEX_FILE": str(Path(folder) / commit)}
                git = self._git.having(environment=index)
                await git.run("read-tree", commit)
                found = await git.run("check-attr", "-z", "--stdin", "--cached", "filter", stdin=paths)
                fields = found.fields()
                for path, value in zip(fields[::3], fields[2::3], strict=True):
                    name = value.decode("utf-8", "surrogateescape")
                    if name in filters:
                        raise DeliveryRefused(
                            f"The filter {visible_line(name)} of your git configuration would run on "
                            f"{_some([path])}, which an agent changed.",
                            hint="Merge it by hand there, or remove the filter's attribute.",
                        )

    # ---- state ----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _quiet(self) -> AsyncIterator[Git]:
        """Git on a copy of the index, with filters off: looking writes nothing and runs nothing."""
        with tempfile.TemporaryDirectory(prefix="kortix-") as folder:
            copy = Path(folder) / "index"
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self._worktree.git_dir / "index", copy)
            yield self._git.having(environment={**await self._quiet_filters(), "GIT_INDEX_FILE": str(copy)})

    async def _obstacle(self, git: Git, place: str, changes: list[_Change]) -> DeliveryRefused | None:
        """What would be lost or cannot be updated: found out by a dry run."""
        if dirty := await _dirty(git):
            return DeliveryRefused(
                f"{place} has changes that are not committed: {_some(dirty)}.",
                hint="Commit or stash them there, then merge again.",
            )
        # Git itself would overwrite what is ignored; to a person an ignored file may be the only copy of something.
        if blocked := self._in_the_way(changes):
            return DeliveryRefused(
                f"{place} has files that the merge would overwrite: {_some(blocked)}.",
                hint="Move them out of the way there, then merge again.",
            )
        await git.run("update-index", "-q", "--refresh", ok=(0, 1))
        try:
            await git.run("read-tree", "-n", "-m", "-u", self._old, self._new)
        except GitFailed as error:
            return DeliveryRefused(
                f"{place} cannot be moved forward: {error.message}",
                hint="Move the named files out of the way there, then merge again.",
            )
        return None

    def _in_the_way(self, changes: list[_Change]) -> list[bytes]:
        """Files that git does not track where the merge adds files, or folders on the way to them."""
        gone = {change.path for change in changes if not change.new_id.strip("0")}
        found: dict[bytes, None] = {}
        for change in changes:
            if change.old_id.strip("0"):
                continue
            parts = change.path.split(b"/")
            for length in range(1, len(parts) + 1):
                path = b"/".join(parts[:length])
                kind = _kind(self._place(path))
                if kind is None:
                    break
                if kind == "folder" and length < len(parts):
                    continue
                inside = self._files_below(path) if kind == "folder" else [path]
                found.update(dict.fromkeys(name for name in inside if name not in gone))
                break
        return list(found)

    def _files_below(self, folder: bytes) -> list[bytes]:
        start = len(os.fsencode(self._worktree.path)) + 1
        return [os.path.join(top, name)[start:] for top, _, files in os.walk(self._place(folder)) for name in files]  # noqa: PTH118

    async def _cut_off(self, git: Git, dirty: list[bytes], changes: list[_Change]) -> bool:
        """Whether all that is changed is an earlier attempt of ours: each file exactly the old or the new one."""
        marked = await self._git.run("rev-parse", "--quiet", "--verify", names.INCOMING, ok=(0, 1))
        if marked.status != 0:
            return False
        known = {change.path: change for change in changes}
        if not set(dirty) <= known.keys():
            return False
        staged = await git.run("ls-files", "-s", "-z")
        index: dict[bytes, str] = {}
        for line in staged.fields():
            facts, _, path = line.partition(b"\t")
            index[path] = facts.split(b" ")[1].decode("ascii")
        for change in changes:
            absent = "0" * len(change.old_id)
            wanted = {change.old_id, change.new_id}
            if index.get(change.path, absent) not in wanted:
                return False
            if await self._content(git, change.path, absent) not in wanted:
                return False
        return True

    async def _content(self, git: Git, path: bytes, absent: str) -> str:
        """The id that a file in the checkout would have as a blob."""
        place = self._place(path)
        try:
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return absent
        if stat.S_ISLNK(status.st_mode):
            return _blob_id(os.readlink(place), len(absent))  # noqa: PTH115 - a path of bytes
        if not stat.S_ISREG(status.st_mode):
            return ""
        hashed = await git.run("hash-object", "--", os.fsdecode(path))
        return hashed.text


async def _dirty(git: Git) -> list[bytes]:
    listed = await git.run(
        "status", "--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames"
    )
    return [field[3:] for field in listed.fields()]


def _kind(place: bytes) -> str | None:
    try:
        return "folder" if stat.S_ISDIR(os.lstat(place).st_mode) else "file"
    except (FileNotFoundError, NotADirectoryError):
        return None


def _blob_id(content: bytes, width: int) -> str:
    kind = hashlib.sha256 if width == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(content) + content).hexdigest()


def _some(paths: list[bytes]) -> str:
    shown = ", ".join(visible_line(path.decode("utf-8", "surrogateescape")) for path in paths[:5])
    return f"{shown} and {len(paths) - 5} more" if len(paths) > 5 else shown
