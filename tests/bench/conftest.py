"""Benchmarks print ratios taken in one run and never fail on time. `BENCH_RUNS=10` for figures to quote."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

RUNS = int(os.environ.get("BENCH_RUNS", "3"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.long)


@pytest.fixture
def runs() -> int:
    """How often each side is measured: 3 in CI, more by hand (`BENCH_RUNS=10`)."""
    return RUNS


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Have a result printed at the end of the run, also of a parallel one."""

    def tell(text: str) -> None:
        request.node.user_properties.append(("bench", text))

    return tell
