"""The provider's promises against the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine import PYTHON, WAIT, Bench, bench, docker, inspect

from kortix_tui.base.errors import EngineUnavailable, InvalidInput, Refused
from kortix_tui.sandbox.docker.hardening import VOLUMES, EngineLimits, container_name, volume_name
from kortix_tui.sandbox.docker.limits import likely_open_files
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.failures import ImageMissing, SandboxFailed

pytestmark = pytest.mark.docker
ENDED = (0, 143)
"""Told to end: by its own answer, or by the signal when it came before the program was ready for it."""


@pytest.fixture
async def desk(short_folder: Path) -> AsyncIterator[Bench]:
    async with bench(short_folder) as made:
        yield made


async def test_start_stop_resume_remove(desk: Bench) -> None:
    spec = desk.spec()
    first = await desk.provider.start(spec, command=WAIT)
    assert first.running and first.session_id == spec.session_id and first.started_at is not None
    assert await desk.provider.start(spec) == first

    await desk.provider.stop(spec.session_id, grace_s=5)
    stopped = await desk.provider.inspect(spec.session_id)
    assert stopped is not None and not stopped.running and stopped.exit_code in ENDED
    await desk.provider.stop(spec.session_id)

    again = await desk.provider.start(spec, command=WAIT)
    assert again.running and again.container_id == first.container_id

    await desk.provider.remove(spec.session_id, volumes=False)
    assert await desk.provider.inspect(spec.session_id) is None
    assert await desk.provider.owned_volumes(desk.install_id) == {spec.session_id}
    await desk.provider.remove(spec.session_id, volumes=True)
    await desk.provider.remove(spec.session_id, volumes=True)
    assert await desk.provider.owned_volumes(desk.install_id) == set()


async def test_the_engine_is_told_every_restriction(desk: Bench) -> None:
    spec = desk.spec(pids=77)
    await desk.provider.start(spec, command=WAIT)
    found = inspect(container_name(spec.session_id))
    host, config = found["HostConfig"], found["Config"]
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and not host["Privileged"]
    assert host["CapDrop"] == ["ALL"] and sorted(host["CapAdd"]) == ["KILL", "SETGID", "SETUID"]
    assert "no-new-privileges" in host["SecurityOpt"] and any("seccomp=" in option for option in host["SecurityOpt"])
    assert host["Init"] and host["IpcMode"] == "private" and host["CgroupnsMode"] == "private"
    assert host["PidsLimit"] == 77 and host["Memory"] == host["MemorySwap"] == 256 << 20
    assert host["RestartPolicy"]["Name"] == "no" and host["LogConfig"]["Config"]["max-size"] == "1m"
    assert {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}["core"] == 0
    mounts = {mount["Destination"]: mount for mount in found["Mounts"]}
    assert set(mounts) == {"/run/kortix", *VOLUMES.values()}
    assert mounts["/run/kortix"]["Source"] == str(desk.door) and not mounts["/run/kortix"]["RW"]
    assert config["User"] == "0:0" and config["Labels"]["kortix.role"] == "sandbox"
    names = {entry.partition("=")[0] for entry in config["Env"]}
    assert names == {"PATH", "LANG", "KORTIX_SESSION_ID"}


async def test_work_in_the_volumes_outlives_the_container_and_scratch_does_not(desk: Bench) -> None:
    spec = desk.spec()
    write = "import os\nfor f in ('/var/lib/kortix','/tmp'): open(f+'/x','w').write('kept')"
    await desk.provider.start(spec, command=[PYTHON, "-c", write])
    await desk.printed(spec)
    await desk.provider.remove(spec.session_id, volumes=False)
    read = "import os\nfor f in ('/var/lib/kortix','/tmp'): print(f, os.path.exists(f+'/x'))"
    await desk.provider.start(spec, command=[PYTHON, "-c", read])
    assert await desk.printed(spec) == "/var/lib/kortix True\n/tmp False\n"


async def test_two_starts_at_once_make_one_sandbox(desk: Bench) -> None:
    spec = desk.spec()
    states = await asyncio.gather(*(desk.provider.start(spec, command=WAIT) for _ in range(4)))
    assert len({state.container_id for state in states}) == 1
    assert len(await desk.provider.owned(desk.install_id)) == 1


async def test_another_image_means_a_new_container_on_the_same_volumes(desk: Bench) -> None:
    spec = desk.spec()
    first = await desk.provider.start(spec, command=WAIT)
    other = f"kortix-test:{spec.session_id}"
    docker("tag", desk.image, other)
    try:
        changed = spec.model_copy(update={"image": other})
        assert (await desk.provider.start(changed)).container_id == first.container_id  # running: no change
        await desk.provider.stop(spec.session_id)
        second = await desk.provider.start(changed, command=WAIT)
        assert second.container_id != first.container_id and second.image == other
        bigger = changed.model_copy(update={"memory_bytes": 300 << 20})
        await desk.provider.stop(spec.session_id)
        third = await desk.provider.start(bigger, command=WAIT)
        assert inspect(third.container_id)["HostConfig"]["Memory"] == 300 << 20
    finally:
        await desk.provider.remove(spec.session_id, volumes=True)
        docker("rmi", other)


async def test_a_stopped_sandbox_starts_although_its_image_lost_its_name(desk: Bench) -> None:
    spec = desk.spec()
    name = f"kortix-test:{spec.session_id}"
    docker("tag", desk.image, name)
    spec = spec.model_copy(update={"image": name})
    first = await desk.provider.start(spec, command=WAIT)
    await desk.provider.stop(spec.session_id)
    docker("rmi", name)
    assert (await desk.provider.start(spec)).container_id == first.container_id


async def test_a_missing_image_has_an_error_of_its_own(desk: Bench) -> None:
    spec = desk.spec(image="kortix-template:000000000000000000000000")
    with pytest.raises(ImageMissing, match="kortix-template:0000"):
        await desk.provider.start(spec)
    assert await desk.provider.inspect(spec.session_id) is None


async def test_a_paused_sandbox_goes_on(desk: Bench) -> None:
    spec = desk.spec()
    first = await desk.provider.start(spec, command=WAIT)
    docker("pause", container_name(spec.session_id))
    state = await desk.provider.inspect(spec.session_id)
    assert state is not None and state.paused and state.running
    assert [listed.paused for listed in await desk.provider.owned(desk.install_id)] == [True]
    assert not (await desk.provider.start(spec)).paused
    docker("pause", container_name(spec.session_id))
    await desk.provider.stop(spec.session_id)
    ended = await desk.provider.inspect(spec.session_id)
    assert ended is not None and ended.exit_code in ENDED and ended.container_id == first.container_id


async def test_what_others_made_is_not_touched(desk: Bench) -> None:
    spec = desk.spec()
    name, volume = container_name(spec.session_id), volume_name(spec.session_id, "home")
    docker("create", "--name", name, "--label", "owner=other", desk.image, "true")
    try:
        with pytest.raises(Refused, match="not of this home"):
            await desk.provider.start(spec)
        assert await desk.provider.inspect(spec.session_id) is None
        await desk.provider.stop(spec.session_id)
        await desk.provider.remove(spec.session_id, volumes=True)
        assert inspect(name)["Config"]["Labels"]["owner"] == "other"
    finally:
        docker("rm", "-f", name)
    docker("volume", "create", volume)
    try:
        with pytest.raises(Refused, match="not of this home"):
            await desk.provider.start(spec)
        await desk.provider.remove(spec.session_id, volumes=True)
        assert docker("volume", "ls", "-q", "--filter", f"name={volume}").strip() == volume
    finally:
        docker("volume", "rm", volume)


async def test_each_home_sees_its_own_only(desk: Bench) -> None:
    mine, other = desk.spec(), desk.spec(install_id=f"{desk.install_id}-other")
    try:
        await desk.provider.start(mine, command=WAIT)
        await desk.provider.start(other, command=WAIT)
        assert [state.session_id for state in await desk.provider.owned(desk.install_id)] == [mine.session_id]
        assert await desk.provider.owned_volumes(desk.install_id) == {mine.session_id}
    finally:
        await desk.provider.remove(other.session_id, volumes=True)


async def test_the_list_tells_how_a_sandbox_ended(desk: Bench) -> None:
    spec = desk.spec()
    await desk.provider.start(spec, command=[PYTHON, "-c", "raise SystemExit(7)"])
    await desk.printed(spec)
    (listed,) = await desk.provider.owned(desk.install_id)
    assert (listed.running, listed.exit_code) == (False, 7)


async def test_too_much_memory_ends_the_sandbox_and_nothing_else(desk: Bench) -> None:
    spec = desk.spec(memory_bytes=64 << 20)
    await desk.provider.start(spec, command=[PYTHON, "-c", "x = bytearray(512 << 20)"])
    await desk.printed(spec)
    state = await desk.provider.inspect(spec.session_id)
    # The engine's own word for it (`out_of_memory`) may be lost when the end is quicker than its event.
    assert state is not None and state.exit_code == 137


async def test_a_fork_bomb_stays_inside(desk: Bench) -> None:
    bomb = (
        "import os, time\nn = 0\n"
        "while True:\n"
        "    try:\n        pid = os.fork()\n"
        "    except BlockingIOError:\n        print('stopped at', n); break\n"
        "    if pid == 0:\n        time.sleep(30); os._exit(0)\n"
        "    n += 1\n"
    )
    assert "stopped at 6" in await desk.run(bomb, pids=64)


async def test_output_is_text_and_only_the_newest(desk: Bench) -> None:
    evil = "sys.stdout.buffer.write(b'\\x1b]0;evil\\x07\\xff\\xe2\\x80\\xae end\\n')"
    code = f"import sys\nfor n in range(99): print(n, flush=True)\n{evil}"
    spec = desk.spec()
    await desk.provider.start(spec, command=[PYTHON, "-c", code])
    await desk.printed(spec)
    text = await desk.provider.output(spec.session_id, lines=3)
    assert text.splitlines()[:2] == ["97", "98"]
    assert "\x1b" not in text and "\u202e" not in text and text.rstrip().endswith("end")
    assert await desk.provider.output("kaaaaaaaaaaa") == ""


async def test_as_many_open_files_as_the_engine_can_give(desk: Bench) -> None:
    code = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    soft, hard = (int(word) for word in (await desk.run(code)).split())
    assert soft == hard == likely_open_files((await desk.provider.engine()).endpoint.url)


async def test_an_engine_that_cannot_raise_the_limit_is_asked_for_less(desk: Bench) -> None:
    desk.provider._limits = EngineLimits(cpus=2.0, open_files=2**30)  # more than any kernel allows
    assert "ok" in await desk.run("print('ok')")
    assert desk.provider._limits.open_files != 2**30


async def test_more_processors_than_there_are_is_no_error(desk: Bench) -> None:
    assert (await desk.run("print('ok')", cpus=512.0)).strip() == "ok"


async def test_an_unknown_runtime_is_named(desk: Bench) -> None:
    with pytest.raises(InvalidInput, match="no-such-runtime"):
        await desk.provider.start(desk.spec(runtime="no-such-runtime"))


async def test_a_door_that_the_engine_does_not_see_is_explained(desk: Bench) -> None:
    with pytest.raises(EngineUnavailable, match="does not see this machine's files"):
        await desk.provider.start(desk.spec(door=desk.door / "absent"))


async def test_a_program_that_is_missing_is_an_end_and_not_a_hang(desk: Bench) -> None:
    spec = desk.spec()
    try:
        await desk.provider.start(spec, command=["/no/such/program"])
        await desk.printed(spec)
        state = await desk.provider.inspect(spec.session_id)
        assert state is not None and state.exit_code == 127
    except SandboxFailed as error:
        assert "/no/such/program" in error.message


async def test_anonymous_volumes_of_an_image_go_with_the_container(desk: Bench) -> None:
    spec = desk.spec()
    name = f"kortix-test:{spec.session_id}"
    docker("create", "--name", spec.session_id, desk.image, "true")
    docker("commit", "--change", "VOLUME /data", spec.session_id, name)
    docker("rm", spec.session_id)
    try:
        await desk.provider.start(spec.model_copy(update={"image": name}), command=WAIT)
        mounts = inspect(container_name(spec.session_id))["Mounts"]
        (anonymous,) = [mount["Name"] for mount in mounts if mount["Destination"] == "/data"]
        await desk.provider.remove(spec.session_id, volumes=False)
        assert anonymous not in docker("volume", "ls", "-q").split()
    finally:
        await desk.provider.remove(spec.session_id, volumes=True)
        docker("rmi", name)


async def test_info_says_where_the_engine_is_and_what_separates(desk: Bench) -> None:
    info = await desk.provider.info()
    assert info.endpoint.startswith("unix://") and info.version and info.isolation
    assert docker("version", "--format", "{{.Server.Version}}").strip() == info.version


async def test_no_engine_is_an_error_and_never_an_absent_sandbox(short_folder: Path) -> None:
    provider = DockerProvider(f"unix://{short_folder}/none.sock")
    for act in (provider.info(), provider.inspect("kaaaaaaaaaaa"), provider.owned("x"), provider.stop("kaaaaaaaaaaa")):
        with pytest.raises(EngineUnavailable):
            await act
    await provider.close()
