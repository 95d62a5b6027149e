"""A console that fails while it has a secret in its hands, for `tests/console/test_crash.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from console_source import a_day

from kortix_tui.console import start
from kortix_tui.console.terminal import Terminal


class Broken(Exception):
    """Its message and its attributes have the value, as those of a careless library would."""

    def __init__(self, value: str) -> None:
        super().__init__(f"cannot use {value!r}")
        self.value = value

    def __rich__(self) -> str:
        return f"[b]{self.value}[/b]"


def fail(value: str) -> NoReturn:
    wrapped = {"value": value}
    raise Broken(wrapped["value"])


def main() -> None:
    where, log = sys.argv[1], Path(sys.argv[2])
    terminal = Terminal.detect(os.environ)
    terminal.prepare(os.environ)
    start._log_to(log)
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.bridge import Bridge
    from kortix_tui.console.driver import ConsoleDriver
    from kortix_tui.console.forms.secret_forms import RotateForm
    from kortix_tui.console.widgets.masked_entry import MaskedEntry

    def in_submit(self: RotateForm) -> Any:
        secret = self.masked("#value", "The value")
        plain = secret.use("the test wants it in a local").decode()
        try:
            return fail(plain)
        except Broken as error:
            raise ValueError(plain) from error

    def in_paste(self: MaskedEntry, text: str) -> None:
        fail(text)

    def in_worker(self: RotateForm) -> Any:
        secret = self.masked("#value", "The value")
        return lambda source: fail(secret.use("the test wants it in a local").decode())

    def in_input(self: ConsoleDriver, parser: object, text: str) -> None:
        if "\x1b[200~" in text:
            fail(text)
        dispatch(self, parser, text)

    dispatch: Any = ConsoleDriver._dispatch
    match where:
        case "submit":
            RotateForm.act = in_submit  # type: ignore[method-assign]
        case "paste":
            MaskedEntry._take = in_paste  # type: ignore[method-assign]
        case "worker":
            RotateForm.act = in_worker  # type: ignore[method-assign]
        case "input":
            ConsoleDriver._dispatch = in_input  # type: ignore[method-assign,assignment]
    bridge = Bridge(a_day())
    app = KortixApp(bridge, terminal=terminal)
    app.run(mouse=terminal.mouse)
    bridge.stop()
    sys.stdout.write(f"left with {app.return_code}\n")
    sys.exit(app.return_code or 0)


if __name__ == "__main__":
    main()
