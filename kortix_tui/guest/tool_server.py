"""Entry of a tool server's container, run as `python3 -I -S /opt/kortix/tool_server.py COMMAND…`.

The first line of standard input is JSON of the host: what the program gets in its environment, its credential among
it, which so stands in no argument and in nothing that the engine keeps. Then the program takes this process's place,
and the rest of standard input is its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from typing import Any, Dict, List, NoReturn

LONGEST_GREETING = 1 << 20
_NOT_RUN = 127


def _name_the_package() -> None:
    """Make the package's names where this file is run alone; see `supervisor`."""
    folder = os.path.dirname(os.path.realpath(__file__))
    for name, paths in (("kortix_tui", []), ("kortix_tui.guest", [folder])):
        module = types.ModuleType(name)
        module.__path__ = paths
        sys.modules[name] = module


def read_greeting(descriptor: int) -> Dict[str, Any]:
    """The host's line. Read byte by byte: whatever follows it is for the program.

    Raises:
        ValueError: It is no JSON object, too long, or ended early.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1)
        if not piece or len(line) >= LONGEST_GREETING:
            raise ValueError("the host's line is missing or too long")
        line += piece
    found = json.loads(line)
    if isinstance(found, dict):
        return found
    raise ValueError("the host's line is no object")


def _forward(door: str, port: int) -> None:
    """Have a loopback port lead to the door, from a process that is no child of the program's."""
    # Nothing here speaks TLS, and taking it along costs a quarter of the start.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    from kortix_tui.guest import forward
    from kortix_tui.guest.identity import Identity

    server = forward.listen(port)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            forward.become(server, door, Identity(None))
        os._exit(0)
    os.waitpid(child, 0)
    server.close()


def _fail(words: str) -> NoReturn:
    sys.stderr.write(f"tool server: {words}\n")
    sys.exit(_NOT_RUN)


def main(command: List[str]) -> NoReturn:
    """Take the greeting, then become the program."""
    from kortix_tui.guest.places import Places
    from kortix_tui.guest.proxy import proxy_environment

    places = Places()
    environment = {**os.environ, "HOME": places.home}
    try:
        greeting = read_greeting(0)
    except ValueError as error:
        _fail(str(error))
    token = greeting.get("proxy")
    if token:
        _forward(places.door, places.port)
        environment.update(proxy_environment(token, places.port))
    environment.update(greeting.get("environment") or {})
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _fail(f"{command[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    _name_the_package()
    main(sys.argv[1:])
