"""Facts about the operator's terminal, read once from the environment. Imports nothing of Textual.

Textual reads its own variables when it is imported, so `prepare` must run before that.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

MouseMode = Literal["auto", "on", "off"]

LOGGING = ("TEXTUAL", "TEXTUAL_LOG", "TEXTUAL_DEBUG")
"""Switches that make Textual write every key to a file or to another program: also those of a passphrase."""

LOCAL_FRAMES = 10.0
"""Repaints a second on this machine: more is not seen, and costs CPU."""
REMOTE_FRAMES = 4.0
"""Repaints a second over SSH: ten of them fill a 30 KB/s link and make keys wait for seconds."""


@dataclass(frozen=True)
class Terminal:
    """What the console adapts to."""

    remote: bool
    tmux: bool
    iterm: bool
    colourless: bool
    mouse: bool

    @classmethod
    def detect(cls, environ: Mapping[str, str], mouse: MouseMode = "auto") -> Terminal:
        """Read the facts.

        Args:
            environ: The process environment.
            mouse: The operator's choice. `auto` is on locally and off over SSH, where any-motion
                reports would send bytes upstream with every move of the hand.
        """
        remote = bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"))
        return cls(
            remote=remote,
            tmux=bool(environ.get("TMUX")),
            iterm=environ.get("TERM_PROGRAM") == "iTerm.app" or environ.get("LC_TERMINAL") == "iTerm2",
            # https://no-color.org: present and not empty.
            colourless=bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb",
            mouse=mouse == "on" or (mouse == "auto" and not remote),
        )

    @property
    def frames_per_second(self) -> float:
        """Rate of the repaint ticker."""
        return REMOTE_FRAMES if self.remote else LOCAL_FRAMES

    @property
    def plain_keys(self) -> bool:
        """Whether the Kitty keyboard flags must stay off: in iTerm2 they swallow what an input method writes."""
        return self.iterm and not self.tmux

    def prepare(self, environ: MutableMapping[str, str]) -> None:
        """Set Textual's own switches, without overriding what the operator set; take away those that log keys."""
        if self.plain_keys:
            environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
        environ.setdefault("TEXTUAL_ANIMATIONS", "none")
        for name in LOGGING:
            environ.pop(name, None)
        if self.remote:
            environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
