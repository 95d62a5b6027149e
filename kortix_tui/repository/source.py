"""The operator's own checkout, read with GitPython: what it is and in which state. Nothing in it is ever run.

GitPython runs git in the checkout, so its git gets the same settings as ours: no hooks, no monitor, and no filter but
LFS, whatever attributes an agent may have brought there. Blocking; call it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import GitFailed, KortixError, NotFound
from kortix_tui.base.text import visible_line
from kortix_tui.repository.checkout import in_progress
from kortix_tui.repository.errors import SourceMissing, git_failed
from kortix_tui.repository.merge import Identity
from kortix_tui.repository.process import OPERATOR_SETTINGS, operator_environment
from kortix_tui.repository.remote import local_path

if TYPE_CHECKING:
    import git

_CREDENTIALS = re.compile(r"://[^/@\s]+@")
_DEADLINE_S = 30


class SourceState(BaseModel):
    """What a person's repository looks like now. Names are made visible."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path
    git_dir: Path
    bare: bool
    linked_worktree: bool = Field(description="A worktree of another checkout: its `.git` is a file.")
    main_worktree: Path | None = None
    empty: bool = Field(description="No commit yet.")
    shallow: bool
    head: str | None
    branch: str | None = Field(description="The current branch; none when the head is detached.")
    branches: tuple[str, ...]
    dirty: bool = Field(description="Tracked files differ from the last commit.")
    untracked: int
    in_progress: str | None = Field(description="An unfinished merge, rebase, …, in words.")
    remotes: dict[str, str] = Field(description="Fetch addresses, credentials masked.")
    identity: Identity | None

    @property
    def detached(self) -> bool:
        """Whether no branch is checked out."""
        return self.branch is None


def is_url(text: str) -> bool:
    """Whether a source is written as an address (`https://…`, `host:path`, `file://…`) rather than as a folder."""
    return text.startswith("file://") or local_path(text) is None


def locate_checkout(folder: Path) -> Path | None:
    """The root of the repository that a folder lies in, found without running anything."""
    start = folder.absolute()
    for place in (start, *start.parents):
        if (place / ".git").exists():
            return place.resolve()
        if (place / "HEAD").is_file() and (place / "objects").is_dir() and (place / "refs").is_dir():
            return place.resolve()
    return None


def inspect_source(path: Path) -> SourceState:
    """Look at a repository on this machine.

    Raises:
        SourceMissing: The folder is not there.
        NotFound: It is not in a git repository.
        GitFailed: Git refuses to read it; the hint says what to do.
    """
    with _opened(path) as repository:
        return _state(repository)


def first_commit(folder: Path, *, message: str, branch: str = "main", identity: Identity | None = None) -> str:
    """Make a folder a repository, unless it is one, and commit all of it. For files that we wrote ourselves.

    Returns:
        The commit.

    Raises:
        GitFailed: Git said no.
    """
    import git

    with _errors():
        repository = (
            git.Repo.init(folder, initial_branch=branch) if not (folder / ".git").exists() else git.Repo(folder)
        )
        with contextlib.closing(repository):
            _tame(repository)
            if identity is not None:
                repository.git.update_environment(**_people(identity))
            repository.git.add("--all", kill_after_timeout=_DEADLINE_S)
            repository.git.commit(
                "--quiet", "--no-verify", "--no-gpg-sign", "-m", message, kill_after_timeout=_DEADLINE_S
            )
            return str(repository.git.rev_parse("HEAD", kill_after_timeout=_DEADLINE_S))


def _people(identity: Identity) -> dict[str, str]:
    return {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", identity.name), ("EMAIL", identity.email))
    }


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[git.Repo]:
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    if not path.is_dir():
        raise SourceMissing(
            f"There is no folder {visible_line(str(path))}.",
            hint="If the repository was moved: kortix projects move SLUG NEW-PATH",
        )
    root = locate_checkout(path)
    if root is None:
        raise NotFound(
            f"{visible_line(str(path))} is not in a git repository.", hint="Run git init there, or give another path."
        )
    with _errors():
        try:
            repository = git.Repo(root)
        except git.InvalidGitRepositoryError as error:
            raise NotFound(
                f"{visible_line(str(root))} is not a git repository that can be read.",
                hint="If it is a linked worktree, its main repository may have moved: git worktree repair.",
            ) from error
        with contextlib.closing(repository):
            _tame(repository)
            yield repository


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """GitPython's errors as ours."""
    import git

    try:
        yield
    except KortixError:
        raise
    except git.GitCommandNotFound as error:
        raise GitFailed("git is not installed.", hint="Install git 2.39 or newer.") from error
    except git.GitCommandError as error:
        status = error.status if isinstance(error.status, int) else 1
        raise git_failed("in the checkout", status, str(error.stderr).encode("utf-8", "replace")) from error
    except (git.GitError, OSError, ValueError) as error:
        raise GitFailed(f"The repository cannot be read: {visible_line(str(error))}.") from error


def _tame(repository: git.Repo) -> None:
    """Give GitPython's git our settings: it must run nothing that lies in the checkout."""
    environment = operator_environment()
    repository.git.update_environment(
        **{key: environment[key] for key in environment if environment[key] != os.environ.get(key)}
    )
    repository.git.set_persistent_git_options(c=list(OPERATOR_SETTINGS))
    listed = _ask(
        repository, "config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"
    )
    filters = {key.partition(".")[2].rpartition(".")[0] for key in listed.split("\0") if key} - {"lfs"}
    switched_off = [
        f"filter.{name}.{key}={value}"
        for name in sorted(filters)
        for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    ]
    repository.git.set_persistent_git_options(c=[*OPERATOR_SETTINGS, *switched_off])


def _ask(repository: git.Repo, command: str, *args: str) -> str:
    """Output of a command whose failure is an answer."""
    import git

    try:
        return str(getattr(repository.git, command.replace("-", "_"))(*args, kill_after_timeout=_DEADLINE_S))
    except git.GitCommandError as error:
        if error.status in (1, 2):
            return ""
        raise


def _state(repository: git.Repo) -> SourceState:
    git_dir = Path(repository.git_dir).resolve()
    common = Path(repository.common_dir).resolve()
    bare = repository.bare
    root = git_dir if bare else Path(str(repository.working_tree_dir)).resolve()
    head = _ask(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") or None
    branch = _ask(repository, "symbolic-ref", "--quiet", "--short", "HEAD") or None
    listed = _ask(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
    dirty, untracked = (False, 0) if bare else _changes(repository)
    linked = git_dir != common
    return SourceState(
        root=root,
        git_dir=git_dir,
        bare=bare,
        linked_worktree=linked,
        main_worktree=common.parent if linked and common.name == ".git" else None,
        empty=not listed,
        shallow=(common / "shallow").is_file(),
        head=head,
        branch=visible_line(branch) if branch else None,
        branches=tuple(visible_line(name) for name in listed.splitlines()),
        dirty=dirty,
        untracked=untracked,
        in_progress=in_progress(git_dir),
        remotes={
            visible_line(remote.name): _CREDENTIALS.sub("://***@", visible_line(next(remote.urls, "")))
            for remote in repository.remotes
        },
        identity=_identity(repository),
    )


def _changes(repository: git.Repo) -> tuple[bool, int]:
    listed = _ask(repository, "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=dirty",
                  "--no-renames")  # fmt: skip
    entries = [entry for entry in listed.split("\0") if entry]
    untracked = sum(entry.startswith("??") for entry in entries)
    return len(entries) > untracked, untracked


def _identity(repository: git.Repo) -> Identity | None:
    name, email = _ask(repository, "config", "--get", "user.name"), _ask(repository, "config", "--get", "user.email")
    try:
        return Identity(name=visible_line(name).strip(), email=visible_line(email).strip())
    except ValueError:
        return None
