"""A host that carries out calls until it dies by SIGKILL at a chosen place, or until the test ends it.

`python doomed_caller.py never`, or `before:module:Owner.function`, `after:module:Owner.function`, `committed:N`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import time
from typing import Any

from doomed_host import die, die_at_commit

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import load
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime


def die_at(when: str, module: str, path: str) -> None:
    """Die right before or after a function of ours, in the first call of it."""
    owner: Any = importlib.import_module(f"kortix_tui.runtime.{module}")
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    function = getattr(owner, name)

    @functools.wraps(function)
    async def waiting(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            die()
        await function(*arguments, **options)
        die()

    @functools.wraps(function)
    def plain(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            die()
        function(*arguments, **options)
        die()

    setattr(owner, name, waiting if inspect.iscoroutinefunction(function) else plain)


def main() -> None:
    kind, *rest = sys.argv[1].split(":")
    if kind == "committed":
        die_at_commit(int(rest[0]))
    elif kind != "never":
        die_at(kind, *rest)
    runtime = Runtime(Home.locate(), load(), operator_actor("cli"), kind="serve")
    runtime.start_hosting()
    time.sleep(120)  # longer than any test wants to see; the test ends it


if __name__ == "__main__":
    main()
