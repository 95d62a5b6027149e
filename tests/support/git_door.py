"""A small HTTP server around `GitDoor`, so that real git clients can speak to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import h11

from kortix_tui.base.errors import KortixError
from kortix_tui.base.ids import new_session_id
from kortix_tui.repository.admission import AdmissionCaps
from kortix_tui.repository.door import Access, GitDoor, PushReport
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.value_scan import ValueScan

_PREFIX = "/v1/git/repo.git/"


@dataclass
class Client:
    """A git checkout as a sandbox would have it: configuration of its own, and nothing of this machine."""

    home: Path
    path: Path
    url: str = ""

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "Agent",
            "GIT_AUTHOR_EMAIL": "agent@example.invalid",
            "GIT_COMMITTER_NAME": "Agent",
            "GIT_COMMITTER_EMAIL": "agent@example.invalid",
            "LC_ALL": "C",
        } | extra

    async def try_git(self, *args: str, stdin: bytes = b"", cwd: Path | None = None, **extra: str) -> tuple[int, str]:
        """Run git; returns its status, and both its streams as one text."""
        process = await asyncio.create_subprocess_exec(
            "git",
            *args,
            cwd=cwd or (self.path if self.path.is_dir() else self.home),
            env=self.environment(**extra),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(120):
            out, _ = await process.communicate(stdin)
        return process.returncode or 0, out.decode("utf-8", "surrogateescape")

    async def git(self, *args: str, stdin: bytes = b"", cwd: Path | None = None, **extra: str) -> str:
        """Run git, which must succeed."""
        status, out = await self.try_git(*args, stdin=stdin, cwd=cwd, **extra)
        assert status == 0, f"git {args}: {out}"
        return out.strip()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.path / name.replace("__", "/")).write_text(text)

    async def commit(self, message: str = "Work", **files: str) -> str:
        """Commit files (names without a suffix) and return the commit."""
        self.write(**files)
        await self.git("add", "-A")
        await self.git("commit", "-q", "-m", message)
        return await self.git("rev-parse", "HEAD")

    async def import_files(self, files: dict[str, bytes]) -> None:
        """One commit on the branch with many files; the checkout stays as it was."""
        branch = await self.git("symbolic-ref", "HEAD")
        changes = (b"M 644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text) for name, text in files.items())
        who = "committer Agent <agent@example.invalid> 1700000000 +0000"
        head = f"commit {branch}\n{who}\ndata 4\nMany\nfrom {branch}^0\n"
        await self.git("fast-import", "--quiet", stdin=head.encode() + b"".join(changes))

    async def tree(self, entries: list[tuple[str, str, str, str]]) -> str:
        """Make a tree object from (mode, type, id, name), unchecked; names may hold anything but NUL."""
        text = b"".join(
            f"{mode} {kind} {object_id}\t".encode() + os.fsencode(name) + b"\0"
            for mode, kind, object_id, name in entries
        )
        return await self.git("mktree", "-z", "--missing", stdin=text)

    async def blob(self, content: bytes) -> str:
        return await self.git("hash-object", "-w", "--stdin", stdin=content)

    async def commit_tree(self, tree: str, *parents: str) -> str:
        flags = [flag for parent in parents for flag in ("-p", parent)]
        return await self.git("commit-tree", tree, *flags, "-m", "Made by hand")


def git(directory: Path, *args: str, **extra: str) -> str:
    """Run git as the operator would, with a fixed identity and no configuration of this machine."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/nonexistent"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "Olive",
        "GIT_AUTHOR_EMAIL": "olive@example.invalid",
        "GIT_COMMITTER_NAME": "Olive",
        "GIT_COMMITTER_EMAIL": "olive@example.invalid",
        "LC_ALL": "C",
    } | extra
    done = subprocess.run(["git", *args], cwd=directory, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"git {args}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def make_source(path: Path, *, files: dict[str, str] | None = None, **init: str) -> Path:
    """A repository of the operator's with one commit on `main`."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main", *(f"--{key.replace('_', '-')}={value}" for key, value in init.items()))
    for name, text in (files or {"README.md": "hello\n", "app.py": "one\ntwo\nthree\n"}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "First")
    return path


@dataclass
class Stage:
    """A source, its mirror, and one session with a door that is being served."""

    root: Path
    source: Path
    mirror: Mirror
    session: str
    base_commit: str
    door: GitDoor
    url: str
    reports: list[PushReport] = field(default_factory=list)

    async def client(self, name: str = "client", *options: str) -> Client:
        """A clone on the session's branch."""
        home = self.root / f"home-{name}"
        home.mkdir()
        client = Client(home, self.root / name, self.url)
        await client.git("clone", "-q", *options, "-b", self.session, self.url, str(client.path))
        return client

    async def session_head(self) -> str | None:
        return await self.mirror.head(self.session)


@contextlib.asynccontextmanager
async def serve(door: GitDoor) -> AsyncIterator[str]:
    """Serve a door on a loopback port; yields the repository's address."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _converse(door, reader, writer)
        except (ConnectionError, KortixError):
            writer.transport.abort()
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{_PREFIX.rstrip('/')}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _converse(door: GitDoor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = h11.Connection(h11.SERVER)

    async def event() -> object:
        while (found := connection.next_event()) is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            connection.receive_data(await reader.read(65536))
        return found

    async def body() -> AsyncIterator[bytes]:
        while isinstance(piece := await event(), h11.Data):
            yield bytes(piece.data)

    while True:
        request = await event()
        if not isinstance(request, h11.Request):
            return
        path, _, query = request.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        incoming = body()
        answer = await door.handle(request.method.decode("ascii"), path.removeprefix(_PREFIX), query, headers, incoming)
        writer.write(connection.send(h11.Response(status_code=answer.status, headers=list(answer.headers))) or b"")
        async with contextlib.aclosing(answer.body):
            async for chunk in answer.body:
                writer.write(connection.send(h11.Data(data=chunk)) or b"")
                await writer.drain()
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        if connection.their_state is h11.SEND_BODY:
            async for _ in incoming:
                pass
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


@contextlib.asynccontextmanager
async def stage(
    root: Path,
    *,
    source: Path | None = None,
    caps: AdmissionCaps | None = None,
    scan: ValueScan | None = None,
    idle_s: float = 30.0,
) -> AsyncIterator[Stage]:
    """A served session on a fresh mirror of a fresh source."""
    source = source or make_source(root / "source")
    mirror, _ = await Mirror.create_from(root / "mirror.git", str(source))
    base_commit = await mirror.copy_base("main")
    session = new_session_id()
    await mirror.create_session_branch(session, base_commit)
    reports: list[PushReport] = []

    async def on_push(report: PushReport) -> None:
        reports.append(report)

    door = GitDoor(mirror, session, "main", access=Access.FULL, caps=caps, scan=scan, on_push=on_push, idle_s=idle_s)
    async with serve(door) as url:
        yield Stage(root, source, mirror, session, base_commit, door, url, reports)
