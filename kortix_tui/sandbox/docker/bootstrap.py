"""The base image without a registry: made from the distribution's package mirror with mmdebstrap."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kortix_tui.sandbox.commands import Ask, Progress, as_root, run
from kortix_tui.sandbox.docker.build import import_archive
from kortix_tui.sandbox.docker.engine import Engine
from kortix_tui.sandbox.docker.sources import machine_sources
from kortix_tui.sandbox.failures import BuildFailed

_TOOL = "mmdebstrap"
_MINUTES = 60.0
# Manuals and translations are half of a small system; copyright notices stay.
_OMITTED = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
)


async def bootstrap(
    engine: Engine,
    tag: str,
    packages: Sequence[str],
    progress: Progress,
    *,
    cache: Path,
    mirror: str | None,
    labels: Mapping[str, str],
    ask: Ask | None,
) -> None:
    """Make a root file system of packages and import it as `tag`.

    Args:
        engine: Gets the image.
        tag: Its name.
        packages: What it holds beside the essential ones.
        progress: Gets each line.
        cache: Where the archive lies meanwhile (some 250 MB); the caller sees to it that one build uses it at a time.
        mirror: The operator's package mirror, in place of the machine's own.
        labels: Put on the image.
        ask: Asked before mmdebstrap is installed on this machine; without it, a missing one is an error.

    Raises:
        Refused: The machine's distribution cannot be a base.
        BuildFailed: A program failed or is missing.
    """
    sources = await asyncio.to_thread(machine_sources, mirror=mirror)
    if shutil.which(_TOOL) is None:
        await _install_tool(progress, ask)
    # Only root can do it everywhere; without, mmdebstrap looks for another way, such as a user namespace.
    privileged = os.geteuid() == 0 or (shutil.which("sudo") is not None and (ask is not None or await _may_sudo()))
    # The caller holds the build lock: a folder of this name is what a killed build left.
    folder = cache / "base"
    await _remove(folder, privileged=privileged)
    await asyncio.to_thread(folder.mkdir, parents=True)
    try:
        archive = folder / "base.tar"
        command = [
            _TOOL,
            "--mode=auto",
            "--variant=minbase",
            "--format=tar",
            f"--include={','.join(packages)}",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt={option}" for option in _OMITTED),
            sources.suite,
            str(archive),
            *sources.lines,
        ]
        if privileged:
            # Its root file system is made beside the archive; others than root could not reach that in a private home.
            command = as_root(["env", f"TMPDIR={folder}", *command]) or command
        progress(f"Making the base image from the package mirror of this machine ({sources.suite}).")
        ended = await run(command, progress, seconds=20 * _MINUTES)
        if ended.status != 0:
            raise BuildFailed(
                f"The base image could not be made: {_TOOL} ended with {ended.status}.\n{ended.tail}",
                hint="Check that the package mirror of this machine answers (apt-get update), then try again.",
            )
        progress("Importing the base image.")
        await import_archive(engine, archive, tag, labels, seconds=5 * _MINUTES)
    finally:
        await _remove(folder, privileged=privileged)


async def _remove(folder: Path, *, privileged: bool) -> None:
    """Remove what may be root's, and never what may still be mounted in it."""
    command = ["rm", "-rf", "--one-file-system", "--", str(folder)]
    await run((as_root(command) if privileged else None) or command, lambda _: None, seconds=_MINUTES)


async def _install_tool(progress: Progress, ask: Ask | None) -> None:
    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends", _TOOL]
    command = as_root(install)  # through sudo the variable has to be part of the command
    question = f"No image registry answers. Install {_TOOL} to make the base image from this machine's package mirror?"
    if command is None or ask is None or not await ask(question):
        raise BuildFailed(
            f"No image registry answers, and {_TOOL}, which makes the base image without one, is not installed.",
            hint=f"Run: kortix setup (or: sudo apt-get install {_TOOL})",
        )
    progress(f"Installing {_TOOL}.")
    ended = await run(command, progress, seconds=10 * _MINUTES)
    if ended.status != 0:
        # Package lists may be missing or old on a fresh machine.
        update = as_root(["apt-get", "update"])
        if update is not None:
            await run(update, progress, seconds=10 * _MINUTES)
        ended = await run(command, progress, seconds=10 * _MINUTES)
    if ended.status != 0:
        raise BuildFailed(f"{_TOOL} could not be installed.\n{ended.tail}", hint="Check apt on this machine.")


async def _may_sudo() -> bool:
    """Whether sudo works without a question (it was asked a moment ago, or needs no password)."""
    if shutil.which("sudo") is None:
        return False
    return (await run(["sudo", "-n", "true"], lambda _: None, seconds=10.0)).status == 0
