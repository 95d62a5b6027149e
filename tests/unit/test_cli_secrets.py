"""`kortix secrets`, `env` and `review` on a real vault that a key file opens; the host is the command's own process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import git, wait_for
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.cli.opening import acting

ROOT = Path(__file__).resolve().parents[2]
VALUE = "sk_live_Qx7vT2mZ9pLw4RkB8nYd"
OTHER = "whsec_Jh3kP8sVq1XzW6tGf0Rb"
Stdin = Callable[[bytes], None]
MANIFEST = """\
kortix_version: 2
default_agent: script
agents:
  script:
    kortix_permissions: [project.gitops.push]
  reader: {}
"""


class Vaulted:
    """A project in a home whose vault opens by a key file."""

    def __init__(self, home: Home, repository: Path) -> None:
        self.home = home
        (repository / "kortix.yaml").write_text(MANIFEST)
        git(repository, "commit", "-qam", "Two agents")
        assert run(["projects", "add", str(repository), "--slug", "acme"]) == 0
        assert run(["vault", "init", "--keyfile", "--no-recovery"]) == 0

    def everything(self) -> bytes:
        """Every byte of the home and of the settings' folder, except the vault's own encrypted ones."""
        files = [path for path in self.home.path.parent.rglob("*") if path.is_file() and ".git" not in path.parts]
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture
def vaulted(home: Home, repository: Path, capfd: pytest.CaptureFixture[str]) -> Vaulted:
    made = Vaulted(home, repository)
    capfd.readouterr()
    return made


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Stdin:
    """What the next command finds on standard input, which is no terminal."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    give(b"")
    return give


def shown(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a command prints in all."""
    found = run(arguments)
    out, error = capfd.readouterr()
    assert found == status, out + error
    return out + error


def listed(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """The list that a command prints as JSON."""
    assert run([*arguments, "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capfd.readouterr().out)
    return found


def test_a_value_goes_in_and_never_comes_out(vaulted: Vaulted, stdin: Stdin, capfd: pytest.CaptureFixture[str]) -> None:
    stdin(VALUE.encode() + b"\n")
    said = shown(capfd, "secrets", "set", "STRIPE_KEY=-")
    assert "STRIPE_KEY of acme: stored, version 1." in said
    assert (
        "Exposure environment" in said
        and "No agent can read it yet" in said
        and "Tighter, kept on the host: kortix" in said
    )
    assert "history" not in said
    pages = "".join(
        shown(capfd, *arguments)
        for arguments in (
            ("secrets", "ls"), ("secrets", "ls", "--json"), ("secrets", "show", "stripe_key"),
            ("secrets", "show", "STRIPE_KEY", "--json"), ("env", "pull"), ("audit", "ls", "--json"),
            ("vault", "status"),
        )
    )  # fmt: skip
    assert "STRIPE_KEY" in pages and "not named" in pages and "No sandbox has its value." in pages
    assert VALUE not in said + pages
    assert VALUE.encode() not in vaulted.everything()
    with acting() as runtime:
        data = runtime.vault.export(passphrase=_secret("correct horse battery"))
    assert VALUE.encode() not in data


def _secret(text: str) -> object:
    from kortix_tui.runtime.secret_sources import Secret

    return Secret(text.encode())


def test_a_value_on_the_command_line_is_warned_of_once(vaulted: Vaulted, capfd: pytest.CaptureFixture[str]) -> None:
    said = shown(capfd, "secrets", "set", f"A_TOKEN={VALUE}", f"B_TOKEN={OTHER}", "--scope", "broker", "--only-me")
    assert said.count("stays in the shell's history") == 1
    assert said.count("Exposure connector") == 2 and "only for you" in said
    assert VALUE not in said and OTHER not in said
    rows = listed(capfd, "secrets", "ls", "--filter", "a_token")
    assert [(row["identifier"], row["exposure"]) for row in rows] == [("A_TOKEN", "connector")]
    assert rows[0]["owner"] != "project"


def test_every_change_of_a_secret(vaulted: Vaulted, stdin: Stdin, capfd: pytest.CaptureFixture[str]) -> None:
    stdin(VALUE.encode())
    (made,) = listed(capfd, "secrets", "set", "API_KEY=-", "--identifier", "stripe-live")
    assert made["created"] is True
    stdin(OTHER.encode())
    assert "version 2" in shown(capfd, "secrets", "rotate", "STRIPE-LIVE")
    assert "only for you" in shown(capfd, "secrets", "share", "stripe-live", "--only-me")
    assert "only for you" not in shown(capfd, "secrets", "share", "stripe-live", "--everyone")
    assert "delivered to no sandbox" in shown(
        capfd, "secrets", "delivery", "stripe-live", "egress", "--allow-host", "api.example.com"
    )
    assert "only the model gateway" in shown(capfd, "secrets", "expose", "stripe-live", "denied", "--gateway")
    (row,) = listed(capfd, "secrets", "ls")
    assert (row["name"], row["version"], row["exposure"], row["gateway"]) == ("API_KEY", 2, "none", True)
    said = shown(capfd, "secrets", "unset", "stripe-live", status=1)
    assert "--yes" in said
    assert "is forgotten" in shown(capfd, "secrets", "unset", "stripe-live", "--yes")
    assert "no secret stripe-live" in shown(capfd, "secrets", "show", "stripe-live", status=1)
    for word in ("x" * 100_000, "x\n\x1b[31m" * 1000):
        said = shown(capfd, "secrets", "show", word, status=1)
        assert len(said) < 300 and "\x1b" not in said and len(said.splitlines()) == 2
    assert VALUE.encode() not in vaulted.everything() and OTHER.encode() not in vaulted.everything()


MISTAKES = (
    ("set", "API_KEY", VALUE),
    ("set", f"lower={VALUE}"),
    ("set", "API_KEY", f"{VALUE}=="),
    ("set", f"API_KEY={VALUE}", "--scope", "nowhere"),
    ("set", f"API_KEY={VALUE}", "--only-me", f"B_KEY={OTHER}"),
    ("set", f"API_KEY={VALUE}", "--bogus"),
    ("set", f"API_KEY={VALUE}", f"--bogus={OTHER}"),
    ("set", f"PATH={VALUE}"),
    ("set", f"API_KEY={VALUE}", "--identifier", "no good"),
    ("set", f"API_KEY={VALUE}", f"API_KEY={OTHER}"),
    ("set", "API_KEY=aaaaaaaaaaaa"),
    ("set", "API_KEY="),
    ("set", "API_KEY"),
    (f"API_KEY={VALUE}",),
    ("rotate", "API_KEY", VALUE),
    ("provide", "req_0", VALUE),
    ("rotate", "NOT_THERE"),
)


def test_errors_never_repeat_a_value(vaulted: Vaulted, stdin: Stdin, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in MISTAKES:
        status = run(["secrets", *arguments])
        out, error = capfd.readouterr()
        assert status in (1, 2) and error.startswith("kortix: "), arguments
        assert "unexpectedly" not in error, arguments
        assert not any(value in out + error for value in (VALUE, OTHER, "aaaaaaaaaaaa")), arguments
    assert listed(capfd, "secrets", "ls") == []
    assert VALUE.encode() not in vaulted.everything()


def test_what_was_stored_before_a_failure_is_told(vaulted: Vaulted, capfd: pytest.CaptureFixture[str]) -> None:
    said = shown(capfd, "secrets", "set", f"GOOD_ONE={VALUE}", "BAD_ONE=tiny", status=1)
    assert "Stored before it failed: GOOD_ONE." in said
    assert "BAD_ONE: The value has fewer than 8 bytes" in said


def test_a_name_that_no_secret_may_have_is_refused_before_a_value_is_asked(
    vaulted: Vaulted, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be called `PATH`" in shown(capfd, "secrets", "set", "API_KEY=-", "PATH", status=1)


def test_a_fault_of_the_program_logs_no_value(
    vaulted: Vaulted, stdin: Stdin, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kortix_tui.runtime import secrets

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"It broke at {VALUE}.")

    monkeypatch.setattr(secrets, "change_says", broken)
    stdin(VALUE.encode())
    said = shown(capfd, "secrets", "set", "API_KEY=-", status=1)
    assert "it failed unexpectedly (RuntimeError)" in said
    log = (vaulted.home.path / "faults.log").read_text()
    assert "RuntimeError" in log and "in broken" in log
    assert VALUE not in said + log


def test_import_of_an_env_file(vaulted: Vaulted, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "prod.env"
    file.write_text(f"export DB_PASSWORD='{VALUE}'\nOPENAI_API_KEY={OTHER}\nPATH=/bin\nTINY=abc\nEMPTY=\n")
    said = shown(capfd, "secrets", "import", "--from", str(file), "--dry-run")
    assert "DB_PASSWORD: would be new" in said and "skipped PATH" in said and "skipped TINY" in said
    file.with_name("weak.env").write_text("ONE=aaaaaaaaa\nTINY=abc\nTWO=bbbbbbbbb\n")
    weak = shown(capfd, "secrets", "import", "--from", str(file.with_name("weak.env")), "--dry-run", status=1)
    assert "skipped ONE, TWO: The value is easy to guess" in weak and weak.count("skipped ") == 2
    assert listed(capfd, "secrets", "ls") == []
    assert run(["env", "push", "--from", str(file), "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["created"] == ["DB_PASSWORD", "OPENAI_API_KEY"] and len(report["skipped"]) == 2
    by_name = {row["identifier"]: row for row in listed(capfd, "secrets", "ls")}
    assert by_name["DB_PASSWORD"]["exposure"] == "environment"
    assert (by_name["OPENAI_API_KEY"]["exposure"], by_name["OPENAI_API_KEY"]["gateway"]) == ("none", True)
    said += shown(capfd, "secrets", "import", "--from", str(file), status=1)
    said += shown(capfd, "secrets", "import", "--from", str(file), "--overwrite")
    assert "it is there already" in said and "DB_PASSWORD: a new version" in said
    assert VALUE not in said and OTHER not in said
    names = tmp_path / "names.env"
    assert run(["env", "pull", "--out", str(names)]) == 0
    assert names.read_text() == "DB_PASSWORD=\nOPENAI_API_KEY=\n"
    assert names.stat().st_mode & 0o777 == 0o600
    assert "not replaced" in shown(capfd, "env", "pull", "--out", str(names), status=1)
    assert run(["env", "pull", "--out", str(names), "--force"]) == 0


def test_import_says_what_it_cannot_read(vaulted: Vaulted, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for source, words in (
        (str(tmp_path / "none.env"), "cannot be read"),
        (str(tmp_path), "Is a directory"),
        ("/dev/null", "plain file"),
        ("keyring:stripe/ada", "--as NAME"),
        ("keyring:stripe", "keyring:SERVICE/USER"),
    ):
        status = run(["secrets", "import", "--from", source])
        assert status in (1, 2) and words in capfd.readouterr().err
    broken = tmp_path / "broken.env"
    broken.write_text(f'KEY="{VALUE}\n')
    assert VALUE not in shown(capfd, "secrets", "import", "--from", str(broken), status=1)


def test_a_grant_is_a_change_request(vaulted: Vaulted, capfd: pytest.CaptureFixture[str]) -> None:
    said = shown(capfd, "secrets", "grant", "STRIPE_KEY", "--agent", "reader")
    assert "no secret STRIPE_KEY in acme yet" in said
    assert "Change request acme#1 is open" in said and "kortix cr diff acme#1" in said
    assert "is open already" in shown(capfd, "secrets", "grant", "STRIPE_KEY", "--agent", "reader")
    assert "+  reader: {secrets: [STRIPE_KEY]}" in shown(capfd, "cr", "diff", "1")
    assert "nobody" in shown(capfd, "secrets", "grant", "STRIPE_KEY", "--agent", "nobody", status=1)


def test_a_diff_is_shown_without_values(vaulted: Vaulted, stdin: Stdin, capfd: pytest.CaptureFixture[str]) -> None:
    stdin(b"reader: {secrets: [NOT_SO_SECRET]}")
    assert run(["secrets", "set", "A_KEY=-"]) == 0
    assert run(["secrets", "grant", "NOT_SO_SECRET", "--agent", "reader"]) == 0
    capfd.readouterr()
    said = shown(capfd, "cr", "diff", "1")
    assert "[redacted:A_KEY]" in said and "reader: {secrets: [NOT_SO_SECRET]}" not in said
    vaulted.home.vault.write_bytes(b"broken")
    said = shown(capfd, "cr", "diff", "1")
    assert "reader: {secrets: [NOT_SO_SECRET]}" in said and "could not be looked for" in said


# At a terminal


def test_a_prompt_shows_nothing_and_compares(vaulted: Vaulted, capfd: pytest.CaptureFixture[str]) -> None:
    with AtTerminal("secrets", "set", "API_KEY") as terminal:
        terminal.see("Value of API_KEY:")
        terminal.type(f"{VALUE}\n")
        typed = terminal.see("Value of API_KEY, once more:")
        command = Path(f"/proc/{terminal.process.pid}/cmdline").read_bytes()
        terminal.type(f"{VALUE}\n")
        typed += terminal.see("API_KEY of acme: stored")
        assert terminal.end() == 0
        assert VALUE.encode() not in typed + terminal.screen + command
        assert terminal.settings_now == terminal.before
    with AtTerminal("secrets", "rotate", "API_KEY") as terminal:
        for _ in range(3):
            terminal.see("New value of API_KEY:")
            terminal.type(f"{OTHER}\n")
            terminal.see("once more:")
            terminal.type("something else\n")
            terminal.see("did not match")
        assert terminal.end() == 1
    with AtTerminal("secrets", "set", "API_KEY") as terminal:
        terminal.see("Value of API_KEY:")
        terminal.type(b"\x03")
        terminal.process.send_signal(2)
        assert terminal.end() == 130
        assert terminal.settings_now == terminal.before
    (row,) = listed(capfd, "secrets", "ls")
    assert row["version"] == 1


def test_no_child_has_a_value_as_argument_or_variable(vaulted: Vaulted) -> None:
    """Whatever the command starts while it stores a value, nothing of it has the value."""
    seen: set[bytes] = set()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "secrets", "set", "API_KEY=-"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(VALUE.encode())
    process.stdin.close()
    while process.poll() is None:
        seen.update(_told_by_processes())
    assert process.stdout is not None and process.stderr is not None
    output = process.stdout.read() + process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.returncode == 0
    assert VALUE.encode() not in output + b"".join(seen)


def _told_by_processes() -> Iterator[bytes]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            for name in ("cmdline", "environ"):
                try:
                    yield (folder / name).read_bytes()
                except OSError:
                    continue


# What agents asked for


@pytest.fixture
def asked(vaulted: Vaulted) -> Iterator[str]:
    """An agent of a stopped session waits for a secret."""
    seeded = Seeded(vaulted.home)
    project = str(seeded.one("SELECT id FROM projects")[0])
    session = seeded.session(project, status="stopped", wanted="stopped", agent="reader", title="Pay \x1b[2J")
    with seeded.store.write() as tx:
        tx.execute(
            "INSERT INTO secret_requests (id, project_id, session_id, identifier, exposure, reason, state, created_at)"
            " VALUES ('req_abc', ?, ?, 'PAY_KEY', 'connector', ?, 'open', ?)",
            (project, session, "To \x1b]0;evil\x07 pay.", tx.now_text),
        )
        from kortix_tui.store.audit import SYSTEM

        tx.audit("secret_request.create", scope="secret PAY_KEY", actor=SYSTEM)
    seeded.close()
    yield "req_abc"


def test_the_inbox_has_requests_and_takes_answers(
    vaulted: Vaulted, asked: str, stdin: Stdin, capfd: pytest.CaptureFixture[str]
) -> None:
    items = listed(capfd, "review", "ls")
    assert ("secret request", asked) in [(item["kind"], item["reference"]) for item in items]
    page = shown(capfd, "review", "show", asked) + shown(capfd, "secrets", "requests")
    assert "PAY_KEY" in page and "agent reader" in page and "not granted to this agent yet" in page
    assert "\x1b" not in page and "␛]0;evil␇" in page
    said = shown(capfd, "review", "act", asked, "merge", status=2)
    assert "takes `provide` or `decline`" in said
    stdin(VALUE.encode())
    said = shown(capfd, "review", "act", asked, "provide")
    assert "PAY_KEY of acme: stored" in said and "Exposure connector" in said and "secrets grant PAY_KEY" in said
    assert VALUE not in said
    assert listed(capfd, "secrets", "requests") == []
    assert "No open request" in shown(capfd, "review", "act", asked, "decline", status=1)


def test_a_request_can_be_declined(vaulted: Vaulted, asked: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert "Declined PAY_KEY" in shown(capfd, "secrets", "decline", "req_a")
    assert listed(capfd, "secrets", "requests") == []
    events = listed(capfd, "audit", "ls", "--event", "secret_request.decline")
    assert len(events) == 1


def test_a_value_is_typed_for_a_request(vaulted: Vaulted, asked: str, capfd: pytest.CaptureFixture[str]) -> None:
    with AtTerminal("review", "act", asked, "provide") as terminal:
        terminal.see("reason, in the agent's words:")
        terminal.see("Value of PAY_KEY:")
        terminal.type(f"{VALUE}\n")
        terminal.see("once more:")
        terminal.type(f"{VALUE}\n")
        typed = terminal.see("PAY_KEY of acme: stored")
        assert terminal.end() == 0
        assert VALUE.encode() not in typed + terminal.screen
    wait_for(lambda: listed(capfd, "secrets", "ls"))
