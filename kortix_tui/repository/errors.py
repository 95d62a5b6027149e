"""States of a repository that a person has to put right, and git's own words made readable."""

from __future__ import annotations

import re

from kortix_tui.base.errors import GitFailed, NotFound, Refused
from kortix_tui.base.text import shorten, visible_line

_CREDENTIALS = re.compile(r"://[^/@\s]+@")
_HINTS = (
    (
        re.compile(
            r"Authentication failed|could not read (Username|Password)|Permission denied \(|terminal prompts disabled"
            r"|HTTP Basic: Access denied|returned error: 40[13]",
        ),
        "The source asks for credentials. Set up git's credential helper or your ssh agent, so that "
        "`git ls-remote` works without a question.",
    ),
    (
        re.compile(r"Host key verification failed"),
        "ssh does not know this host yet. Connect once with ssh and check its key.",
    ),
    (
        re.compile(
            r"Could not resolve host|Connection (refused|timed out|reset)|No route to host|Network is unreachable"
            r"|Failed to connect|Operation timed out|unable to look up",
        ),
        "The source cannot be reached now. Check the network and the address, then try again.",
    ),
    (
        re.compile(r"dubious ownership"),
        "The folder belongs to another user. If you trust it: git config --global --add safe.directory <folder>",
    ),
    (
        re.compile(r"not a git repository|does not appear to be a git repository|[Rr]epository not found"),
        "Check the path or address: there must be a git repository.",
    ),
    (
        re.compile(r"index\.lock|Unable to create .*\.lock"),
        "Another git command is running there, or one was killed. If none runs, remove the named lock file.",
    ),
    (
        re.compile(r"fsck error|error in (object|tree|commit|blob)"),
        "The repository holds objects that git's own check refuses. Look at them with git fsck in the source.",
    ),
    (re.compile(r"No space left on device"), "Free some disk space, then try again."),
)


class EmptyRepository(Refused):
    """The source has no commit yet."""

    code = "empty_repository"


class DetachedHead(Refused):
    """The source has no current branch, so the base branch cannot be guessed."""

    code = "detached_head"


class MissingBranch(NotFound):
    """The wanted base branch is not in the source."""

    code = "missing_branch"


class SourceMissing(NotFound):
    """The project's folder is not where it was."""

    code = "source_missing"


class DeliveryRefused(Refused):
    """The source cannot take a merge in its present state; nothing was changed."""

    code = "delivery_refused"


class MergeConflict(Refused):
    """Two sides changed the same places.

    Args:
        message: What was tried.
        paths: The files in conflict, as git names them.
        hint: The way out.
    """

    code = "merge_conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


def clean_stderr(raw: bytes, *, lines: int = 6) -> str:
    """Git's last words: safe to show, without credentials in addresses, and short."""
    text = _CREDENTIALS.sub("://***@", raw.decode("utf-8", "replace"))
    kept = [visible_line(line.strip()) for line in text.replace("\r", "\n").split("\n") if line.strip()]
    return shorten("; ".join(kept[-lines:]), 1000)


def git_failed(what: str, status: int, stderr: bytes) -> GitFailed:
    """The error for a command that ended badly, with the hint that fits git's words."""
    words = clean_stderr(stderr)
    hint = next((hint for pattern, hint in _HINTS if pattern.search(words)), None)
    return GitFailed(f"git {what} failed (status {status}): {words or 'it said nothing'}.", hint=hint)
