"""The clone in `/workspace`, made by the agent's own account through the git door."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, Mapping

from kortix_tui.guest.children import Children, Finished
from kortix_tui.guest.identity import Identity
from kortix_tui.guest.places import SYSTEM_PATH, Places

_CLONE_S = 1800.0
_CHECKOUT_S = 600.0
_STATUS_S = 20.0
_TEMPORARY = ".kortix-clone"
# The repository's own hooks, monitors and prompts have no part in our commands.
QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")


class CloneFailed(Exception):
    """The workspace could not be made; the text says why."""


def gitconfig(token: str, identity: Mapping[str, Any], port: int) -> str:
    """What git needs to go through the door and to commit, for every program of the agent."""
    door = f"http://127.0.0.1:{port}/"
    name, email = str(identity.get("name") or "Agent"), str(identity.get("email") or "agent@kortix.invalid")
    return (
        f'[http "{door}"]\n\textraHeader = {_quoted("Authorization: Bearer " + token)}\n\tproxy = ""\n'
        f"[user]\n\tname = {_quoted(name)}\n\temail = {_quoted(email)}\n"
        "[push]\n\tdefault = current\n[protocol]\n\tversion = 0\n"
    )


def _quoted(value: str) -> str:
    """A value for git's configuration syntax; a line end cannot be in one of ours."""
    clean = " ".join(value.split())
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Workspace:
    """The agent's checkout.

    Args:
        places: Where it is.
        identity: Whose it is.
        children: Who waits for git.
    """

    def __init__(self, places: Places, identity: Identity, children: Children) -> None:
        self.places = places
        self.identity = identity
        self.children = children

    def has_repository(self, folder: str | None = None) -> bool:
        """Whether git's folder is in the workspace, or in a folder of it, as the agent would see it."""
        with self.identity.assumed():
            return os.path.lexists(os.path.join(folder or self.places.workspace, ".git"))

    def is_cloned(self) -> bool:
        """Whether our clone was finished once, whatever the agent did to it since."""
        return os.path.exists(self.places.cloned)

    async def is_dirty(self) -> bool | None:
        """Whether there is work that is not committed; `None` when git cannot say."""
        if not self.has_repository():
            return None
        listed = await self.git("status", "--porcelain", deadline=_STATUS_S)
        return bool(listed.stdout) if listed.status == 0 else None

    async def git(self, *arguments: str, deadline: float, environment: Mapping[str, str] | None = None) -> Finished:
        """Run git in the workspace as the agent's account, without hooks or prompts."""
        return await self.children.run(
            self.identity,
            ["git", *QUIET, *arguments],
            environment={
                **self.identity.environment(),
                "PATH": f"{SYSTEM_PATH}:{self.identity.path}",
                "GIT_TERMINAL_PROMPT": "0",
                **(environment or {}),
            },
            folder=self.places.workspace,
            deadline=deadline,
        )

    async def clone(self, repository: Mapping[str, Any]) -> None:
        """Fetch the base and the session's branch, and check the session's branch out.

        The clone is made aside and its `.git` moved in with one rename; the mark is set after the checkout. So a
        clone that was cut off anywhere is done again and a finished one never is.

        Args:
            repository: The welcome's `repository`.

        Raises:
            CloneFailed: Git said no.
        """
        aside = os.path.join(self.places.workspace, _TEMPORARY)
        branch = str(repository["branch"])
        if not self.has_repository():
            with self.identity.assumed():
                shutil.rmtree(aside, ignore_errors=True)
            # The door shows the base and the session's branch only, so a plain clone takes exactly these two.
            fetched = await self.git(
                "clone", "--quiet", "--no-checkout", "--no-tags", "--template=", "--branch", branch, "--",
                str(repository["url"]), aside,
                deadline=_CLONE_S,
            )  # fmt: skip
            if fetched.status != 0:
                raise CloneFailed(f"git clone: {fetched.complaint}")
            with self.identity.assumed():
                os.rename(os.path.join(aside, ".git"), os.path.join(self.places.workspace, ".git"))
                os.rmdir(aside)
        placed = await self.git("reset", "--quiet", "--hard", deadline=_CHECKOUT_S)
        if placed.status != 0:
            raise CloneFailed(f"git checkout: {placed.complaint}")
        self.mark_cloned()

    def mark_cloned(self) -> None:
        """From here on the workspace is the agent's, and is never cloned again."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.places.cloned, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
