"""The sample's agent really refactors: real git, the real suite, and a stand-in for the guest command only."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from kortix_tui.base.paths import assets

SAMPLE = assets("sample-projects") / "acme-api"
STARTER = assets("sample-projects") / "starter"


@dataclass
class Clone:
    """A clone on a session branch, as a sandbox has one."""

    folder: Path
    tools: Path
    calls: Path

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(self.folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def run(self, program: str, prompt: str, *, kortix: bool = True, **environment: str) -> tuple[int, str]:
        programs = self.tools if kortix else self.tools / "none"
        path = os.pathsep.join(
            [str(programs), str(Path(shutil.which("git") or "/usr/bin/git").parent), "/usr/bin", "/bin"]
        )
        done = subprocess.run(
            [sys.executable, program],
            cwd=self.folder,
            env={
                "PATH": path,
                "HOME": str(self.tools),
                "LANG": "C.UTF-8",
                "CALLS": str(self.calls),
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
            input=prompt,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    def opened(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def clone_of(source: Path, tmp_path: Path) -> Clone:
    origin = tmp_path / "origin"
    shutil.copytree(source, origin, ignore=shutil.ignore_patterns("__pycache__"))
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kortix").write_text(
        '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word" >> "$CALLS"; done\nexit ${STATUS:-0}\n'
    )
    (tools / "kortix").chmod(0o755)
    clone = Clone(tmp_path / "workspace", tools, tmp_path / "calls")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (
        ["-C", str(origin), "init", "--quiet", "--initial-branch=main"],
        ["-C", str(origin), "add", "."],
        ["-C", str(origin), *identity, "commit", "--quiet", "-m", "base"],
        ["clone", "--quiet", str(origin), str(clone.folder)],
        ["-C", str(clone.folder), "switch", "--quiet", "-c", "kaaaaaaaaaaa"],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)
    return clone


@pytest.fixture
def acme(tmp_path: Path) -> Clone:
    return clone_of(SAMPLE, tmp_path)


REFACTOR = "tools/refactor_currency.py"


def test_the_refactor_is_done_tested_committed_and_proposed(acme: Clone) -> None:
    status, output = acme.run(REFACTOR, "Refactor charge(amount) to charge(amount, currency) and run the tests")
    assert status == 0, output
    assert acme.git("log", "--reverse", "--format=%s", "main..HEAD").splitlines() == [
        "Take a currency in charge()",
        "Pass the currency at every call of charge()",
        "Say the currency in the tests",
        "Describe charge(amount, currency)",
    ]
    assert acme.git("status", "--porcelain") == ""
    diff = acme.git("diff", "main", "HEAD").splitlines()
    assert "-    charge(amount)" in diff
    assert "+    charge(amount, currency)" in diff
    assert "+            currency=plan.currency," in diff
    assert "+            currency: ISO 4217 code, such as EUR." in diff
    assert acme.opened()[:3] == ["cr", "open", "--title"]
    assert "28 tests pass" in output


def test_the_new_code_charges_in_the_customers_currency(acme: Clone) -> None:
    acme.run(REFACTOR, "go")
    program = (
        "from acme_api.gateway import SandboxGateway\n"
        "from acme_api.payments import Payments\n"
        "from acme_api.invoices import Invoice, Invoices\n"
        "gateway = SandboxGateway(); invoices = Invoices(Payments(gateway))\n"
        "invoices.add(Invoice('7', 'globex', [500], currency='USD'))\n"
        "print(invoices.pay('7').currency, gateway.authorizations[0].currency)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(acme.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "USD USD", done.stderr


def test_a_second_run_has_nothing_to_do(acme: Clone) -> None:
    acme.run(REFACTOR, "go")
    head = acme.git("rev-parse", "HEAD")
    status, output = acme.run(REFACTOR, "go again")
    assert status == 0
    assert "Nothing to do" in output
    assert acme.git("rev-parse", "HEAD") == head
    assert acme.opened().count("open") == 1


@pytest.mark.parametrize("prompt", ["Then run the full test suite", "Please execute all tests."])
def test_a_prompt_for_the_tests_changes_nothing(acme: Clone, prompt: str) -> None:
    status, output = acme.run(REFACTOR, prompt)
    assert status == 0
    assert "The full test suite: 28 tests pass" in output
    assert acme.git("status", "--porcelain") == "" and not acme.opened()
    assert acme.git("rev-list", "--count", "main..HEAD").strip() == "0"


def test_the_prompt_may_come_in_a_file_or_in_the_environment(acme: Clone, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt"
    prompt.write_text("Run the full test suite")
    assert "Prompt: Run the full test suite" in acme.run(REFACTOR, "", KORTIX_PROMPT_FILE=str(prompt))[1]
    assert "nothing is changed" in acme.run(REFACTOR, "", KORTIX_PROMPT="Run the tests")[1]


def test_without_the_guest_command_the_work_is_committed_and_the_status_tells(acme: Clone) -> None:
    status, output = acme.run(REFACTOR, "go", kortix=False)
    assert status == 1
    assert "`kortix` is not in PATH" in output
    assert acme.git("rev-list", "--count", "main..HEAD").strip() == "4"


def test_a_failing_guest_command_fails_the_turn(acme: Clone) -> None:
    status, output = acme.run(REFACTOR, "go", STATUS="3")
    assert status == 1
    assert "`kortix cr open` ended with 3" in output


def test_a_red_suite_stops_the_work_before_anything_changes(acme: Clone) -> None:
    broken = acme.folder / "tests/test_money.py"
    broken.write_text(broken.read_text().replace('"12.50 EUR"', '"12.51 EUR"'))
    status, output = acme.run(REFACTOR, "go")
    assert status == 1
    assert "Before: the tests fail" in output
    assert acme.git("status", "--porcelain").split() == ["M", "tests/test_money.py"]


@pytest.mark.parametrize("program", sorted(path for path in SAMPLE.parent.rglob("*.py")), ids=lambda path: path.name)
def test_programs_of_the_samples_are_python_3_9(program: Path) -> None:
    ast.parse(program.read_text(), feature_version=(3, 9))


def test_the_tester_only_tests(acme: Clone) -> None:
    status, output = acme.run("tools/run_tests.py", "go")
    assert status == 0
    assert "All tests pass" in output
    assert acme.git("status", "--porcelain") == ""


@pytest.fixture(scope="module")
def edits() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acme_currency_edits", SAMPLE / "tools/currency_edits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("charge(5)", 'charge(5, "EUR")'),
        ("charge((a + b))", 'charge((a + b), "EUR")'),
        ("charge((a, b)[0], x)", 'charge((a, b)[0], "EUR", x)'),
        ("charge(f(1, 2))", 'charge(f(1, 2), "EUR")'),
        ("charge( 5 , key=k )", 'charge( 5, "EUR" , key=k )'),
        ("charge(key=k, amount=(5))", 'charge(key=k, amount=(5), currency="EUR")'),
        ("x.y().charge(5)", 'x.y().charge(5, "EUR")'),
        ("charge(\n    5,  # cents\n    k,\n)", 'charge(\n    5,\n    "EUR",  # cents\n    k,\n)'),
        ('s = "ü€"; charge(5)', 's = "ü€"; charge(5, "EUR")'),
        ("charge(invoice.total)", "charge(invoice.total, invoice.currency)"),
        ("charge(charge(1).amount)", 'charge(charge(1, "EUR").amount, "EUR")'),
        ("gateway.charge.assert_called_with(5)", 'gateway.charge.assert_called_with(5, "EUR")'),
        ("def charge(amount): pass", "def charge(amount, currency): pass"),
        ("def charge(self, amount, /, key=None): pass", "def charge(self, amount, currency, /, key=None): pass"),
        ("def charge(amount: int = 5): pass", 'def charge(amount: int = 5, currency: str = "EUR"): pass'),
        ("def charge(*, amount=(5)): pass", 'def charge(*, amount=(5), currency="EUR"): pass'),
        ("async def charge(amount: int): pass", "async def charge(amount: int, currency: str): pass"),
        ("# see charge(amount)", "# see charge(amount, currency)"),
        ("def f(amount, currency): charge(amount)", "def f(amount, currency): charge(amount, currency)"),
        ("def f(): return lambda a: charge(a)", 'def f(): return lambda a: charge(a, "EUR")'),
    ],
)
def test_edits_are_small_and_in_place(edits: ModuleType, before: str, after: str) -> None:
    knowledge = edits.Knowledge(money_fields={"total"}, takers=set())
    once = edits.rewrite_python(before + "\n", knowledge, test=True)
    assert once.text == after + "\n"
    assert edits.rewrite_python(once.text, knowledge, test=True).text == once.text


@pytest.mark.parametrize(
    "text",
    [
        "surcharge(5)",
        "recharge(amount)",
        'charge(5, "EUR")',
        "charge(5, currency=c)",
        "charge(5, invoice.currency)",
        'x = "charge(amount) stays in a text"',
        "def charge(percent): pass",
        "charge = charges[0]",
        "charge()",
    ],
)
def test_everything_else_stays_as_it_is(edits: ModuleType, text: str) -> None:
    assert edits.rewrite_python(text + "\n", edits.Knowledge(), test=True).text == text + "\n"


@pytest.mark.parametrize("text", ["charge(*values)", "charge(**values)", "map(charge, amounts)"])
def test_what_cannot_be_changed_safely_is_left_and_named(edits: ModuleType, text: str) -> None:
    result = edits.rewrite_python(text + "\n", edits.Knowledge(), test=True)
    assert result.text == text + "\n"
    assert len(result.left) == 1


def test_the_house_currency_is_imported_where_it_is_needed(edits: ModuleType) -> None:
    knowledge = edits.Knowledge(module="acme_api.money")
    result = edits.rewrite_python("import os\n\ncharge(5)\n", knowledge, test=False)
    assert result.text == "import os\nfrom acme_api.money import DEFAULT_CURRENCY\n\ncharge(5, DEFAULT_CURRENCY)\n"
    result = edits.rewrite_python("from acme_api.money import check_amount\ncharge(5)\n", knowledge, test=False)
    assert result.text.startswith("from acme_api.money import DEFAULT_CURRENCY, check_amount\n")


def test_the_starters_agent_tidies_and_proposes(tmp_path: Path) -> None:
    clone = clone_of(STARTER, tmp_path)
    (clone.folder / "a.txt").write_text("one  \ntwo")
    (clone.folder / "b.md").write_text("kept  \nbreak\n")
    clone.git("add", ".")
    clone.git("-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "untidy")
    identity = {
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.com",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.com",
    }
    status, output = clone.run("tools/tidy.py", "Tidy up", **identity)
    assert status == 0, output
    assert (clone.folder / "a.txt").read_text() == "one\ntwo\n"
    assert clone.git("show", "--format=%s", "--name-only").split("\n\n") == ["Tidy white space", "a.txt\n"]
    assert clone.opened()[:2] == ["cr", "open"]
    status, output = clone.run("tools/tidy.py", "Again", **identity)
    assert status == 0 and "Nothing to do" in output
