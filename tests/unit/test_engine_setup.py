"""What set-up refuses before it touches the machine, and groups."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.base.settings import DockerSettings, Settings
from kortix_tui.runtime.membership import is_member, lacks_new_group, user_name, with_group
from kortix_tui.runtime.setup import set_up


async def never(question: str) -> bool:
    raise AssertionError(f"asked: {question}")


@pytest.mark.parametrize("endpoint", ["unix://{}/none.sock", "ssh://me@build.example", "tcp://build.example:2376"])
async def test_an_engine_that_a_person_chose_is_not_replaced_by_another(endpoint: str, short_folder: Path) -> None:
    settings = Settings(docker=DockerSettings(endpoint=endpoint.format(short_folder)))
    lines: list[str] = []
    with pytest.raises(EngineUnavailable, match="settings"):
        await set_up(settings, never, lines.append)
    assert lines == []


def test_membership_is_read_from_the_machine() -> None:
    me = pwd.getpwuid(os.geteuid())
    assert user_name() == me.pw_name
    assert is_member(me.pw_name, grp.getgrgid(me.pw_gid).gr_name)
    assert not is_member(me.pw_name, "no-such-group")
    assert not is_member("no-such-user", grp.getgrgid(me.pw_gid).gr_name)


def test_a_process_that_has_the_group_is_not_started_again() -> None:
    own = grp.getgrgid(os.getegid()).gr_name
    assert not lacks_new_group(own)
    assert with_group(["kortix", "setup"], own) is None
