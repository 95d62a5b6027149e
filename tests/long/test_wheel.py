"""The wheel is whole: in a fresh environment, far from the checkout, the demo runs."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from desk import sweep

from kortix_tui.base.paths import Home
from kortix_tui.store.database import Store

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parent.parent.parent


def run(*command: str, cwd: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def test_the_demo_runs_from_an_installed_wheel(short_folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["KORTIX_CONFIG_HOME"] = str(short_folder / "config")
    wheels = short_folder / "wheels"
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT),
        cwd=short_folder, environment=environment,
    )  # fmt: skip
    folder = short_folder / "venv"
    venv.create(folder, with_pip=True)
    run(
        str(folder / "bin" / "pip"), "install", "--quiet", str(next(wheels.glob("kortix_tui-*.whl"))),
        cwd=short_folder, environment=environment,
    )  # fmt: skip
    demo = short_folder / "demo"
    said = run(
        str(folder / "bin" / "kortix"), "demo", "--no-console", "--merge", "--yes", "--home", str(demo),
        cwd=Path("/"), environment=environment,
    )  # fmt: skip
    try:
        assert "+    charge(amount, currency)" in said or "charge(amount, currency)" in said
        assert "Merged" in said
        themes = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages/kortix_tui/assets/themes"
        assert {path.stem for path in themes.iterdir()} >= {"kortix-dark", "kortix-light"}
    finally:
        homes = [path.parent for path in demo.rglob("state.db")]
        for path in homes:
            store = Store(Home(path))
            sweep(store.install_id)
            store.close()
