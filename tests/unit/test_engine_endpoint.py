"""Which engine is taken: order of the places, and what a stale or silent one means."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.sandbox.docker import endpoint
from kortix_tui.sandbox.docker.endpoint import Answer, Endpoint, ask, candidates, discover


class _Ping(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, *_: object) -> None:
        return

    def address_string(self) -> str:
        return "unix"


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def engine(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _Server(str(path), _Ping) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may connect to everything, so root's test goes on as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def stale(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(path))
    return path


def context(home: Path, name: str, host: str, *, current: bool) -> None:
    folder = home / ".docker/contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (folder / "meta.json").write_text(json.dumps(meta))
    if current:
        (home / ".docker/config.json").write_text(json.dumps({"auths": {}, "currentContext": name}))


@pytest.fixture
def environment(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine without engines: the default socket is moved into the test's folder."""
    monkeypatch.setattr(endpoint, "DEFAULT_SOCKET", short_folder / "default.sock")
    return {"HOME": str(short_folder), "XDG_RUNTIME_DIR": str(short_folder / "run")}


def test_settings_come_before_everything(short_folder: Path, environment: dict[str, str]) -> None:
    environment["DOCKER_HOST"] = "unix:///elsewhere.sock"
    with engine(short_folder / "own.sock") as path:
        found = discover(str(path), environment).endpoint
    assert found == Endpoint(f"unix://{path}", "settings", chosen=True)


def test_docker_host_is_decisive_even_when_it_is_stale(short_folder: Path, environment: dict[str, str]) -> None:
    environment["DOCKER_HOST"] = f"unix://{stale(short_folder / 'stale.sock')}"
    with engine(short_folder / "default.sock"):
        found = discover(None, environment)
    # Another engine would know none of our sandboxes.
    assert found.endpoint is None
    assert "DOCKER_HOST" in found.failure().message


def test_the_current_context_is_followed(short_folder: Path, environment: dict[str, str]) -> None:
    with engine(short_folder / "ctx.sock") as path, engine(short_folder / "default.sock"):
        context(short_folder, "work", f"unix://{path}", current=True)
        found = discover(None, environment).endpoint
    assert found == Endpoint(f"unix://{path}", "context work")


def test_a_context_named_by_the_environment_wins(short_folder: Path, environment: dict[str, str]) -> None:
    with engine(short_folder / "a.sock") as first, engine(short_folder / "b.sock") as second:
        context(short_folder, "a", f"unix://{first}", current=True)
        context(short_folder, "b", f"unix://{second}", current=False)
        found = discover(None, environment | {"DOCKER_CONTEXT": "b"}).endpoint
    assert found == Endpoint(f"unix://{second}", "context b", chosen=True)


def test_an_unknown_named_context_is_an_error(environment: dict[str, str]) -> None:
    with pytest.raises(EngineUnavailable, match="nowhere"):
        discover(None, environment | {"DOCKER_CONTEXT": "nowhere"})


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"currentContext": 3}', "\x00"])
def test_a_broken_client_configuration_does_not_matter(
    broken: str, short_folder: Path, environment: dict[str, str]
) -> None:
    (short_folder / ".docker").mkdir()
    (short_folder / ".docker/config.json").write_text(broken)
    with engine(short_folder / "default.sock"):
        found = discover(None, environment).endpoint
    assert found is not None and found.found_by == "default socket"


def test_a_stale_context_and_socket_fall_through_to_rootless(short_folder: Path, environment: dict[str, str]) -> None:
    context(short_folder, "desktop", f"unix://{short_folder}/gone.sock", current=True)
    stale(short_folder / "default.sock")
    with engine(short_folder / "run/docker.sock"):
        found = discover(None, environment)
    assert found.endpoint is not None and found.endpoint.found_by == "rootless socket"
    assert [attempt.answer for attempt in found.attempts] == [Answer.ABSENT, Answer.STALE, Answer.ANSWERED]


def test_docker_desktops_socket_is_found(short_folder: Path, environment: dict[str, str]) -> None:
    with engine(short_folder / ".docker/run/docker.sock"):
        found = discover(None, environment).endpoint
    assert found is not None and found.found_by == "Docker Desktop socket"


def test_without_any_engine_setup_is_offered(environment: dict[str, str]) -> None:
    failure = discover(None, environment).failure()
    assert failure.message == "No Docker engine was found on this machine."
    assert failure.hint == "Run: kortix setup"


def test_an_engine_that_hangs_is_not_replaced(
    short_folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_PING_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent, engine(short_folder / "run/docker.sock"):
        silent.bind(str(short_folder / "default.sock"))
        silent.listen(1)
        found = discover(None, environment)
    assert found.endpoint is None
    assert "does not answer" in found.failure().message


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("tcp://build.example:2376", "another machine"),
        ("ssh://me@build.example", "SSH"),
        ("npipe:////./pipe/docker_engine", "Only unix"),
        ("unix://", "no socket"),
    ],
)
def test_engines_that_cannot_see_the_door_are_refused(url: str, reason: str, environment: dict[str, str]) -> None:
    found = discover(url, environment)
    assert found.endpoint is None and found.attempts[0].answer is Answer.UNSUITABLE
    assert reason in found.failure().message


def test_a_loopback_address_is_asked() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert ask(Endpoint(f"tcp://127.0.0.1:{port}", "settings")).answer is Answer.STALE


def test_a_socket_of_others_is_reported_as_denied(short_folder: Path) -> None:
    with engine(short_folder / "own.sock") as path:
        short_folder.chmod(0o755)
        path.chmod(0o000)
        with as_nobody():
            found = discover(str(path), {})
    assert found.denied is not None
    assert "may not be used by this user" in found.failure().message


def test_each_place_is_asked_once(short_folder: Path, environment: dict[str, str]) -> None:
    context(short_folder, "same", f"unix://{short_folder}/default.sock", current=True)
    urls = [found.url for found in candidates(None, environment)]
    assert len(urls) == len(set(urls))
