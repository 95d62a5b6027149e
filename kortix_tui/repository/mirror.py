"""The project's bare mirror: the only repository that a sandbox ever speaks to.

Refs: `refs/kortix/source/*` the source's branches as last fetched; `refs/heads/<base>` what sessions start from;
`refs/heads/<session>` one branch a session; `refs/kortix/heads/<session>/<n>` every head that a session ever had;
`refs/kortix/rescue/<session>/<n>` work saved from a sandbox. Objects are never pruned, so nothing is lost by a rewrite.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import Conflict, GitFailed, InvalidInput, NotFound, Refused
from kortix_tui.base.ids import is_session_id
from kortix_tui.base.text import visible_line
from kortix_tui.repository import names
from kortix_tui.repository.errors import EmptyRepository, MissingBranch
from kortix_tui.repository.names import ObjectFormat
from kortix_tui.repository.process import NO_HOOKS, Git, Limits, sealed
from kortix_tui.repository.remote import SourceRefs, check_source, facing, local_service, look_at

_CONFIG = """\
# Written by kortix; changes are overwritten.
[core]
\trepositoryformatversion = {version}
\tbare = true
\tfilemode = true
\tlogAllRefUpdates = false
\thooksPath = {hooks}
\tfsync = objects,derived-metadata,reference
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tdenyCurrentBranch = refuse
"""
_SHA256 = "[extensions]\n\tobjectformat = sha256\n"
# Faults that old, honest repositories have; whatever could be an attack stays an error.
_TOLERATED = (
    "missingSpaceBeforeDate",
    "zeroPaddedFilemode",
    "zeroPaddedDate",
    "badDate",
    "badTimezone",
    "badEmail",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeEmail",
    "nullSha1",
)


_QUARANTINE_S = 900.0
_READ_BYTES = 1 << 20
_LISTING = Limits(wall_s=20.0, cpu_s=10, output_bytes=16 << 20)


@dataclass(frozen=True, slots=True)
class KeptRef:
    """A numbered ref of a session: `n` counts from 1 and is never used again."""

    n: int
    ref: str
    commit: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as its author tells it: names and texts are claims, and untrusted."""

    id: str
    parents: tuple[str, ...]
    author: str
    email: str
    at: str
    subject: str


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    mode: str
    id: str
    size: int

    @property
    def regular(self) -> bool:
        return self.mode in ("100644", "100755", "100664")


class Mirror:
    """One bare mirror. Make or open it with `Mirror.create` and `Mirror.open`."""

    def __init__(self, path: Path, object_format: ObjectFormat) -> None:
        self.path = path
        self.object_format = object_format
        self.git: Git = sealed(path)
        self._fetching = asyncio.Lock()
        self._keeping = asyncio.Lock()

    # ---- making and opening -------------------------------------------------------------------------------

    @classmethod
    async def create(cls, path: Path, object_format: ObjectFormat = ObjectFormat.SHA1) -> Mirror:
        """Make an empty mirror, or open the one that is there. Interrupted: nothing is at `path`."""
        if _is_there(path):
            return await cls.open(path)
        new = path.parent / f".{path.name}.{secrets.token_hex(4)}.new"
        try:
            await sealed().run(
                "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", "--", str(new)
            )
            new.chmod(0o700)
            _write_settings(new, object_format)
            try:
                new.rename(path)
            except OSError:
                if not _is_there(path):
                    raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return await cls.open(path)

    @classmethod
    async def open(cls, path: Path) -> Mirror:
        """Open a mirror: put its settings back, sweep what killed pushes left.

        Raises:
            NotFound: There is none.
        """
        if not _is_there(path):
            raise NotFound(f"The mirror {path.name} is missing.", hint="Add the project again.")
        config = path / "config"
        text = config.read_text("utf-8") if config.is_file() else ""
        object_format = ObjectFormat.SHA256 if "objectformat = sha256" in text else ObjectFormat.SHA1
        _write_settings(path, object_format)
        mirror = cls(path, object_format)
        mirror.sweep()
        return mirror

    @classmethod
    async def create_from(cls, path: Path, source: str, *, wall_s: float = 600.0) -> tuple[Mirror, SourceRefs]:
        """Make a mirror with the source's object format and fetch it."""
        refs = await look_at(source)
        mirror = await cls.create(path, refs.object_format)
        return mirror, await mirror.fetch(source, wall_s=wall_s)

    def sweep(self) -> None:
        """Remove quarantine folders of killed pushes: those older than any push may last."""
        oldest = time.time() - _QUARANTINE_S
        for leftover in (self.path / "objects").glob("*incoming-*"):
            with contextlib.suppress(OSError):
                if leftover.stat().st_mtime < oldest:
                    shutil.rmtree(leftover, ignore_errors=True)

    # ---- the source ---------------------------------------------------------------------------------------

    async def fetch(self, source: str, *, base: str | None = None, wall_s: float = 120.0) -> SourceRefs:
        """Fetch all branches of the source, and copy the base branch when it is named.

        Raises:
            EmptyRepository, MissingBranch, SourceMissing: As they say.
            GitFailed, DeadlineExceeded: The source cannot be read now; nothing was changed.
        """
        async with self._fetching:
            refs = await look_at(source, wall_s=min(wall_s, 60.0))
            if not refs.branches:
                raise EmptyRepository("The source repository has no commit yet.", hint="Make a first commit there.")
            if refs.object_format is not self.object_format:
                raise GitFailed(
                    f"The source uses {refs.object_format} object names, the mirror {self.object_format}.",
                    hint="Add the source as a new project.",
                )
            if base is not None:
                refs.base(base)
            if refs.branches != await self.branches():
                await self._fetch(source, wall_s)
            if base is not None:
                await self.copy_base(base)
            return refs

    async def _fetch(self, source: str, wall_s: float) -> None:
        git = (await facing(source, git_dir=self.path, wall_s=wall_s)).having(
            "fetch.fsckObjects=true",
            "fetch.writeCommitGraph=false",
            "fetch.unpackLimit=1",
            *(f"fetch.fsck.{name}=ignore" for name in _TOLERATED),
        )
        await git.run(
            "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc",
            "--update-shallow", "--prune", "--force", "--refmap=", *local_service(source, "upload-pack"),
            "--", check_source(source), f"+refs/heads/*:{names.SOURCE}*",
        )  # fmt: skip

    async def copy_base(self, branch: str) -> str:
        """Set the mirror's base branch to what the source has. Returns the commit.

        Raises:
            MissingBranch: The source does not have it (or was not fetched yet).
        """
        commit = await self.resolve(names.source_ref(branch))
        if commit is None:
            raise MissingBranch(f"The source has no branch {visible_line(branch)!r}.")
        if is_session_id(branch):
            raise InvalidInput(f"The branch {branch} has the form of a session id and cannot be a base.")
        await self.git.run("update-ref", "--no-deref", names.branch_ref(branch), commit)
        if await self.resolve(self.head_ref()) is None:
            await self.git.run("symbolic-ref", "HEAD", names.branch_ref(branch))
        return commit

    def head_ref(self) -> str:
        """The branch that a clone checks out by default: the first base."""
        return (self.path / "HEAD").read_text("utf-8").removeprefix("ref: ").strip()

    # ---- reading ------------------------------------------------------------------------------------------

    async def resolve(self, ref: str) -> str | None:
        """The commit that a full ref (`refs/…`) or a full id names, or `None`."""
        if not ref.startswith("refs/"):
            names.check_object_id(ref)
        found = await self.git.run(
            "rev-parse", "--quiet", "--verify", "--end-of-options", ref + "^{commit}", ok=(0, 1, 128)
        )
        return found.text if found.status == 0 else None

    async def branches(self) -> dict[str, str]:
        """The source's branches as last fetched, with their commits."""
        return {ref.removeprefix(names.SOURCE): commit for ref, commit in (await self.refs(names.SOURCE)).items()}

    async def refs(self, *prefixes: str) -> dict[str, str]:
        """All refs below the prefixes (or exactly them) with what they point at."""
        listed = await self.git.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
        pairs = (line.rpartition(" ") for line in listed.text.split("\n") if line)
        return {ref: value for ref, _, value in pairs}

    async def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether everything in `older` is in `newer`; false when one of them is unknown here."""
        found = await self.git.run(
            "merge-base", "--is-ancestor", names.check_object_id(older), names.check_object_id(newer), ok=(0, 1, 128)
        )
        return found.status == 0

    async def commits(self, base: str, head: str, *, limit: int = 500) -> list[Commit]:
        """Commits in `head` that are not in `base`, newest first."""
        log = await self.git.run(
            "log", "-z", f"--max-count={limit}", "--no-color", "--no-show-signature", "--no-notes", "--no-mailmap",
            "--encoding=UTF-8", "--format=%H%n%P%n%an%n%ae%n%aI%n%s",
            names.check_object_id(head), "^" + names.check_object_id(base), "--",
        )  # fmt: skip
        commits = []
        for entry in log.fields():
            commit, parents, author, email, at, subject = entry.decode("utf-8", "replace").split("\n", 5)
            commits.append(Commit(commit, tuple(parents.split()), author, email, at, subject))
        return commits

    async def read(self, commit: str, path: str, *, limit: int = _READ_BYTES) -> bytes | None:
        """A file's bytes at a commit; `None` when there is no such path, or it is a folder, link or submodule.

        A link is never followed: what an agent points at is not what the base branch says.

        Raises:
            Refused: The file is larger than the limit, in bytes.
        """
        if not _inside(path):
            return None
        for entry in await self._entries(commit, path):
            if entry.path == path and entry.regular:
                if entry.size > limit:
                    raise Refused(
                        f"{visible_line(path)} is too large to read ({entry.size} bytes).",
                        hint=f"At most {limit} bytes are read.",
                    )
                return (await self.git.run("cat-file", "blob", entry.id)).stdout
        return None

    async def tree(self, commit: str, folder: str = "") -> list[str]:
        """The repository paths of all regular files below a folder at a commit, at any depth, sorted.

        Raises:
            GitFailed: There are too many.
        """
        place = folder.strip("/")
        if place and not _inside(place):
            return []
        entries = await self._entries(commit, f"{place}/" if place else "", "-r")
        return sorted(entry.path for entry in entries if entry.regular)

    async def _entries(self, commit: str, path: str, *options: str) -> list[_Entry]:
        listed = await self.git.run(
            "ls-tree", "-z", "-l", "--full-tree", *options, names.check_object_id(commit), "--",
            *([path] if path else []), limits=_LISTING,
        )  # fmt: skip
        entries = []
        for line in listed.fields():
            facts, _, name = line.partition(b"\t")
            mode, _, object_id, size = facts.decode("ascii").split()
            entries.append(
                _Entry(name.decode("utf-8", "surrogateescape"), mode, object_id, int(size) if size != "-" else 0)
            )
        return entries

    # ---- a session's refs ---------------------------------------------------------------------------------

    async def create_session_branch(self, session_id: str, base_commit: str) -> str:
        """Make the session's branch at the base commit, once; later calls change nothing. Returns its head.

        It must exist before the first push: a missing `refs/heads/<id>` would let `refs/heads/<id>/x` in.
        """
        ref = names.session_ref(session_id)
        head = await self.resolve(ref)
        if head is None:
            try:
                await self.git.run("update-ref", ref, names.check_object_id(base_commit), self.object_format.zero)
            except GitFailed:
                head = await self.resolve(ref)
                if head is None:
                    raise
            else:
                head = base_commit
        await self.keep_head(session_id, head)
        return head

    async def head(self, session_id: str) -> str | None:
        """The tip of the session's branch."""
        return await self.resolve(names.session_ref(session_id))

    async def keep_head(self, session_id: str, commit: str) -> int:
        """Keep a head of the session for ever. Returns its number, the old one when it was kept before."""
        names.check_object_id(commit)
        async with self._keeping:
            kept = await self.heads(session_id)
            for entry in kept:
                if entry.commit == commit:
                    return entry.n
            n = kept[-1].n + 1 if kept else 1
            await self.git.run("update-ref", f"{names.heads_prefix(session_id)}{n}", commit, self.object_format.zero)
            return n

    async def heads(self, session_id: str) -> list[KeptRef]:
        """Every head that the session's branch ever had, oldest first."""
        return await self._numbered(names.heads_prefix(session_id))

    async def rescues(self, session_id: str) -> list[KeptRef]:
        """Work saved from the session's sandbox, oldest first."""
        return await self._numbered(names.rescue_prefix(session_id))

    async def _numbered(self, prefix: str) -> list[KeptRef]:
        found = (await self.refs(prefix)).items()
        numbered = [
            KeptRef(int(ref.removeprefix(prefix)), ref, commit)
            for ref, commit in found
            if ref.removeprefix(prefix).isdigit()
        ]
        return sorted(numbered, key=lambda entry: entry.n)

    async def forget(self, session_id: str) -> None:
        """Remove the session's branch. Its kept heads and rescued work stay."""
        ref = names.session_ref(session_id)
        head = await self.resolve(ref)
        if head is None:
            return
        await self.keep_head(session_id, head)
        try:
            await self.git.run("update-ref", "-d", ref, head)
        except GitFailed as error:
            raise Conflict(f"The branch {session_id} moved just now.", hint="Try again.") from error


def _inside(path: str) -> bool:
    """Whether git would take the path as one below the root, and not as a way out of it."""
    return not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


def _is_there(path: Path) -> bool:
    return (path / "HEAD").is_file()


def _write_settings(path: Path, object_format: ObjectFormat) -> None:
    """Only what we write configures the mirror: no hook, no attribute, no remote."""
    version = 1 if object_format is ObjectFormat.SHA256 else 0
    text = _CONFIG.format(version=version, hooks=NO_HOOKS)
    if object_format is ObjectFormat.SHA256:
        text += _SHA256
    _replace(path / "config", text)
    (path / "info").mkdir(exist_ok=True)
    _replace(path / "info" / "attributes", "")
    shutil.rmtree(path / "hooks", ignore_errors=True)


def _replace(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        if path.read_text("utf-8") == text:
            return
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    new.write_text(text, "utf-8")
    new.rename(path)
