"""Saving what the agent has not pushed: commits and the tree as it is, to a ref outside the sandbox.

Everything runs as the agent's account with git's hooks off. What is pushed is one commit that reaches all that is
worth keeping; the branch, the index and the files are left exactly as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from typing import Any, Mapping

from kortix_tui.guest.workspace import Workspace

DEADLINE_S = 120.0
_TIPS = 16
_TEMPORARY = "/tmp"


class RescueFailed(Exception):
    """Git could not do a step; the text says which and why."""


async def save(workspace: Workspace, welcome: Mapping[str, Any], session_id: str, ref: str) -> dict[str, Any]:
    """Save what is not outside yet and push it to `ref`.

    Returns:
        The fields of a `rescue_result`: `saved`; `clean` when there was nothing; `failed` otherwise. With `failed`
        and a commit, that commit was pushed but does not hold everything.
    """
    try:
        return await asyncio.wait_for(_Rescue(workspace, welcome, session_id, ref).run(), DEADLINE_S)
    except RescueFailed as error:
        return _result("failed", message=str(error))
    except OSError as error:
        return _result("failed", message=f"git could not be run: {error.strerror or error}")
    except asyncio.TimeoutError:
        return _result("failed", message=f"it took longer than {DEADLINE_S:.0f} s")


def _result(outcome: str, commit: str | None = None, files: int = 0, message: str = "") -> dict[str, Any]:
    return {"outcome": outcome, "commit": commit, "files": files, "message": message}


class _Rescue:
    """One run. The index is a copy in a temporary folder, so that the agent's own is never written."""

    def __init__(self, workspace: Workspace, welcome: Mapping[str, Any], session_id: str, ref: str) -> None:
        self._workspace = workspace
        self._repository: Mapping[str, Any] = welcome.get("repository") or {}
        self._who: Mapping[str, Any] = welcome.get("identity") or {}
        self._session_id = session_id
        self._ref = ref
        self._warnings: list[str] = []

    async def run(self) -> dict[str, Any]:
        if not self._workspace.has_repository():
            return self._without_repository()
        if not self._repository.get("url"):
            raise RescueFailed("the sandbox was not told where to push")
        with self._workspace.identity.assumed():
            folder = os.path.join(_TEMPORARY, f"kortix-rescue-{os.urandom(6).hex()}")
            os.mkdir(folder, 0o700)
        try:
            return await self._save(os.path.join(folder, "index"))
        finally:
            with self._workspace.identity.assumed():
                shutil.rmtree(folder, ignore_errors=True)

    def _without_repository(self) -> dict[str, Any]:
        if not self._workspace.is_cloned():
            return _result("clean", message="there is no repository in the workspace")
        with self._workspace.identity.assumed():
            empty = not os.listdir(self._workspace.places.workspace)
        if empty:
            return _result("clean", message="the workspace is empty")
        return _result("failed", message="the workspace's .git is gone, but files are left")

    async def _git(self, *arguments: str, index: str | None = None) -> str:
        done = await self._workspace.git(*arguments, deadline=DEADLINE_S, environment=self._environment(index))
        if done.status != 0:
            raise RescueFailed(f"git {arguments[0]}: {done.complaint}")
        return done.text

    async def _ask(self, *arguments: str) -> str | None:
        """A question that git may answer with no."""
        done = await self._workspace.git(*arguments, deadline=DEADLINE_S)
        return done.text if done.status == 0 else None

    def _environment(self, index: str | None) -> dict[str, str]:
        name = str(self._who.get("name") or "Agent")
        email = str(self._who.get("email") or "agent@kortix.invalid")
        people = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", name), ("EMAIL", email))
        }
        return {**people, **({"GIT_INDEX_FILE": index} if index else {})}

    async def _save(self, index: str) -> dict[str, Any]:
        head = await self._ask("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        tree, files = await self._tree(index, head)
        dirty = files > 0
        tips = await self._unpushed(head)
        if not dirty and not tips:
            if self._warnings:
                return _result("failed", message="; ".join(self._warnings))
            return _result("clean")
        if not dirty and tips == [head]:
            commit = head
        else:
            parents = [tip for tip in [head, *tips] if tip is not None]
            arguments = [word for parent in dict.fromkeys(parents) for word in ("-p", parent)]
            message = f"Rescued work of session {self._session_id}"
            commit = await self._git("commit-tree", tree, *arguments, "-m", message)
        await self._git(
            "push", "--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed", "--",
            str(self._repository["url"]), f"{commit}:{self._ref}",
        )  # fmt: skip
        return _result("failed" if self._warnings else "saved", commit, files, "; ".join(self._warnings))

    async def _tree(self, index: str, head: str | None) -> tuple[str, int]:
        """Write all files that are not ignored as a tree; also how many differ from HEAD."""
        own = await self._git("rev-parse", "--git-path", "index")
        with self._workspace.identity.assumed(), contextlib.suppress(OSError):
            # With git's notes on what has not changed, large checkouts need not be read again.
            shutil.copyfile(os.path.join(self._workspace.places.workspace, own), index)
        hidden = await self._workspace.git("ls-files", "-v", deadline=DEADLINE_S, environment={"GIT_INDEX_FILE": index})
        marks = {line[:1] for line in hidden.stdout.split(b"\n") if line}
        if hidden.status != 0 or not marks <= {b"H", b"M", b"R", b"C", b"K"}:
            # Damaged, or files are marked as not to be looked at: begin from HEAD and look at everything.
            with self._workspace.identity.assumed(), contextlib.suppress(FileNotFoundError):
                os.unlink(index)
            await self._git("read-tree", *([head] if head else ["--empty"]), index=index)
        filters = ("-c", "filter.lfs.required=false", "-c", "filter.lfs.clean=", "-c", "filter.lfs.process=")
        added = await self._workspace.git(
            *filters, "add", "--all", "--ignore-errors", "--", ".", deadline=DEADLINE_S,
            environment=self._environment(index),
        )  # fmt: skip
        if added.status != 0:
            self._warnings.append(f"not all files could be read: {added.complaint}")
        tree = await self._git("write-tree", index=index)
        base = head or await self._git("hash-object", "-t", "tree", "-w", "/dev/null")
        changed = await self._git("diff-tree", "-r", "--no-renames", "--name-only", "-z", base, tree)
        return tree, changed.count("\0")

    async def _unpushed(self, head: str | None) -> list[str]:
        """Commits at tips here that nothing outside reaches: HEAD first, then other branches, stash and merges."""
        outside = await self._outside()
        names = ["refs/heads", "refs/stash"]
        listed = await self._git("for-each-ref", "--format=%(objectname)", *names)
        tips = [head] if head else []
        tips += listed.split()
        for name in ("MERGE_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD", "ORIG_HEAD"):
            tip = await self._ask("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
            tips += [tip] if tip else []
        kept: list[str] = []
        for tip in dict.fromkeys(tips):
            known = [*outside, *kept]
            ahead = await self._git("rev-list", "--max-count=1", tip, "--not", *known)
            if ahead:
                kept.append(tip)
        if len(kept) > _TIPS:
            self._warnings.append(f"{len(kept) - _TIPS} more branches have commits that are not pushed")
        return kept[:_TIPS]

    async def _outside(self) -> list[str]:
        """What the host has, by its own word: the agent can write any `refs/remotes` it likes."""
        listed = await self._git("ls-remote", "--quiet", "--", str(self._repository["url"]))
        tips = [line.split("\t")[0] for line in listed.splitlines()]
        return [
            tip for tip in dict.fromkeys(tips) if await self._ask("cat-file", "-e", f"{tip}^{{commit}}") is not None
        ]
