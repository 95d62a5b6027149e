"""The host: faults end a step, never the term, and never without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from desk import wait_for

from kortix_tui.base.errors import InvalidInput, StoreFailed
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime import host as module
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.recovery import Recovery
from kortix_tui.store.database import Store, Transaction


@pytest.fixture
def runtime(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    for name, seconds in (("ELECTION_S", 0.05), ("BEAT_S", 0.05), ("SWEEP_S", 0.05), ("FAULT_S", 0.1)):
        monkeypatch.setattr(module, name, seconds)
    settings = Settings.model_validate({"docker": {"endpoint": f"unix://{home.path}/no.sock"}})
    with Runtime(home, settings, operator_actor("cli")) as made:
        yield made


def test_a_store_that_cannot_be_written_for_a_while_ends_no_term(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.start_hosting()
    first = runtime.host().host
    assert first is not None
    write, failed = Store.write, 0

    @contextmanager
    def refusing(self: Store, *, epoch: int | None = None, anchor: bool = True) -> Iterator[Transaction]:
        nonlocal failed
        if epoch is not None and failed < 3:
            failed += 1
            raise StoreFailed("The disk is full: nothing was recorded, so nothing was done.")
        with write(self, epoch=epoch, anchor=anchor) as tx:
            yield tx

    monkeypatch.setattr(Store, "write", refusing)
    wait_for(lambda: failed == 3)
    wait_for(lambda: (now := runtime.host().host) is not None and now.beat_at > first.beat_at)
    assert runtime.host().here
    assert runtime.host().host is not None and runtime.host().host.epoch == first.epoch  # type: ignore[union-attr]


def test_a_sweep_that_breaks_is_done_again(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def broken(self: Recovery, kept: object) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Recovery, "sandboxes", broken)
    runtime.start_hosting()
    wait_for(lambda: calls > 2)
    assert runtime.host().here


def test_a_host_that_was_fenced_stands_again(runtime: Runtime) -> None:
    runtime.start_hosting()
    first = runtime.host().host
    assert first is not None
    store = runtime.context.store
    with store.write() as tx:  # as another host would, that got the lock because its file was removed
        tx.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
    wait_for(lambda: (now := runtime.host().host) is not None and now.epoch > first.epoch + 1)
    assert runtime.host().here


def test_settings_that_no_host_can_act_on_are_said_to_whoever_starts_one(home: Home) -> None:
    settings = Settings.model_validate({"sandbox": {"provider": "nobody"}})
    with Runtime(home, settings, operator_actor("cli")) as runtime, pytest.raises(InvalidInput, match="nobody"):
        runtime.start_hosting()


def test_a_recovery_that_takes_long_does_not_keep_anybody_from_being_host(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that does not answer is asked for minutes; sessions must not wait for it."""
    begun = False

    async def slow(self: Recovery) -> None:
        nonlocal begun
        begun = True
        await asyncio.sleep(3600)

    monkeypatch.setattr(Recovery, "requests", slow)
    runtime.start_hosting()
    wait_for(lambda: begun)
    assert runtime.host().here
