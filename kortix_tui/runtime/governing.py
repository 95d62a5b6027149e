"""Which manifest governs a call at this moment (invariant I3), found out at next to no cost.

What a person changes on the base branch counts at the next call. Git is asked only when the files that say where the
branch is have changed, here in the mirror or in the operator's repository; an address on the network is asked from time
to time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, GitFailed, KortixError
from kortix_tui.manifest.check import Report
from kortix_tui.repository.errors import SourceMissing
from kortix_tui.repository.names import branch_ref
from kortix_tui.repository.remote import local_path
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import AGAIN_S, Preparing

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
            address = self._address(project_id)
            mirror = await self._preparing.mirror(project_id)
            source, here = _look(address, mirror.path, branch)
            known, now = self._known.get(key), self._ledger.store.clock.monotonic()
            if known is not None and known.source == source and not self._is_old(known, now):
                if known.mirror == here:
                    return known.base
            else:
                try:
                    await mirror.fetch(address, base=branch, wall_s=AGAIN_S)
                except (GitFailed, DeadlineExceeded, SourceMissing) as error:
                    log.warning("the base branch of %s is taken as last fetched: %s", project_id, error.message)
                _, here = _look(address, mirror.path, branch)
            commit = await mirror.resolve(branch_ref(branch))
            if commit is None:
                self._known.pop(key, None)
                raise KortixError(f"The branch {branch} is gone.", hint="Fetch the project anew.")
            base = Base(commit, await self._preparing.report(project_id, mirror, commit))
            self._known[key] = _Known(source, here, now, base)
            return base

    def _address(self, project_id: str) -> str:
        row = self._ledger.store.one("SELECT source FROM projects WHERE id = ?", (project_id,))
        assert row is not None  # noqa: S101 - rows of projects are never deleted
        return str(row[0])

    @staticmethod
    def _is_old(known: _Known, now: float) -> bool:
        return not known.source and now - known.asked_at > REMOTE_S


def _look(address: str, mirror: Path, branch: str) -> tuple[_Stamp, _Stamp]:
    """Stamps of the files that say where a branch is; none for a source that is not a folder of this machine.

    A handful of looks at the file system: less than handing them to a thread costs.
    """
    folder = _folder(address)
    return (_stamp(_git_folder(folder), branch) if folder is not None else ()), _stamp(str(mirror), branch)


@lru_cache(maxsize=64)
def _folder(address: str) -> str | None:
    folder = local_path(address)
    return None if folder is None else str(folder)


def _git_folder(folder: str) -> str:
    """Where a checkout, a linked worktree or a bare repository keeps its refs."""
    place = f"{folder}/.git"
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116 - asked at each call; a `Path` costs more than the look
    except OSError:
        return folder
    if stat.S_ISDIR(mode):
        return place
    own = Path(folder) / Path(place).read_text("utf-8", "replace").partition("gitdir:")[2].strip()
    common = own / "commondir"
    return str(own / common.read_text("utf-8", "replace").strip() if common.is_file() else own)


def _stamp(git_folder: str, branch: str) -> _Stamp:
    places = (branch_ref(branch), "packed-refs", "reftable/tables.list")
    return tuple(_stamp_of(f"{git_folder}/{place}") for place in places)


def _stamp_of(place: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(place)  # noqa: PTH116
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
