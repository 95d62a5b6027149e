"""How programs inside a sandbox ask the host: one JSON request over the door, repeated while the host is away."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

# The HTTP module takes TLS along when it can; the door has none, and loading it is a third of the start.
sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
import http.client  # noqa: E402

DOOR = "/run/kortix/door.sock"
TOKEN_FILE = "/run/kortix-agent/token"
REQUEST_S = 90.0
PATIENCE_S = float(os.environ.get("KORTIX_PATIENCE", "60"))
"""Seconds; new connections at the door wait that long for the next host."""
ANSWER_LIMIT = 12 << 20


class Failed(Exception):
    """The command ends with status 1.

    Args:
        message: What is wrong.
        hint: What to do about it.
        code: A word for programs.
    """

    def __init__(self, message: str, hint: str | None = None, code: str = "failed") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class _DoorConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ.get("KORTIX_DOOR", DOOR))


def _token() -> str:
    token = os.environ.get("KORTIX_TOKEN", "")
    if not token:
        try:
            with open(TOKEN_FILE, encoding="ascii") as file:
                token = file.read().strip()
        except OSError as error:
            raise Failed(
                "There is no token for this sandbox.", "Run this command inside a session.", "no_token"
            ) from error
    return token


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the host and return its answer.

    Raises:
        Failed: It refused, or it is not there.
    """
    status, raw = _insist(method, path, body)
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise Failed(f"The host answered {status} without JSON.", code="bad_answer") from error
    if status >= 400:
        raise _fault(status, answer)
    return answer


def fetch(path: str) -> bytes:
    """Get something from the host as it is. Raises as `ask` does."""
    status, raw = _insist("GET", path, None)
    if status >= 400:
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        raise _fault(status, answer)
    return raw


def _fault(status: int, answer: Any) -> Failed:
    fault = answer.get("error", {}) if isinstance(answer, dict) else {}
    return Failed(
        str(fault.get("message", f"The host answered {status}.")), fault.get("hint"), str(fault.get("code", "failed"))
    )


def _insist(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
    """One answer. A host that goes hands over within seconds; every verb may be repeated: the second time changes
    nothing."""
    patience = time.monotonic() + PATIENCE_S
    while True:
        try:
            return _exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > patience:
                raise Failed(
                    f"The host does not answer: {error}.", "It may be restarting; try again in a minute.", "no_host"
                ) from error
            time.sleep(0.2)


def _exchange(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
    connection = _DoorConnection("door", timeout=REQUEST_S)
    headers = {"Authorization": f"Bearer {_token()}", "Content-Type": "application/json", "Connection": "close"}
    try:
        connection.request(method, "/v1/agent/" + path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read(ANSWER_LIMIT)
    finally:
        connection.close()


def warn(message: str) -> None:
    """Say something that is not the answer."""
    print(f"kortix: {message}", file=sys.stderr)
