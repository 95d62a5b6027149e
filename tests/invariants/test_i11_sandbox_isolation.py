"""I11: a sandbox reaches only its own door: no host service, no network, no other session's data, refs or objects.

The refs and objects are the git door's part (tests/invariants/test_i11_git_view.py); here it is the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from engine import PYTHON, Bench, bench, inspect

from kortix_tui.sandbox.docker.hardening import container_name
from kortix_tui.sandbox.docker.probe import probe_isolation

pytestmark = pytest.mark.docker

NEIGHBOUR = """
import socket, sys, time
tcp = socket.socket(); tcp.bind(('0.0.0.0', 9000)); tcp.listen()
named = socket.socket(socket.AF_UNIX); named.bind(chr(0) + 'neighbour'); named.listen()
queue = open('/tmp/secret', 'w'); queue.write('neighbours secret'); queue.flush()
open('/dev/shm/secret', 'w').write('neighbours secret')
print('listening', flush=True)
time.sleep(600)
"""

TRY = """
import errno, json, os, socket
def reach(family, address):
    with socket.socket(family) as probe:
        probe.settimeout(2)
        try:
            probe.connect(address)
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        return 'reached'
seen = {}
for host, port in %r:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    seen[f'{host}:{port}'] = reach(family, (host, port))
seen['abstract neighbour'] = reach(socket.AF_UNIX, chr(0) + 'neighbour')
seen['abstract host'] = reach(socket.AF_UNIX, chr(0) + %r)
for name in %r:
    try:
        socket.getaddrinfo(name, 80)
        seen[name] = 'resolved'
    except OSError as error:
        seen[name] = 'unknown'
found = []
for folder in ('/tmp', '/dev/shm', '/workspace', '/home/agent', '/var/lib/kortix', '/run'):
    for parent, _, files in os.walk(folder):
        found += [os.path.join(parent, name) for name in files if name == 'secret']
seen['files'] = found
seen['processes'] = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())
print(json.dumps(seen))
"""


@pytest.fixture
async def desk(short_folder: Path) -> AsyncIterator[Bench]:
    async with bench(short_folder) as made:
        yield made


@contextlib.contextmanager
def host_service() -> Iterator[tuple[int, list[str]]]:
    """A service of the host on every address, and who came."""
    visitors: list[str] = []
    listeners = []
    port = 0
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        listener = socket.socket(family)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((anywhere, port))
        port = listener.getsockname()[1]
        listener.listen()
        listener.settimeout(0.1)
        listeners.append(listener)
    done = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                connection, address = listener.accept()
                visitors.append(str(address))
                connection.close()

    threads = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
    for thread in threads:
        thread.start()
    try:
        yield port, visitors
    finally:
        done.set()
        for thread in threads:
            thread.join()
        for listener in listeners:
            listener.close()


def host_addresses() -> list[str]:
    """Every address by which this machine could be reached, of loopback and bridges too."""
    addresses = {"127.0.0.1", "::1", "172.17.0.1", "169.254.169.254"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, contextlib.suppress(OSError):
        route.connect(("192.0.2.1", 9))
        addresses.add(route.getsockname()[0])
    table = Path("/proc/net/fib_trie").read_text().split()
    addresses |= {word for before, word in itertools.pairwise(table) if before == "|--" and word != "0.0.0.0"}
    return sorted(addresses)


async def test_the_probe_finds_no_way_out(desk: Bench, short_folder: Path) -> None:
    findings = {
        finding.name: finding for finding in await probe_isolation(desk.provider, desk.image, folder=short_folder)
    }
    for name in ("network", "host_is_hidden", "door_folder", "door_answers", "system_calls", "socket_families"):
        assert findings[name].held, findings[name]


async def test_neither_host_nor_neighbour_can_be_reached(desk: Bench) -> None:
    neighbour = desk.spec()
    await desk.provider.start(neighbour, command=[PYTHON, "-c", NEIGHBOUR])
    async with asyncio.timeout(60):
        while "listening" not in await desk.provider.output(neighbour.session_id):
            await asyncio.sleep(0.05)
    abstract = f"kortix-test-{os.getpid()}"
    with host_service() as (port, visitors), socket.socket(socket.AF_UNIX) as named:
        named.bind(f"\0{abstract}")
        named.listen()
        targets = [(host, number) for host in host_addresses() for number in (port, 9000, 2375)]
        names = [neighbour.session_id, container_name(neighbour.session_id), "host.docker.internal", "example.com"]
        seen = json.loads(await desk.run(TRY % (targets, abstract, names)))
    assert visitors == []
    assert seen.pop("files") == []
    assert len(seen.pop("processes")) <= 3
    unreachable = {"ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL", "EHOSTUNREACH", "EAFNOSUPPORT", "unknown"}
    assert {place: answer for place, answer in seen.items() if answer not in unreachable} == {}
    # The control: the same attempt from the host's side does reach the service, so it was there to be found.
    state = await desk.provider.inspect(neighbour.session_id)
    assert state is not None and state.running


async def test_the_host_service_was_really_there() -> None:
    with host_service() as (port, visitors):
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        async with asyncio.timeout(10):
            while not visitors:
                await asyncio.sleep(0.01)


async def test_the_only_thing_of_the_host_inside_is_the_own_door(desk: Bench) -> None:
    spec = desk.spec()
    await desk.provider.start(spec, command=[PYTHON, "-c", "print(open('/proc/self/mountinfo').read())"])
    mounts = [line.split() for line in (await desk.printed(spec)).splitlines() if line]
    places = {fields[4]: fields for fields in mounts}
    found = inspect(container_name(spec.session_id))["Mounts"]
    binds = [mount for mount in found if mount["Type"] == "bind"]
    assert [(mount["Source"], mount["Destination"], mount["RW"]) for mount in binds] == [
        (str(desk.door), "/run/kortix", False)
    ]
    volumes = {mount["Name"] for mount in found if mount["Type"] == "volume"}
    assert all(spec.session_id in name for name in volumes)
    assert "ro" in places["/"][5].split(",") and "ro" in places["/run/kortix"][5].split(",")
    assert not any("docker.sock" in " ".join(fields) for fields in mounts)


async def test_another_sessions_door_and_volumes_cannot_be_named(desk: Bench, short_folder: Path) -> None:
    """Doors of other sessions lie beside ours on the host; from inside there is no path to them."""
    other = short_folder / "other"
    other.mkdir()
    (other / "door.sock").touch()
    mine = short_folder / "mine"
    mine.mkdir()
    code = (
        "import os, json\n"
        "print(json.dumps([sorted(os.listdir('/run/kortix')), os.path.exists('/run/kortix/../other'), "
        f"os.path.exists({str(other)!r}), os.path.exists('/var/lib/docker')]))"
    )
    assert json.loads(await desk.run(code, door=mine)) == [[], False, False, False]
