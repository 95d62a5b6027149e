"""Where things are in a sandbox. Tests put them elsewhere."""

from __future__ import annotations

import os

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Places:
    """The folders and the port that the guest uses; the defaults are the contract with the host."""

    def __init__(
        self,
        *,
        door: str = "/run/kortix/door.sock",
        state: str = "/var/lib/kortix",
        run: str = "/run/kortix-agent",
        workspace: str = "/workspace",
        home: str = "/home/agent",
        port: int = 8118,
    ) -> None:
        self.door = door
        self.state = state
        self.run = run
        self.workspace = workspace
        self.home = home
        self.port = port

    @property
    def channel_key(self) -> str:
        """What proves to the host that we are the supervisor it met first."""
        return os.path.join(self.state, "channel.key")

    @property
    def journal(self) -> str:
        """The folder of the journal's segments."""
        return os.path.join(self.state, "journal")

    @property
    def turns(self) -> str:
        """The list of turns ever started; outlives the journal's ring."""
        return os.path.join(self.state, "turns")

    @property
    def cloned(self) -> str:
        """Exists once the workspace holds the repository."""
        return os.path.join(self.state, "cloned")

    @property
    def token(self) -> str:
        """The agent's token, readable by the agent."""
        return os.path.join(self.run, "token")

    @property
    def gitconfig(self) -> str:
        """Included by `/etc/gitconfig`."""
        return os.path.join(self.run, "gitconfig")

    @property
    def prompts(self) -> str:
        """One file a running turn."""
        return os.path.join(self.run, "prompts")
