"""The refs of a mirror, object ids and branch names: what is spelled how, and what is refused."""

from __future__ import annotations

import re
from enum import StrEnum

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.ids import is_session_id
from kortix_tui.base.text import visible_line

SOURCE = "refs/kortix/source/"
"""The source's branches, as last fetched."""
INCOMING = "refs/kortix/incoming"
"""In the operator's repository: a merge on its way into a checked-out branch."""

_OBJECT_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_BAD_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)|\.(?:/|\Z)")


class ObjectFormat(StrEnum):
    """How a repository names its objects."""

    SHA1 = "sha1"
    SHA256 = "sha256"

    @property
    def zero(self) -> str:
        """The id that stands for nothing."""
        return "0" * (40 if self is ObjectFormat.SHA1 else 64)

    @property
    def empty_tree(self) -> str:
        """The tree without entries, which every git knows."""
        if self is ObjectFormat.SHA1:
            return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
        return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"


def check_object_id(text: str) -> str:
    """Only full ids ever reach a command line.

    Raises:
        InvalidInput: It is anything else.
    """
    if _OBJECT_ID.match(text) is None:
        raise InvalidInput(f"{visible_line(text)[:80]!r} is not a full commit id.")
    return text


def check_branch(name: str) -> str:
    """The rules of `git check-ref-format` for a branch, so that a name is never an option or an expression.

    Raises:
        InvalidInput: Git would not take the name.
    """
    bad = (
        not name
        or len(name.encode("utf-8", "surrogateescape")) > 200
        or name[0] in "-/."
        or name[-1] == "/"
        or name in ("@", "HEAD")
        or _BAD_BRANCH.search(name) is not None
    )
    if bad:
        raise InvalidInput(f"{visible_line(name)[:80]!r} is not a branch name.")
    return name


def check_session(session_id: str) -> str:
    """A session id names a branch, so it must be one.

    Raises:
        InvalidInput: It is not a session id.
    """
    if not is_session_id(session_id):
        raise InvalidInput(f"{visible_line(session_id)[:80]!r} is not a session id.")
    return session_id


def branch_ref(name: str) -> str:
    """`refs/heads/<name>`."""
    return f"refs/heads/{check_branch(name)}"


def session_ref(session_id: str) -> str:
    """The session's own branch."""
    return f"refs/heads/{check_session(session_id)}"


def source_ref(branch: str) -> str:
    """A source branch as last fetched."""
    return SOURCE + check_branch(branch)


def heads_prefix(session_id: str) -> str:
    """Below it: every head of the session that was ever accepted."""
    return f"refs/kortix/heads/{check_session(session_id)}/"


def rescue_prefix(session_id: str) -> str:
    """Below it: work that was saved from the session's sandbox."""
    return f"refs/kortix/rescue/{check_session(session_id)}/"
