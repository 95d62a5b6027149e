"""How commands open the home: to read, or to act and then leave somebody in charge of what goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kortix_tui.cli.output import note

if TYPE_CHECKING:
    import logging

    from kortix_tui.runtime.facade import Runtime

LOG_BYTES = 4 << 20


@contextmanager
def reading() -> Iterator[Runtime]:
    """The home, for commands that only look."""
    from kortix_tui.runtime.facade import Runtime

    with Runtime.open() as runtime:
        yield runtime


@contextmanager
def acting(*, host: bool = False, again: bool = True) -> Iterator[Runtime]:
    """The home, for commands that want something done.

    When the command ends, on whatever way, and work is left that no process looks after, a background host is
    started and the person is told.

    Args:
        host: Stand for host as long as the command runs, because it waits for something to happen.
        again: Whether the command may be started anew, as a member of a group that the person was just added to; not
            where its arguments must not become another program's.
    """
    if again:
        from kortix_tui.cli.setup import use_new_group

        use_new_group()
    with reading() as runtime, logging_to_home(runtime):
        try:
            if host:
                runtime.start_hosting()
            yield runtime
        finally:
            runtime.stop_hosting()
            hand_over(runtime)


def hand_over(runtime: Runtime) -> None:
    """Start a background host where something is unfinished and nobody acts. This process must not be host now."""
    from kortix_tui.runtime.background import start_background

    if runtime.unfinished() == 0 or runtime.host().host is not None:
        return
    started = start_background(runtime.context)
    if started is None:
        return
    if started.idle_minutes is None:
        what = f"goes on with the work (process {started.pid}); it ends when nothing is left to do"
    else:
        sessions = "the idle session" if started.idle == 1 else f"{started.idle} idle sessions"
        what = f"stops {sessions} after {started.idle_minutes:g} min without work (process {started.pid})"
    note(f"A background host {what}. Log: {started.log}")


@contextmanager
def logging_to_home(runtime: Runtime) -> Iterator[None]:
    """Send what the host part has to say to the home's log, not between a command's lines."""
    # Here and not above: a plain list should not pay for it.
    from logging.handlers import RotatingFileHandler

    from kortix_tui.runtime.background import host_log

    log = host_log(runtime.context.home)
    os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    with logging_to(RotatingFileHandler(log, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")):
        yield


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Our log lines, those of the libraries left out, to one place."""
    import logging

    from kortix_tui.base.crash import PlaceFormatter

    handler.setFormatter(PlaceFormatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    ours = logging.getLogger("kortix_tui")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.propagate = True
        handler.close()
