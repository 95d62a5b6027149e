"""A process that decides every pending call, as fast as it can: `python racing_decider.py approve|deny COUNT`.

Prints the ids that it decided. Others do the same at the same time.
"""

from __future__ import annotations

import sys
import time

from kortix_tui.base.errors import Conflict
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import load
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime


def main() -> None:
    approve, count = sys.argv[1] == "approve", int(sys.argv[2])
    with Runtime(Home.locate(), load(), operator_actor("cli")) as runtime:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if len(runtime.calls.list(limit=1000)) >= count and not runtime.approvals.pending():
                return
            for view in runtime.approvals.pending():
                try:
                    runtime.approvals.decide(
                        view.id, digest=view.digest or "", approve=approve, terminal=True, pinned=True
                    )
                except Conflict:
                    continue
                print(view.id, flush=True)


if __name__ == "__main__":
    main()
