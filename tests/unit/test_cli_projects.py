"""`kortix projects`, `init`, `validate` and `schema` on real repositories."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from at_terminal import AtTerminal
from desk import git, make_repository
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run


def test_add_list_show_and_forget(home: Home, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["projects", "add", str(repository), "--slug", "shop", "--json"]) == 0
    project = json.loads(capsys.readouterr().out)
    assert (project["slug"], project["kind"], project["base_branch"]) == ("shop", "checkout", "main")
    assert run(["projects", "add", str(repository)]) == 0  # known already: the same project
    capsys.readouterr()
    assert run(["projects", "ls", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == [project["id"]]
    assert run(["projects", "ls", "--filter", "nothing"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["projects", "show"]) == 0
    page = capsys.readouterr().out
    assert str(repository) in page and "main at " in page and "no tracked file is changed, 0 untracked files" in page
    assert "{" not in page and "valid" in page
    assert run(["projects", "rm", "shop"]) == 1
    assert "--yes" in capsys.readouterr().err
    with AtTerminal("projects", "rm", "shop") as terminal:
        terminal.see("[y/N]")
        terminal.type("n\n")
        terminal.see("Nothing was changed.")
        assert terminal.end() == 1
    assert run(["projects", "rm", "shop", "--yes"]) == 0
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("fault", ["missing", "not committed", "invalid", "bare"])
def test_a_project_whose_sessions_could_not_start_is_added_with_the_way_out(
    home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    place = short_folder / "my shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "file").write_text("x\n")
    if fault == "invalid":
        (place / "kortix.yaml").write_text("kortix_version: 2\nagents:\n  a: {colour: 1}\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "First")
    if fault == "not committed":
        (place / "kortix.yaml").write_text("kortix_version: 2\n")
    if fault == "bare":
        git(short_folder, "clone", "-q", "--bare", str(place), "bare.git")
        place = short_folder / "bare.git"
    assert run(["projects", "add", str(place), "--slug", "shop"]) == 0
    out, error = capsys.readouterr()
    assert out == f"shop: {place}, base branch main\n"
    assert "kortix: Its sessions cannot start yet. On main, " in error
    assert "Start work" not in error
    way = {
        "missing": f"`kortix init '{place}'` writes one",
        "not committed": f"`kortix validate '{place}'` names every fault; then commit it on main.",
        "invalid": f"`kortix validate '{place}'` names every fault; then commit it on main.",
        "bare": "In a checkout, `kortix init .` writes one",
    }[fault]
    assert way in error
    assert ("more fault" in error) == (fault == "invalid")
    assert run(["projects", "show", "shop"]) == 0
    assert ("there is no kortix.yaml" in capsys.readouterr().out) == (fault != "invalid")


def test_starting_in_a_project_that_is_known_says_what_comes_next(
    home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = short_folder / "shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "First")
    assert run(["projects", "add", str(place)]) == 0
    capsys.readouterr()
    assert run(["init", str(place)]) == 0
    error = capsys.readouterr().err
    assert 'Commit these files, then: kortix sessions new --project shop -p "…"' in error
    assert "projects add" not in error


def test_a_repository_that_moved_is_said_and_can_be_found_again(
    home: Home, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["projects", "add", str(repository), "--slug", "shop"]) == 0
    moved = repository.rename(repository.with_name("moved"))
    capsys.readouterr()
    assert run(["projects", "show", "shop"]) == 0
    assert "problem" in capsys.readouterr().out
    assert run(["projects", "move", "shop", str(moved)]) == 0
    assert run(["projects", "show", "shop"]) == 0
    assert "problem" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["none", "file", "empty"])
def test_what_is_no_repository_is_refused(
    home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    place = short_folder / "x\x1b[2J"
    if kind == "file":
        place.write_text("")
    elif kind == "empty":
        place.mkdir()
        git(place, "init", "-q")
    assert run(["projects", "add", str(place)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("kortix: ") and "\x1b" not in error and "Traceback" not in error


def test_which_project_is_meant_is_asked_with_the_choices(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    seeded = Seeded(home)
    seeded.lead()
    assert run(["sessions", "new", "-p", "x"]) == 1
    assert "kortix projects add PATH" in capsys.readouterr().err
    here = make_repository(short_folder / "here")
    seeded.project("one", str(here))
    seeded.project("two")
    assert run(["sessions", "new", "-p", "x"]) == 2
    assert "Which project? one, two." in capsys.readouterr().err
    monkeypatch.chdir(here)
    assert run(["sessions", "new", "-p", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["project"] == "one"
    monkeypatch.setenv("KORTIX_PROJECT_ID", "two")
    assert run(["sessions", "new", "-p", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["project"] == "two"
    seeded.close()


def test_a_started_project_is_valid(home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = short_folder / "shop"
    assert run(["init", str(folder), "--name", "The shop"]) == 0
    captured = capsys.readouterr()
    assert f"{folder}/kortix.yaml\n" in captured.out and "Committed on main" in captured.err
    for path in (folder, folder / "kortix.yaml"):
        assert run(["validate", str(path)]) == 0
        assert capsys.readouterr().out == "Valid.\n"
    assert run(["init", str(folder)]) == 1
    assert "--force" in capsys.readouterr().err


def test_every_fault_is_named_with_line_path_and_hint(short_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (short_folder / "kortix.yaml").write_text("kortix_version: 2\nagents:\n  a: {colour: 1}\n")
    assert run(["validate", str(short_folder)]) == 1
    out = capsys.readouterr().out
    assert "kortix.yaml:3:3: error: agents.a: there is no file" in out
    assert "kortix.yaml:3:7: error: agents.a.colour: unknown key" in out
    assert run(["validate", str(short_folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert {"file", "line", "column", "path", "code", "message", "hint", "level"} == set(report["faults"][0])
    assert run(["validate", str(short_folder / "nowhere")]) == 1


def test_the_schema_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["schema"], ["schema", "--agent"]):
        assert run(arguments) == 0
        jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_what_was_committed_after_the_last_fetch_is_not_called_missing(
    home: Home, short_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = short_folder / "shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "First")
    assert run(["projects", "add", str(place)]) == 0
    assert "there is no kortix.yaml" in capsys.readouterr().err
    assert run(["init", str(place)]) == 0
    git(place, "add", "-A")
    git(place, "commit", "-qm", "Add kortix.yaml")
    capsys.readouterr()
    assert run(["projects", "add", str(place)]) == 0
    assert "Start work" in capsys.readouterr().err
    assert run(["projects", "show", "shop"]) == 0
    assert "not known: it is read again" in capsys.readouterr().out
