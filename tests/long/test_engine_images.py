"""The slow parts of images: a base from the package mirror, and everyday tools under our restrictions."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine import PYTHON, Bench, bench, docker

from kortix_tui.sandbox.docker.bootstrap import bootstrap
from kortix_tui.sandbox.docker.build import registry_answers
from kortix_tui.sandbox.images import BASE_NAME, Images, Template

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]

TOOLS = """
import json, os, subprocess
# As an agent: nothing of the supervisor's rights is left.
os.setgroups([]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)
os.chdir('/workspace'); os.environ.update(HOME='/home/agent', USER='agent', PATH='/usr/local/bin:/usr/bin:/bin')
C = '#include <stdio.h>\\n#include <pthread.h>\\nvoid *f(void *p) { return p; }\\n' \\
    'int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("compiled"); return 0; }\\n'
open('t.c', 'w').write(C)
TEST = 'import subprocess\\ndef test_it(tmp_path):\\n    assert subprocess.check_output(["echo", "x"])\\n'
open('test_it.py', 'w').write(TEST)
SERVER = "const h=require('http');const s=h.createServer((q,r)=>r.end('served'));" \\
    "s.listen(0,()=>h.get({port:s.address().port},r=>r.on('data',d=>{console.log(''+d);s.close()})))"
open('server.js', 'w').write(SERVER)
POOL = 'from concurrent.futures import ProcessPoolExecutor as P; print(sum(P(2).map(abs, [1, -2])))'
open('pool.py', 'w').write(POOL)
WAL = 'import sqlite3; print(sqlite3.connect("d").execute("pragma journal_mode=wal").fetchone())'
open('wal.py', 'w').write(WAL)
COMMANDS = {
    'git': 'git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git gc -q'
           ' && git worktree add -q ../w && git clone -q . ../c && git log --oneline | wc -l',
    'gcc': 'gcc -g -pthread t.c -o t && ./t',
    'gdb': 'gdb -q -batch -ex "break f" -ex run -ex bt ./t',
    'strace': 'strace -f -o trace ./t && grep -c exit_group trace',
    'pytest': 'python3 -m pytest -q test_it.py',
    'asyncio': 'python3 -c "import asyncio; print(asyncio.run(asyncio.create_subprocess_exec(\\'true\\')).pid > 0)"',
    'processes': 'python3 pool.py',
    'sqlite': 'python3 wal.py',
    'node': 'node -e "require(\\'fs\\').promises.readFile(\\'t.c\\').then(b => console.log(b.length))"',
    'node server': 'node server.js',
    'threads': 'node -e "const {Worker}=require(\\'worker_threads\\');new Worker(\\'console.log(7)\\',{eval:true})"',
    'make': 'printf "all:\\\\n\\\\techo made\\\\n" > Makefile && make -s -j4',
    'search': 'rg -c pthread t.c',
    'inotify': 'timeout 1 tail -f t.c | head -1',
    'archive': 'tar czf a.tgz t.c && tar tzf a.tgz',
}
seen = {}
for name, command in COMMANDS.items():
    done = subprocess.run(['sh', '-c', command], capture_output=True, text=True, timeout=120)
    seen[name] = [done.returncode, (done.stdout + done.stderr)[-400:]]
print(json.dumps(seen))
"""


@pytest.fixture
async def desk(short_folder: Path) -> AsyncIterator[Bench]:
    async with bench(short_folder) as made:
        yield made


async def test_everyday_tools_work_in_a_sandbox(desk: Bench) -> None:
    dockerfile = f"FROM {BASE_NAME}\nRUN apt-get update -qq && apt-get install -y -qq --no-install-recommends "
    dockerfile += "gcc libc6-dev gdb strace nodejs && rm -rf /var/lib/apt/lists/*\n"
    images = Images(desk.provider.engine)
    image = await images.ensure(Template(slug="test-tools", dockerfile=dockerfile.encode()), print)
    spec = desk.spec(image=image, memory_bytes=1 << 30)
    await desk.provider.start(spec, command=[PYTHON, "-c", TOOLS])
    seen = json.loads(await desk.printed(spec))
    await desk.provider.remove(spec.session_id, volumes=True)
    assert await images.remove(image) == [image]
    assert {name: text for name, (status, text) in seen.items() if status != 0} == {}
    assert "compiled" in seen["gcc"][1] and "Breakpoint 1, f" in seen["gdb"][1]
    assert "1 passed" in seen["pytest"][1] and "served" in seen["node server"][1]


async def test_a_base_is_made_from_the_package_mirror(desk: Bench, tmp_path: Path) -> None:
    engine = await desk.provider.engine()
    tag = f"kortix-test-base:{secrets.token_hex(6)}"
    lines: list[str] = []
    labels = {"kortix.test": "base"}
    await bootstrap(engine, tag, ("python3", "git"), lines.append, cache=tmp_path, mirror=None, labels=labels, ask=None)
    try:
        answer = docker(
            "run", "--rm", "--network", "none", tag, "sh", "-c", "git --version && python3 -c 'import json'"
        )
        assert answer.startswith("git version")
        assert "kortix.test" in docker("inspect", tag)
        assert lines and list(tmp_path.iterdir()) == []
    finally:
        docker("rmi", tag)


async def test_a_missing_registry_is_known_soon(desk: Bench) -> None:
    """Whatever the machine's network does, set-up goes on: with an answer or without one."""
    engine = await desk.provider.engine()
    assert await registry_answers(engine, "127.0.0.1:9/none:latest", seconds=15.0) is False
