"""One call to the operating system's keyring, in a process that can be killed.

A keyring may show a prompt that nobody sees, or wait for a daemon that never answers; no thread can be freed from that,
a process can. Started by `keyring_key` as `python -I keyring_child.py FD`: the order comes on standard input, the
answer leaves by the descriptor and nowhere else, and whatever a library prints goes to the void.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ALLOWED: Final = frozenset(
    {
        ("keyring.backends.SecretService", "Keyring"),
        ("keyring.backends.libsecret", "Keyring"),
        ("keyring.backends.kwallet", "DBusKeyring"),
        ("keyring.backends.kwallet", "DBusKeyringKWallet4"),
        ("keyring.backends.macOS", "Keyring"),
        ("keyring.backends.Windows", "WinVaultKeyring"),
    }
)
"""Back ends that encrypt under the person's login. `keyring` itself also takes files in plain text."""

_CHAINER: Final = ("keyring.backends.chainer", "ChainerBackend")
_NOTHING: Final = frozenset({("keyring.backends.fail", "Keyring"), ("keyring.backends.null", "Keyring")})
_SECRET_SERVICE: Final = ("keyring.backends.SecretService", "Keyring")
_MACOS: Final = ("keyring.backends.macOS", "Keyring")
_NO_INTERACTION: Final = "-25308"
"""macOS: the key chain is locked, and this login cannot show the prompt that would open it."""


class _LockedError(Exception):
    """Opening the keyring needs a person at its own prompt."""


def _kind(backend: object) -> tuple[str, str]:
    """Where the class stands; one that only says so is marked."""
    kind = type(backend)
    honest = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    return kind.__module__ if honest else f"?{kind.__module__}", kind.__name__


def classify(backend: Any) -> tuple[str, tuple[Any, ...]]:
    """What a back end is to us.

    Returns:
        `present`, `absent` or `foreign`, and the back ends that really store.
    """
    members = tuple(backend.backends) if _kind(backend) == _CHAINER else (backend,)
    storing = tuple(member for member in members if _kind(member) not in _NOTHING)
    if not storing:
        return "absent", ()
    return ("present" if all(_kind(member) in ALLOWED for member in storing) else "foreign"), storing


def _name(backends: tuple[Any, ...]) -> str:
    return " and ".join(".".join(_kind(one)) for one in backends)


def _check_open(backend: Any) -> None:
    """Refuse a locked collection before `keyring` asks a desktop to show a prompt, which may be on no screen."""
    if _kind(backend) != _SECRET_SERVICE:
        return
    import secretstorage  # comes with keyring on Linux

    connection = secretstorage.dbus_init()
    try:
        if secretstorage.Collection(connection).is_locked():
            raise _LockedError("the default keyring is locked")
    except secretstorage.exceptions.ItemNotFoundException:
        raise _LockedError("no default keyring was ever made") from None
    finally:
        connection.close()


def _read(backend: Any, service: str, entry: str) -> str | None:
    found: str | None = backend.get_password(service, entry)
    if found is None and _kind(backend) == _MACOS and "SSH_CONNECTION" in os.environ:
        raise _LockedError("over SSH, macOS does not tell a locked key chain from a missing entry")
    return found


def _act(order: dict[str, str], backends: tuple[Any, ...]) -> dict[str, str | None]:
    service, entry = order["service"], order["entry"]
    match order["verb"]:
        case "load":
            found = (_read(one, service, entry) for one in backends)
            return {"value": next((value for value in found if value is not None), None)}
        case "store":
            backends[0].set_password(service, entry, order["value"])
            # Some back ends accept and keep nothing.
            return {"value": _read(backends[0], service, entry)}
        case "delete":
            for one in backends:
                if _read(one, service, entry) is not None:
                    one.delete_password(service, entry)
            return {}
        case _:  # probe: a read of what is not there shows whether reading works
            for one in backends:
                _read(one, service, entry)
            return {}


def answer(order: dict[str, str], choose: Callable[[], Any]) -> dict[str, str | None]:
    """Carry out an order; nothing is raised, and no value is in a message.

    Args:
        order: `verb` (probe, load, store, delete), `service`, `entry`, and `value` for store.
        choose: Gives the back end.
    """
    from keyring.errors import KeyringLocked, NoKeyringError

    try:
        backend = choose()
    except Exception as error:  # a configured back end that is not there, or does not work here
        return {"state": "absent", "backend": "", "message": f"{type(error).__name__}: {error}"}
    state, backends = classify(backend)
    report: dict[str, str | None] = {"state": state, "backend": _name(backends or (backend,)), "message": ""}
    if state != "present":
        return report
    try:
        for one in backends:
            _check_open(one)
        return report | _act(order, backends)
    except (KeyringLocked, _LockedError) as error:
        return report | {"state": "locked", "message": str(error)}
    except NoKeyringError:
        return report | {"state": "absent"}
    except Exception as error:  # a back end may raise anything of its own
        locked = _NO_INTERACTION in str(error)
        # A failed store could quote what was to be stored.
        words = type(error).__name__ if order["verb"] == "store" else f"{type(error).__name__}: {error}"
        return report | {"state": "locked" if locked else "failed", "message": words}


def main(result: int) -> None:
    """Read the order, say that the work begins, answer."""
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from kortix_tui.vault.memory import harden

    harden()
    order = json.loads(sys.stdin.buffer.read())
    import keyring.backends.chainer
    import keyring.core

    os.write(result, b"started\n")
    found = answer(order, keyring.core.get_keyring)
    with os.fdopen(result, "w", encoding="utf-8") as pipe:
        json.dump(found, pipe)


if __name__ == "__main__":
    main(int(sys.argv[1]))
