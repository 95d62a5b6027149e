"""The guest's files run anywhere: old Python, standard library, nothing of this program beside them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kortix_tui.guest

FILES = sorted(Path(kortix_tui.guest.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_guest_file_is_python_3_9_and_imports_the_standard_library_only(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names or name.startswith("kortix_tui.guest")


def test_every_guest_file_has_a_name_of_its_own() -> None:
    """They lie in one folder that may be on the path: none may hide a module of the standard library."""
    assert not {file.stem for file in FILES} & set(sys.stdlib_module_names)


def test_the_supervisor_finds_its_parts_without_the_program(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    code = (
        "import runpy, sys; names = runpy.run_path('supervisor.py'); names['_name_the_package']();"
        "sys.modules['ssl'] = None; import kortix_tui.guest.service;"
        "print(sorted(name for name in sys.modules if name in ('ssl', 'pathlib', 'dataclasses', 'kortix_tui.base')))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['ssl']"  # the place that is held empty
