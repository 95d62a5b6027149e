"""A certificate authority of the tests' own, and servers on loopback that say exactly what a test wants said."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""What a test's settings open (`allow_private`) to reach the servers of this module."""
_HIGHEST_HEAD = 1 << 20


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class LocalCa:
    """A certificate authority in a folder. `file` is what a client has to trust (PEM)."""

    def __init__(self, folder: Path, name: str = "Kortix test authority") -> None:
        self.folder = folder
        self.file = folder / "ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.file.write_bytes(self._sign(self._name, self._key, (), authority=True).public_bytes(_PEM))

    def issue(self, *names: str, valid_days: int = 2) -> tuple[Path, Path]:
        """A certificate for names and addresses, and its key, as files. `valid_days` below 0 is one that has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(names[0]), key, names, authority=False, valid_days=valid_days)
        stem = f"{names[0].replace(':', '_').replace('*', '_')}-{certificate.serial_number:x}"
        certificate_file, key_file = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        certificate_file.write_bytes(certificate.public_bytes(_PEM))
        key_file.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        key_file.chmod(0o600)
        return certificate_file, key_file

    def server_context(self, *names: str, valid_days: int = 2) -> ssl.SSLContext:
        """What a server of those names speaks TLS with."""
        certificate, key = self.issue(*names, valid_days=valid_days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: Iterable[str],
        *,
        authority: bool,
        valid_days: int = 2,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=valid_days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(*(at in (5, 6) for at in range(9)))  # signing certificates and revocation lists
            builder = builder.add_extension(usage, critical=True)
        else:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            usage_of_server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(alternatives, critical=False).add_extension(usage_of_server, critical=False)
        return builder.sign(self._key, hashes.SHA256())


_PEM = serialization.Encoding.PEM


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Received:
    """One request as it came: `head` is its exact bytes up to and with the empty line, `body` without its framing."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode("ascii")

    @property
    def target(self) -> str:
        return self.head.split(b"\r\n", 1)[0].split(b" ")[1].decode("ascii")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names in lower case, in their order."""
        lines = self.head.decode("latin-1").split("\r\n")[1:-2]
        pairs = (line.partition(":") for line in lines)
        return tuple((name.lower(), value.strip()) for name, _, value in pairs)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True)
class Answer:
    """What a server answers. Header `content-length` is added unless there is one, or `transfer-encoding`."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)

    def packed(self, *, with_body: bool = True) -> bytes:
        headers = self.headers
        if not {"content-length", "transfer-encoding"} & {name.lower() for name, _ in headers}:
            headers = (*headers, ("content-length", str(len(self.body))))
        lines = [f"HTTP/1.1 {self.status} Said", *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + (self.body if with_body else b"")


class RawServer:
    """A TCP or TLS server on 127.0.0.1; `serve` has each connection, after its handshake, in a thread of its own.

    Use it as a context manager. A handler that waits must do so on `closing`; the end shuts connections.

    Attributes:
        accepted: How many connections came, those with a failed handshake too.
        server_names: The name that each TLS client asked for.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], None],
        *,
        ca: LocalCa | None = None,
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.serve = serve
        self.closing = threading.Event()
        self.accepted = 0
        self.server_names: list[str | None] = []
        self._context = context or (ca.server_context(*names) if ca is not None else None)
        if self._context is not None:
            self._context.sni_callback = self._named
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="tls-server")

    @property
    def scheme(self) -> str:
        return "http" if self._context is None else "https"

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def __enter__(self) -> RawServer:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server, its connections and its threads."""
        self.closing.set()
        _shut(self._listener)
        self._accepting.join(30)
        with self._lock:
            left = list(self._open)
        for connection in left:
            _shut(connection)
        for thread in self._threads:
            thread.join(30)

    def _named(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        self.server_names.append(name)

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with self._lock:
                self._open.add(connection)
            thread = threading.Thread(target=self._run, args=(connection,), name="tls-connection")
            self._threads.append(thread)
            thread.start()

    def _run(self, raw: socket.socket) -> None:
        connection = raw
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(raw, server_side=True)
                with self._lock:
                    self._open.discard(raw)
                    self._open.add(connection)
                if self.closing.is_set():
                    return
            self.serve(connection)
        except (OSError, ValueError):
            return  # the client went away, or the server ends
        finally:
            with self._lock:
                self._open.discard(raw)
                self._open.discard(connection)
            _shut(connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@dataclass
class Source:
    """What has come on a connection, to be taken in parts."""

    connection: socket.socket
    data: bytearray = field(default_factory=bytearray)

    def more(self) -> None:
        piece = self.connection.recv(64 * 1024)
        if not piece:
            raise ConnectionError("the client closed")
        self.data += piece

    def until(self, mark: bytes) -> bytes:
        while mark not in self.data:
            if len(self.data) > _HIGHEST_HEAD:
                raise ConnectionError("too long a head")
            self.more()
        return self.exactly(self.data.index(mark) + len(mark))

    def exactly(self, count: int) -> bytes:
        while len(self.data) < count:
            self.more()
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken


def read_request(source: Source) -> Received:
    """The next request of a connection.

    Raises:
        ConnectionError: There is none.
    """
    head = source.until(b"\r\n\r\n")
    request = Received(head, b"")
    if (request.header("transfer-encoding") or "").lower() == "chunked":
        body = bytearray()
        while size := int(source.until(b"\r\n").split(b";")[0], 16):
            body += source.exactly(size)
            source.exactly(2)
        source.until(b"\r\n")
        return Received(head, bytes(body))
    return Received(head, source.exactly(int(request.header("content-length") or 0)))


class TlsServer(RawServer):
    """An HTTP/1.1 server that answers each request by a function, and remembers what it got.

    Without a `ca` it speaks plain http. `answer` may return raw bytes instead of an `Answer`: then the connection is
    closed after them.
    """

    def __init__(
        self,
        answer: Callable[[Received], Answer | bytes] = lambda request: Answer(),
        *,
        ca: LocalCa | None = None,
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(self._talk, ca=ca, names=names, context=context)
        self.answer = answer
        self.received: list[Received] = []

    def __enter__(self) -> TlsServer:
        super().__enter__()
        return self

    def _talk(self, connection: socket.socket) -> None:
        source = Source(connection)
        while True:
            request = read_request(source)
            self.received.append(request)
            answer = self.answer(request)
            if isinstance(answer, bytes):
                connection.sendall(answer)
                return
            connection.sendall(answer.packed(with_body=request.method != "HEAD"))
            if (request.header("connection") or "").lower() == "close":
                return
