#!/usr/bin/env python3
"""Run the whole test suite. The exit status says how it went."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 300


def run_tests() -> subprocess.CompletedProcess[str]:
    """Run the suite in a process of its own and keep what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "unittest", "discover", "-s", "tests", "-t", "."],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def main() -> int:
    """Run and report."""
    print("Running the whole test suite", flush=True)
    try:
        result = run_tests()
    except subprocess.TimeoutExpired:
        print(f"The tests did not end within {DEADLINE_S} s")
        return 1
    print(result.stdout, end="")
    print("All tests pass" if result.returncode == 0 else "Tests fail", flush=True)
    return 0 if result.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
