"""What our merge commits say of the audit log, read back from a base branch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kortix_tui.repository import names
from kortix_tui.repository.mirror import Mirror

_ANCHOR: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class AuditAnchor:
    """The trailer `Audit: seq:hash` of one merge commit."""

    commit: str
    seq: int
    hash: str


async def anchors(mirror: Mirror, branch: str) -> list[AuditAnchor]:
    """The anchors in a base branch, newest first.

    Only merges on the branch's own line that name their second parent as the reviewed head count: an agent can write
    any words into the commits that are merged, not into the merge.
    """
    tip = await mirror.resolve(names.branch_ref(branch))
    if tip is None:
        return []
    log = await mirror.git.run(
        "log", "-z", "--first-parent", "--merges", "--no-color", "--no-show-signature", "--no-notes", "--no-mailmap",
        "--format=%H%n%P%n%(trailers:key=Reviewed-Head,valueonly,separator=%x2C)"
        "%n%(trailers:key=Audit,valueonly,separator=%x2C)",
        tip, "--",
    )  # fmt: skip
    found = []
    for entry in log.fields():
        commit, parents, reviewed, said = (entry.decode("utf-8", "replace").split("\n") + [""] * 3)[:4]
        match = _ANCHOR.fullmatch(said)
        if match is not None and parents.split()[1:] == [reviewed]:
            found.append(AuditAnchor(commit, int(match[1]), match[2]))
    return found
