"""Which manifest governs a call at this moment (invariant I3), found out at next to no cost.

What a person changes on the base branch counts at the next call. Git is asked only when the files that say where the
branch is have changed, here in the mirror or in the operator's repository; an address on the network is asked from time
to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, GitFailed, KortixError
from kortix_tui.manifest.check import Report
from kortix_tui.repository.errors import SourceMissing
from kortix_tui.repository.names import branch_ref
from kortix_tui.repository.remote import local_path
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import AGAIN_S, Preparing
from kortix_tui.store.models import Project

REMOTE_S: Final = 20.0
"""How old what is known of a repository on the network may be."""
log = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class Base:
    """A base branch as it is now."""

    commit: str
    report: Report


@dataclass(frozen=True)
class _Known:
    source: _Stamp
    mirror: _Stamp
    asked_at: float
    base: Base


class Governing:
    """Reads manifests for calls; shared by all sessions of one term.

    Args:
        ledger: Knows projects.
        preparing: Opens mirrors and reads manifests.
    """

    def __init__(self, ledger: Ledger, preparing: Preparing) -> None:
        self._ledger = ledger
        self._preparing = preparing
        self._known: dict[tuple[str, str], _Known] = {}
        self._looking = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)

    async def at(self, project_id: str, commit: str) -> Report:
        """The manifest at a commit."""
        return await self._preparing.report(project_id, await self._preparing.mirror(project_id), commit)

    async def base(self, project_id: str, branch: str) -> Base:
        """A base branch and its manifest as they are now.

        Raises:
            KortixError: It cannot be known.
        """
        key = (project_id, branch)
        async with self._looking[key]:
            project = self._ledger.project(project_id)
            mirror = await self._preparing.mirror(project_id)
            source, here = await asyncio.to_thread(_look, project, mirror.path, branch)
            known, now = self._known.get(key), self._ledger.store.clock.monotonic()
            if known is not None and known.source == source and not self._is_old(known, now):
                if known.mirror == here:
                    return known.base
            else:
                try:
                    await mirror.fetch(project.source, base=branch, wall_s=AGAIN_S)
                except (GitFailed, DeadlineExceeded, SourceMissing) as error:
                    log.warning("the base branch of %s is taken as last fetched: %s", project.slug, error.message)
                _, here = await asyncio.to_thread(_look, project, mirror.path, branch)
            commit = await mirror.resolve(branch_ref(branch))
            if commit is None:
                self._known.pop(key, None)
                raise KortixError(f"The branch {branch} is gone.", hint="Fetch the project anew.")
            base = Base(commit, await self._preparing.report(project_id, mirror, commit))
            self._known[key] = _Known(source, here, now, base)
            return base

    @staticmethod
    def _is_old(known: _Known, now: float) -> bool:
        return not known.source and now - known.asked_at > REMOTE_S


def _look(project: Project, mirror: Path, branch: str) -> tuple[_Stamp, _Stamp]:
    """Stamps of the files that say where a branch is; none for a source that is not a folder of this machine."""
    folder = local_path(project.source)
    return (_stamp(_git_folder(folder), branch) if folder is not None else ()), _stamp(mirror, branch)


def _git_folder(folder: Path) -> Path:
    """Where a checkout, a linked worktree or a bare repository keeps its refs."""
    place = folder / ".git"
    if place.is_file():
        text = place.read_text("utf-8", "replace").partition("gitdir:")[2].strip()
        place = folder / text
        common = place / "commondir"
        return place / common.read_text("utf-8", "replace").strip() if common.is_file() else place
    return place if place.is_dir() else folder


def _stamp(git_folder: Path, branch: str) -> _Stamp:
    places = (git_folder / branch_ref(branch), git_folder / "packed-refs", git_folder / "reftable" / "tables.list")
    return tuple(_stamp_of(place) for place in places)


def _stamp_of(place: Path) -> tuple[int, int, int] | None:
    try:
        status = place.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
