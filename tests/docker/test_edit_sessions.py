"""A session that is only an edit of the manifest, beside a real engine."""

from __future__ import annotations

import pytest
from desk import Desk, git, wait_for

pytestmark = pytest.mark.docker


def test_it_can_be_removed_and_its_head_stays(desk: Desk) -> None:
    result = desk.runtime.edits.grant(desk.project, agent="script", name="STRIPE_API_KEY")
    assert result.session_id is not None
    desk.runtime.sessions.remove(result.session_id)
    wait_for(lambda: desk.runtime.sessions.find(result.session_id or "").removed_at is not None)
    heads = git(desk.home.mirror(desk.project.id), "for-each-ref", "--format=%(refname) %(objectname)")
    assert f"refs/heads/{result.session_id}" not in heads
    assert f"refs/kortix/heads/{result.session_id}/1 {result.head_commit}" in heads
    assert desk.runtime.changes.find(desk.project, 1).head_commit == result.head_commit
