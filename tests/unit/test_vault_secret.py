"""A secret's value comes out of `use` and of nothing else."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Callable

import pytest
from pydantic import TypeAdapter
from rich.pretty import pretty_repr
from rich.traceback import Traceback

from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotKey

VALUE = b"canary-5f1c"


@pytest.mark.parametrize(
    "show",
    [repr, str, format, lambda s: f"{s!r:>40} {s}", lambda s: [s].__repr__(), pretty_repr],
)
def test_no_way_of_showing_shows_it(show: Callable[[object], str]) -> None:
    secret = Secret(VALUE)
    assert f"{secret:>30}" == "<Secret>"
    for shown in (show(secret), show(NewSlot(SlotKey.passphrase("canary-5f1c"), "me"))):
        assert "canary" not in shown and "5f1c" not in shown


@pytest.mark.parametrize(
    "take",
    [bytes, list, json.dumps, pickle.dumps, copy.copy, copy.deepcopy, memoryview, TypeAdapter(bytes).validate_python],
)  # fmt: skip
def test_no_way_of_taking_takes_it(take: Callable[[object], object]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        take(Secret(VALUE))
    assert "canary" not in str(caught.value)


def test_a_traceback_with_locals_does_not_show_it() -> None:
    def fail(secret: Secret) -> None:
        raise RuntimeError(f"no {secret}")

    try:
        fail(Secret(VALUE))
    except RuntimeError as error:
        plain = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        rich = pretty_repr(Traceback.extract(type(error), error, error.__traceback__, show_locals=True))
    assert "<Secret>" in plain
    assert "canary" not in plain.replace('VALUE = b"canary', "") or "canary-5f1c" not in plain.split("fail(", 1)[1]
    assert "secret" in rich


def test_comparing_tells_nothing_and_matching_is_asked_for() -> None:
    one, other = Secret(VALUE), Secret(VALUE)
    assert one != other and hash(one) != hash(other)
    assert one.matches(other) and not one.matches(Secret(b"canary-5f1d"))


def test_a_watcher_learns_each_reason_and_may_withhold() -> None:
    reasons = list[str]()
    watched = Secret(VALUE, on_use=reasons.append)
    assert watched.use("call the API") == VALUE and reasons == ["call the API"]

    def refuse(reason: str) -> None:
        raise PermissionError(reason)

    with pytest.raises(PermissionError):
        Secret(VALUE, on_use=refuse).use("anything")


def test_wiping_overwrites_the_own_copy_only() -> None:
    given = bytearray(VALUE)
    secret = Secret(given)
    secret.wipe()
    secret.wipe()
    assert given == VALUE and len(secret) == len(VALUE)
    with pytest.raises(VaultFailed, match="wiped"):
        secret.use("too late")
    assert not secret.matches(Secret(bytes(len(VALUE))))
