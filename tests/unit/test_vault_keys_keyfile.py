"""Key files: made once, refused where others could have touched them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kortix_tui.vault import keyfile, systemd_key
from kortix_tui.vault.key_errors import KeyMissing, KeyUnavailable

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config/vault.key"


def refused(path: Path) -> str:
    with pytest.raises(KeyUnavailable) as caught:
        keyfile.load(path)
    assert caught.value.hint
    return caught.value.message


def test_a_new_key_is_private_and_comes_back(path: Path) -> None:
    before = os.umask(0)
    try:
        key = keyfile.create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(key) == 32 and keyfile.load(path).matches(key)


def test_two_keys_differ(path: Path) -> None:
    assert not keyfile.create(path).matches(keyfile.create(path.with_name("other")))


def test_an_existing_file_or_link_is_never_replaced(path: Path, tmp_path: Path) -> None:
    key = keyfile.create(path)
    with pytest.raises(KeyUnavailable, match="never replaced"):
        keyfile.create(path)
    assert keyfile.load(path).matches(key)
    link = path.with_name("link")
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyUnavailable):
        keyfile.create(link)
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_file_is_told_apart(path: Path) -> None:
    with pytest.raises(KeyMissing):
        keyfile.load(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_a_file_that_others_can_touch_is_refused(mode: int, path: Path) -> None:
    keyfile.create(path)
    path.chmod(mode)
    assert f"{mode:04o}" in refused(path)


def test_a_read_only_file_is_taken(path: Path) -> None:
    key = keyfile.create(path)
    path.chmod(0o400)
    assert keyfile.load(path).matches(key)


@pytest.mark.parametrize("size", [0, 31, 33, 100_000])
def test_a_file_of_another_length_is_refused(size: int, path: Path) -> None:
    keyfile.create(path)
    path.write_bytes(b"k" * size)
    assert "32 bytes" in refused(path)


def test_what_is_no_plain_file_is_refused_at_once(path: Path) -> None:
    key = path.with_name("real")
    keyfile.create(key)
    path.symlink_to(key)
    assert "symbolic link" in refused(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "not a plain file" in refused(path)
    path.unlink()
    path.mkdir(mode=0o700)
    assert "not a plain file" in refused(path)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_refused(mode: int, path: Path) -> None:
    keyfile.create(path)
    path.parent.chmod(mode)
    assert "Others can write the folder" in refused(path)
    with pytest.raises(KeyUnavailable, match="Others can write"):
        keyfile.create(path.with_name("second"))
    assert not path.with_name("second").exists()


def test_files_of_others_are_refused(path: Path) -> None:
    if os.geteuid() != 0:  # nobody else can give files away, but there are some of root's
        assert "uid 0" in refused(Path("/etc/hostname"))
        return
    keyfile.create(path)
    os.chown(path, NOBODY, NOBODY)
    assert f"uid {NOBODY}" in refused(path)
    os.chown(path, 0, 0)
    os.chown(path.parent, NOBODY, NOBODY)
    assert f"uid {NOBODY}" in refused(path)


def test_a_place_that_cannot_be_used_is_told(path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(KeyUnavailable, match="cannot be used"):
        keyfile.create(path)
    assert "cannot be used" in refused(path)


def test_the_place_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KORTIX_CONFIG_HOME", str(tmp_path))
    assert keyfile.default_path() == tmp_path / "vault.key"
    monkeypatch.setenv("KORTIX_VAULT_KEYFILE", "/media/stick/key")
    assert keyfile.default_path() == Path("/media/stick/key")


def test_a_credential_of_systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert not systemd_key.available()
    with pytest.raises(KeyMissing, match="no credentials"):
        systemd_key.load()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert not systemd_key.available()
    with pytest.raises(KeyMissing, match="kortix-vault"):
        systemd_key.load()
    (tmp_path / "kortix-vault").write_bytes(bytes(range(32)))
    assert systemd_key.available() and systemd_key.load().use("test") == bytes(range(32))
    (tmp_path / "kortix-vault").write_bytes(bytes(33))
    with pytest.raises(KeyUnavailable, match="32 bytes"):
        systemd_key.load()
    (tmp_path / "kortix-vault").unlink()
    (tmp_path / "kortix-vault").mkdir()
    with pytest.raises(KeyUnavailable, match="cannot be read"):
        systemd_key.load()
