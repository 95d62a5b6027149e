"""`kortix vault` with real keys, at a real terminal, with a real background host; `age` itself opens the exports."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import wait_for
from packages import need

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.cli.setup import ensure_vault
from kortix_tui.runtime.doctor_vault import vault_check
from kortix_tui.store import lock
from kortix_tui.store.database import Store

ROOT = Path(__file__).resolve().parents[2]
PASSPHRASE = "hat-Rind-Vulkan-77"
OTHER = "leise-Kanne-Quarz-31"
VALUE = "sk_live_Qx7vT2mZ9pLw4RkB8nYd"
KEY = r"(?:[A-Z2-7]{5}-){7}[A-Z2-7]{5}"


@pytest.fixture(autouse=True)
def _ends_its_host(home: Home) -> Iterator[None]:
    yield
    store = Store(home)
    leader = lock.holder(store)
    if leader is not None and leader.pid != os.getpid():
        os.kill(leader.pid, signal.SIGTERM)
        wait_for(lambda: not lock.is_locked(store))
    store.close()


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))


@contextmanager
def lines(*texts: str) -> Iterator[str]:
    """A descriptor with these lines, by its number."""
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{text}\n" for text in texts).encode())
    os.close(writer)
    try:
        yield str(reader)
    finally:
        os.close(reader)


def told(capfd: pytest.CaptureFixture[str], *arguments: str, typed: Sequence[str] = (), status: int = 0) -> str:
    """What a command prints in all, given lines on a descriptor."""
    capfd.readouterr()
    with lines(*typed) as descriptor:
        found = run([*arguments, *(("--passphrase-fd", descriptor) if typed else ())])
    out, error = capfd.readouterr()
    assert found == status, out + error
    assert not any(text in out + error for text in (PASSPHRASE, OTHER, VALUE))
    return out + error


def state(capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    capfd.readouterr()
    assert run(["vault", "status", "--json"]) == 0
    found: dict[str, object] = json.loads(capfd.readouterr().out)
    return found


def kinds(capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    assert run(["vault", "slots", "ls", "--json"]) == 0
    return sorted(slot["type"] for slot in json.loads(capfd.readouterr().out))


@pytest.fixture
def project(home: Home, repository: Path) -> Path:
    assert run(["projects", "add", str(repository), "--slug", "acme"]) == 0
    return repository


@pytest.fixture
def sealed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A vault that only a passphrase opens."""
    told(capfd, "vault", "init", "--no-recovery", typed=[PASSPHRASE])


@pytest.fixture
def filed(project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A vault that a key file opens, with one secret."""
    told(capfd, "vault", "init", "--keyfile", "--no-recovery")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(VALUE.encode())))
    told(capfd, "secrets", "set", "API_KEY=-")


# Making


def test_without_anybody_it_is_refused_with_the_way(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    assert "vault init --keyfile" in told(capfd, "vault", "init", status=1)
    assert "Nobody can be asked" in told(capfd, "vault", "init", "--passphrase", status=1)
    assert "fewer than 8" in told(capfd, "vault", "init", typed=["short"], status=1)
    assert state(capfd)["state"] == "missing"
    assert not home.vault.exists()


def test_a_key_file_makes_one_and_it_is_never_replaced(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    key = home.path.parent / "config" / "vault.key"
    said = told(capfd, "vault", "init", "--keyfile")
    assert f"opens by keyfile {key}" in said and "No recovery key was made" in said
    assert key.stat().st_mode & 0o777 == 0o600 and home.vault.stat().st_mode & 0o777 == 0o600
    assert kinds(capfd) == ["keyfile"]
    assert "There is a vault already" in told(capfd, "vault", "init", "--keyfile", status=1)
    row = vault_check(home)
    assert row.level == "warn" and "no recovery key" in row.message and "mode 0600" in row.message
    key.unlink()
    assert "does not exist" in vault_check(home).message


def test_a_recovery_key_is_shown_once_and_opens(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    with AtTerminal("vault", "init") as terminal:
        terminal.see("[p]assphrase or [k]ey file?")
        terminal.type("p\n")
        terminal.see("New passphrase:")
        terminal.type(f"{PASSPHRASE}\n")
        terminal.see("once more:")
        terminal.type(f"{PASSPHRASE}\n")
        typed = terminal.see("Recovery key:")
        terminal.see("    ")
        key = terminal.see("shown this once").split()[0]
        key = key.removeprefix(b"\x1b[1m").removesuffix(b"\x1b[0m")
        terminal.see("locked again now")
        assert terminal.end() == 0
        assert PASSPHRASE.encode() not in typed + terminal.screen
    assert kinds(capfd) == ["passphrase", "recovery"]
    everything = b"".join(path.read_bytes() for path in home.path.rglob("*") if path.is_file())
    assert key not in everything and PASSPHRASE.encode() not in everything
    with AtTerminal("vault", "unlock", "--recovery") as terminal:
        terminal.see("Recovery key:")
        terminal.type(key[:4] + b"\n")
        terminal.see("kortix: ")
        assert terminal.end() == 1
    with AtTerminal("vault", "unlock", "--recovery") as terminal:
        terminal.see("Recovery key:")
        terminal.type(key.lower() + b"\n")
        terminal.see("The vault is unlocked")
        assert terminal.end() == 0


def test_setup_makes_one_without_a_question(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    assert ensure_vault(yes=True)
    assert kinds(capfd) == ["keyfile"]
    before = home.vault.read_bytes()
    assert not ensure_vault(yes=True)
    assert home.vault.read_bytes() == before


def test_a_missing_vault_is_offered_where_it_is_needed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "There is no vault yet" in told(capfd, "secrets", "set", "API_KEY=-", status=1)
    with AtTerminal("secrets", "set", "API_KEY") as terminal:
        terminal.see("[p]assphrase or [k]ey file?")
        terminal.type("k\n")
        terminal.see("Made the vault")
        terminal.see("Value of API_KEY:")
        terminal.type(f"{VALUE}\n")
        terminal.see("once more:")
        terminal.type(f"{VALUE}\n")
        terminal.see("API_KEY of acme: stored")
        assert terminal.end() == 0
    assert kinds(capfd) == ["keyfile", "recovery"]


# Locking


def test_a_locked_vault_asks_and_a_wrong_passphrase_waits(sealed: None, capfd: pytest.CaptureFixture[str]) -> None:
    with AtTerminal("vault", "verify") as terminal:
        terminal.see("Passphrase of the vault:")
        terminal.type("wrong-one-77\n")
        terminal.see("2 more tries, after 1 s")
        terminal.see("Passphrase of the vault:")
        terminal.type(f"{PASSPHRASE}\n")
        terminal.see("The vault is whole")
        assert terminal.end() == 0
        assert terminal.settings_now == terminal.before
    assert "nobody can be asked" in told(capfd, "vault", "verify", status=1)
    assert "is whole" in told(capfd, "vault", "verify", typed=[PASSPHRASE])
    denied = told(capfd, "vault", "verify", typed=["wrong-one-77"], status=1)
    assert "wrong-one-77" not in denied
    assert "kortix: Line 1 on descriptor" in told(capfd, "vault", "verify", typed=[""], status=2)
    assert "cannot be read" in told(capfd, "vault", "verify", "--passphrase-fd", "999", status=2)
    capfd.readouterr()
    assert run(["audit", "ls", "--event", "vault.unlock", "--json"]) == 0
    assert "denied" in {event["outcome"] for event in json.loads(capfd.readouterr().out)}


def test_unlock_leaves_a_host_that_keeps_it_open(
    sealed: None, home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kortix_tui.cli import vault

    monkeypatch.setattr(vault, "PATIENCE_S", 2.0)
    said = told(capfd, "vault", "unlock", typed=[PASSPHRASE])
    assert "The vault is unlocked" in said and "until: kortix vault lock" in said
    store = Store(home)
    leader = lock.holder(store)
    assert leader is not None and leader.kind == "serve"
    assert state(capfd)["state"] == "unlocked"
    command = Path(f"/proc/{leader.pid}/cmdline").read_bytes()
    assert PASSPHRASE.encode() not in command
    # It had its time to end as idle: a look with nothing to do takes the linger time at most.
    log = home.path / "host.log"
    wait_for(lambda: "stays" in log.read_text())
    assert "is whole" in told(capfd, "vault", "verify")
    assert "The vault is locked." in told(capfd, "vault", "lock")
    wait_for(lambda: not lock.is_locked(store))
    store.close()
    assert state(capfd)["state"] == "locked"
    assert "The vault is locked." in told(capfd, "vault", "lock")  # nobody has it open


def test_whoever_gives_a_key_to_an_open_vault_is_told_that_it_was_not_tried(
    sealed: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "Open it: kortix vault unlock" in told(capfd, "vault", "status")
    assert "not tried" not in told(capfd, "vault", "unlock", typed=[PASSPHRASE])
    assert "your key was not tried" in told(capfd, "vault", "unlock", typed=[OTHER])
    assert "your key was not tried" in told(capfd, "vault", "unlock", "--recovery", typed=["no-key"])
    assert "not tried" not in told(capfd, "vault", "unlock")


def test_the_inbox_unlocks_too(sealed: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert "unlocked" in told(capfd, "review", "act", "vault", "unlock", typed=[PASSPHRASE])
    assert "unlocked" in told(capfd, "review", "show", "vault")
    assert "takes `unlock`" in told(capfd, "review", "act", "vault", "merge", status=2)


# Keys


def test_keys_come_and_go(filed: None, home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    assert "opens with the passphrase, too" in told(capfd, "vault", "passphrase", typed=[PASSPHRASE])
    assert kinds(capfd) == ["keyfile", "passphrase"]
    told(capfd, "vault", "passphrase", typed=["not-the-one-1", OTHER], status=1)
    assert "is changed" in told(capfd, "vault", "passphrase", typed=[PASSPHRASE, OTHER])
    stick = home.path.parent / "stick" / "key"
    assert str(stick) in told(capfd, "vault", "slots", "add", "keyfile", str(stick))
    slots = json.loads(_json(capfd, "vault", "slots", "ls"))
    first = next(slot["id"] for slot in slots if slot["place"] and slot["place"] != str(stick))
    assert "opens the vault no more" in told(capfd, "vault", "slots", "rm", first)
    assert "no key" in told(capfd, "vault", "slots", "rm", first, status=1)
    assert "fits several" in told(capfd, "vault", "slots", "rm", "slot_", status=2)
    assert kinds(capfd) == ["keyfile", "passphrase"]
    assert "terminal only" in told(capfd, "vault", "recovery", status=1)
    said = told(capfd, "vault", "recovery", "--show-recovery")
    assert "shown this once" in said
    told(capfd, "vault", "rotate", "--show-recovery", typed=["not-the-one-1"], status=1)
    assert "encrypted anew" in told(capfd, "vault", "rotate", "--show-recovery", typed=[OTHER])
    assert "is whole: 1 record" in told(capfd, "vault", "verify")
    stick.unlink()
    assert "is whole: 1 record" in told(capfd, "vault", "verify", typed=[OTHER])


def _json(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    capfd.readouterr()
    assert run([*arguments, "--json"]) == 0
    return capfd.readouterr().out


def test_a_recovery_key_stays_out_of_json(filed: None, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["vault", "recovery", "--show-recovery", "--json"]) == 0
    out, error = capfd.readouterr()
    assert "Recovery key:" in error and "Recovery key:" not in out
    assert json.loads(out)["state"] == "unlocked"


def test_a_damaged_file_is_repaired_with_the_recovery_key(
    filed: None, home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert run(["vault", "recovery", "--show-recovery"]) == 0
    key = next(line.strip() for line in capfd.readouterr().out.splitlines() if line.startswith("    "))
    data = bytearray(home.vault.read_bytes())
    data[-1] ^= 1
    home.vault.write_bytes(data)
    told(capfd, "vault", "verify", status=1)
    assert state(capfd)["state"] == "tampered"
    assert vault_check(home).level == "fail"
    with lines("", key) as descriptor:
        assert run(["vault", "repair", "--passphrase-fd", descriptor]) == 0
    assert "is whole: 1 record" in told(capfd, "vault", "verify")


# Backups


def test_an_export_opens_with_age_and_comes_back(
    filed: None, home: Home, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    need(age_keygen="age")
    identity, out = tmp_path / "identity.txt", tmp_path / "secrets.age"
    subprocess.run(["age-keygen", "-o", str(identity)], check=True, capture_output=True)
    recipient = next(line.split()[-1] for line in identity.read_text().splitlines() if "public key" in line)
    assert "age --decrypt" in told(capfd, "vault", "export", "--recipient", recipient, "--out", str(out))
    assert out.stat().st_mode & 0o777 == 0o600 and VALUE.encode() not in out.read_bytes()
    opened = subprocess.run(["age", "-d", "-i", str(identity), str(out)], check=True, capture_output=True).stdout
    (entry,) = json.loads(opened)["secrets"]
    assert base64.b64decode(entry["value"]).decode() == VALUE
    before = out.read_bytes()
    assert "not replaced" in told(capfd, "vault", "export", "--recipient", recipient, "--out", str(out), status=1)
    assert out.read_bytes() == before
    assert "--overwrite" in told(capfd, "vault", "import", str(out), "--identity", str(identity), status=1)
    told(capfd, "secrets", "unset", "API_KEY", "--yes")
    assert "API_KEY: new" in told(capfd, "vault", "import", str(out), "--identity", str(identity))
    assert "kortix: " in told(capfd, "vault", "import", str(identity), "--identity", str(identity), status=1)


def test_an_export_with_a_passphrase_as_text(filed: None, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "secrets.txt"
    with lines(OTHER) as descriptor:
        told(capfd, "vault", "export", "--armor", "--out", str(out), "--file-passphrase-fd", descriptor)
    assert out.read_text().startswith("-----BEGIN AGE ENCRYPTED FILE-----")
    told(capfd, "secrets", "unset", "API_KEY", "--yes")
    with lines("not-the-one-1") as descriptor:
        told(capfd, "vault", "import", str(out), "--file-passphrase-fd", descriptor, status=1)
    with lines(OTHER) as descriptor:
        assert "1 secret stored" in told(capfd, "vault", "import", str(out), "--file-passphrase-fd", descriptor)
    assert "Nobody can be asked" in told(capfd, "vault", "export", "--out", str(tmp_path / "x"), status=1)
    assert not (tmp_path / "x").exists()


def test_a_terminal_gets_text_only(filed: None) -> None:
    with AtTerminal("vault", "export") as terminal:
        terminal.see("A terminal cannot show the file.")
        assert terminal.end() == 1
    with AtTerminal("vault", "export", "--armor") as terminal:
        terminal.see("New passphrase of the export:")
        terminal.type(f"{OTHER}\n")
        terminal.see("once more:")
        terminal.type(f"{OTHER}\n")
        terminal.see("-----END AGE ENCRYPTED FILE-----")
        assert terminal.end() == 0


def test_the_inbox_is_quiet_while_nobody_acts(filed: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert state(capfd)["state"] == "locked"
    assert json.loads(_json(capfd, "review", "ls")) == []
