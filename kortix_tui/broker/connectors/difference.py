"""What a changed document changes, for the person who accepts it."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import Catalogue, CatalogueDifference

_BY_RISK: Final = (Risk.READ, Risk.WRITE, Risk.DESTRUCTIVE)


def difference(old: Catalogue, new: Catalogue) -> CatalogueDifference:
    """What has changed from one catalogue to the other, by name of action, in alphabetical order."""
    before = {action.name: action for action in old.actions}
    after = {action.name: action for action in new.actions}
    changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    return CatalogueDifference(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(changed),
        riskier=tuple(name for name in changed if _BY_RISK.index(after[name].risk) > _BY_RISK.index(before[name].risk)),
        base_url=(old.base_url, new.base_url) if old.base_url != new.base_url else None,
    )
