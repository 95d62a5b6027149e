"""A connection to the engine that asyncio code can use.

The SDK blocks, so its calls run in a few threads of our own. Each thread has its own client (a
`requests` session is not meant to be shared), and each call a deadline that also ends the thread's wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, TypeVar

from kortix_tui.base.errors import Conflict, EngineUnavailable, KortixError, NotFound
from kortix_tui.base.text import visible_line
from kortix_tui.sandbox.docker.endpoint import Endpoint, discover
from kortix_tui.sandbox.failures import SandboxFailed

Client: TypeAlias = Any
"""The SDK's low-level `APIClient`, half of which has no types."""
Result = TypeVar("Result")
MINIMUM_API = (1, 41)
"""Docker 20.10: the first with a private cgroup namespace by request."""
_THREADS = 8
_CALL_SECONDS = 30.0


class OpenStream(Protocol):
    """Starts a streaming call, given a client and the seconds that one read may take."""

    def __call__(self, client: Client, seconds: float, /) -> Iterable[dict[str, Any]]:
        """The decoded messages of the stream."""
        ...


class Engine:
    """Calls to one engine.

    Args:
        endpoint: Where it listens.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kortix-docker")
        self._local = threading.local()
        self._clients: list[Client] = []
        self._lock = threading.Lock()
        self._api_version: str | None = None
        self._closed = False

    @classmethod
    async def find(cls, setting: str | None = None) -> Engine:
        """The engine that `discover` finds.

        Raises:
            EngineUnavailable: None answers, or the one that was chosen cannot carry sandboxes.
        """
        found = await asyncio.to_thread(discover, setting)
        if found.endpoint is None:
            raise found.failure()
        return cls(found.endpoint)

    async def call(self, act: Callable[[Client], Result], *, seconds: float = _CALL_SECONDS) -> Result:
        """Run one blocking call in a thread of ours.

        Args:
            act: Gets a client of its thread; must not keep it.
            seconds: Deadline. The thread gives up at the same time as its caller.

        Raises:
            EngineUnavailable: No answer, a broken connection or no answer in time.
            NotFound: The engine knows no such object.
            Conflict: A name is taken or an object is in use.
            SandboxFailed: The engine could not do it, with its own words.
        """

        def work() -> Result:
            client = self._client()
            client.timeout = seconds  # read by every request of this client
            return act(client)

        return await self._run(work, seconds + 1.0)

    async def stream(self, start: OpenStream, receive: Callable[[dict[str, Any]], None], *, seconds: float) -> None:
        """Run a streaming call to its end; cancelling this also ends the engine's work on it.

        Args:
            start: Opens the stream.
            receive: Gets each message, in this loop's thread.
            seconds: Deadline of the whole.
        """
        loop = asyncio.get_running_loop()
        abort = _Abort()

        def work() -> None:
            # A client of its own: its connection is cut when the caller goes.
            client = self._connect()
            try:
                client.hooks["response"].append(abort.remember)
                for message in start(client, seconds):
                    loop.call_soon_threadsafe(receive, message)
            finally:
                client.close()

        try:
            await self._run(work, seconds)
        finally:
            abort.now()

    async def close(self) -> None:
        """Let go of connections and threads; calls still running end by their own deadline."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    async def _run(self, work: Callable[[], Result], seconds: float) -> Result:
        if self._closed:
            raise EngineUnavailable("The connection to the Docker engine was closed.")
        future = asyncio.get_running_loop().run_in_executor(self._pool, _translated, work, self.endpoint)
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the result.
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise EngineUnavailable(
                f"The Docker engine did not answer within {seconds:.0f} s.", hint="Look at the engine's log."
            ) from None

    def _client(self) -> Client:
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._connect()
            self._local.client = client
            with self._lock:
                self._clients.append(client)
        return client

    def _connect(self) -> Client:
        from docker import APIClient

        version = self._api_version
        client = APIClient(base_url=self.endpoint.url, version=version or "auto", timeout=round(_CALL_SECONDS))
        _keep_few_connections(client, self.endpoint)
        if version is None:
            self._api_version = version = str(client.api_version)
            if tuple(int(part) for part in version.split(".")) < MINIMUM_API:
                client.close()
                raise EngineUnavailable(
                    f"The engine at {self.endpoint.url} speaks API {version}, which is too old.",
                    hint="Install Docker 20.10 (API 1.41) or newer.",
                )
        return client


def _keep_few_connections(client: Client, endpoint: Endpoint) -> None:
    """Have a client of a Unix socket hold one connection, not one for each of the newest 25 paths that it asked for.

    With a client in each thread those are hundreds of open files. The SDK has an option for it and passes over it.
    """
    if endpoint.url.startswith("unix://"):
        from docker.transport import UnixHTTPAdapter

        address = endpoint.url.replace("unix://", "http+unix://", 1)
        client.mount("http+docker://", UnixHTTPAdapter(address, round(_CALL_SECONDS), pool_connections=1))


class _Abort:
    """Cuts the connection under a stream, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: Any = None
        self._asked = False

    def remember(self, response: Any, *_: Any, **__: Any) -> None:
        """A response hook of `requests`: called before the body is read."""
        with self._lock:
            self._response = response
            if self._asked:
                self._cut()

    def now(self) -> None:
        """Cut now, or as soon as there is something to cut."""
        with self._lock:
            self._asked = True
            if self._response is not None:
                self._cut()

    def _cut(self) -> None:
        from docker.types import CancellableStream

        try:
            CancellableStream(iter(()), self._response).close()
        except (OSError, AttributeError):
            return  # it ended by itself: there is no socket any more


def _translated(work: Callable[[], Result], endpoint: Endpoint) -> Result:
    """Run `work`, turning what the SDK and its libraries raise into our errors."""
    import docker.errors
    import requests
    import urllib3.exceptions

    try:
        return work()
    except KortixError:
        raise
    except docker.errors.APIError as error:
        raise _from_answer(error.status_code or 0, visible_line(str(error.explanation or error)), endpoint) from error
    except (
        docker.errors.DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise EngineUnavailable(
            f"The Docker engine at {endpoint.url} cannot be reached: {visible_line(str(error))}.",
            hint="Start it, or run: kortix doctor",
        ) from error


def _from_answer(status: int, words: str, endpoint: Endpoint) -> KortixError:
    if status == 404:
        return NotFound(f"The Docker engine knows no such thing: {words}.")
    if status == 409:
        return Conflict(f"The Docker engine refuses: {words}.")
    if "bind source path does not exist" in words:
        return EngineUnavailable(
            f"The engine at {endpoint.url} does not see this machine's files: {words}.",
            hint="Run kortix on the machine where the engine runs.",
        )
    if status == 503 or "shutting down" in words:
        return EngineUnavailable(f"The Docker engine at {endpoint.url} is not ready: {words}.")
    return SandboxFailed(f"The Docker engine failed: {words}.")
