"""Vault keys in a real Secret Service: gnome-keyring on a D-Bus of the test's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from packages import need
from secret_service import Login, login, until

from kortix_tui.vault import keyring_key
from kortix_tui.vault.key_errors import KeyMissing, KeyUnavailable
from kortix_tui.vault.keyring_key import KeyringState, KeyringUnavailable
from kortix_tui.vault.secret import Secret

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENT_S = 60.0
"""For what must answer: a busy machine is no hanging keyring."""
CANARY = "canary-4f1d0c2b"
PLAIN = """
from pathlib import Path
from keyring.backend import KeyringBackend

class PlaintextKeyring(KeyringBackend):
    priority = 0.5

    def _use(self, *given):
        Path(__file__).with_name("used").touch()

    get_password = set_password = delete_password = _use
"""
LIAR = (
    PLAIN + "\nPlaintextKeyring.__module__ = 'keyring.backends.SecretService'\nPlaintextKeyring.__name__ = 'Keyring'\n"
)


@pytest.fixture
def desktop(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    """A login with D-Bus, in which no keyring runs yet."""
    need(dbus_run_session="dbus", dbus_send="dbus", gnome_keyring_daemon="gnome-keyring")
    with login(short_folder, monkeypatch) as made:
        yield made


def refused(act: Callable[[], object]) -> KeyringState:
    """How a call is refused."""
    with pytest.raises(KeyringUnavailable) as caught:
        act()
    assert caught.value.hint
    return caught.value.report.state


def children() -> list[psutil.Process]:
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile, or a zombie of another test
            if "keyring_child" in " ".join(one.cmdline()):
                found.append(one)
    return found


def configure(desktop: Login, code: str, *, chosen: str | None, plugin: bool = False) -> Path:
    """Give `keyring` a back end of the person's own; returns the file that it makes when it is used."""
    folder = desktop.folder / "backends"
    folder.mkdir()
    (folder / "plain.py").write_text(code)
    if plugin:
        information = folder / "plain-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[keyring.backends]\nplain = plain\n")
    settings = desktop.folder / "config/python_keyring/keyringrc.cfg"
    settings.parent.mkdir()
    lines = ["[backend]", f"keyring-path={folder}", *([f"default-keyring={chosen}"] if chosen else [])]
    settings.write_text("\n".join(lines) + "\n")
    return folder / "used"


def test_a_key_is_kept_over_a_new_login(desktop: Login) -> None:
    desktop.start_keyring("of the login")
    report = keyring_key.probe(PATIENT_S)
    assert (report.state, report.backend) == (KeyringState.PRESENT, "keyring.backends.SecretService.Keyring")
    key = Secret(os.urandom(32))
    with pytest.raises(KeyMissing):
        keyring_key.load("vault-1", deadline_s=PATIENT_S)
    keyring_key.store("vault-1", key, deadline_s=PATIENT_S)
    desktop.stop_keyring()
    desktop.start_keyring("of the login")
    assert keyring_key.load("vault-1", deadline_s=PATIENT_S).matches(key)

    newer = Secret(os.urandom(32))
    keyring_key.store("vault-1", newer, deadline_s=PATIENT_S)
    assert keyring_key.load("vault-1", deadline_s=PATIENT_S).matches(newer)
    keyring_key.delete("vault-1", deadline_s=PATIENT_S)
    keyring_key.delete("vault-1", deadline_s=PATIENT_S)
    with pytest.raises(KeyMissing):
        keyring_key.load("vault-1", deadline_s=PATIENT_S)


def test_a_locked_keyring_is_neither_missing_nor_absent(desktop: Login) -> None:
    desktop.start_keyring("of the login")
    keyring_key.store("vault-1", Secret(os.urandom(32)), deadline_s=PATIENT_S)
    desktop.stop_keyring()
    desktop.start_keyring()  # as after a login with an SSH key: nobody typed the password
    assert keyring_key.probe(PATIENT_S).state is KeyringState.LOCKED
    assert refused(lambda: keyring_key.load("vault-1", deadline_s=PATIENT_S)) is KeyringState.LOCKED
    assert refused(lambda: keyring_key.load("never-stored", deadline_s=PATIENT_S)) is KeyringState.LOCKED
    assert refused(lambda: keyring_key.store("vault-1", Secret(bytes(32)), deadline_s=PATIENT_S)) is KeyringState.LOCKED
    assert refused(lambda: keyring_key.delete("vault-1", deadline_s=PATIENT_S)) is KeyringState.LOCKED


def test_a_service_without_any_keyring_yet_is_locked_too(desktop: Login) -> None:
    desktop.start_keyring()
    assert keyring_key.probe(PATIENT_S).state is KeyringState.LOCKED
    assert refused(lambda: keyring_key.store("vault-1", Secret(bytes(32)), deadline_s=PATIENT_S)) is KeyringState.LOCKED


def test_a_hanging_keyring_is_left_at_the_deadline(desktop: Login) -> None:
    desktop.start_keyring("of the login")
    desktop.freeze_keyring()
    assert keyring_key.probe(0.5).state is KeyringState.HANGING
    assert refused(lambda: keyring_key.load("vault-1", deadline_s=0.5)) is KeyringState.HANGING
    assert children() == []


def test_a_key_is_neither_in_arguments_nor_in_the_environment(desktop: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", CANARY)
    desktop.start_keyring("of the login")
    desktop.freeze_keyring()
    states = list[KeyringState]()
    key = Secret(b"0123456789abcdef0123456789abcdef")
    thread = threading.Thread(target=lambda: states.append(refused(lambda: keyring_key.store("e", key, deadline_s=2))))
    thread.start()
    try:
        until(children, "no child was seen")
        (child,) = children()
        shown = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        if os.geteuid() == 0:  # the child is closed to everybody else
            shown += Path(f"/proc/{child.pid}/environ").read_bytes()
    finally:
        thread.join(60)
    assert states == [KeyringState.HANGING]
    assert b"keyring_child.py" in shown and (str(desktop.folder).encode() in shown or os.geteuid() != 0)
    assert CANARY.encode() not in shown and b"MDEyMzQ1" not in shown and b"0123456789abcdef" not in shown


def test_no_service_on_the_bus_is_absent(desktop: Login) -> None:
    assert keyring_key.probe(PATIENT_S).state is KeyringState.ABSENT
    assert refused(lambda: keyring_key.load("vault-1", deadline_s=PATIENT_S)) is KeyringState.ABSENT


def test_no_bus_is_absent(desktop: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    assert keyring_key.probe(PATIENT_S).state is KeyringState.ABSENT
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={desktop.folder}/gone")
    assert keyring_key.probe(PATIENT_S).state is KeyringState.ABSENT


@pytest.mark.parametrize(
    "name",
    [
        "keyring.backends.null.Keyring",
        "keyring.backends.fail.Keyring",
        "no.such.Keyring",
        "keyring.backends.macOS.Keyring",
    ],
)
def test_a_keyring_that_was_turned_off_is_absent(name: str, desktop: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    desktop.start_keyring("of the login")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", name)
    assert keyring_key.probe(PATIENT_S).state is KeyringState.ABSENT


@pytest.mark.parametrize("code", [PLAIN, LIAR])
def test_a_file_in_plain_text_is_never_used(code: str, desktop: Login) -> None:
    used = configure(desktop, code, chosen="plain.PlaintextKeyring")
    report = keyring_key.probe(PATIENT_S)
    assert report.state is KeyringState.FOREIGN and report.backend in report.message
    assert ("plain.PlaintextKeyring" if code is PLAIN else "?keyring.backends.SecretService") in report.backend
    assert refused(lambda: keyring_key.store("e", Secret(bytes(32)), deadline_s=PATIENT_S)) is KeyringState.FOREIGN
    assert refused(lambda: keyring_key.load("e", deadline_s=PATIENT_S)) is KeyringState.FOREIGN
    assert refused(lambda: keyring_key.delete("e", deadline_s=PATIENT_S)) is KeyringState.FOREIGN
    assert not used.exists()


@pytest.mark.parametrize("with_service", [True, False])
def test_a_plug_in_that_keyring_would_choose_by_itself_is_never_used(with_service: bool, desktop: Login) -> None:
    used = configure(desktop, PLAIN, chosen=None, plugin=True)
    if with_service:
        desktop.start_keyring("of the login")
    report = keyring_key.probe(PATIENT_S)
    assert report.state is KeyringState.FOREIGN and "plain.PlaintextKeyring" in report.backend
    assert ("SecretService" in report.backend) is with_service
    assert refused(lambda: keyring_key.store("e", Secret(bytes(32)), deadline_s=PATIENT_S)) is KeyringState.FOREIGN
    assert not used.exists()


def test_passwords_of_other_programs_are_fetched_and_never_taken_for_keys(desktop: Login) -> None:
    desktop.start_keyring("of the login")
    lookalike = "kxv1:" + "A" * 40
    script = "import keyring; keyring.set_password('mail', 'me', 'päss'); keyring.set_password('kortix', 'e', '%s')"
    subprocess.run([sys.executable, "-c", script % lookalike], check=True, timeout=120)
    assert keyring_key.fetch("mail", "me", deadline_s=PATIENT_S).use("test") == "päss".encode()
    with pytest.raises(KeyMissing, match="nobody"):
        keyring_key.fetch("mail", "nobody", deadline_s=PATIENT_S)
    with pytest.raises(KeyMissing):
        keyring_key.fetch("x" * 100_000, "me", deadline_s=PATIENT_S)
    with pytest.raises(KeyUnavailable, match="not a key of this program") as caught:
        keyring_key.load("e", deadline_s=PATIENT_S)
    assert "AAAA" not in str(caught.value)
