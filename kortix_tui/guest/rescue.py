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

from kortix_tui.guest.children import Finished
from kortix_tui.guest.workspace import Workspace

DEADLINE_S = 120.0
_TIPS = 16
_INNER = 32
_WORDS = 4000
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
    except asyncio.TimeoutError:  # before OSError, of which it is one since Python 3.11
        return _result("failed", message=f"it took longer than {DEADLINE_S:.0f} s")
    except OSError as error:
        return _result("failed", message=f"git could not be run: {error.strerror or error}")
    except Exception as error:  # the host waits for an answer, and keeps the volume when it is not "saved"
        return _result("failed", message=f"the rescue broke: {error!r}")


def _result(outcome: str, commit: str | None = None, files: int = 0, message: str = "") -> dict[str, Any]:
    words = message.encode("utf-8", "replace").decode()[:_WORDS]  # names of files may be anything
    return {"outcome": outcome, "commit": commit, "files": files, "message": words}


class _Rescue:
    """One run. The index is a copy in a temporary folder, so that the agent's own is never written."""

    def __init__(self, workspace: Workspace, welcome: Mapping[str, Any], session_id: str, ref: str) -> None:
        self._workspace = workspace
        self._root = workspace.places.workspace
        self._repository: Mapping[str, Any] = welcome.get("repository") or {}
        self._who: Mapping[str, Any] = welcome.get("identity") or {}
        self._session_id = session_id
        self._ref = ref
        self._folder = ""
        self._git_dir = ""
        self._inner = 0
        self._filters: list[str] = []
        self._incomplete: list[str] = []
        self._notes: list[str] = []

    async def run(self) -> dict[str, Any]:
        if not self._workspace.has_repository():
            return self._without_repository()
        if not self._repository.get("url"):
            raise RescueFailed("the sandbox was not told where to push")
        self._folder = os.path.join(_TEMPORARY, f"kortix-rescue-{os.urandom(6).hex()}")
        with self._workspace.identity.assumed():
            os.mkdir(self._folder, 0o700)
        try:
            return await self._save()
        finally:
            with self._workspace.identity.assumed():
                shutil.rmtree(self._folder, ignore_errors=True)

    def _without_repository(self) -> dict[str, Any]:
        if not self._workspace.is_cloned():
            return _result("clean", message="there is no repository in the workspace")
        with self._workspace.identity.assumed():
            names = os.listdir(self._root)
        if not names:
            return _result("clean", message="the workspace is empty")
        return _result("failed", message="the workspace's .git is gone, but files are left")

    async def _try(self, *arguments: str, index: str = "index", **places: str) -> Finished:
        name = str(self._who.get("name") or "Agent")
        email = str(self._who.get("email") or "agent@kortix.invalid")
        people = {
            **{f"GIT_{role}_NAME": name for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": email for role in ("AUTHOR", "COMMITTER")},
        }
        return await self._workspace.git(
            *self._filters,
            *arguments,
            deadline=DEADLINE_S,
            environment={**people, "GIT_INDEX_FILE": os.path.join(self._folder, index), **places},
        )

    async def _git(self, *arguments: str, index: str = "index", **places: str) -> str:
        done = await self._try(*arguments, index=index, **places)
        if done.status != 0:
            raise RescueFailed(f"git {arguments[0]}: {done.complaint}")
        return done.text

    async def _ask(self, *arguments: str) -> str | None:
        """A question that git may answer with no."""
        done = await self._try(*arguments)
        return done.text if done.status == 0 else None

    async def _save(self) -> dict[str, Any]:
        self._git_dir = await self._git("rev-parse", "--absolute-git-dir")
        head = await self._ask("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        self._filters = await self._without_filters()
        tree, files = await self._tree(head)
        tips = await self._unpushed(head)
        words = "; ".join([*self._incomplete, *self._notes])
        if not files and not tips:
            return _result("failed" if self._incomplete else "clean", message=words)
        if not files and tips == [head]:
            commit = tips[0]
        else:
            parents = dict.fromkeys([head, *tips] if head else tips)
            arguments = [word for parent in parents for word in ("-p", parent)]
            message = f"Rescued work of session {self._session_id}"
            commit = await self._git("commit-tree", tree, *arguments, "-m", message)
        await self._git(
            "push", "--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed", "--",
            str(self._repository["url"]), f"{commit}:{self._ref}",
        )  # fmt: skip
        return _result("failed" if self._incomplete else "saved", commit, files, words)

    async def _without_filters(self) -> list[str]:
        """Options that turn every filter off: bytes are saved as they are, whatever program is missing or broken.

        With large file storage this matters twice: its filter would save a pointer to what nobody has pushed.
        """
        listed = await self._ask("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        drivers = {name.rpartition(".")[0] for name in (listed or "").split("\0") if name and "=" not in name}
        return [
            word
            for driver in sorted(drivers)
            for setting in ("clean=", "process=", "required=false")
            for word in ("-c", f"{driver}.{setting}")
        ]

    async def _tree(self, head: str | None) -> tuple[str, int]:
        """Write all files that are not ignored as a tree; also how many differ from HEAD."""
        found = await self._workspace.git("rev-parse", "--git-path", "index", deadline=DEADLINE_S)
        index = os.path.join(self._folder, "index")
        with self._workspace.identity.assumed(), contextlib.suppress(OSError):
            # With git's notes on what has not changed, large checkouts need not be read again.
            shutil.copyfile(os.path.join(self._root, found.text), index)
        listed = await self._try("ls-files", "-v")
        marks = {line[:1] for line in listed.stdout.split(b"\n") if line}
        if listed.status != 0 or not marks <= {b"H", b"M", b"R", b"C", b"K"}:
            # Damaged, or files are marked as not to be looked at: begin from HEAD and look at everything.
            with self._workspace.identity.assumed(), contextlib.suppress(FileNotFoundError):
                os.unlink(index)
            await self._git("read-tree", *([head] if head else ["--empty"]))
        await self._collect("index", self._root, await self._links("ls-tree", "-r", "-z", head) if head else {})
        tree = await self._git("write-tree")
        base = head or await self._git("hash-object", "-t", "tree", "-w", "/dev/null")
        changed = await self._git("diff-tree", "-r", "--no-renames", "--name-only", "-z", base, tree)
        return tree, changed.count("\0")

    async def _collect(self, index: str, root: str, known: Mapping[str, str]) -> None:
        """Put the files below a folder into an index, with those of repositories that are inside it.

        Of such a repository git itself would keep no more than the name of a commit that nobody else has.

        Args:
            index: Its name in the temporary folder.
            root: The folder.
            known: Submodules at HEAD: path → commit.
        """
        places = {"GIT_DIR": self._git_dir, "GIT_WORK_TREE": root}

        async def ask(*arguments: str) -> str:
            return await self._git("-C", root, *arguments, index=index, **places)

        added = await self._try("-C", root, "add", "--all", "--ignore-errors", "--", ".", index=index, **places)
        links = await self._links("-C", root, "ls-files", "--stage", "-z", index=index, **places)
        others = (await ask("ls-files", "--others", "--exclude-standard", "-z")).split("\0")
        inside: list[str] = []
        for name in sorted({*links, *(other.rstrip("/") for other in others if other.endswith("/"))}):
            where = os.path.join(root, name)
            if not await self._is_lost(where, links.get(name), known.get(name)):
                continue
            self._inner += 1
            if self._inner > _INNER:
                self._incomplete.append(f"there are more than {_INNER} repositories inside the workspace")
                break
            inner = f"inner-{self._inner}"
            await self._git("read-tree", "--empty", index=inner)
            await self._collect(inner, where, {})
            tree = await self._git("write-tree", index=inner)
            await ask("rm", "--quiet", "--cached", "-r", "--force", "--ignore-unmatch", "--", f":(literal){name}")
            await ask("read-tree", f"--prefix={name}/", tree)
            inside.append(name + "/")
            self._notes.append(f"the files of the repository in {name} are saved, its history is not")
        if added.status != 0:
            left = await ask("ls-files", "--others", "--modified", "--exclude-standard", "-z")
            names = sorted({name for name in left.split("\0") if name and not name.startswith(tuple(inside))})
            if names:
                self._incomplete.append("these could not be saved: " + ", ".join(names))

    async def _links(self, *listing: str, index: str = "index", **places: str) -> dict[str, str]:
        """Entries that name a commit of another repository, from `ls-tree -z` or `ls-files --stage -z`."""
        found = {}
        for entry in (await self._git(*listing, index=index, **places)).split("\0"):
            facts, _, name = entry.partition("\t")
            if facts.startswith("160000 "):
                found[name] = facts[len("160000 ") :].replace("commit ", "", 1).split(" ")[0]
        return found

    async def _is_lost(self, where: str, link: str | None, known: str | None) -> bool:
        """Whether a folder is a repository with work that its entry does not lead back to."""
        if not self._workspace.has_repository(where):
            return False
        if link is None or link != known:
            return True
        # A submodule at its recorded commit: only what is not committed in it would be lost.
        status = await self._workspace.git("-C", where, "status", "--porcelain", deadline=DEADLINE_S)
        return status.status != 0 or bool(status.stdout)

    async def _unpushed(self, head: str | None) -> list[str]:
        """Commits at tips here that nothing outside reaches: HEAD first, then other branches, stash and merges."""
        outside = await self._outside()
        names = ["refs/heads", "refs/stash"]
        listed = await self._git("for-each-ref", "--format=%(objectname)", *names)
        tips = [head] if head else []
        tips += listed.split()
        for name in ("MERGE_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD"):
            tip = await self._ask("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
            tips += [tip] if tip else []
        kept: list[str] = []
        for tip in dict.fromkeys(tips):
            known = [*outside, *kept]
            ahead = await self._git("rev-list", "--max-count=1", tip, "--not", *known)
            if ahead:
                kept.append(tip)
        if len(kept) > _TIPS:
            self._incomplete.append(f"{len(kept) - _TIPS} more branches have commits that are not pushed")
        return kept[:_TIPS]

    async def _outside(self) -> list[str]:
        """Commits that the host has, by its own word: the agent can write any `refs/remotes` it likes.

        A door that lets work out and nothing in does not say. Then those refs are the best there is.
        """
        listed = await self._try("ls-remote", "--quiet", "--", str(self._repository["url"]))
        if listed.status == 0:
            tips = [line.split("\t")[0] for line in listed.text.splitlines()]
        else:
            tips = [str(self._repository.get("base_commit") or "")]
            tips += (await self._git("for-each-ref", "--format=%(objectname)", "refs/remotes")).split()
        named = [tip for tip in dict.fromkeys(tips) if tip]
        return [tip for tip in named if await self._ask("cat-file", "-e", f"{tip}^{{commit}}") is not None]
