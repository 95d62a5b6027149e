"""Real programs from the npm registry for tests: installed once, in a pinned version, by whichever process is first."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from tests.support.packages import need


def npm_program(package: str, version: str, binary: str) -> Path:
    """The path of a program of an npm package.

    Raises:
        AssertionError: It cannot be installed; npm's own words follow.
    """
    need(npm="npm")
    place = Path(tempfile.gettempdir()) / "kortix-test-npm" / f"{package.replace('/', '_')}@{version}"
    program = place / "node_modules" / ".bin" / binary
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            done = subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place),
                 f"{package}@{version}"],
                capture_output=True, text=True, timeout=300, env={**os.environ, "npm_config_update_notifier": "false"},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            (place / "done").touch()
    assert program.exists(), f"{package} has no program {binary}"
    return program
