"""Starting and leaving the console. Imports nothing of Textual before the terminal is known.

Textual reads its switches from the environment when it is imported, so what this terminal needs is set before.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from kortix_tui.console.terminal import Terminal

LOG_BYTES = 4 << 20


def run(home: Path | None = None, *, first: str = "sessions") -> int:
    """Open the console on the operator's home, and hand over on the way out.

    Args:
        home: Another home than the located one.
        first: The view that it opens on.

    Returns:
        The exit status.
    """
    Terminal.detect(os.environ).prepare(os.environ)
    from kortix_tui.base.paths import Home
    from kortix_tui.base.words import Exposure
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.bridge import Bridge
    from kortix_tui.runtime.background import start_background
    from kortix_tui.runtime.facade import Runtime

    class Console(KortixApp):
        DEFAULT_MODE = first

    with Runtime.open(via="console", kind="console", home=Home(home) if home is not None else None) as runtime:
        settings = runtime.context.settings
        terminal = Terminal.detect(os.environ, settings.mouse)
        _log_to(runtime.context.home.path / "console.log")
        bridge = Bridge(runtime)
        app = Console(
            bridge,
            terminal=terminal,
            keymap=settings.keymap,
            theme=settings.theme,
            default_exposure=Exposure(settings.secrets.default_exposure),
            notify=settings.notify,
        )
        try:
            app.run(mouse=terminal.mouse)
        finally:
            bridge.stop()
            runtime.stop_hosting()
            # Whatever way it ended, work that is under way gets a host again.
            if runtime.unfinished() and runtime.host().host is None:
                start_background(runtime.context)
    return app.return_code or 0


def _log_to(path: Path) -> None:
    """Log into a file: on the terminal, a log line would be a hole in the picture."""
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    handler = logging.FileHandler(path, encoding="utf-8")
    from kortix_tui.base.crash import PlaceFormatter

    handler.setFormatter(PlaceFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
