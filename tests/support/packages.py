"""Programs that tests need and a machine may lack: installed once, by whichever test process comes first."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def need(**programs: str) -> None:
    """Make sure that programs are there.

    Args:
        programs: The Debian package of each program; `-` in a program's name is written `_`.

    Raises:
        AssertionError: One is missing and cannot be installed: only root can, where apt-get is.
    """
    missing = _missing(programs)
    if not missing:
        return
    words = f"missing on this machine: {', '.join(missing)}; install {', '.join(sorted(set(missing.values())))}"
    assert os.geteuid() == 0 and shutil.which("apt-get"), words
    with (Path(tempfile.gettempdir()) / "kortix-test-packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(programs)  # another process may have been first
        if missing:
            _install(sorted(set(missing.values())))
    assert not _missing(programs), words


def _missing(programs: dict[str, str]) -> dict[str, str]:
    named = {program.replace("_", "-"): package for program, package in programs.items()}
    return {program: package for program, package in named.items() if shutil.which(program) is None}


def _install(packages: list[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *packages]
    for command in (["apt-get", "update", "-q"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        # An old list of packages is good enough; what is missing in the end is told by the caller.
        assert done.returncode == 0 or command[1] == "update", done.stdout[-2000:] + done.stderr[-2000:]
