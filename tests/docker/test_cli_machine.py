"""`setup`, `doctor` and `sandboxes` where everything is there already."""

from __future__ import annotations

import json

import pytest
from desk import Desk

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run

pytestmark = pytest.mark.docker


def test_setup_says_that_nothing_is_missing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["setup", "--yes"]) == 0
    capsys.readouterr()
    assert run(["setup"]) == 0  # nobody needs to be asked
    captured = capsys.readouterr()
    assert captured.out.startswith("Ready: nothing was missing.\nEngine ")
    assert captured.err == ""


def test_doctor_has_one_row_a_check(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    assert status == int(any(check["level"] == "fail" for check in checks))
    assert {"engine", "image", "git", "home", "isolation.network"} <= {check["id"] for check in checks}
    assert all(check["fix"] for check in checks if check["level"] != "ok")
    run(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok    ", "warn  ", "fail  ", "      ")) for line in lines)


def test_templates_and_the_provider_are_listed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandboxes", "ls", "--json"]) == 0
    (template,) = json.loads(capsys.readouterr().out)
    assert (template["slug"], template["built"]) == ("default", True)
    assert run(["sandboxes", "build"]) == 0
    assert capsys.readouterr().out.strip() == template["image"]
    assert run(["sandboxes", "build", "nope"]) == 1
    assert "default" in capsys.readouterr().err
    assert run(["sandboxes", "provider", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["providers"][0] == "docker" and found["engine"]["isolation"]
