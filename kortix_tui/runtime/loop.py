"""The runtime's own thread and event loop, so that no slow screen, editor or dialog ever stops it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from kortix_tui.base.errors import DeadlineExceeded

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread; started on first use, ended by `close`."""

    def __init__(self, name: str = "kortix-runtime") -> None:
        self._name = name
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; the future is the caller's to wait for or to cancel."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def call(self, work: Coroutine[Any, Any, T], *, deadline_s: float) -> T:
        """Run a coroutine on the loop and wait for it from another thread.

        Raises:
            DeadlineExceeded: It took longer than `deadline_s` seconds; it was cancelled.
        """
        future = self.submit(work)
        try:
            return future.result(deadline_s)
        except FutureTimeout:
            future.cancel()
            raise DeadlineExceeded(
                f"No answer within {deadline_s:.0f} s.", hint="Try again; see `kortix doctor`."
            ) from None
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                started = threading.Event()
                loop = self._loop = asyncio.new_event_loop()

                def run() -> None:
                    asyncio.set_event_loop(loop)
                    loop.call_soon(started.set)
                    loop.run_forever()

                self._thread = threading.Thread(target=run, name=self._name, daemon=True)
                self._thread.start()
                started.wait()
            return self._loop

    def close(self) -> None:
        """Cancel what still runs, then end the thread."""
        with self._guard:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def finish() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await loop.shutdown_asyncgens()
            await loop.shutdown_default_executor()

        try:
            asyncio.run_coroutine_threadsafe(finish(), loop).result(15)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            if not thread.is_alive():
                loop.close()
