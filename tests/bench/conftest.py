"""Benchmarks print ratios taken in one run and never fail on time. `KORTIX_BENCH_RUNS=10` for figures to quote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_LINES = pytest.StashKey[list[str]]()
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
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]):
    """Print a result past pytest's capturing."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n[bench] {text}")

    return tell
