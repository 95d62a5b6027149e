"""Commits that the program makes for the operator, without a checkout: files replaced on top of a known commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from kortix_tui.base.errors import Conflict, GitFailed, KortixError, NotFound
from kortix_tui.base.text import visible, visible_line
from kortix_tui.repository import names
from kortix_tui.repository.merge import Identity, commit_tree
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.process import Limits, operator

_LISTING = Limits(wall_s=30.0, cpu_s=20, output_bytes=64 << 20)
_ASK_S = 10.0


async def commit_files(
    mirror: Mirror, base: str, files: Mapping[str, bytes], *, message: str, identity: Identity, at: datetime
) -> str:
    """Make a commit on top of another one, in which some files have other bytes. No ref moves.

    Same arguments, same commit. Modes stay, and so does everything that is not named. Trees are rewritten level by
    level and no index is needed, so a process that dies leaves nothing but objects that nobody refers to.

    Args:
        mirror: Where the base is.
        base: The parent.
        files: Regular files of the base, and their new bytes.
        message: Subject and, after an empty line, more.
        identity: Author and committer.
        at: The commit's time.

    Raises:
        NotFound: The base has no such file.
    """
    found = await mirror.git.run("rev-parse", "--verify", "--end-of-options", f"{names.check_object_id(base)}^{{tree}}")
    tree = found.text
    for path, data in files.items():
        blob = (await mirror.git.run("hash-object", "-w", "--stdin", stdin=data)).text
        tree = await _replaced(mirror, tree, path.split("/"), blob, path)
    return await commit_tree(mirror, tree, (base,), message=f"{visible(message.strip())}\n", identity=identity, at=at)


async def _replaced(mirror: Mirror, tree: str, steps: list[str], blob: str, path: str) -> str:
    """The tree with another blob at a path."""
    step, *below = steps
    listed = await mirror.git.run("ls-tree", "-z", "--full-tree", names.check_object_id(tree), limits=_LISTING)
    entries, found = [], False
    for entry in listed.fields():
        facts, _, name = entry.partition(b"\t")
        mode, kind, object_id = facts.decode("ascii").split()
        if name == step.encode("utf-8", "surrogateescape"):
            if kind != ("tree" if below else "blob") or mode == "120000":
                break
            object_id = await _replaced(mirror, object_id, below, blob, path) if below else blob
            found = True
        entries.append(f"{mode} {kind} {object_id}\t".encode() + name)
    if not found:
        raise NotFound(f"The commit has no file {visible_line(path)}.", hint="Look at the base branch, then try again.")
    return (await mirror.git.run("mktree", "-z", stdin=b"".join(entry + b"\0" for entry in entries))).text


async def put_branch(mirror: Mirror, session_id: str, commit: str) -> int:
    """Have a session's branch stand at a commit that the program made, and keep that head. Safe to repeat.

    Returns:
        The number of the kept head.

    Raises:
        Conflict: The branch moved in this very moment.
    """
    head = await mirror.create_session_branch(session_id, commit)
    if head != commit:
        try:
            await mirror.git.run("update-ref", names.session_ref(session_id), names.check_object_id(commit), head)
        except GitFailed as error:
            raise Conflict(f"The branch {session_id} moved just now.", hint="Try again.") from error
    return await mirror.keep_head(session_id, commit)


async def operators_identity(source: str, user: str) -> Identity:
    """Whom a commit for the operator names: as their git says for this repository, else the operating-system user.

    Args:
        source: The project's repository; a folder's own configuration counts, a URL has none here.
        user: The operating-system user.
    """
    folder = Path(source)
    git = operator(folder if await asyncio.to_thread(folder.is_dir) else None, wall_s=_ASK_S)
    told = []
    for key in ("user.name", "user.email"):
        try:
            told.append(visible_line((await git.run("config", "--get", key, ok=(0, 1))).text).strip())
        except KortixError:  # a configuration that git cannot read names nobody
            told.append("")
    try:
        return Identity(name=told[0], email=told[1])
    except ValueError:
        return Identity(name=visible_line(user) or "operator", email="operator@kortix.invalid")
