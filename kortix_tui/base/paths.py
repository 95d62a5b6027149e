"""Where things live: the home (all state), the operator's config folder, and the files we ship."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import Refused


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG base directory specification: relative values are invalid and ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


def config_folder() -> Path:
    """The operator's configuration folder (`KORTIX_CONFIG_HOME`, else XDG)."""
    override = os.environ.get("KORTIX_CONFIG_HOME")
    return Path(override).absolute() if override else _xdg("XDG_CONFIG_HOME", ".config") / "kortix"


def cache_folder() -> Path:
    """What can be made again: image build caches."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "kortix"


def assets(name: str) -> Path:
    """A shipped folder (`themes`, `sample-projects`): inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "assets" / name
    return packed if packed.is_dir() else package.parent / name


@dataclass(frozen=True)
class Home:
    """The folder that holds all state. Everything in it is private to one operating-system user."""

    path: Path

    @classmethod
    def locate(cls) -> Home:
        """`KORTIX_HOME`, else `kortix` in the XDG state folder."""
        override = os.environ.get("KORTIX_HOME")
        return cls(Path(override).absolute() if override else _xdg("XDG_STATE_HOME", ".local/state") / "kortix")

    def prepare(self) -> None:
        """Create the home with mode 0700, or check that it is ours and private.

        Raises:
            Refused: It belongs to somebody else, others can enter it, or it cannot be written.
        """
        try:
            for folder in (self.path, self.repositories, self.sessions):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
        except OSError as error:
            raise Refused(
                f"The home {self.path} cannot be used: {error.strerror}.",
                hint="Set KORTIX_HOME to a folder that you can write.",
            ) from error
        if status.st_uid != os.geteuid():
            raise Refused(
                f"The home {self.path} belongs to another user (uid {status.st_uid}).",
                hint="Set KORTIX_HOME to a folder of your own.",
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise Refused(
                f"The home {self.path} can be entered by others (mode {stat.S_IMODE(status.st_mode):04o}).",
                hint=f"Run: chmod 700 {self.path}",
            )
        if not os.access(self.path, os.W_OK):
            raise Refused(f"The home {self.path} is read-only.", hint="Set KORTIX_HOME to a folder that you can write.")

    @property
    def database(self) -> Path:
        """The SQLite file with all rows and the audit chain."""
        return self.path / "state.db"

    @property
    def audit_key(self) -> Path:
        """32 random bytes, made with the home."""
        return self.path / "audit.key"

    @property
    def audit_head(self) -> Path:
        """The newest chain link as last synced; may lag, never lead."""
        return self.path / "audit.head"

    @property
    def host_lock(self) -> Path:
        """The file whose `flock` makes its holder the host."""
        return self.path / "host.lock"

    @property
    def control_socket(self) -> Path:
        """For what must not be stored: shells, values."""
        return self.path / "control.sock"

    @property
    def vault(self) -> Path:
        """Secrets at rest."""
        return self.path / "vault.kxv"

    @property
    def repositories(self) -> Path:
        """Bare mirrors, one a project."""
        return self.path / "repositories"

    @property
    def sessions(self) -> Path:
        """One folder a session."""
        return self.path / "sessions"

    @property
    def tools(self) -> Path:
        """The doors of tool servers that run, one folder each."""
        return self.path / "tools"

    def mirror(self, project_id: str) -> Path:
        """The project's bare mirror."""
        return self.repositories / f"{project_id}.git"

    def session(self, session_id: str) -> Path:
        """The session's folder."""
        return self.sessions / session_id

    def records(self, session_id: str) -> Path:
        """The session's append-only record segments."""
        return self.session(session_id) / "records"

    def door(self, session_id: str) -> Path:
        """The folder that is mounted into the sandbox; holds the socket only."""
        return self.session(session_id) / "door"

    def rescue(self, session_id: str) -> Path:
        """What could not be saved as a ref."""
        return self.session(session_id) / "rescue"
