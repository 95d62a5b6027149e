"""From an accepted prompt to the agent's first output, against a bare container."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest
from desk import Desk
from sides import alternate, report

from kortix_tui.runtime.scaffold import install_sample

pytestmark = pytest.mark.docker


def test_prompt_to_first_output(desk: Desk, runs: int, tell: Callable[[str], None]) -> None:
    folder = desk.home.path.parent / "acme-api"
    install_sample("acme-api", folder)
    project = desk.runtime.projects.add(str(folder))
    first = desk.runtime.sessions.new("Refactor charge(amount)", project=project)
    desk.settle(first)
    image = str(desk.view(first).image)
    desk.gone(first)

    def ours() -> float:
        begun = time.perf_counter()
        session = desk.runtime.sessions.new("Refactor charge(amount) to charge(amount, currency)", project=project)
        reader = desk.runtime.sessions.records(session.id)
        while not any(record.kind == "output" and record.text.strip() for record in reader.read()):
            time.sleep(0.001)
        seconds = time.perf_counter() - begun
        desk.settle(session)
        desk.gone(session)
        return seconds

    def theirs() -> float:
        begun = time.perf_counter()
        command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "true", image]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - begun

    mine, reference = alternate(runs, ours, theirs)
    tell(report("prompt accepted to the agent's first output against docker run … true, wall", "2", mine, reference))
