"""A console on a runtime in memory, as a process: `python console_program.py day|hostile`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from console_source import NOW, MemorySource, a_change, a_day, a_project, a_session
from hostile import corpus
from memory_secrets import a_request, a_secret, a_slot

from kortix_tui.base.settings import Notify
from kortix_tui.base.text import visible
from kortix_tui.base.words import VaultState
from kortix_tui.console.terminal import Terminal
from kortix_tui.store.records import Record


def a_hostile_day() -> MemorySource:
    """Every field that anybody outside can write holds what is hostile, as raw as it could ever come."""
    source = MemorySource()
    source.project_rows = [a_project("acme-api")]
    texts = corpus()
    for number, text in enumerate(texts):
        session = a_session(
            number, text, agent=text, base_branch=text, reason_text=text, minutes=number, change=number + 1,
            change_status="open",
        )  # fmt: skip
        source.session_rows.append(session)
        source.change_rows.append(
            a_change(
                number + 1, session, text, description=text, base_branch=text, opened_by=text, session_title=text,
                minutes=number,
            )
        )  # fmt: skip
        source.secrets.request_rows.append(
            a_request(number, session, text, reason=text, created_at=NOW - timedelta(minutes=number))
        )
        source.secrets.rows.append(a_secret(text, id=f"sec_{number}", hosts=(text,), agents=(text,), owner=text))
        source.vault.slots.append(a_slot(number, "keyfile", text))
    source.secrets.agents = texts
    source.vault.state, source.vault.reason, source.vault.previous = VaultState.UNLOCKED, texts[0], texts[1]
    # Records are safe when they are stored; here nobody cleaned them.
    rows = source.record_rows.setdefault(source.session_rows[0].id, [])
    for number, text in enumerate(texts):
        for kind in ("output", "note", "state"):
            rows.append(
                Record.model_construct(
                    n=len(rows) + 1, at=NOW + timedelta(seconds=number), source="sandbox", kind=kind, seq=None,
                    turn="t", stream="stdout", text=text + "\n", data={"name": text, "message": text},
                )
            )  # fmt: skip
    patch = []
    for number, text in enumerate(texts):
        line = text.replace("\n", " ")
        patch += [f"diff --git a/{line} b/{line}", f"--- a/{line}", f"+++ b/{number}-{line}.py"]
        patch += ["@@ -1,2 +1,2 @@ " + line, f" {line}", f"-{line}", f"+{line}!", f"\\ {line}", line]
    source.patches["chg_1"] = "\n".join(patch)
    return source


def main() -> None:
    terminal = Terminal.detect(os.environ)
    terminal.prepare(os.environ)
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.bridge import Bridge

    source = a_hostile_day() if sys.argv[1] == "hostile" else a_day()
    bridge = Bridge(source)
    # Without the bell: on its own it is not told from one that a hostile text rang.
    app = KortixApp(bridge, terminal=terminal, notify=Notify(bell=False, desktop=True))
    app.run(mouse=terminal.mouse)
    bridge.stop()
    sys.stdout.write(f"left with {visible(str(app.return_value))}\n")


if __name__ == "__main__":
    main()
