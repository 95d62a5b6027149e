"""Programs from npm that tests run against: installed once, by whichever test process comes first."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from packages import need


def node_program(package: str, version: str, program: str) -> Path:
    """The path of a program of a package, in the user's cache folder.

    Raises:
        AssertionError: It cannot be installed; says why.
    """
    need(node="nodejs", npm="npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kortix-tests" / "node"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{re.sub('[^a-z0-9.]+', '-', package).strip('-')}-{version}"
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(f"{package}@{version}", folder)
    found = folder / "node_modules" / ".bin" / program
    assert found.exists(), f"{package} has no program {program}"
    return found


def _install(package: str, folder: Path) -> None:
    """Into a folder beside, which takes its place when it is whole."""
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", beside, package],
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
