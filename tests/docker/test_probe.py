"""The isolation probe: everything holds in a real sandbox, and it notices when something does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine import PYTHON, WAIT, Bench, bench, docker

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import Level
from kortix_tui.runtime.doctor import examine
from kortix_tui.sandbox.docker import inside, probe
from kortix_tui.sandbox.docker.probe import probe_isolation
from kortix_tui.sandbox.docker.provider import DockerProvider

pytestmark = pytest.mark.docker


@pytest.fixture
async def desk(short_folder: Path) -> AsyncIterator[Bench]:
    async with bench(short_folder) as made:
        yield made


async def test_every_property_holds(desk: Bench, short_folder: Path) -> None:
    findings = await probe_isolation(desk.provider, desk.image, folder=short_folder)
    assert {finding.name for finding in findings} == {probe.__name__ for probe in inside.AS_ROOT + inside.AS_AGENT}
    assert [finding for finding in findings if not finding.held] == []


async def test_nothing_stays_behind_and_what_a_killed_probe_left_is_removed(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PROBE_INSTALL", desk.install_id)
    await probe_isolation(desk.provider, desk.image)
    assert await desk.provider.owned(desk.install_id) == []
    assert await desk.provider.owned_volumes(desk.install_id) == set()

    left = desk.spec()
    await desk.provider.start(left, command=WAIT)
    await probe_isolation(desk.provider, desk.image)
    assert await desk.provider.inspect(left.session_id) is not None  # young: it may belong to a probe that runs
    monkeypatch.setattr(probe, "_LEFTOVER_SECONDS", -60)
    await probe_isolation(desk.provider, desk.image)
    assert await desk.provider.inspect(left.session_id) is None
    assert await desk.provider.owned_volumes(desk.install_id) == set()


@pytest.mark.parametrize(
    ("weaker", "broken"),
    [
        (["--security-opt", "seccomp=unconfined"], {"seccomp", "system_calls", "socket_families"}),
        (["--network", "bridge"], {"network"}),
        (["--pids-limit", "-1"], {"processes_limit"}),
        (["--memory", "0"], {"memory_limit"}),
        (["-v", "/var/run/docker.sock:/var/run/docker.sock"], {"host_is_hidden"}),
    ],
)
async def test_a_weaker_sandbox_is_noticed(weaker: list[str], broken: set[str], desk: Bench) -> None:
    base = "--rm --read-only --cap-drop ALL --cap-add SETUID --cap-add SETGID --security-opt no-new-privileges"
    base += " --network none --pids-limit 99 --memory 128m --tmpfs /tmp:exec --tmpfs /workspace:exec,uid=1000"
    code = Path(inside.__file__).read_text()
    kept = base.replace("--network none", "") if "--network" in weaker else base
    arguments = [*kept.split(), *weaker, desk.image, PYTHON, "-I", "-S", "-c", code]
    # The engine's client runs as root in the image; the probe's child becomes the agent by itself.
    report = json.loads(await asyncio.to_thread(docker, "run", "--user", "0", *arguments))
    failed = {name for name, (held, _) in report.items() if not held}
    assert broken <= failed


async def test_doctor_is_content(home: Home, desk: Bench) -> None:
    rows = await examine(home, Settings())
    assert [row for row in rows if row.level is Level.FAIL] == []
    assert "isolation.kernel" in {row.id for row in rows}


async def test_no_engine_no_probe(short_folder: Path) -> None:
    provider = DockerProvider(f"unix://{short_folder}/none.sock")
    with pytest.raises(EngineUnavailable):
        await probe_isolation(provider, "any")
    await provider.close()
