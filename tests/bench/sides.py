"""Measuring two sides in turn: A B A B, so that a drift of the machine's speed meets both."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence


def alternate(runs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Seconds of both sides, taken alternately after one run of each that does not count."""
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(runs)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def cpu_seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """User and system time of one finished child and all that it waited for."""
    out = os.open(os.devnull, os.O_RDWR)
    files = [(os.POSIX_SPAWN_DUP2, out, 0), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
    pid = os.posix_spawnp(command[0], list(command), environment, file_actions=files)
    _, status, usage = os.wait4(pid, 0)
    os.close(out)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return usage.ru_utime + usage.ru_stime


def report(what: str, aim: str, ours: list[float], theirs: list[float]) -> str:
    """The line to quote, with raw figures."""
    ratio = statistics.median(ours) / statistics.median(theirs)
    figures = "; ".join(f"{name} {_raw(values)}" for name, values in (("ours", ours), ("reference", theirs)))
    return f"{what}: {ratio:.2f} x (aim {aim}); {figures}"


def _raw(values: list[float]) -> str:
    listed = " ".join(f"{value * 1000:.0f}" for value in values)
    return f"{listed} ms (median {statistics.median(values) * 1000:.0f})"
