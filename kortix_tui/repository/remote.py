"""Facing the source repository: what it is, what it has, and how git is called with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import visible_line
from kortix_tui.repository.errors import DetachedHead, EmptyRepository, MissingBranch, SourceMissing
from kortix_tui.repository.names import ObjectFormat
from kortix_tui.repository.process import NO_HOOKS, Git, operator, without_questions


@dataclass(frozen=True, slots=True)
class SourceHead:
    """What the source has checked out: a branch, or only a commit when its head is detached."""

    branch: str | None
    commit: str | None


@dataclass(frozen=True, slots=True)
class SourceRefs:
    """The source's branches with their commits, and its head."""

    branches: dict[str, str]
    head: SourceHead
    object_format: ObjectFormat

    def base(self, wanted: str | None) -> str:
        """Choose the base branch: the wanted one, else the one that the source has checked out.

        Raises:
            EmptyRepository: There is no branch at all.
            MissingBranch: The wanted one does not exist.
            DetachedHead: None is wanted and none is checked out.
        """
        if not self.branches:
            raise EmptyRepository("The source repository has no commit yet.", hint="Make a first commit there.")
        known = ", ".join(visible_line(name) for name in sorted(self.branches)[:8])
        if wanted is not None:
            if wanted not in self.branches:
                raise MissingBranch(f"The source has no branch {visible_line(wanted)!r}.", hint=f"It has: {known}.")
            return wanted
        if self.head.branch is None:
            raise DetachedHead(
                "The source has no current branch (its head is detached).",
                hint=f"Name the base branch with --base, one of: {known}.",
            )
        if self.head.branch not in self.branches:
            raise MissingBranch(
                f"The source's current branch {visible_line(self.head.branch)!r} has no commit.",
                hint=f"Name the base branch with --base, one of: {known}.",
            )
        return self.head.branch


def local_path(source: str) -> Path | None:
    """The folder that a source names, or `None` when it is an address of another machine."""
    if source.startswith("file://"):
        return Path(source.removeprefix("file://"))
    # Git's own rule: an address has a scheme, or a colon before its first slash.
    if "://" in source or ":" in source.partition("/")[0] or source.startswith("-"):
        return None
    return Path(source).expanduser().absolute()


def check_source(source: str) -> str:
    """A folder or an address that git may be given.

    Raises:
        InvalidInput: It looks like an option, or names a transport that runs programs.
        SourceMissing: The folder does not exist.
    """
    path = local_path(source)
    if path is not None:
        if not path.is_dir():
            raise SourceMissing(
                f"There is no folder {visible_line(str(path))}.",
                hint="If the repository was moved: kortix projects move SLUG NEW-PATH",
            )
        return str(path)
    if source.startswith("-") or "::" in source or any(ord(char) < 0x21 for char in source):
        raise InvalidInput(f"{visible_line(source)[:120]!r} is not a repository address.")
    return source


async def look_at(source: str, *, wall_s: float = 60.0) -> SourceRefs:
    """Ask a source for its branches and its head, without fetching."""
    git = await facing(source, wall_s=wall_s)
    listed = await git.run(
        "ls-remote", "--symref", *local_service(source, "upload-pack"), "--", check_source(source),
        "HEAD", "refs/heads/*",
    )  # fmt: skip
    branches: dict[str, str] = {}
    branch: str | None = None
    commit: str | None = None
    for line in listed.text.splitlines():
        value, _, ref = line.partition("\t")
        if value.startswith("ref: ") and ref == "HEAD":
            branch = value.removeprefix("ref: refs/heads/")
        elif ref == "HEAD":
            commit = value
        elif ref.startswith("refs/heads/"):
            branches[ref.removeprefix("refs/heads/")] = value
    ids = {len(value) for value in branches.values()} | ({len(commit)} if commit else set())
    object_format = ObjectFormat.SHA256 if ids == {64} else ObjectFormat.SHA1
    return SourceRefs(branches, SourceHead(branch, commit), object_format)


async def facing(source: str, *, git_dir: Path | None = None, wall_s: float) -> Git:
    """Git with the operator's access to the source, in the mirror when `git_dir` names it."""
    git = operator(git_dir=git_dir, wall_s=wall_s)
    return git if local_path(source) is not None else await without_questions(git)


def local_service(source: str, service: str) -> tuple[str, ...]:
    """For a source on this machine: its side of the conversation runs without hooks as well.

    Git does not hand our `-c` settings to a service that it starts in another repository, and a husky-style
    hooks path there points at files that an agent may have written.
    """
    if local_path(source) is None:
        return ()
    settings = (f"core.hooksPath={NO_HOOKS}", "core.fsmonitor=false", "core.alternateRefsCommand=true")
    return (f"--{service}=git {' '.join(f'-c {setting}' for setting in settings)} {service}",)
