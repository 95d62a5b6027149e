"""The command itself: starting, help, errors, exit statuses."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from kortix_tui import __version__
from kortix_tui.base.paths import Home
from kortix_tui.cli.main import NOUNS, overview, run
from kortix_tui.cli.parsing import Parser

ROOT = Path(__file__).resolve().parents[2]


def kortix(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", *arguments], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def loaded(arguments: Sequence[str]) -> set[str]:
    """Modules that a command has loaded when it ends."""
    code = (
        "import sys; from kortix_tui.cli.main import run; status = run(sys.argv[1:])\n"
        "sys.stderr.write('\\n'.join(sys.modules)); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split("\n"))


def test_the_version_costs_no_import() -> None:
    modules = loaded(["--version"])
    assert not modules & {"argparse", "pydantic", "sqlite3", "json", "asyncio", "typing"}
    assert kortix("--version").stdout == f"kortix {__version__}\n"


def test_a_plain_list_of_sessions_loads_no_models(home: Home) -> None:
    assert kortix("sessions", "ls").returncode == 0  # the first read is recorded, which takes the long way
    assert not loaded(["sessions", "ls"]) & {"pydantic", "asyncio", "docker", "git", "textual", "httpx", "yaml"}


def test_lists_never_load_an_sdk_or_the_console(home: Home) -> None:
    for arguments in (
        ["projects", "ls"], ["cr", "ls"], ["audit", "ls"], ["host"], ["review", "ls"], ["secrets", "ls"],
        ["vault", "status"],
    ):  # fmt: skip
        assert not loaded(arguments) & {"docker", "git", "textual", "keyring", "httpx"}, arguments


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in {id(each): each for each in action.choices.values()}.values():
                yield from parsers(child)


@pytest.mark.parametrize("noun", list(NOUNS))
def test_every_command_has_help_and_every_verb_examples(noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    parser = Parser(prog=f"kortix {noun}")
    getattr(import_module(f"kortix_tui.cli.{NOUNS[noun][0]}"), f"add_{noun}")(parser)
    for each in parsers(parser):
        text = each.format_help()
        assert each.prog in text
        is_group = any(isinstance(action, argparse._SubParsersAction) for action in each._actions)
        assert "examples:\n  kortix " in text or "\n  git diff" in text, each.prog
        assert max(map(len, text.split("examples:")[0].splitlines())) <= 100
        assert not is_group or ("verbs:\n  " in text and "VERB\n" not in text), each.prog


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == overview()
    assert all(f"  {noun} " in overview() for noun in NOUNS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sesions", "ls"], "Did you mean `kortix sessions`?"),
        (["\x1b]0;x\x07"], "␛]0;x␇"),
        (["sessions"], "needs a verb: new, chat, ls, show"),
        (["sessions", "fly"], "See `kortix sessions --help`."),
        (["sessions", "shw", "kab3"], "Did you mean `kortix sessions show`?"),
        (["sessions", "queue", "\x1b[2J"], "`kortix sessions queue` has no verb «␛[2J»."),
        (["sessions", "new"], "-p/--prompt --prompt-file is required"),
        (["sessions", "new", "-p", "x", "--prompt-file", "y"], "not allowed with"),
        (["sessions", "new", "-p", "x", "--timeout", "soon"], "is no duration"),
        (["cr", "show", "three"], "is no change request"),
        (["demo", "--merge"], "goes with --no-console"),
        ([], "The console needs a terminal."),
    ],
)
def test_wrong_calls_end_with_2_and_say_what_to_do(
    home: Home, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kortix: ")
    assert words in captured.err
    assert "\x1b" not in captured.err


def test_help_after_the_noun_and_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["sessions", "--help"], ["help", "sessions"]):
        with pytest.raises(SystemExit) as left:
            run(arguments)
        assert left.value.code == 0
        assert "usage: kortix sessions" in capsys.readouterr().out


def test_a_long_verb_and_its_aliases_do_not_break_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["cr", "--help"])
    assert "\n  preview  what a merge would do now" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(["cr", "preview", "--help"])
    assert "Also called `merge-preview`." in capsys.readouterr().out


def test_an_unexpected_fault_is_short_and_logged_without_values(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: object) -> None:
        secret = "a-local-value"
        raise RuntimeError("boom \x1b[2J") if secret else None

    monkeypatch.setattr("kortix_tui.runtime.projects.Projects.list", fail)
    assert run(["projects", "ls"]) == 1
    error = capsys.readouterr().err
    log = home.path / "faults.log"
    assert error == f"kortix: it failed unexpectedly (RuntimeError).\n  Details: {log}\n"
    text = log.read_text()
    assert "RuntimeError" in text and "test_cli_main.py" in text
    assert "boom" not in text, "a message may quote a value"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_home_of_others_is_refused_clearly(home: Home) -> None:
    home.path.chmod(0o755)
    done = kortix("sessions", "ls")
    assert done.returncode == 1
    assert "can be entered by others" in done.stderr and "chmod 700" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_made_in_the_home_is_private_and_what_is_the_operators_is_as_they_have_it(
    short_folder: Path, home: Home
) -> None:
    before = os.umask(0o022)
    try:
        shop = short_folder / "shop"
        assert kortix("init", str(shop)).returncode == 0
        assert kortix("projects", "add", str(shop)).returncode == 0
    finally:
        os.umask(before)
    made = {path.name: path.stat().st_mode & 0o077 for path in home.path.iterdir()}
    assert made.keys() >= {"state.db", "audit.key", "host.log"}
    assert not any(made.values()), made
    assert (shop / "agents").stat().st_mode & 0o777 == 0o755
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in shop.rglob("*") if ".git" not in path.parts)


def test_a_reader_that_leaves_is_no_error(home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kortix_tui.cli.main", "schema"], stdout=writer, stderr=subprocess.PIPE,
            timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_fault_and_nothing_gets_its_number(home: Home, closed: str) -> None:
    """What is printed would otherwise be written into whatever file is opened next: the store's, for example."""
    assert kortix("sessions", "ls").returncode == 0
    before = home.database.read_bytes()[:100]
    script = f'exec "$0" -P -m kortix_tui.cli.main vault init --passphrase {closed}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "2>&-" in closed or done.stderr.startswith("kortix: Nobody can be asked")
    assert not (home.path / "faults.log").exists()
    assert home.database.read_bytes()[:100] == before


def test_words_that_are_no_text_are_refused_where_they_stand(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["secrets", "show", "\udcff"],
        ["secrets", "set", "API_KEY=-", "--identifier", "\udcff"],
        ["vault", "unlock", "--keyfile", "/tmp/\udcff"],
        ["vault", "export", "--recipient", "\udcff"],
        ["sessions", "ls", "--filter", "\udcff"],
        ["review", "act", "\udcff", "merge"],
    ):
        assert run(arguments) == 2
        assert "is not text" in capsys.readouterr().err


def test_locate_says_where_things_are(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["locate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["home"] == str(home.path)


def test_the_module_of_the_current_folder_is_not_imported(home: Home, tmp_path: Path) -> None:
    """A checkout that an agent wrote to must not become part of us (I12)."""
    (tmp_path / "argparse.py").write_text("raise SystemExit(99)\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "locate"], cwd=tmp_path, capture_output=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0
