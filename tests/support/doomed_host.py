"""A host that dies by SIGKILL at a chosen place: `python doomed_host.py commit:3` or `after:module:function`."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.database import Store, Transaction


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_commit(number: int) -> None:
    """Die right after the n-th audited write was committed."""
    write, seen = Store.write, 0

    @contextmanager
    def counting(self: Store, *, epoch: int | None = None, anchor: bool = True) -> Iterator[Transaction]:
        nonlocal seen
        with write(self, epoch=epoch, anchor=anchor) as tx:
            yield tx
        if tx.last_event is not None and epoch is not None:
            seen += 1
            if seen == number:
                die()

    Store.write = counting  # type: ignore[method-assign]


def die_after(module: str, path: str) -> None:
    """Die right after a function or method has returned."""
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    async def doomed(*arguments: Any, **options: Any) -> Any:
        await function(*arguments, **options)
        die()

    assert asyncio.iscoroutinefunction(function)
    setattr(owner, name, doomed)


def main() -> None:
    kind, *rest = sys.argv[1].split(":")
    if kind == "commit":
        die_at_commit(int(rest[0]))
    elif kind == "after":
        die_after(*rest)
    runtime = Runtime(Home.locate(), Settings(), operator_actor("cli"), kind="serve")
    runtime.start_hosting()
    # Long enough for what the test wants to see; the test ends it.
    time.sleep(60)


if __name__ == "__main__":
    main()
