"""What the vault costs: unlocking beside the bare key derivation, and reading one secret of ten thousand."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from sides import alternate, report
from strongbox import ALICE, PASSPHRASE, meta, own

from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot
from kortix_tui.vault.vault import Vault

STORED = 10_000


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault with ten thousand secrets, opened by a passphrase at the default cost or by a key file."""
    path = tmp_path_factory.mktemp("bench") / "vault.kxv"
    vault = Vault.create(path, [NewSlot(PASSPHRASE, "alice"), NewSlot(ALICE, "alice")])
    with vault.change() as draft:
        for number in range(STORED):
            described = own("alice", number) if number % 10 == 0 else meta(number, hosts=("api.example.org",))
            draft.put(described, Secret(os.urandom(40)))
    return path


def seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def derive() -> None:
    Argon2id(salt=os.urandom(16), length=32, iterations=3, lanes=4, memory_cost=65536).derive(b"a passphrase")


@pytest.mark.parametrize("stored", [1, STORED])
def test_unlocking_with_a_passphrase(
    full: Path, tmp_path: Path, runs: int, tell: Callable[[str], None], stored: int
) -> None:
    path = full
    if stored == 1:
        path = tmp_path / "vault.kxv"
        with Vault.create(path, [NewSlot(PASSPHRASE, "alice")]).change() as draft:
            draft.put(meta(), Secret(b"a value"))
    vault = Vault.load(path)

    def unlock() -> None:
        vault.unlock(PASSPHRASE)

    def ours() -> float:
        nonlocal vault
        vault = Vault.load(path)
        return seconds(unlock)

    mine, theirs = alternate(max(runs, 5), ours, lambda: seconds(derive))
    tell(report(f"vault unlock with a passphrase, {stored} stored, against bare Argon2id", "1.3", mine, theirs))


def test_reading_one_of_ten_thousand(full: Path, tell: Callable[[str], None]) -> None:
    started = time.perf_counter()
    vault = Vault.load(full)
    loaded = time.perf_counter()
    vault.unlock(ALICE)
    unlocked = time.perf_counter()
    vault.metas()
    listed = time.perf_counter()
    times = [seconds(lambda n=number: vault.read(f"sec_{n}").use("bench")) for number in range(0, STORED, 7)]
    times.sort()
    tell(
        f"vault read of one secret with {STORED} stored: median {statistics.median(times) * 1e6:.0f} µs, "
        f"p99 {times[len(times) * 99 // 100] * 1e6:.0f} µs (aim 1000); "
        f"load {(loaded - started) * 1e3:.0f} ms, unlock with a key file {(unlocked - loaded) * 1e3:.0f} ms, "
        f"first list {(listed - unlocked) * 1e3:.0f} ms"
    )


def test_writing_one_of_ten_thousand(full: Path, runs: int, tell: Callable[[str], None]) -> None:
    vault = Vault.load(full)
    vault.unlock(ALICE)
    times = list[float]()
    for _ in range(runs):
        started = time.perf_counter()
        with vault.change() as draft:
            draft.put(meta(1, version=draft.meta("sec_1").version + 1), Secret(b"rotated"))
        times.append(time.perf_counter() - started)
    tell(f"vault write with {STORED} stored: median {statistics.median(times) * 1e3:.0f} ms (no aim)")
