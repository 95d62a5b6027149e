"""The structure is tested: layers, lint, types, the root, sizes of modules, and what start-up may import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kortix_tui.store.schema import HOUSEKEEPING, MIGRATIONS

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "kortix_tui"
TOOLS = Path(sys.executable).parent


def run(*command: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


def test_the_layers_hold() -> None:
    done = run(str(TOOLS / "lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint_is_clean() -> None:
    done = run(str(TOOLS / "ruff"), "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout


def test_format_is_clean() -> None:
    done = run(str(TOOLS / "ruff"), "format", "--no-cache", "--check", ".")
    assert done.returncode == 0, done.stdout


def test_types_are_strict(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", seconds=600)
    assert done.returncode == 0, done.stdout


def test_the_root_holds_what_the_card_names_and_nothing_else() -> None:
    listed = run("git", "ls-files").stdout.splitlines()
    roots = {line.split("/")[0] for line in listed}
    allowed = {
        "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "kortix_tui", "tests", "themes",
        "sample-projects",
    }  # fmt: skip
    assert {root for root in roots if not root.startswith(".")} == allowed


def test_modules_stay_small() -> None:
    large = {
        str(path.relative_to(ROOT)): count
        for path in PACKAGE.rglob("*.py")
        if (count := len(path.read_text("utf-8").splitlines())) > 600
    }
    assert not large


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("kortix_tui.cli.main", {"textual", "docker", "git", "keyring", "httpx", "pydantic", "sqlite3"}),
        ("kortix_tui.runtime.facade", {"textual", "docker", "git", "keyring", "httpx"}),
        ("kortix_tui.runtime.host", {"textual", "docker", "git", "keyring", "httpx"}),
        ("kortix_tui.console.app", {"docker", "git", "keyring", "httpx"}),
    ],
)
def test_start_up_imports_no_sdk(module: str, forbidden: set[str]) -> None:
    code = f"import sys, {module}; print(' '.join(sorted(sys.modules)))"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert not forbidden & set(done.stdout.split())


def test_the_guest_is_plain_python_3_9() -> None:
    import ast

    for path in (PACKAGE / "guest").rglob("*.py"):
        ast.parse(path.read_text("utf-8"), feature_version=(3, 9))


def test_every_governed_table_is_written_inside_an_audited_transaction_only() -> None:
    """The store refuses a commit without an event; so no module may write around `Transaction`."""
    tables = set(re.findall(r"CREATE TABLE (\w+)", "".join(MIGRATIONS)))
    assert tables > HOUSEKEEPING
    writes = re.compile(r"\.execute(?:many)?\(\s*f?\"(?:INSERT|UPDATE|DELETE|REPLACE)", re.IGNORECASE)
    around = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "store"
        for match in writes.finditer(path.read_text("utf-8"))
        if "tx.execute(" not in path.read_text("utf-8")[match.start() - 3 : match.end()]
    ]
    assert not around


def test_no_path_of_a_developers_machine_and_no_unfinished_word_is_in_the_tree() -> None:
    marks = re.compile(r"/work/(?:main|shared)|NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        for match in marks.finditer(path.read_text("utf-8"))
    ]
    assert not found


def test_the_ci_command_is_the_readmes() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"<!-- test command -->\n```sh\n(.+?)\n```", readme, re.DOTALL)
    assert found is not None and "pytest" in found[1] and "kortix setup" in found[1]
