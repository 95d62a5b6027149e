"""Paint once and leave: `paint.py console` opens the console of KORTIX_HOME, `paint.py empty` an empty Textual app."""

from __future__ import annotations

import os
import sys


def console() -> None:
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # as the kortix command does
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.bridge import Bridge
    from kortix_tui.runtime.facade import Runtime

    class Once(KortixApp):
        def show_facts(self, *, newer_only: bool = False) -> None:
            super().show_facts(newer_only=newer_only)
            if self.facts.sessions:
                self.call_after_refresh(self.exit)

    with Runtime.open(via="console", kind="console") as runtime:
        bridge = Bridge(runtime)
        try:
            Once(bridge, host=False).run()
        finally:
            bridge.stop()


def empty() -> None:
    from textual.app import App

    class Empty(App[None]):
        def on_mount(self) -> None:
            self.call_after_refresh(self.exit)

    Empty().run()


if __name__ == "__main__":
    {"console": console, "empty": empty}[sys.argv[1]]()
