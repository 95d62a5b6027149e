"""Run by an agent in its sandbox: says the values of its environment variables named by arguments, in every way.

Those behind a `+` also go into commits and change requests. Only whole spellings: nobody can recognise every piece.
Standard library only; the prompt carries this file's text.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import quote, quote_plus

DOOR = "/run/kortix/door.sock"


def main() -> None:
    names = {name.strip("+"): name.startswith("+") for name in sys.argv[1:]}
    values = {name: os.environb[name.encode()] for name in names if name.encode() in os.environb}
    for name, value in values.items():
        forms = _forms(value)
        for descriptor in (1, 2):
            for form in forms:
                os.write(descriptor, b"<" + form + b">\n")
        for form in forms[:4]:
            _slowly(form)
        for form in forms:
            for cut in {3, len(form) // 4, len(form) // 2, len(form) - 5}:
                _in_two(form, cut)
        _mistakes(value)
        _door(value)
        with open(f"/home/agent/{name}.kept", "wb") as file:  # for a later turn, when it may be another value
            file.write(value)
    _git({name: value for name, value in values.items() if names[name]})
    # Work that nobody committed: it is saved with the value in it, for no work may be lost.
    for name, value in values.items():
        with open(f"dirty-{name}.txt", "wb") as file:
            file.write(value)


def _forms(value: bytes) -> list[bytes]:
    text = value.decode()
    encoded = [base64.b64encode(b"x" * before + value + b"yz") for before in range(3)]
    return [
        value, encoded[0], value.hex().encode(), json.dumps(text).encode(), *encoded[1:],
        *(base64.urlsafe_b64encode(b"x" * before + value) for before in range(3)), value.hex().upper().encode(),
        quote(value, safe="").encode(), quote(value).encode(), quote_plus(value).encode(),
        json.dumps(text, ensure_ascii=False).encode(), json.dumps(json.dumps({"key": text})).encode(),
        html.escape(text).encode(), repr(value).encode(), repr(text).encode(), text.replace("\n", "\r\n").encode(),
        base64.b64encode(b"user:" + value), text.encode("utf-16-le"),
    ]  # fmt: skip


def _slowly(form: bytes) -> None:
    for at in range(len(form)):
        os.write(1, form[at : at + 1])
        time.sleep(0.001)
    os.write(1, b"\n")


def _in_two(form: bytes, cut: int) -> None:
    os.write(1, b"{" + form[:cut])
    time.sleep(0.005)
    os.write(1, form[cut:] + b"}\n")


def _mistakes(value: bytes) -> None:
    """Programs that complain about what they were given."""
    for command in ([b"ls", b"--", value], [b"cat", b"/" + value], [b"sh", b"-xc", b'echo "$0"', value]):
        subprocess.run(command, timeout=20)
    subprocess.run([b"sh", b"-c", b'echo "$1" | sed "s/^/> /"; "$1"', b"sh", value], timeout=20)
    subprocess.run([sys.executable, b"-c", b"import sys; raise ValueError(sys.argv[1:])", value], timeout=20)
    subprocess.run([b"kortix", b"secrets", b"request", value], timeout=20)
    subprocess.run([b"kortix", b"nonsense", value], timeout=20)


def _door(value: bytes) -> None:
    """Everything that an agent can say to the host, with the value in it."""
    with open("/run/kortix-agent/token", encoding="ascii") as file:
        token = file.read().strip()
    text, word = value.decode(), value.hex()
    bodies = [
        ("secrets/request", {"identifier": "LEAK", "reason": f"because {text}"}),
        (
            "secrets/request",
            {"identifier": "LEAK_" + base64.urlsafe_b64encode(value).decode().rstrip("="), "reason": word},
        ),
        ("secrets/request", {"identifier": text}),
        ("secrets/request", {"identifier": "LEAK", "exposure": text}),
        ("cr", {"title": text, "description": text, "head_commit": word[:40].ljust(40, "0")}),
        ("cr", {"title": text, "description": text, "head_commit": "0" * 40}),
        ("cr", {"title": text, text: text}),
        ("cr/merge", {"title": text}),
    ]
    requests = [("POST", f"/v1/agent/{verb}", token, json.dumps(body).encode()) for verb, body in bodies]
    requests += [("POST", "/v1/agent/cr", token, value), ("POST", "/v1/agent/secrets/request", token, b'{"x":' + value)]
    for path in (f"secrets/request/{word[:64].lower()}", quote(value, safe=""), f"secrets?x={quote_plus(value)}"):
        requests.append(("GET", f"/v1/agent/{path}", token, b""))
    requests += [
        ("GET", f"/v1/git/repo.git/{word}", token, b""),
        ("GET", f"/v1/git/repo.git/info/refs?service={quote(value, safe='')}", token, b""),
        ("GET", "/v1/agent/session", word, b""),
        ("POST", "/v1/supervisor", word, value),
        (word, f"/{word}", word, value),
    ]
    for method, path, bearer, body in requests:
        head = f"{method} {path} HTTP/1.1\r\nHost: {word}\r\nAuthorization: Bearer {bearer}\r\nX-Leak: {word}\r\n"
        raw = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        for sent in (raw, value + raw):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(DOOR)
                connection.sendall(sent)
                while connection.recv(1 << 16):
                    pass


def _git(values: dict[str, bytes]) -> None:
    _run("git", "fetch", "-q", "origin")
    _run("git", "reset", "-q", "--hard", "origin/main")
    for name, value in values.items():
        text, word = value.decode(), value.hex()
        with open("leak.txt", "wb") as file:
            file.write(b"one\n" + value + b"\n")
        with open("leak.b64", "wb") as file:
            file.write(base64.b64encode(value))
        _push_commit(f"Leak {name}", "leak.txt", "leak.b64")
        with open(base64.urlsafe_b64encode(value).decode(), "w") as file:
            file.write("in the name\n")
        _push_commit("Leak in a name", base64.urlsafe_b64encode(value).decode())
        with open("plain.txt", "w") as file:
            file.write(name)
        _push_commit(f"Message {text}", "plain.txt")
        _push_commit("Author", "plain.txt", author=f"{word} <a@example.invalid>")
        _run("git", "tag", "-a", "-m", text, f"leak-{name}")
        _run("git", "push", "-q", "origin", f"leak-{name}")
        for ref in (f"refs/heads/{word}", f"refs/kortix/rescue/{word}/1", f"refs/tags/{word}"):
            _run("git", "push", "-q", "origin", f"HEAD:{ref}")
        _run("git", "push", "-q", "-o", text, "origin", "HEAD")
        _run("git", "push", "-q", "--receive-pack", word, "origin", "HEAD")
    # A change request whose commits are clean and whose words are not.
    with open("hello.txt", "a") as file:
        file.write("more\n")
    _run("git", "commit", "-qam", "Clean")
    for value in values.values():
        text = value.decode()
        for title in (text, base64.b64encode(value).decode(), value.hex()):
            if len(title) < 190:
                _run("kortix", "cr", "open", "--title", f"A {title}", "--description", f"{text}\n{value.hex()}")


def _push_commit(message: str, *paths: str, author: str | None = None) -> None:
    _run("git", "add", "-f", "--", *paths)
    who = [] if author is None else ["--author", author]
    _run("git", "commit", "-q", "--allow-empty", "-m", message, *who)
    _run("git", "push", "-q", "origin", "HEAD")
    _run("git", "reset", "-q", "--hard", "origin/main")


def _run(*command: str) -> None:
    subprocess.run(command, cwd="/workspace", timeout=60)


if __name__ == "__main__":
    os.chdir("/workspace")
    main()
