"""Prism, a mock server that checks every request against an OpenAPI document. It is none of ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from documents import document_bytes
from node_packages import node_program

VERSION = "5.14.2"


@contextmanager
def prism(name: str, folder: Path) -> Iterator[str]:
    """Serve one of the documents in `tests/data/openapi` at a loopback port; gives its URL.

    Prism answers a request that the document does not allow with 4xx, and lists what is wrong in the header
    `sl-violations`.
    """
    program = node_program("@stoplight/prism-cli", VERSION, "prism")
    path = folder / name.removesuffix(".gz")
    path.write_bytes(document_bytes(name))
    port = _free_port()
    with (folder / "prism.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "mock", "--port", str(port), "--verboseLevel", "error", path],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait(process, port, folder / "prism.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"Prism does not listen: {log.read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
