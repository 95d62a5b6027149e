"""Delivering a merge to the source repository, and finding out afterwards what became true.

The push carries a lease on the base that was reviewed, so a source that moved refuses it. A branch that is checked out
on this machine is moved together with its files, or refused before anything changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from kortix_tui.base.errors import Conflict, DeadlineExceeded
from kortix_tui.base.text import visible_line
from kortix_tui.repository import names
from kortix_tui.repository.checkout import Landing, worktree_with
from kortix_tui.repository.errors import DeliveryRefused, git_failed
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.process import operator
from kortix_tui.repository.remote import check_source, facing, local_path, local_service, look_at

_REJECTED = re.compile(r"^!\t[^\t]*\t(.*)$", re.MULTILINE)
PUSH_S = 120.0
SETTLE_S = 10.0
_POLL_S = 0.05


async def check_delivery(mirror: Mirror, source: str, branch: str, expected: str, commit: str) -> None:
    """Whether the source could take `commit` as its new base now. Changes nothing.

    A source that has moved on is no fault here: the next fetch sees it, and the lease of the delivery holds.

    Raises:
        DeliveryRefused: With the reason and the way out.
        SourceMissing: The source's folder is gone.
    """
    place = local_path(check_source(source))
    if place is None:
        return
    landing = await _landing(mirror, place, branch, expected, commit)
    if landing is not None and await _tip(place, branch) == expected:
        await landing.check()


async def deliver(mirror: Mirror, source: str, branch: str, expected: str, commit: str) -> None:
    """Give the source `commit` as its base branch, if that is still at `expected`. Delivered already: no change.

    Raises:
        Conflict: The source's branch moved.
        DeliveryRefused: The source cannot take it; nothing was changed.
        GitFailed, DeadlineExceeded: The connection broke; ask `delivered`.
    """
    async with _alone(mirror, PUSH_S) as lock:
        await _deliver(mirror, source, branch, expected, commit, lock)


async def _deliver(mirror: Mirror, source: str, branch: str, expected: str, commit: str, lock: int) -> None:
    names.check_object_id(expected)
    place = local_path(check_source(source))
    landing = await _landing(mirror, place, branch, expected, commit, lock) if place is not None else None
    if place is None or landing is None:
        lease = f"--force-with-lease={names.branch_ref(branch)}:{expected}"
        await _push(mirror, source, lease, f"{names.check_object_id(commit)}:{names.branch_ref(branch)}", lock)
        return
    tip = await _tip(place, branch)
    if tip == commit:
        return
    if tip != expected:
        raise Conflict(f"{visible_line(branch)} moved in the source.", hint="Look again, then merge.")
    resume = await landing.check()
    await _push(mirror, source, "--force", f"{names.check_object_id(commit)}:{names.INCOMING}", lock)
    await landing.land(resume=resume)
    await operator(place).run("update-ref", "-d", names.INCOMING)


async def delivered(mirror: Mirror, source: str, branch: str, commit: str) -> bool:
    """Whether the source's branch has `commit`, by asking the source.

    Raises:
        GitFailed, DeadlineExceeded, SourceMissing: It cannot be asked now; nothing is known.
    """
    names.check_object_id(commit)
    tip = (await look_at(source)).branches.get(branch)
    if tip is None or tip == commit:
        return tip is not None
    if await mirror.resolve(tip) is None:
        await mirror.fetch(source)
    return await mirror.is_ancestor(commit, tip)


async def settle(mirror: Mirror, source: str, branch: str, expected: str, commit: str) -> bool:
    """After a crash: whether the source has `commit`; a checkout that was left half-way is completed first.

    Completing is right because the person's decision was recorded before the delivery began, and nothing but this
    commit, on exactly the base that was reviewed, is completed.

    Raises:
        DeliveryRefused: A checkout was left half-way and cannot be completed now; the hint says what to do. Ask again.
        DeadlineExceeded: A git of the dead process is still at work. Ask again.
        GitFailed, SourceMissing: The source cannot be asked now. Ask again.
    """
    async with _alone(mirror, SETTLE_S) as lock:
        if await delivered(mirror, source, branch, commit):
            return True
        place = local_path(source)
        if place is None or await _marked(place) != commit:
            return False
        try:
            await _deliver(mirror, source, branch, expected, commit, lock)
        except Conflict:
            return False
        return True


@contextlib.asynccontextmanager
async def _alone(mirror: Mirror, wait_s: float) -> AsyncIterator[int]:
    """One delivery at a time, also over the death of this process.

    A push does not end with the process that started it. Each git of a delivery holds the lock until it has ended,
    so whoever comes next never asks the source too early.
    """
    descriptor = os.open(mirror.path / "delivery.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            async with asyncio.timeout(wait_s):
                while not _locked(descriptor):  # noqa: ASYNC110 - it is another process that lets go
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise DeadlineExceeded(
                "An earlier delivery to the source is still running.", hint="Wait for it, then try again."
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _landing(
    mirror: Mirror, source: Path, branch: str, expected: str, commit: str, lock: int | None = None
) -> Landing | None:
    worktree = await worktree_with(source, branch)
    if worktree is None:
        return None
    return Landing(worktree, branch, expected, commit, mirror.path / "objects", lock=lock)


async def _tip(source: Path, branch: str) -> str | None:
    found = await operator(source).run("rev-parse", "--quiet", "--verify", names.branch_ref(branch), ok=(0, 1))
    return found.text if found.status == 0 else None


async def _marked(source: Path) -> str | None:
    found = await operator(source).run("rev-parse", "--quiet", "--verify", names.INCOMING, ok=(0, 1))
    return found.text if found.status == 0 else None


async def _push(mirror: Mirror, source: str, lease: str, refspec: str, lock: int) -> None:
    git = (await facing(source, git_dir=mirror.path, wall_s=PUSH_S)).holding(lock)
    pushed = await git.run(
        "push", "--porcelain", "--no-progress", "--no-verify", "--no-signed", "--no-follow-tags",
        "--recurse-submodules=no", lease, *local_service(source, "receive-pack"), "--", check_source(source), refspec,
        ok=(0, 1),
    )  # fmt: skip
    if pushed.status == 0:
        return
    rejected = _REJECTED.search(pushed.text)
    if rejected is None:
        raise git_failed("push", pushed.status, pushed.stderr)
    reason = visible_line(rejected.group(1))
    if "stale info" in reason or "fetch first" in reason or "non-fast-forward" in reason:
        raise Conflict("The base branch moved in the source.", hint="Look again, then merge.")
    raise DeliveryRefused(f"The source refused the merge: {reason}.", hint="See the rules of the source's server.")
