"""Merging without a checkout: computed in the bare mirror, from commit ids only.

There is always a merge commit with both parents, also where the base could simply be moved forward: it carries the
trailers that tie what was merged to what was reviewed and to the audit chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import Conflict, GitFailed, NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.repository import names
from kortix_tui.repository.errors import MergeConflict
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.process import Git
from kortix_tui.repository.value_scan import ValueScan, refusal, search


class Identity(BaseModel):
    """Who a commit of ours names as author and committer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, pattern=r"^[^\x00-\x1f<>]+$")
    email: str = Field(min_length=1, pattern=r"^[^\x00-\x20<>]+$")


PLATFORM = Identity(name="Kortix", email="noreply@kortix.invalid")
"""Merges are made by the program for a person; the person is in the audit log that the trailer names."""


@dataclass(frozen=True, slots=True)
class MergePreview:
    """What merging `head` into `base` would do.

    Attributes:
        base: The commit that would be merged into.
        head: The commit that would be merged.
        merge_base: Where the two parted; `None` when they have nothing in common.
        up_to_date: The base has all of the head.
        fast_forward: The head has all of the base.
        conflicts: Paths that both sides changed, as git names them.
        tree: The result's tree when there is no conflict.
    """

    base: str
    head: str
    merge_base: str | None
    up_to_date: bool
    fast_forward: bool
    conflicts: tuple[str, ...] = ()
    tree: str | None = None

    @property
    def can_merge(self) -> bool:
        """Whether a merge would change something and succeed."""
        return self.tree is not None and not self.up_to_date


def _without_attributes(mirror: Mirror) -> Git:
    """An agent's `.gitattributes` could ask for a merge that never conflicts; some gits read it from HEAD."""
    return mirror.git.having(f"attr.tree={mirror.object_format.empty_tree}")


async def preview(mirror: Mirror, base: str, head: str) -> MergePreview:
    """Compute a merge. Leaves at most unreferenced objects behind.

    Raises:
        NotFound: One of the commits is not in the mirror.
    """
    for commit in (base, head):
        if await mirror.resolve(names.check_object_id(commit)) is None:
            raise NotFound(f"The commit {commit[:12]} is not in the mirror.", hint="Fetch the source, then try again.")
    found = await mirror.git.run("merge-base", base, head, ok=(0, 1))
    if found.status == 1:
        return MergePreview(base, head, None, up_to_date=False, fast_forward=False)
    merge_base = found.text
    tree, conflicts = await _merge_trees(mirror, base, head)
    return MergePreview(
        base,
        head,
        merge_base,
        up_to_date=merge_base == head,
        fast_forward=merge_base == base and base != head,
        conflicts=conflicts,
        tree=tree,
    )


async def _merge_trees(mirror: Mirror, ours: str, theirs: str) -> tuple[str | None, tuple[str, ...]]:
    merged = await _without_attributes(mirror).run(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1)
    )
    tree, *paths = (field.decode("utf-8", "surrogateescape") for field in merged.fields())
    if merged.status == 1:
        return None, tuple(dict.fromkeys(path for path in paths if path))
    return tree, ()


async def merge_commit(
    mirror: Mirror,
    base: str,
    head: str,
    *,
    message: str,
    trailers: Mapping[str, str] | None = None,
    identity: Identity = PLATFORM,
    at: datetime | None = None,
) -> str:
    """Make the merge commit of two commits, without moving any ref. Same arguments, same commit.

    Args:
        mirror: Where both commits are.
        base: First parent.
        head: Second parent: exactly the reviewed commit.
        message: Subject and, after an empty line, more. Shown text; made safe here.
        trailers: The last paragraph, which no text in `message` can imitate.
        identity: Author and committer.
        at: The commit's time; now when absent.

    Raises:
        MergeConflict: With the paths.
        Refused: Nothing to merge, or nothing in common.
    """
    found = await preview(mirror, base, head)
    if found.merge_base is None:
        raise Refused("The two branches have no commit in common.", hint="Start the work from the base branch.")
    if found.up_to_date:
        raise Refused("The base branch has all of these commits already.")
    if found.tree is None:
        shown = ", ".join(visible_line(path) for path in found.conflicts[:10])
        raise MergeConflict(
            f"The two sides conflict in: {shown}.",
            paths=found.conflicts,
            hint="Merge the base branch into the session's branch, resolve there, then review again.",
        )
    return await commit_tree(
        mirror, found.tree, (base, head), message=_with_trailers(message, trailers or {}), identity=identity, at=at
    )


def _with_trailers(message: str, trailers: Mapping[str, str]) -> str:
    lines = [visible_line(line).rstrip() for line in message.strip().split("\n")]
    text = "\n".join(lines)
    last = "\n".join(f"{key}: {visible_line(value)}" for key, value in trailers.items())
    return f"{text}\n\n{last}\n" if last else f"{text}\n"


async def commit_tree(
    mirror: Mirror,
    tree: str,
    parents: tuple[str, ...],
    *,
    message: str,
    identity: Identity = PLATFORM,
    at: datetime | None = None,
) -> str:
    """Make a commit object from a tree."""
    moment = (at or datetime.now(UTC)).astimezone(UTC)
    people = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (
            ("NAME", identity.name),
            ("EMAIL", identity.email),
            ("DATE", f"@{int(moment.timestamp())} +0000"),
        )
    }
    flags = [flag for parent in parents for flag in ("-p", names.check_object_id(parent))]
    made = await mirror.git.having(environment=people).run(
        "commit-tree", names.check_object_id(tree), *flags, "-F", "-", stdin=message.encode("utf-8", "replace")
    )
    return made.text


async def advance_base(mirror: Mirror, branch: str, new: str, old: str) -> None:
    """Move the mirror's base after the source took a merge. Repeating it changes nothing.

    Raises:
        Conflict: The base is neither at `old` nor at or after `new`.
    """
    ref = names.branch_ref(branch)
    # The source has `new` now, so what we know of the source moves with the base.
    moves = (
        f"start\nupdate {ref} {names.check_object_id(new)} {names.check_object_id(old)}\n"
        f"update {names.source_ref(branch)} {new}\ncommit\n"
    )
    try:
        await mirror.git.run("update-ref", "--stdin", stdin=moves.encode("utf-8", "surrogateescape"))
    except GitFailed as error:
        current = await mirror.resolve(ref)
        if current is None or not await mirror.is_ancestor(new, current):
            raise Conflict(
                f"The base branch {visible_line(branch)} moved in the meantime.", hint="Look again, then merge."
            ) from error


async def join_rescue(
    mirror: Mirror, session_id: str, n: int, *, identity: Identity = PLATFORM, scan: ValueScan | None = None
) -> str:
    """Bring rescued work onto the session's branch: a merge commit, or the rescued commit when it is simply ahead.

    Args:
        mirror: Where both are.
        session_id: Whose branch.
        n: Which rescue.
        identity: Of a merge commit.
        scan: The values that no branch may hold; rescued work may.

    Returns:
        The new head, which is kept.

    Raises:
        NotFound: There is no such rescue, or no branch.
        MergeConflict: With the paths.
        Refused: The branch has that work already, or the work has the value of a secret.
        Conflict: The branch moved in the meantime.
    """
    rescued = next((entry.commit for entry in await mirror.rescues(session_id) if entry.n == n), None)
    head = await mirror.head(session_id)
    if rescued is None or head is None:
        raise NotFound(f"Session {session_id} has no rescued work {n}.", hint=f"See: kortix sessions show {session_id}")
    if await mirror.is_ancestor(rescued, head):
        raise Refused("The session's branch has that work already.")
    if await mirror.is_ancestor(head, rescued):
        new = rescued
    else:
        message = f"Join rescued work {n} of session {session_id}"
        new = await merge_commit(mirror, head, rescued, message=message, identity=identity)
    await _check_values(mirror, session_id, n, new, scan)
    await mirror.keep_head(session_id, head)
    try:
        await mirror.git.run("update-ref", names.session_ref(session_id), new, head)
    except GitFailed as error:
        raise Conflict(f"The branch {session_id} moved just now.", hint="Try again.") from error
    await mirror.keep_head(session_id, new)
    return new


async def _check_values(mirror: Mirror, session_id: str, n: int, new: str, scan: ValueScan | None) -> None:
    if scan is None:
        return
    if (barred := scan.barred()) is not None:
        raise Refused(f"The rescued work cannot be joined: {barred}.", hint="It stays where it is; try again then.")
    finder = scan.finder()
    if finder is None:
        return
    known = await mirror.refs(names.session_ref(session_id), names.heads_prefix(session_id), names.SOURCE)
    found = await search(mirror.git, finder, tips=[new], known=known.values())
    if found:
        raise Refused(
            f"The rescued work {n} {refusal(found)}.",
            hint="It stays where it is. Have the agent commit the work again without the value, and rotate the secret.",
        )
