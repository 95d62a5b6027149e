"""Homes that a demo has made: their help desk may be reached on this machine, and is started with their host.

Calls go to public addresses unless the operator says otherwise. What is said here holds for a demo's home alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings

MARKER: Final = "KORTIX-DEMO"
"""A file that says that the folder was made by a demo and may be removed as a whole."""
HOME: Final = "home"
DESK: Final = "helpdesk"
ADDRESS: Final = "127.0.0.1"


def desk_folder(home: Home) -> Path | None:
    """The help desk's folder beside a demo's home; `None` for every other home, and for demos without one.

    The folder around the home must be ours and closed to others: what lies in it then was put there by us.
    """
    place = home.path.parent
    if home.path.name != HOME or not (place / MARKER).is_file() or not _is_private(place):
        return None
    return place / DESK if (place / DESK).is_dir() else None


def settings_for(home: Home, settings: Settings) -> Settings:
    """The operator's settings, and for a demo's home the address of its help desk beside them."""
    if desk_folder(home) is None:
        return settings
    connectors = settings.connectors
    allowed = (*connectors.allow_private, f"{ADDRESS}/32")
    return settings.model_copy(update={"connectors": connectors.model_copy(update={"allow_private": allowed})})


def wake_desk(home: Home) -> None:
    """Start the help desk of a demo's home again where it is gone; nothing for other homes."""
    folder = desk_folder(home)
    if folder is not None:
        from kortix_tui.runtime.demo_desk import HelpDesk

        HelpDesk(folder).wake()


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
