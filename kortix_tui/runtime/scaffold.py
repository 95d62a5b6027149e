"""New projects: the starter of `kortix init` and the samples of `kortix demo`.

Both are copies of folders that ship with the program, committed through GitPython. These first commits are trusted:
every byte is ours, no hook runs, nothing is signed, nothing asks. The functions block (files and short git processes);
call them off the event loop.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import GitFailed, NotFound, Refused
from kortix_tui.base.faults import choose
from kortix_tui.base.paths import assets
from kortix_tui.base.privacy import as_operator

if TYPE_CHECKING:
    from types import ModuleType

    from git import Actor, Repo

MANIFEST: Final = "kortix.yaml"
_SAMPLES: Final = "sample-projects"
_STARTER: Final = "starter"
_PLACEHOLDER: Final = "PROJECT_NAME"
_KEPT: Final = frozenset({".gitignore", "AGENTS.md"})
"""Files that a project may well have already; an existing one is left as it is, even with force."""

_GIT_DEADLINE_S: Final = 30


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What was made.

    Attributes:
        folder: The project's root.
        written: Files that were written, relative to it.
        kept: Files that were there already and were left alone.
        commit: The first commit, when a repository was made; `None` in a repository that was there, where the operator
            commits.
    """

    folder: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    commit: str | None


def init(folder: Path, name: str | None = None, *, force: bool = False) -> Scaffold:
    """Write a starter project, and make it a repository with a first commit on `main` if it is not one.

    Args:
        folder: Made if it is not there.
        name: The project's name for people; the folder's name when `None`.
        force: Write over files of the starter that are there already.

    Raises:
        Refused: Files are in the way, the folder lies inside another repository, or it cannot be written.
        GitFailed: git is missing or failed.
    """
    root = folder.absolute()
    if root.exists() and not root.is_dir():
        raise Refused(f"{folder} is a file.", hint="Name a folder.")
    repository = _repository_around(root)
    if repository is not None and repository != root.resolve():
        raise Refused(
            f"{folder} lies inside the repository {repository}.",
            hint="kortix.yaml stands at a repository's root: run `kortix init` there, or choose a folder outside.",
        )
    source = assets(_SAMPLES) / _STARTER
    files = list(_files(source))
    there = [file for file in files if os.path.lexists(root / file)]
    kept = [file for file in there if file in _KEPT]
    in_the_way = [file for file in there if file not in _KEPT]
    if in_the_way and not force:
        raise Refused(
            f"{folder} already has {', '.join(in_the_way)}.",
            hint="Use --force to write over them, or choose another folder.",
        )
    written = [file for file in files if file not in kept]
    title = name or root.name or "project"
    with as_operator(), _readable_failure(folder):
        for file in written:
            text = (source / file).read_text(encoding="utf-8")
            # Inside the quotes of the YAML text, so that a name cannot break out of it.
            safe = json.dumps(title, ensure_ascii=False)[1:-1] if file.endswith(".yaml") else " ".join(title.split())
            _write(root, file, text.replace(_PLACEHOLDER, safe))
    commit = None if repository is not None else _first_commit(root, written, f"Start {' '.join(title.split())}")
    return Scaffold(root, tuple(written), tuple(kept), commit)


def sample_names() -> list[str]:
    """Names of the sample projects that ship with the program."""
    folder = assets(_SAMPLES)
    return sorted(entry.name for entry in folder.iterdir() if (entry / MANIFEST).is_file() and entry.name != _STARTER)


def install_sample(name: str, target: Path, manifest: Mapping[str, str] | None = None) -> Scaffold:
    """Copy a sample project into a new folder and commit it on `main`.

    Args:
        name: Of the sample.
        target: A folder that is not there yet, or is empty.
        manifest: Texts of the sample's `kortix.yaml`, and what stands in their place in the copy.

    Raises:
        NotFound: There is no sample of that name.
        Refused: The target has something in it, or cannot be written.
        GitFailed: git is missing or failed.
    """
    names = sample_names()
    if name not in names:
        raise NotFound(f"There is no sample project {name!r}.", hint=choose(name, names))
    root = target.absolute()
    if os.path.lexists(root) and not (root.is_dir() and not any(root.iterdir())):
        raise Refused(f"{target} is not an empty folder.", hint="Choose a folder that is not there yet.")
    source = assets(_SAMPLES) / name
    files = list(_files(source))
    with _readable_failure(target):
        for file in files:
            place = root / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, place)
        if manifest:
            text = (source / MANIFEST).read_text(encoding="utf-8")
            for old, new in manifest.items():
                text = text.replace(old, new)
            (root / MANIFEST).write_text(text, encoding="utf-8")
    return Scaffold(root, tuple(files), (), _first_commit(root, files, f"Import the sample project {name}"))


def _files(source: Path) -> Iterator[str]:
    """All files of a shipped folder, sorted; caches of Python are no part of it."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(source).as_posix()


def _write(root: Path, file: str, text: str) -> None:
    place = root / file
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.parent.resolve().is_relative_to(root.resolve()):
        raise Refused(
            f"{file} would be written outside of {root}, through a link.", hint="Replace the link by a folder."
        )
    # A new file in the place of the old one: a link there is replaced, never followed.
    descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=".kortix-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(place)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _readable_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(
            f"{folder} cannot be written: {error.strerror}.",
            hint="Choose a folder that you can write, on a disk with room.",
        ) from error


def _repository_around(folder: Path) -> Path | None:
    """The root of the work tree that holds a folder which may not be there yet."""
    git = _git()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    try:
        with git.Repo(there, search_parent_directories=True) as repository:
            return Path(repository.working_dir).resolve() if repository.working_dir else None
    except git.InvalidGitRepositoryError:
        return None
    except (git.GitError, OSError, ValueError) as error:
        raise GitFailed(f"The repository around {folder} cannot be read.", hint="Run `git status` there.") from error


def _first_commit(root: Path, files: Iterable[str], message: str) -> str:
    git = _git()
    try:
        with as_operator(), tempfile.TemporaryDirectory(prefix="kortix-template-") as empty:
            # Without a template of our own, `git init` would copy the operator's hooks into the new repository.
            git.Git(str(root)).init(
                "--quiet", "--initial-branch=main", f"--template={empty}", kill_after_timeout=_GIT_DEADLINE_S
            )
        with git.Repo(root) as repository:
            repository.index.add(list(files))
            author = _identity(repository)
            commit = repository.index.commit(message, author=author, committer=author, skip_hooks=True)
            return str(commit.hexsha)
    except git.GitCommandNotFound as error:
        raise GitFailed("git is not installed.", hint="Install git 2.30 or newer, then run this again.") from error
    except (git.GitError, OSError, ValueError) as error:
        raise GitFailed(f"The first commit in {root} failed: {error}", hint="Run `git status` there.") from error


def _identity(repository: Repo) -> Actor:
    """Who commits: as the operator's git says, else a name that says that nobody was configured."""
    import git

    def setting(variable: str, key: str) -> str:
        # Asked of git itself: GitPython's own reader knows neither GIT_CONFIG_GLOBAL nor conditional includes.
        found = repository.git.config("--get", key, with_exceptions=False, kill_after_timeout=_GIT_DEADLINE_S)
        return os.environ.get(variable) or str(found).strip()

    name, email = setting("GIT_AUTHOR_NAME", "user.name"), setting("GIT_AUTHOR_EMAIL", "user.email")
    return git.Actor(name or "Kortix", email or "kortix@localhost")


def _git() -> ModuleType:
    # Without this, importing GitPython fails where there is no git; `_first_commit` has better words for it.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    return git
