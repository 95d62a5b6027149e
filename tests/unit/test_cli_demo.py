"""The demo's folder; its whole way is in the tests with an engine."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from pathlib import Path

import pytest
from desk import git

from kortix_tui.base.errors import NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import settings_file
from kortix_tui.cli.main import run
from kortix_tui.cli.program import program
from kortix_tui.runtime.demo import demos_folder, found_demos, make_demo, remove_demo
from kortix_tui.runtime.facade import Runtime


def test_a_demo_is_made_beside_the_home_and_removed_whole(home: Home) -> None:
    first, second = make_demo(), make_demo()
    assert first.folder.parent == demos_folder() == home.path.parent / "kortix-demo"
    assert [demo.folder for demo in found_demos()] == [first.folder, second.folder]
    assert first.folder.stat().st_mode & 0o777 == 0o700
    assert git(first.repository, "log", "--format=%s") == "Import the sample project acme-api"
    for demo in found_demos():
        remove_demo(demo)
    assert found_demos() == []


def test_a_background_host_is_waited_for_and_named_when_it_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_file()
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"docker: {{endpoint: 'unix://{home.path}/no.sock'}}\n")
    demo = make_demo()
    with Runtime.open(kind="serve", home=demo.home) as other:
        other.start_hosting()
        assert other.host().here
        with monkeypatch.context() as patch:
            patch.setattr("kortix_tui.runtime.demo.LEAVE_S", 0.0)
            with pytest.raises(Refused, match=rf"Process {os.getpid()} \(serve\)") as refused:
                remove_demo(demo)
        assert f"kill {os.getpid()}" in (refused.value.hint or "")
        leaving = threading.Timer(0.3, other.stop_hosting)
        leaving.start()
        remove_demo(demo)
        leaving.join()
    assert found_demos() == []


def test_nothing_but_a_demo_is_ever_removed(home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = short_folder / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    with pytest.raises(Refused, match="not empty"):
        make_demo(precious)
    with pytest.raises(NotFound):
        found_demos(precious)
    assert run(["demo", "--clean", "--home", str(precious)]) == 1
    assert "left as it is" in capsys.readouterr().err
    assert (precious / "file").exists()
    assert run(["demo", "--clean"]) == 0
    assert capsys.readouterr().err.startswith(f"kortix: There is no demo in {demos_folder()}.")


def test_a_folder_that_cannot_be_made_is_refused(home: Home, short_folder: Path) -> None:
    (short_folder / "file").write_text("")
    with pytest.raises(Refused, match="cannot be made"):
        make_demo(short_folder / "file" / "below")


def test_commands_are_printed_as_the_program_was_started(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = short_folder / "a b" / "bin", short_folder / "other"
    for folder in (ours, other):
        folder.mkdir(parents=True)
        (folder / "kortix").write_text("#!/bin/sh\n")
        (folder / "kortix").chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(ours / "kortix")])
    for path, words in ((other, [str(ours / "kortix")]), (ours, ["kortix"]), (short_folder, [str(ours / "kortix")])):
        monkeypatch.setenv("PATH", str(path))
        assert shlex.split(program()) == words
    monkeypatch.chdir(short_folder)
    monkeypatch.setattr(sys, "argv", ["a b/bin/kortix"])
    assert shlex.split(program()) == ["a b/bin/kortix"]
    monkeypatch.setattr(sys, "argv", [str(other / "main.py")])
    assert shlex.split(program()) == [sys.executable, "-P", "-m", "kortix_tui.cli.main"]
