"""Where values come from beside a person's keyboard: `.env` files and the keyring; and what this machine's keyring is.

Nothing here needs the host, and nothing is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.runtime.secret_views import ImportReport
from kortix_tui.runtime.views import View
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    from kortix_tui.runtime.secrets import Secrets
    from kortix_tui.store.models import Project
    from kortix_tui.vault.dotenv_file import DotenvFile

__all__ = [
    "KeyringView", "Secret", "import_file", "key_file_path", "keyring_state", "read_env_file", "read_exposure",
    "read_keyring", "systemd_key_given",
]  # fmt: skip
_MAX_FILE: Final = 5 << 20


class KeyringView(View):
    """This machine's keyring."""

    usable: bool = Field(description="Whether it is open, and keeps what it holds encrypted.")
    says: str = Field(description="What it is, in a sentence.")
    hint: str = Field(description="What to do about it; empty when it is usable.")


def keyring_state() -> KeyringView:
    """Look at the keyring, for some seconds at most; nothing is written and nobody is asked."""
    from kortix_tui.vault.keyring_key import KeyringState, probe

    report = probe()
    return KeyringView(usable=report.state is KeyringState.PRESENT, says=report.message, hint=report.hint)


def key_file_path(given: str | None) -> str:
    """The absolute path of a key file; the usual one when none is given. The host has another current folder."""
    from kortix_tui.vault.keyfile import default_path

    return str(Path(given).expanduser().absolute() if given else default_path())


def systemd_key_given() -> bool:
    """Whether systemd gave this process a key for the vault."""
    from kortix_tui.vault.systemd_key import available

    return available()


def read_exposure(text: str) -> Exposure:
    """An exposure as a person writes it, with Kortix's words for it.

    Raises:
        InvalidInput: It is none; the hint names those that there are.
    """
    from kortix_tui.vault import rules

    return rules.read_exposure(text)


def check_name(name: str) -> None:
    """Check that a variable may be a secret's: before a person types its value.

    Raises:
        InvalidInput: It may not, such as `PATH`.
    """
    from kortix_tui.vault import rules

    rules.check_name(name)


def read_env_file(path: Path) -> DotenvFile:
    """What a `.env` file assigns. No message quotes a value.

    Raises:
        InvalidInput: It cannot be read, or a line of it cannot.
    """
    from kortix_tui.vault.dotenv_file import read_dotenv

    shown = visible_line(str(path))
    try:
        # O_NONBLOCK: a FIFO in its place must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput(f"{shown} is not a plain file.")
            data = file.read(_MAX_FILE)
    except OSError as error:
        raise InvalidInput(f"{shown} cannot be read: {error.strerror}.") from error
    return read_dotenv(data)


def read_keyring(service: str, user: str) -> Secret:
    """A password that another program keeps in this machine's keyring.

    Raises:
        KeyMissing: There is none of these names.
        KeyringUnavailable: The keyring cannot be asked.
    """
    from kortix_tui.vault.keyring_key import fetch

    return fetch(service, user)


def import_file(
    secrets: Secrets,
    project: Project,
    entries: Sequence[tuple[str, Secret]],
    *,
    default: Exposure,
    exposure: Exposure | None = None,
    only_me: bool | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Store many values; what cannot be stored is skipped with its reason, and the rest goes on.

    Of a name that comes twice, whatever its case, the last value counts.

    Args:
        secrets: The verbs.
        project: Whose.
        entries: Names and values.
        default: What the operator's settings make of a new secret.
        exposure: As with `Secrets.set`.
        only_me: As with `Secrets.set`.
        overwrite: Whether a secret that is there gets a new version.
        dry_run: Only say what would be done.

    Raises:
        VaultFailed: The vault is missing, locked or broken.
    """
    from kortix_tui.vault.rules import check_value, exposure_of_new

    known = {view.identifier.casefold(): view for view in secrets.list(project=project)}
    created, changed, skipped = list[str](), list[str](), list[str]()
    storing = list[tuple[str, Secret]]()
    for name, value in {name.casefold(): (name, value) for name, value in entries}.values():
        there = known.get(name.casefold())
        if there is not None and not overwrite:
            skipped.append(f"{visible_line(name)}: it is there already; --overwrite gives it a new version")
            continue
        try:
            check_name(name)
            new = exposure_of_new(name, exposure, default)[0]
            check_value(value, exposure or (there.exposure if there else new))
        except InvalidInput as error:
            skipped.append(f"{visible_line(name)}: {error}")
        else:
            storing.append((name, value))
            (changed if there else created).append(name)
    if not dry_run:
        secrets.set_many(project, storing, exposure=exposure, only_me=only_me)
    return ImportReport(created=tuple(created), changed=tuple(changed), skipped=tuple(skipped))
