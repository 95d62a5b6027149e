"""`kortix serve` and `kortix host`: being the host, and asking who is."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.cli.opening import logging_to
from kortix_tui.cli.output import counted, note, say_fields, say_json
from kortix_tui.cli.parsing import Parser, add_json, duration, show_examples

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime

LOOK_S = 0.25
log = logging.getLogger(__name__)


def add_host(parser: Parser) -> None:
    """Add the options of `kortix host`."""
    parser.set_defaults(run=_host)
    parser.epilog = show_examples(("host", "host --json"))
    add_json(parser)


def add_serve(parser: Parser) -> None:
    """Add the options of `kortix serve`."""
    parser.set_defaults(run=_serve)
    parser.epilog = show_examples(("serve", "serve --linger 10m"))
    parser.add_argument(
        "--linger",
        metavar="TIME",
        type=duration,
        default=3.0,
        help="end after this long with nothing to do (default 3s)",
    )
    parser.add_argument(
        "--background",
        action="store_true",
        help="end at once when another process is the host (used by other commands)",
    )


def _host(arguments: argparse.Namespace) -> None:
    from kortix_tui.cli.opening import reading

    with reading() as runtime:
        view, unfinished = runtime.host(), runtime.unfinished()
    if arguments.json:
        say_json(view)
        return
    host, now = view.host, datetime.now(UTC)
    if host is None:
        left = (
            counted(unfinished, "session or request waits", "sessions and requests wait")
            if unfinished
            else "nothing is left to do"
        )
        note(f"No process is the host; {left}. Any command that needs a host becomes it.")
        return
    say_fields([
        ("process", f"{host.pid} ({host.kind})"),
        ("since", f"{age(host.started_at, now)} ago"),
        ("last beat", f"{age(host.beat_at, now)} ago{' — SILENT' if view.silent else ''}"),
        ("looks after", counted(unfinished, "session or request", "sessions and requests")),
        ("end it", f"kill {host.pid}  (hands over in order; sandboxes run on)"),
    ])  # fmt: skip


def _serve(arguments: argparse.Namespace) -> int:
    from kortix_tui.runtime.facade import Runtime

    os.chdir("/")  # keep no folder of the caller in use
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    with logging_to(logging.StreamHandler()), Runtime.open(kind="serve") as runtime:
        while True:
            runtime.start_hosting()
            try:
                if not _serve_until_idle(runtime, ended, arguments.linger, leave=arguments.background):
                    return 0
            finally:
                runtime.stop_hosting()
            # Whoever wrote a request while we still held the lock relied on us: look once more without it.
            if runtime.unfinished() == 0 or runtime.host().host is not None:
                log.info("nothing is left to do")
                return 0


def _serve_until_idle(runtime: Runtime, ended: threading.Event, linger_s: float, *, leave: bool) -> bool:
    """Host until nothing was left to do for `linger_s`; false when asked to end, or another process is the host."""
    idle_s, told, stays = 0.0, False, False
    while not ended.wait(LOOK_S):
        view = runtime.host()
        if not view.here and view.host is not None:
            if leave:
                log.info("process %d is the host; this one is not needed", view.host.pid)
                return False
            if not told:
                note(f"Process {view.host.pid} ({view.host.kind}) is the host; this one stands by.")
                told = True
        idle_s = 0.0 if runtime.unfinished() else idle_s + LOOK_S
        if idle_s >= linger_s:
            if not (runtime.host().here and runtime.vault.held_open()):
                return True
            if not stays:
                log.info("the vault is open and only a person can open it again; this host stays until it is locked")
            idle_s, stays = 0.0, True
    log.info("asked to end; another process may take over")
    return False
