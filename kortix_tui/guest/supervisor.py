"""Entry of the supervisor, run in the sandbox as `python3 -I -S /opt/kortix/supervisor.py`.

The folder of this file is the package `kortix_tui.guest` on a host. In a sandbox nothing else of it exists, so the
two names are made here and the modules import each other in the same way in both places.
"""

from __future__ import annotations

import os
import sys
import types


def _name_the_package() -> None:
    folder = os.path.dirname(os.path.realpath(__file__))
    for name, paths in (("kortix_tui", []), ("kortix_tui.guest", [folder])):
        module = types.ModuleType(name)
        module.__path__ = paths
        sys.modules[name] = module


def main() -> int:
    """Serve this sandbox's session until it is stopped; with `--check`, only see that it could."""
    # asyncio takes TLS along when it can, which costs a quarter of the start and is never used here.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio

    from kortix_tui.guest.identity import AGENT, Identity, harden
    from kortix_tui.guest.places import SYSTEM_PATH, Places
    from kortix_tui.guest.service import serve

    if sys.argv[1:] == ["--check"]:
        return 0
    harden()
    places = Places()
    agent = Identity(AGENT, places.home, os.environ.get("PATH") or SYSTEM_PATH)
    asyncio.run(serve(os.environ["KORTIX_SESSION_ID"], places, agent))
    return 0


if __name__ == "__main__":
    _name_the_package()
    sys.exit(main())
