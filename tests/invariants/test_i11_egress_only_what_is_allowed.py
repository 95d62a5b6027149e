"""I11, of the way to the network: whatever a sandbox says to its proxy, it reaches what its rules name, nothing else.

Everything is tried from inside a real sandbox whose agent may reach two names. What it must not reach is really there:
a service of the host on loopback that counts who comes.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from egress_scene import FILES, PLAIN, Outside, outside

from kortix_tui.base.paths import Home
from kortix_tui.runtime.views import SessionView

pytestmark = pytest.mark.docker

TRY = """
import base64, json, socket, ssl, sys
token, requests = json.loads(sys.stdin.read())
def basic(password):
    return 'Proxy-Authorization: Basic ' + base64.b64encode(('k:' + password).encode()).decode() + '\\r\\n'
def ask(text):
    with socket.create_connection(('127.0.0.1', 8118), timeout=30) as s:
        s.sendall(text.encode('latin-1'))
        data = b''
        try:
            while b'\\r\\n\\r\\n' not in data and (piece := s.recv(65536)):
                data += piece
        except OSError as error:
            return type(error).__name__
        return data.split(b'\\r\\n')[0].decode('latin-1')
seen = {}
for name, text in requests.items():
    seen[name] = ask(text.replace('{AUTH}', basic(token)))
print('RESULT ' + json.dumps(seen))
"""


@pytest.fixture
def desk(home: Home, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    with outside(home, short_folder, monkeypatch) as made:
        yield made


class Watched:
    """A service of the host on loopback."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visits = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


def token_of(desk: Outside, session: SessionView) -> str:
    row = desk.runtime.context.store.one("SELECT agent_token FROM sessions WHERE id = ?", (session.id,))
    assert row is not None
    return str(row[0])


def attempt(desk: Outside, requests: dict[str, str], *, token: str | None = None) -> dict[str, str]:
    """Say these things to the proxy from inside; the first line of each answer."""
    session, _ = desk.run("sleep 1000 >/dev/null 2>&1 &", agent="caller")
    given = json.dumps([token or token_of(desk, session), requests])
    text = desk.shell(session, f"cat > /tmp/try.py <<'END'\n{TRY}END\npython3 /tmp/try.py <<'END'\n{given}\nEND")
    answers: dict[str, str] = json.loads(text.partition("RESULT ")[2])
    return answers


def connect(place: str) -> str:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n{{AUTH}}\r\n"


def get(url: str, host: str) -> str:
    return f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{{AUTH}}\r\n"


def test_no_spelling_of_a_closed_place_gets_through(desk: Outside, service: Watched) -> None:
    port = service.port
    desk.names = {
        "meta.corp.example": ("169.254.169.254",), "six.corp.example": ("fd00:ec2::254",),
        "mixed.corp.example": ("127.0.0.1", "10.1.2.3"), "mapped.corp.example": ("::ffff:169.254.169.254",),
        "nat.corp.example": ("64:ff9b::a9fe:a9fe",), "lan.corp.example": ("192.168.1.1",),
        "bridge.corp.example": ("172.17.0.1",), "wire.corp.example": ("168.63.129.16",),
        "none.corp.example": (), "odd.corp.example": ("not an address",),
    }  # fmt: skip
    places = [
        f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"0.0.0.0:{port}", f"2130706433:{port}",
        f"0x7f000001:{port}", f"0177.0.0.1:{port}", f"127.1:{port}", f"[::ffff:127.0.0.1]:{port}",
        f"172.17.0.1:{port}", "169.254.169.254:80", "[fd00:ec2::254]:80", "127.0.0.1:8118",
        f"{FILES}:{port}", f"{FILES}:{desk.plain}x", f"{FILES}.:{desk.tls}", f"x{FILES}:{desk.tls}",
        f"{FILES}.evil.example:{desk.tls}", f"corp.example:{desk.plain}", f"{socket.gethostname()}:{port}",
        f"evil@{FILES}:{desk.tls}", f"{FILES}%00.evil.example:{desk.tls}", f"{FILES}:{desk.tls}@evil.example:80",
        *(f"{name}:{desk.plain}" for name in desk.names),
    ]  # fmt: skip
    answers = attempt(desk, {place: connect(place) for place in places})
    assert {
        place: answer for place, answer in answers.items() if answer.split(" ")[1] not in {"400", "403", "502"}
    } == {}
    assert service.visits == 0
    on_record = {(one["host"], one["outcome"]) for one in desk.attempts()}
    assert ("169.254.169.254", "denied") in on_record and ("meta.corp.example", "denied") in on_record
    assert not {outcome for _, outcome in on_record} & {"success"}


def test_plain_requests_are_held_to_the_same_rules(desk: Outside, service: Watched) -> None:
    port, good = service.port, f"{PLAIN}:{desk.plain}"
    requests = {
        "address": get(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}"),
        "metadata": get("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
        "other host": get(f"http://{good}/hello.txt", f"127.0.0.1:{port}"),
        "other port": get(f"http://{PLAIN}:{port}/", f"{PLAIN}:{port}"),
        "user": get(f"http://{good}@127.0.0.1:{port}/", good),
        "https": get(f"https://{FILES}:{desk.tls}/hello.txt", f"{FILES}:{desk.tls}"),
        "scheme": get("file:///etc/passwd", "x"),
        "backslash": get(f"http://{good}\\@127.0.0.1:{port}/", good),
        "tab": get(f"http://127.0.0.1\t.{good}/", good),
        "two hosts": f"GET http://{good}/ HTTP/1.1\r\nHost: {good}\r\nHost: 127.0.0.1\r\n{{AUTH}}\r\n",
        "control": get(f"http://{good}/a\x0bb", good),
        "no token": f"GET http://{good}/hello.txt HTTP/1.1\r\nHost: {good}\r\nConnection: close\r\n\r\n",
        "good": get(f"http://{good}/hello.txt", good),
    }
    answers = attempt(desk, requests)
    assert answers.pop("good").split(" ")[1] == "200"
    assert answers.pop("no token").split(" ")[1] == "407"
    assert {name: answer for name, answer in answers.items() if answer.split(" ")[1] not in {"400", "403"}} == {}
    assert service.visits == 0
    assert [one["host"] for one in desk.attempts() if one["outcome"] == "success"] == [PLAIN]


def test_a_second_request_on_a_connection_is_judged_by_itself(desk: Outside, service: Watched) -> None:
    good = f"{PLAIN}:{desk.plain}"
    two = (
        f"GET http://{good}/hello.txt HTTP/1.1\r\nHost: {good}\r\n{{AUTH}}\r\n"
        + get(f"http://127.0.0.1:{service.port}/", f"127.0.0.1:{service.port}")
        + get(f"http://{good}/hello.txt", good)
    )
    attempt(desk, {"both": two})
    assert service.visits == 0
    assert {(one["host"], one["outcome"]) for one in desk.attempts()} == {(PLAIN, "success"), ("127.0.0.1", "denied")}


def test_another_sessions_token_opens_nothing(desk: Outside) -> None:
    other, _ = desk.run("true", agent="caller")
    requests = {"connect": connect(f"{FILES}:{desk.tls}"), "get": get(f"http://{PLAIN}:{desk.plain}/", PLAIN)}
    answers = attempt(desk, requests, token=token_of(desk, other))
    assert {answer.split(" ")[1] for answer in answers.values()} == {"407"}
    assert desk.attempts() == []


FRONT = """
import base64, os, socket, ssl, sys
def tunnel(host, name):
    s = socket.create_connection(('127.0.0.1', 8118), timeout=30)
    a = base64.b64encode(('k:' + os.environ['KORTIX_TOKEN']).encode()).decode()
    head = 'CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\nProxy-Authorization: Basic %s\\r\\n\\r\\n' % (host, host, a)
    s.sendall(head.encode())
    assert s.recv(1000).startswith(b'HTTP/1.1 200')
    c = ssl.create_default_context()
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    try:
        c.wrap_socket(s, server_hostname=name)
        print('SHOOK', name)
    except OSError as error:
        print('CUT', name)
for name in ('evil.example', None, '@'):
    tunnel('@:#', name)
"""


def test_a_tunnel_to_one_name_is_no_tunnel_to_another(desk: Outside) -> None:
    """Many names share an address: who asks there for another than the allowed one has gone around the list."""
    code = FRONT.replace("@", FILES).replace("#", str(desk.tls))
    session, _ = desk.run(f"python3 - <<'END'\n{code}END\n", agent="caller")
    said = [line for line in desk.text(session).splitlines() if line.startswith(("SHOOK", "CUT"))]
    assert said == ["CUT evil.example", "CUT None", f"SHOOK {FILES}"]
    assert [(one["outcome"], one["code"]) for one in desk.attempts()][:2] == [("denied", "sni_mismatch")] * 2
