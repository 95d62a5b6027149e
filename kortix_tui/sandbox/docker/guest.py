"""Our layer of a sandbox image: the guest files, the user and the folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_LAUNCHER = """\
#!/bin/sh
exec /opt/kortix/bin/python3 -I -S /opt/kortix/cli.py "$@"
"""
_DOCKERFILE = """\
FROM {base}
USER 0:0
COPY opt/kortix /opt/kortix
{authorities}RUN ["/bin/sh", "/opt/kortix/build/install.sh"]
"""
_EXECUTABLE = frozenset({"opt/kortix/bin/kortix", "opt/kortix/build/install.sh"})


@cache
def guest_files() -> Mapping[str, bytes]:
    """Path in the build context → content: the guest package, its launcher and the layer's scripts."""
    package = Path(__file__).resolve().parents[2]
    layer = package / "sandbox/docker/layer"
    files = {f"opt/kortix/{path.name}": path.read_bytes() for path in (package / "guest").glob("*.py")}
    files["opt/kortix/bin/kortix"] = _LAUNCHER.encode()
    for name in ("install.sh", "identity.py"):
        files[f"opt/kortix/build/{name}"] = (layer / name).read_bytes()
    return files


@cache
def guest_version() -> str:
    """Changes when any file of the layer, or how it is built, changes."""
    return digest({**guest_files(), "Dockerfile": _DOCKERFILE.encode()})


def layer_context(base: str, authorities: Mapping[str, bytes]) -> dict[str, bytes]:
    """The build context of our layer on top of `base`.

    Args:
        base: An image id.
        authorities: The operator's extra certificate authorities: file name → PEM.
    """
    copy = f"COPY authorities {AUTHORITIES_FOLDER}\n" if authorities else ""
    return {
        "Dockerfile": _DOCKERFILE.format(base=base, authorities=copy).encode(),
        **guest_files(),
        **{f"authorities/{name}": content for name, content in authorities.items()},
    }


AUTHORITIES_FOLDER = "/usr/local/share/ca-certificates/"


def is_executable(path: str) -> bool:
    """Whether a file of the context is a program."""
    return path in _EXECUTABLE


def digest(files: Mapping[str, bytes]) -> str:
    """One hash over names and contents."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(json.dumps([name, len(files[name])]).encode())
        whole.update(files[name])
    return whole.hexdigest()
