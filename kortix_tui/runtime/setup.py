"""`kortix setup`: an engine that answers, and the default image on it.

Every step looks first and does only what is missing, so it may be repeated and interrupted at any point.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import EngineUnavailable, Refused
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.daemon import Daemon, daemon_program, start_daemon
from kortix_tui.runtime.membership import GROUP, is_member, lacks_new_group, user_name
from kortix_tui.sandbox.commands import Ask, Progress, as_root, run
from kortix_tui.sandbox.docker.endpoint import Discovery, discover
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.docker.sources import distribution
from kortix_tui.sandbox.images import Images, Template
from kortix_tui.sandbox.provider import EngineInfo

PACKAGES = ("docker.io", "iptables")
_UNATTENDED = ("env", "DEBIAN_FRONTEND=noninteractive")
_APT_SECONDS = 900.0
_ELSEWHERE = (
    "Install Docker Engine as its documentation says for this system, start it, and run: kortix setup. "
    "On a Mac or Windows machine, use a Linux machine or a virtual one."
)


@dataclass(frozen=True)
class Ready:
    """What setup ended with.

    Attributes:
        engine: The engine; `None` when the person was just added to its group, which this process does not have: run
            the command again through `membership.with_group`.
        image: The default template's image.
        did: What was done, in words; empty when everything was there.
    """

    engine: EngineInfo | None
    image: str | None
    did: tuple[str, ...]


async def set_up(settings: Settings, ask: Ask, progress: Progress, *, daemon: Daemon | None = None) -> Ready:
    """Bring up what a session needs.

    Args:
        settings: The operator's.
        ask: For what changes the machine: installing packages, adding to a group.
        progress: Gets what happens, line by line.
        daemon: The daemon to start when none runs; the distribution's when `None`.

    Raises:
        Refused: The person said no, or the machine is not one that we can set up; says what to do by hand.
        EngineUnavailable: The engine does not come up, or cannot be used.
        BuildFailed: The image could not be made.
    """
    did: list[str] = []
    found = await asyncio.to_thread(discover, settings.docker.endpoint)
    if found.endpoint is None:
        found = await _bring_up(settings, found, ask, progress, daemon or Daemon(), did)
    if found.endpoint is None:
        return Ready(None, None, tuple(did))
    provider = DockerProvider(settings.docker.endpoint)
    try:
        images = Images.configured(provider.engine, settings, ask=ask)
        info = await provider.info()
        image = await images.find(Template())
        if image is None:
            progress("Building the default image; this happens once and takes a minute or two.")
            image = await images.ensure(Template(), progress)
            did.append("built the default image")
    finally:
        await provider.close()
    return Ready(info, image, tuple(did))


async def _bring_up(
    settings: Settings, found: Discovery, ask: Ask, progress: Progress, daemon: Daemon, did: list[str]
) -> Discovery:
    """Install, start and open the engine as far as each is missing; the result of looking again."""
    if _is_elsewhere(found, daemon):
        raise found.failure()  # a person pointed at that engine: starting another one would not help them
    if found.denied is None:
        if daemon_program() is None:
            await _install(ask, progress)
            did.append("installed Docker")
        if await start_daemon(daemon, progress):
            did.append("started Docker")
        found = await asyncio.to_thread(discover, settings.docker.endpoint)
    if found.denied is not None:
        if not is_member(user_name()):
            await _join_group(ask, progress)
            did.append(f"added {user_name()} to the group {GROUP}")
        elif not lacks_new_group():
            raise EngineUnavailable(
                f"{found.failure().message} It is in the group {GROUP}, which does not help here.",
                hint=f"Look at who may use the socket: ls -l {daemon.socket}",
            )
        return found
    if found.endpoint is None:
        raise found.failure()
    return found


def _is_elsewhere(found: Discovery, daemon: Daemon) -> bool:
    """Whether a person chose an engine that is not the one we would start."""
    chosen = [attempt.endpoint.url for attempt in found.attempts if attempt.endpoint.chosen]
    own = daemon.socket.resolve()  # /var/run is a link to /run on most machines
    return any(not url.startswith("unix://") or Path(url.removeprefix("unix://")).resolve() != own for url in chosen)


async def _install(ask: Ask, progress: Progress) -> None:
    """Install the distribution's package."""
    by_hand = f"sudo apt-get install {' '.join(PACKAGES)}"
    if distribution() not in ("debian", "ubuntu") or shutil.which("apt-get") is None:
        raise Refused("No Docker engine was found, and this is neither Debian nor Ubuntu.", hint=_ELSEWHERE)
    # Through sudo a variable has to be part of the command.
    install = as_root([*_UNATTENDED, "apt-get", "install", "-y", "--no-install-recommends", *PACKAGES])
    update = as_root(["apt-get", "update"])
    repair = as_root([*_UNATTENDED, "dpkg", "--configure", "-a"])  # an interrupted installation blocks the next one
    if install is None or update is None or repair is None:
        raise Refused(
            "No Docker engine was found, and installing one needs root; there is no sudo here.",
            hint=f"As root, run: apt-get install {' '.join(PACKAGES)}",
        )
    if not await ask("No Docker engine was found. Install the distribution's package (docker.io) and start it?"):
        raise Refused("Without a Docker engine there are no sandboxes.", hint=f"Later: kortix setup, or: {by_hand}")
    progress("Installing docker.io.")
    for command in (repair, update):
        await run(command, progress, seconds=_APT_SECONDS)
    ended = await run(install, progress, seconds=_APT_SECONDS)
    if ended.status != 0:
        raise EngineUnavailable(f"docker.io could not be installed.\n{ended.tail}", hint=f"Try: {by_hand}")


async def _join_group(ask: Ask, progress: Progress) -> None:
    """Let this user use the engine, after saying what that means."""
    name = user_name()
    by_hand = f"usermod -aG {GROUP} {name}"
    command = as_root(["usermod", "-aG", GROUP, name])
    if command is None:
        raise Refused(
            "Docker runs, but this user may not use it, and there is no sudo here.", hint=f"As root, run: {by_hand}"
        )
    question = (
        f"Docker runs, but {name} may not use it. Add {name} to the group {GROUP}? "
        "Every member of it can become root on this machine."
    )
    if not await ask(question):
        raise Refused(
            "Docker runs, but this user may not use it.", hint=f"Run: sudo {by_hand} (or set up rootless Docker)."
        )
    ended = await run(command, progress, seconds=30.0)
    if ended.status != 0:
        raise Refused(f"{name} could not be added to the group {GROUP}: {ended.tail}", hint=f"Run: sudo {by_hand}")
