"""Vault keys that systemd decrypted for a service: `LoadCredentialEncrypted=kortix-vault:…` in its unit.

The credential is a file in memory that only this service can read. Make one with
`head -c 32 /dev/urandom | systemd-creds encrypt --name=kortix-vault - kortix-vault.cred`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kortix_tui.base.text import visible_line
from kortix_tui.vault.key_errors import KeyMissing, KeyUnavailable
from kortix_tui.vault.secret import Secret

NAME: Final = "kortix-vault"
VARIABLE: Final = "CREDENTIALS_DIRECTORY"
KEY_BYTES: Final = 32


def available() -> bool:
    """Whether systemd gave this process a credential for the vault."""
    path = _path()
    return path is not None and path.is_file()


def load() -> Secret:
    """Read the credential.

    Raises:
        KeyMissing: systemd gave none.
        KeyUnavailable: It cannot be read, or is not 32 bytes.
    """
    path = _path()
    if path is None:
        raise KeyMissing("systemd gave this process no credentials.", hint=_HINT)
    try:
        with path.open("rb") as file:
            key = file.read(KEY_BYTES + 1)
    except FileNotFoundError:
        raise KeyMissing(f"systemd gave this process no credential named {NAME}.", hint=_HINT) from None
    except OSError as error:
        raise KeyUnavailable(
            f"The systemd credential {visible_line(str(path))} cannot be read: {error.strerror}.", hint=_HINT
        ) from error
    if len(key) != KEY_BYTES:
        raise KeyUnavailable(f"The systemd credential {NAME} does not hold {KEY_BYTES} bytes.", hint=_HINT)
    return Secret(key)


_HINT: Final = (
    f"Seal 32 random bytes with `systemd-creds encrypt --name={NAME}` and load them in the unit, or use another slot."
)


def _path() -> Path | None:
    folder = os.environ.get(VARIABLE, "")
    return Path(folder) / NAME if folder.startswith("/") else None
