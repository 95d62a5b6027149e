"""What a person is told after a change: also what the change cannot take back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kortix_tui.base.words import Exposure, SessionStatus
from kortix_tui.runtime.reach import Grants
from kortix_tui.runtime.secret_views import HeldBy, SecretView
from kortix_tui.runtime.secret_words import change_says

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def secret(exposure: Exposure, *holders: HeldBy) -> SecretView:
    return SecretView(
        id="sec_1", project_id="prj_1", owner="project", identifier="API_KEY", name="API_KEY", exposure=exposure,
        gateway=False, hosts=(), version=2, created_at=NOW, rotated_at=NOW, created_by="ada (cli)", used_at=NOW,
        plain_at=None, project="shop", agents=(), held_by=holders, plain=bool(holders),
        stale=sum(one.stale for one in holders),
    )  # fmt: skip


def holder(number: int, *, stale: bool = False) -> HeldBy:
    return HeldBy(
        session_id=f"k{number}", title="Work", status=SessionStatus.RUNNING, version=1 if stale else 2, at=NOW,
        stale=stale,
    )  # fmt: skip


@pytest.mark.parametrize("exposure", [Exposure.CONNECTOR, Exposure.NONE, Exposure.EGRESS])
def test_a_tighter_exposure_says_who_has_the_value_already(exposure: Exposure) -> None:
    said = "\n".join(change_says(secret(exposure, holder(1), holder(2, stale=True)), Grants({})))
    assert "2 sandboxes had it before and can still read it." in said
    assert "kortix secrets rotate API_KEY --project shop" in said
    assert "still read it" not in "\n".join(change_says(secret(exposure), Grants({})))


def test_an_older_version_in_a_sandbox_is_told() -> None:
    said = "\n".join(change_says(secret(Exposure.ENVIRONMENT, holder(1), holder(2, stale=True)), Grants({})))
    assert "An older value stays in 1 running sandbox until the next prompt there." in said
    assert "An older value" not in "\n".join(change_says(secret(Exposure.ENVIRONMENT, holder(1)), Grants({})))
