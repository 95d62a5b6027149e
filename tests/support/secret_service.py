"""A login of a test's own: a private D-Bus and a real gnome-keyring on it. Nothing of the machine's is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

NO_ACTIVATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:dir=/tmp</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
"""
"""A bus that starts no service by itself."""


SHOW_AND_STAY = 'echo "$DBUS_SESSION_BUS_ADDRESS"; exec cat'
"""Ends when its standard input does, and the bus with it."""


class Login:
    """The session. Its environment is that of the test while it lasts."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._keyring: subprocess.Popen[bytes] | None = None
        for variable in [name for name in os.environ if name.startswith(("XDG_", "DBUS_", "GNOME_", "DISPLAY"))]:
            patch.delenv(variable)
        for variable, name in {
            "HOME": "", "XDG_RUNTIME_DIR": "run", "XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config",
            "XDG_CACHE_HOME": "cache",
        }.items():  # fmt: skip
            (folder / name).mkdir(mode=0o700, exist_ok=True)
            patch.setenv(variable, str(folder / name))
        configuration = folder / "bus.conf"
        configuration.write_text(NO_ACTIVATION)
        self._bus = subprocess.Popen(
            ["dbus-run-session", f"--config-file={configuration}", "--", "sh", "-c", SHOW_AND_STAY],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._bus.stdout is not None
        patch.setenv("DBUS_SESSION_BUS_ADDRESS", self._bus.stdout.readline().decode().strip())

    def start_keyring(self, password: str | None = None) -> None:
        """Start gnome-keyring; with the login's password, its keyring is made where needed and opened, as PAM does."""
        command = ["gnome-keyring-daemon", "--foreground", "--components=secrets"]
        if password is not None:
            command.append("--unlock")
        with (self.folder / "keyring.log").open("ab") as log:
            self._keyring = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        assert self._keyring.stdin is not None
        self._keyring.stdin.write((password or "").encode())
        self._keyring.stdin.close()
        until(lambda: self._owned("org.freedesktop.secrets"), "gnome-keyring does not start")

    def freeze_keyring(self) -> None:
        """From now on it answers nothing."""
        assert self._keyring is not None
        frozen = psutil.Process(self._keyring.pid)
        frozen.send_signal(signal.SIGSTOP)
        until(lambda: frozen.status() == psutil.STATUS_STOPPED, "it does not stop")

    def stop_keyring(self) -> None:
        """End it, as at the end of a login; its files stay."""
        if self._keyring is not None:
            self._keyring.kill()
            self._keyring.wait(30)
            self._keyring = None

    def close(self) -> None:
        self.stop_keyring()
        assert self._bus.stdin is not None and self._bus.stdout is not None
        self._bus.stdin.close()
        self._bus.wait(30)
        self._bus.stdout.close()

    def left(self) -> list[str]:
        """Processes that still live in this session."""
        mark = f"HOME={self.folder}\0".encode()
        return [" ".join(one.cmdline()) for one in psutil.process_iter() if _carries(one.pid, mark)]

    def _owned(self, name: str) -> bool:
        call = ["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
        call += ["org.freedesktop.DBus.NameHasOwner", f"string:{name}"]
        return "boolean true" in subprocess.run(call, capture_output=True, text=True, timeout=30).stdout


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def until(condition: Callable[[], object], words: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, words
        time.sleep(0.05)


@contextmanager
def login(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Login]:
    """A login session; afterwards nothing of it runs."""
    made = Login(folder, patch)
    try:
        yield made
    finally:
        made.close()
    until(lambda: not made.left(), f"left behind: {made.left()}")
