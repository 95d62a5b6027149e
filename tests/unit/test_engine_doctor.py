"""How doctor judges what it sees."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import DockerSettings, Settings
from kortix_tui.base.words import Level
from kortix_tui.runtime.doctor import disk_check, examine, exit_status, file_system, git_check, grouped
from kortix_tui.sandbox.docker.probe import Finding


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("git version 2.30.2", Level.FAIL),
        ("git version 2.37.9", Level.FAIL),
        ("git version 2.38.0", Level.WARN),
        ("git version 2.45.3", Level.WARN),
        ("git version 2.45.4", Level.OK),
        ("git version 2.51.0.rc1", Level.OK),
        ("git version 2.50 (Apple Git-155)", Level.OK),
        ("command not found \x1b[31m", Level.FAIL),
    ],
)
def test_git_versions(text: str, level: Level) -> None:
    check = git_check(text)
    assert check.level is level
    assert "\x1b" not in check.message
    assert (check.fix is None) == (level is Level.OK)


def test_a_probe_that_does_not_report_has_failed() -> None:
    rows = {row.id: row for row in grouped([Finding(name="network", held=True, seen="loopback only")])}
    assert rows["isolation.network"].level is Level.OK
    assert rows["isolation.privileges"].level is Level.FAIL
    assert "the probe seccomp did not report" in rows["isolation.privileges"].message
    assert rows["isolation.limits"].level is Level.WARN
    assert exit_status(rows.values()) == 1


def test_one_broken_property_names_what_was_seen() -> None:
    findings = [
        Finding(name="system_calls", held=False, seen="io_uring_setup: allowed"),
        Finding(name="socket_families", held=True, seen="-"),
    ]
    row = next(row for row in grouped(findings) if row.id == "isolation.kernel")
    assert row.level is Level.FAIL and row.message == "these system calls are not refused (io_uring_setup: allowed)"
    assert row.fix and row.evidence == "system_calls: io_uring_setup: allowed; socket_families: -"


def test_space_is_looked_for_where_the_home_will_be(tmp_path: Path) -> None:
    check = disk_check("disk", "Disk", tmp_path / "not/yet/there")
    assert "free" in check.message


def test_the_file_system_of_a_path_is_known() -> None:
    assert file_system(Path("/proc/self")) == "proc"


async def test_without_an_engine_the_rest_is_checked_all_the_same(home: Home, short_folder: Path) -> None:
    settings = Settings(docker=DockerSettings(endpoint=f"unix://{short_folder}/none.sock"))
    rows = {row.id: row for row in await examine(home, settings)}
    assert rows["engine"].level is Level.FAIL and rows["engine"].fix
    assert rows["isolation"].level is Level.WARN
    assert rows["home"].level is Level.OK and rows["lock"].level is Level.OK
    assert {"git", "disk"} <= rows.keys()


async def test_an_open_home_fails_and_the_holder_of_the_lock_is_named(home: Home, short_folder: Path) -> None:
    settings = Settings(docker=DockerSettings(endpoint=f"unix://{short_folder}/none.sock"))
    home.host_lock.write_text("4711 console epoch 3\n")
    home.path.chmod(0o755)
    with home.host_lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = {row.id: row for row in await examine(home, settings)}
    assert rows["home"].level is Level.FAIL and "chmod 700" in (rows["home"].fix or "")
    assert rows["lock"].message == "process 4711 (console) is the host"


async def test_looking_makes_no_home(short_folder: Path) -> None:
    settings = Settings(docker=DockerSettings(endpoint=f"unix://{short_folder}/none.sock"))
    await examine(Home(short_folder / "new"), settings)
    assert os.listdir(short_folder) == []
