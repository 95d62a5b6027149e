"""How this program is called here, for commands that people copy from what it prints."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "kortix"


def program() -> str:
    """The words that start this very program in the shell that started it, quoted.

    That is `kortix` where a shell would find this installation by that name, else what was typed: `.venv/bin/kortix`.
    """
    started = Path(sys.argv[0])
    if is_ours(shutil.which(NAME), started):
        return NAME
    if started.name == NAME:
        return shlex.quote(sys.argv[0])
    return shlex.join([sys.executable, "-P", "-m", "kortix_tui.cli.main"])


def is_ours(found: str | None, started: Path) -> bool:
    """Whether the program of our name on the search path is this installation's."""
    if found is None:
        return False
    path = Path(found)
    if started.name == NAME:
        return started.exists() and path.samefile(started)
    # Started as a module: the command of the same environment lies beside its interpreter.
    return path.parent.samefile(Path(sys.executable).parent)
