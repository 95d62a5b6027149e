"""The demo's help desk: a small HTTP service, run as a program of its own beside a demo, by the path of this file.

Standard library only, and it imports nothing of the package: it starts alike from a checkout and when installed. It
takes the folder of its files as its argument, and the socket that it listens on as descriptor 3; see `demo_desk`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

CONFIG: Final = "desk.json"
TICKETS: Final = "tickets.json"
LISTENING: Final = 3
MAX_BODY: Final = 64 * 1024
IDLE_S: Final = 30.0
_TICKET: Final = re.compile(r"/tickets/(T-[0-9]{1,6})(/draft|/reply)?")
_HIDDEN: Final = ("text", "draft", "reply")


class Refusal(Exception):
    """An answer other than the one that was hoped for.

    Args:
        status: Of the HTTP answer.
        message: What is wrong, in a sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Tickets:
    """The tickets, in a file that is always whole.

    Args:
        path: The file; it is there already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._tickets: dict[str, dict[str, Any]] = {one["id"]: one for one in json.loads(path.read_text("utf-8"))}

    def lines(self, status: str | None) -> list[dict[str, Any]]:
        """The queue without texts, oldest first."""
        with self._guard:
            return [
                {key: value for key, value in one.items() if key not in _HIDDEN}
                for one in self._tickets.values()
                if status in (None, one["status"])
            ]

    def find(self, ticket_id: str) -> dict[str, Any]:
        """One ticket.

        Raises:
            Refusal: There is none of that id.
        """
        with self._guard:
            return self._find(ticket_id)

    def draft(self, ticket_id: str, text: str) -> dict[str, Any]:
        """Keep a draft; the last one counts."""
        with self._guard:
            return self._keep(self._open(ticket_id), draft=text)

    def reply(self, ticket_id: str, to: str, subject: str, text: str) -> dict[str, Any]:
        """Send a reply, once.

        Raises:
            Refusal: It is answered already, or `to` is not its customer's address; nothing is sent.
        """
        with self._guard:
            ticket = self._open(ticket_id)
            if to != ticket["customer"]["email"]:
                raise Refusal(422, f"{ticket_id} is not from that address.")
            sent_at = datetime.now(UTC).isoformat(timespec="seconds")
            return self._keep(
                ticket, status="answered", reply={"to": to, "subject": subject, "text": text, "sent_at": sent_at}
            )

    def _find(self, ticket_id: str) -> dict[str, Any]:
        if ticket_id not in self._tickets:
            raise Refusal(404, f"There is no ticket {ticket_id}.")
        return self._tickets[ticket_id]

    def _open(self, ticket_id: str) -> dict[str, Any]:
        ticket = self._find(ticket_id)
        if ticket["status"] != "open":
            raise Refusal(409, f"{ticket_id} is answered already.")
        return ticket

    def _keep(self, ticket: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """Change a ticket on disk first, then here: what is told was kept."""
        changed = {**ticket, **changes}
        every = {**self._tickets, changed["id"]: changed}
        replace(self.path, json.dumps(list(every.values()), indent=2, ensure_ascii=False))
        self._tickets = every
        return changed


def replace(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "help-desk"
    sys_version = ""
    timeout = IDLE_S
    server: Desk

    def do_GET(self) -> None:
        """Answer a read."""
        self._serve()

    do_PUT = do_POST = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *arguments: Any) -> None:
        """One line a request; a path has only what a caller may know anyway."""
        sys.stderr.write(f"{self.log_date_time_string()} {(format % arguments).encode('unicode_escape').decode()}\n")

    def _serve(self) -> None:
        try:
            body = self._body()
            self._admit()
            status, answer = self._answer(body)
        except Refusal as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        data = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(data)

    def _admit(self) -> None:
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        seen = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        if scheme.lower() != "bearer" or not hmac.compare_digest(seen, self.server.token_sha256):
            raise Refusal(401, "A token is needed.")

    def _body(self) -> bytes:
        """All of the body, so that the connection stays usable."""
        size = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not size.isascii() or not size.isdigit() or int(size) > MAX_BODY:
            self.close_connection = True
            raise Refusal(413, f"A body has a length, of {MAX_BODY} bytes at most.")
        return self.rfile.read(int(size))

    def _answer(self, body: bytes) -> tuple[int, Any]:
        path, _, query = self.path.partition("?")
        tickets = self.server.tickets
        if (self.command, path) == ("GET", "/tickets"):
            if query not in ("", "status=open", "status=answered"):
                raise Refusal(400, "A status is open or answered.")
            return 200, {"tickets": tickets.lines(query.partition("=")[2] or None)}
        found = _TICKET.fullmatch(path)
        match (self.command, found and found[2]):
            case ("GET", None) if found:
                return 200, tickets.find(found[1])
            case ("PUT", "/draft") if found:
                return 200, tickets.draft(found[1], *_texts(body, "text"))
            case ("POST", "/reply") if found:
                return 201, tickets.reply(found[1], *_texts(body, "to", "subject", "text"))
        raise Refusal(404, "There is nothing here.")


def _texts(body: bytes, *names: str) -> list[str]:
    """The texts of a JSON object with exactly these names."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or set(given) != set(names):
        raise Refusal(400, f"The body is a JSON object of {', '.join(names)}.")
    texts = [given[name] for name in names]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise Refusal(400, f"Texts that are not empty are needed: {', '.join(names)}.")
    return texts


class Desk(ThreadingHTTPServer):
    """The service on a socket that listens already.

    Args:
        folder: Of its files.
        listening: The socket.
    """

    daemon_threads = True

    def __init__(self, folder: Path, listening: socket.socket) -> None:
        super().__init__(listening.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.tickets = Tickets(folder / TICKETS)
        self.token_sha256 = str(json.loads((folder / CONFIG).read_text("utf-8"))["token_sha256"])

    def service_actions(self) -> None:
        """End when the demo's folder was removed by hand: nobody would ever ask again."""
        if not self.tickets.path.exists():
            raise SystemExit(0)


def main() -> None:
    """Serve until the process is ended."""
    with Desk(Path(sys.argv[1]), socket.socket(fileno=LISTENING)) as desk:
        desk.serve_forever()


if __name__ == "__main__":
    main()
