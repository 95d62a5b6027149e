"""Vault keys in the operating system's keyring: one kind of slot, never the only one.

Every call runs in a process of its own (`keyring_child`), because a keyring may wait for a prompt that nobody sees.
Only back ends that encrypt under the person's login are used; `keyring` alone would also take a file in plain text.
"locked", "missing" and "absent" are kept apart: who takes a locked keyring for an empty one makes a second key.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kortix_tui.base.text import shorten, visible_line
from kortix_tui.vault.key_errors import KeyMissing, KeyUnavailable
from kortix_tui.vault.secret import Secret

SERVICE: Final = "kortix"
DEADLINE_S: Final = 3.0
START_S: Final = 15.0
"""For Python and its imports on a busy machine; the deadline proper begins when the keyring is first asked."""
KEY_BYTES: Final = 32

_CHILD: Final = Path(__file__).with_name("keyring_child.py")
_STARTED: Final = b"started\n"
_MAX_ANSWER: Final = 1 << 20
_MAX_NAMES: Final = 4096
"""Characters; an order must fit into a pipe, or writing it could wait."""
_MARK: Final = "kxv1:"
_PASSED_ON: Final = frozenset(
    {
        "HOME", "USER", "LOGNAME", "PATH", "LANG", "LC_ALL", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
        "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CURRENT_DESKTOP",
        "XDG_SESSION_ID", "XDG_SESSION_TYPE", "DESKTOP_SESSION", "KDE_FULL_SESSION", "KDE_SESSION_VERSION",
        "GNOME_KEYRING_CONTROL", "PYTHON_KEYRING_BACKEND", "SSH_CONNECTION", "SECURITYSESSIONID",
        "__CF_USER_TEXT_ENCODING",
    }
)  # fmt: skip
"""What a keyring and its desktop need. `SSH_CONNECTION` tells that macOS cannot prompt."""


class KeyringState(StrEnum):
    """What became of a call."""

    PRESENT = "present"
    LOCKED = "locked"
    HANGING = "hanging"
    ABSENT = "absent"
    FOREIGN = "foreign"
    FAILED = "failed"


class KeyringReport(BaseModel):
    """What the keyring is, in words for a person. Holds no value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: KeyringState
    backend: str
    """Class of the back end; empty when none was reached."""
    message: str
    hint: str


class KeyringUnavailable(KeyUnavailable):
    """The keyring cannot be used; `report` says why."""

    code = "keyring_unavailable"

    def __init__(self, report: KeyringReport) -> None:
        super().__init__(report.message, hint=report.hint)
        self.report = report


class _Answer(BaseModel):
    """What the child says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: KeyringState
    backend: str = ""
    message: str = ""
    value: str | None = Field(default=None, repr=False)


def probe(deadline_s: float = DEADLINE_S) -> KeyringReport:
    """Find out what the keyring is, without a prompt and without writing.

    Blocks for the deadline and the time that Python takes to start; not for an event loop.
    """
    return _report(_ask("probe", SERVICE, "probe", deadline_s=deadline_s), deadline_s)


def store(entry: str, secret: Secret, *, deadline_s: float = DEADLINE_S) -> None:
    """Put a key into the keyring and read it back.

    Args:
        entry: Name of the key, such as `vault-<id>`; an entry of that name is replaced.
        secret: 32 random bytes.
        deadline_s: How long the keyring may take.

    Raises:
        KeyringUnavailable: It was not stored, or not proved to be.
    """
    text = _MARK + base64.urlsafe_b64encode(_key(secret.use("store the key in the keyring"))).decode()
    answer = _present(_ask("store", SERVICE, entry, text, deadline_s=deadline_s), deadline_s)
    if answer.value != text:
        lost = _Answer(state=KeyringState.FAILED, backend=answer.backend, message="what was stored does not come back")
        raise KeyringUnavailable(_report(lost, deadline_s))


def load(entry: str, *, deadline_s: float = DEADLINE_S) -> Secret:
    """Take a key from the keyring.

    Raises:
        KeyMissing: The keyring is open and has no such entry.
        KeyringUnavailable: It cannot be asked.
        KeyUnavailable: The entry is no key of ours.
    """
    text = _present(_ask("load", SERVICE, entry, deadline_s=deadline_s), deadline_s).value
    if text is None:
        raise KeyMissing(
            f"The keyring holds no key named {visible_line(entry)}.",
            hint="Unlock with another slot: passphrase, key file or recovery key.",
        )
    try:
        if not text.startswith(_MARK):
            raise ValueError
        return Secret(_key(base64.b64decode(text.removeprefix(_MARK), altchars=b"-_", validate=True)))
    except (ValueError, binascii.Error):
        raise KeyUnavailable(
            f"The keyring's entry {visible_line(entry)} is not a key of this program.",
            hint="Unlock with another slot, then remove the keyring's slot and add it again.",
        ) from None


def delete(entry: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Remove a key; one that is not there is no error.

    Raises:
        KeyringUnavailable: It cannot be asked.
    """
    _present(_ask("delete", SERVICE, entry, deadline_s=deadline_s), deadline_s)


def fetch(service: str, user: str, *, deadline_s: float = DEADLINE_S) -> Secret:
    """A password that another program keeps in the keyring, to import it.

    Raises:
        KeyMissing: There is none for this service and user.
        KeyringUnavailable: The keyring cannot be asked.
    """
    fitting = len(service) + len(user) <= _MAX_NAMES
    text = _present(_ask("load", service, user, deadline_s=deadline_s), deadline_s).value if fitting else None
    if text is None:
        raise KeyMissing(
            f"The keyring has no password of {visible_line(user)} for {visible_line(service)}.",
            hint="Check both names with the desktop's password program; they are case-sensitive.",
        )
    return Secret(text.encode())


def _key(data: bytes) -> bytes:
    if len(data) != KEY_BYTES:
        raise ValueError(f"a vault key has {KEY_BYTES} bytes")
    return data


def _present(answer: _Answer, deadline_s: float) -> _Answer:
    if answer.state is not KeyringState.PRESENT:
        raise KeyringUnavailable(_report(answer, deadline_s))
    return answer


def _report(answer: _Answer, deadline_s: float) -> KeyringReport:
    """The answer in words."""
    backend = shorten(visible_line(answer.backend), 200)
    detail = shorten(visible_line(answer.message), 200)
    because = f" ({detail})" if detail else ""
    other = "use a passphrase or a key file"
    match answer.state:
        case KeyringState.PRESENT:
            message, hint = f"The keyring is open ({backend}).", ""
        case KeyringState.LOCKED:
            message = f"The keyring is locked{because}."
            hint = f"Sign in on the desktop or unlock the keyring there, and try again; or {other}."
        case KeyringState.HANGING:
            message = f"The keyring did not answer within {deadline_s:g} s."
            hint = f"Look for a prompt on the desktop of this machine, and try again; or {other}."
        case KeyringState.ABSENT:
            message = f"There is no keyring in this login{because}."
            hint = f"{other.capitalize()}."
        case KeyringState.FOREIGN:
            message = f"The keyring back end {backend} is not used: it is not known to encrypt."
            hint = (
                "Where a real keyring exists, set PYTHON_KEYRING_BACKEND=keyring.backends.SecretService.Keyring; "
                f"or {other}."
            )
        case KeyringState.FAILED:
            message = f"The keyring answered with an error{because}."
            hint = f"Try again; or {other}."
    return KeyringReport(state=answer.state, backend=backend, message=message, hint=hint)


def _ask(verb: str, service: str, entry: str, value: str = "", *, deadline_s: float) -> _Answer:
    """Run one call in a child; whatever happens, nothing of it is left running."""
    order = json.dumps({"verb": verb, "service": service, "entry": entry, "value": value}).encode()
    reader, writer = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", str(_CHILD), str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writer,),
            start_new_session=True,
            cwd="/",
            env={name: text for name, text in os.environ.items() if name in _PASSED_ON},
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        if child.stdin is not None:  # always: asked for above
            with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
                pipe.write(order)
        return _read_answer(reader, deadline_s)
    finally:
        os.close(reader)
        # Its number is ours until it is waited for, so this hits no stranger; helpers that it started go too.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read_answer(reader: int, deadline_s: float) -> _Answer:
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    said = bytearray()
    end = time.monotonic() + START_S
    started = False
    while len(said) <= _MAX_ANSWER:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return _Answer(state=KeyringState.HANGING)
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        said += chunk
        if not started and said.startswith(_STARTED):
            started, end = True, time.monotonic() + deadline_s
    try:
        return _Answer.model_validate_json(said.removeprefix(_STARTED))
    except ValidationError:  # its text could hold the value
        return _Answer(state=KeyringState.FAILED, message="its helper process ended early")
