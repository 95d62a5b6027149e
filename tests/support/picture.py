"""Makes the pictures of the console in README and help anew: `python tests/support/picture.py [FOLDER]`.

Real all the way: a demo of its own, real sandboxes, and the console as `kortix` opens it, only without a terminal.
Needs a Docker engine, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kortix_tui.base.words import PromptState
from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.runtime.demo import make_demo, remove_demo, start_demo
from kortix_tui.runtime.facade import Runtime

HELP = Path(__file__).resolve().parents[2] / "kortix_tui" / "help"
SIZE = (124, 32)
TITLE = "kortix"
KEYS = ("right_square_bracket",) * 4
"""In the change request: to a file that shows what changes."""
TURN_S = 180.0
PAINT_S = 30.0
ENDED = (PromptState.FINISHED, PromptState.FAILED, PromptState.UNKNOWN)


def work(runtime: Runtime, session_id: str) -> None:
    """Wait until a session has answered its prompts."""
    end = time.monotonic() + TURN_S
    while not all(prompt.state in ENDED for prompt in runtime.sessions.prompts(session_id)):
        if time.monotonic() > end:
            raise TimeoutError(f"session {session_id} is still at work")
        time.sleep(0.05)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the bridge's threads bring."""
    async with asyncio.timeout(PAINT_S):
        while not condition():
            await asyncio.sleep(0.02)


def last_line(pane: LogPane) -> str:
    """The newest line of a log that is shown."""
    end = pane.store.end
    return pane.store.read(end - 1, end)[0].text if end else ""


async def paint(runtime: Runtime) -> dict[str, str]:
    """The console on a home, as SVG by name: the sessions, and the change request that waits."""
    app = KortixApp(Bridge(runtime), terminal=Terminal.detect({}))
    pictures = {}
    try:
        async with app.run_test(size=SIZE) as pilot:
            await until(lambda: bool(app.facts.inbox) and app.facts.host.here and len(app.facts.sessions) > 1)
            # Wide enough for two logs: that of the selected session, and that of the one that was active before it.
            await until(lambda: all("exit status" in last_line(pane) for pane in app.screen.query(LogPane)))
            app.ticker.beat()
            await pilot.pause()
            pictures["console"] = portable(app.export_screenshot(title=TITLE))
            await pilot.press("d")
            await until(lambda: any(len(view.model) for view in app.screen.query(DiffView)))
            await pilot.press(*KEYS)
            app.ticker.beat()
            await pilot.pause()
            pictures["change"] = portable(app.export_screenshot(title=TITLE))
    finally:
        app.bridge.stop()
    return pictures


def portable(svg: str) -> str:
    """The same picture with the reader's own monospace font: no font is fetched, and no id changes from run to run."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = svg.replace("Fira Code", "ui-monospace, 'DejaVu Sans Mono'")
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)  # some renderers trim even the spaces that do not break
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Make a demo, let two agents work in it, paint, remove it."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HELP
    with tempfile.TemporaryDirectory(prefix="kx", dir="/tmp") as folder:
        demo = make_demo(Path(folder) / "demo")
        try:
            with demo.open() as runtime, runtime.hosting():
                runtime.sandboxes.build("default", print)  # here, not in the picture
                project = runtime.projects.add(str(demo.repository), slug="acme-api")
                tests = runtime.sessions.new("Run the whole test suite", project=project, agent="tester")
                work(runtime, tests.id)
                work(runtime, start_demo(runtime, demo).id)
                pictures = asyncio.run(paint(runtime))
        finally:
            remove_demo(demo)
    for name, svg in pictures.items():
        (target / f"{name}.svg").write_text(svg, "utf-8")
        print(target / f"{name}.svg")


if __name__ == "__main__":
    main()
