"""`kortix doctor`: is everything here that sessions need, and does a sandbox really hold?

Each check looks for itself and never stops the others; the isolation checks start a real sandbox.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import KortixError
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Level
from kortix_tui.runtime.doctor_isolation import GROUPS
from kortix_tui.sandbox.commands import run
from kortix_tui.sandbox.docker.probe import Finding, probe_isolation
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.images import Images, Template

_GIB = 1024**3
_HOLDER = re.compile(r"(\d+) (\w+) epoch \d+\Z")
_OLDEST_GIT = (2, 38)  # merge-tree --write-tree
_FIXED_GIT = (2, 45, 4)  # first with the fixes for hostile repositories that came in 2024 and 2025
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph"})


class Check(BaseModel):
    """One row of the report.

    Attributes:
        id: Never changes.
        title: What is checked.
        level: How it is.
        message: What was found, in a sentence.
        fix: What to do when it is not right.
        evidence: What the isolation probe saw from inside, word by word.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    title: str
    level: Level
    message: str
    fix: str | None = None
    evidence: str | None = None


async def examine(home: Home, settings: Settings) -> list[Check]:
    """Run all checks; takes a second or two, most of it for the sandbox.

    Args:
        home: The home to check; it is not created.
        settings: The operator's.
    """
    local = [
        await _git(),
        *await asyncio.to_thread(_home_checks, home),
    ]
    provider = DockerProvider(settings.docker.endpoint, runtime=settings.docker.runtime)
    try:
        engine = await _engine_checks(provider, home, settings)
    finally:
        await provider.close()
    return [*engine, *local]


def exit_status(checks: Iterable[Check]) -> int:
    """1 when any check failed."""
    return int(any(check.level is Level.FAIL for check in checks))


async def _engine_checks(provider: DockerProvider, home: Home, settings: Settings) -> list[Check]:
    """Engine, its version, image and isolation; what needs a missing one is left out and said so."""
    try:
        info = await provider.info()
    except KortixError as error:
        lost = Check(
            id="isolation",
            title="Isolation",
            level=Level.WARN,
            message="not tested: there is no engine",
            fix="Run: kortix setup",
        )
        return [_failed("engine", "Docker engine", error), lost]
    checks = [
        Check(
            id="engine", title="Docker engine", level=Level.OK, message=f"answers at {info.endpoint} ({info.found_by})"
        ),
        Check(
            id="version",
            title="Engine version",
            level=Level.WARN if info.warnings else Level.OK,
            message=". ".join(
                [f"{info.version}, sandboxes run under {info.isolation}", *map(_open_end, info.warnings)]
            ),
            fix="See the engine's documentation on limits and security options." if info.warnings else None,
        ),
    ]
    disk = await _engine_disk(provider, home)
    images = Images.configured(provider.engine, settings)
    try:
        image = await images.find(Template())
    except KortixError as error:
        return [*checks, *disk, _failed("image", "Default image", error)]
    if image is None:
        return [
            *checks,
            *disk,
            Check(
                id="image",
                title="Default image",
                level=Level.WARN,
                message="it is not built yet, so isolation was not tested.",
                fix="Run: kortix setup (the first session would build it too).",
            ),
        ]
    checks.append(Check(id="image", title="Default image", level=Level.OK, message=f"it is built: {image}"))
    return [*checks, *disk, *await _isolation(provider, home, image, settings.docker.runtime)]


async def _isolation(provider: DockerProvider, home: Home, image: str, runtime: str | None) -> list[Check]:
    folder = home.path if os.access(home.path, os.W_OK) else None
    try:
        findings = await probe_isolation(provider, image, runtime=runtime, folder=folder)
    except KortixError as error:
        return [_failed("isolation", "Isolation", error)]
    return grouped(findings)


def grouped(findings: Iterable[Finding]) -> list[Check]:
    """Findings as rows. A probe that did not report counts as failed."""
    by_name = {finding.name: finding for finding in findings}
    rows = []
    for group in GROUPS:
        found = [by_name[name] for name in group.probes if name in by_name]
        faults = [f"{group.probes[finding.name]} ({finding.seen})" for finding in found if not finding.held]
        faults += [f"the probe {name} did not report" for name in group.probes if name not in by_name]
        rows.append(
            Check(
                id=f"isolation.{group.id}",
                title=group.title,
                level=group.level if faults else Level.OK,
                message="; ".join(faults) or group.held,
                fix=group.fix if faults else None,
                evidence="; ".join(f"{finding.name}: {finding.seen}" for finding in found) or None,
            )
        )
    return rows


async def _git() -> Check:
    """Git's version: old ones lack what merging needs, or fixes against hostile repositories."""
    title = "Git"
    if shutil.which("git") is None:
        return Check(
            id="git",
            title=title,
            level=Level.FAIL,
            message="git is not installed.",
            fix="Run: sudo apt-get install git",
        )
    try:
        ended = await run(["git", "--version"], lambda _: None, seconds=10.0)
    except KortixError as error:
        return _failed("git", title, error)
    return git_check(ended.tail)


def git_check(text: str) -> Check:
    """Judge what `git --version` printed."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        return Check(
            id="git", title="Git", level=Level.FAIL, message=f"git says: {visible_line(text)}", fix="Install git again."
        )
    version = (int(found[1]), int(found[2]), int(found[3] or 0))
    if version < _OLDEST_GIT:
        return Check(
            id="git",
            title="Git",
            level=Level.FAIL,
            message=f"version {found[0]} is too old: merging needs 2.38.",
            fix="Upgrade git (on Ubuntu 22.04 from the git-core PPA, on Debian 11 from backports).",
        )
    if version < _FIXED_GIT:
        return Check(
            id="git",
            title="Git",
            level=Level.WARN,
            message=f"version {found[0]} works; 2.45.4 has fixes against hostile repositories that your distribution "
            "may or may not have added to it.",
            fix="Keep the distribution's security updates on, or install 2.45.4 or newer.",
        )
    return Check(id="git", title="Git", level=Level.OK, message=f"version {found[0]}")


def _home_checks(home: Home) -> list[Check]:
    from kortix_tui.runtime.doctor_vault import vault_check

    return [_home(home), _lock(home), vault_check(home), disk_check("disk", "Disk of the home", home.path)]


def _home(home: Home) -> Check:
    title = "Home"
    if not home.path.exists():
        return Check(id="home", title=title, level=Level.OK, message=f"{home.path} will be made at the first use")
    kind = file_system(home.path)
    if kind in _NETWORK_FILE_SYSTEMS:
        return Check(
            id="home",
            title=title,
            level=Level.FAIL,
            message=f"{home.path} is on a network file system ({kind}): locks and the database are not safe there",
            fix="Set KORTIX_HOME to a folder on a local disk.",
        )
    try:
        home.prepare()
    except KortixError as error:
        return _failed("home", title, error)
    return Check(id="home", title=title, level=Level.OK, message=f"{home.path} is private to you")


def _lock(home: Home) -> Check:
    """Who is the host now. A look with a shared lock, dropped at once."""
    title = "Host"
    try:
        descriptor = os.open(home.host_lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Check(id="lock", title=title, level=Level.OK, message="no process is the host; the next one becomes it")
    except OSError as error:
        return Check(
            id="lock",
            title=title,
            level=Level.FAIL,
            message=f"{home.host_lock} cannot be opened: {error.strerror}.",
            fix=f"Run: ls -l {home.path}",
        )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = visible_line(os.read(descriptor, 200).decode("utf-8", "replace").strip()) or "an unnamed process"
        named = _HOLDER.match(holder)
        who = f"process {named[1]} ({named[2]}) is the host" if named else f"held by process {holder}"
        return Check(id="lock", title=title, level=Level.OK, message=who)
    except OSError as error:
        return Check(
            id="lock",
            title=title,
            level=Level.FAIL,
            message=f"Locks do not work on {home.path}: {error.strerror}.",
            fix="Set KORTIX_HOME to a folder on a local disk.",
        )
    finally:
        os.close(descriptor)
    return Check(id="lock", title=title, level=Level.OK, message="no process is the host; the next one becomes it")


async def _engine_disk(provider: DockerProvider, home: Home) -> list[Check]:
    """The engine's disk, when it is another one than the home's and can be seen from here."""
    engine = await provider.engine()
    try:
        facts: dict[str, object] = await engine.call(lambda client: client.info())
    except KortixError as error:
        return [_failed("engine_disk", "Disk of the engine", error)]
    root = Path(str(facts.get("DockerRootDir") or "/"))

    def look() -> list[Check]:
        try:
            same = root.stat().st_dev == _existing(home.path).stat().st_dev
        except OSError:
            return []
        return [] if same else [disk_check("engine_disk", "Disk of the engine", root)]

    return await asyncio.to_thread(look)


def disk_check(identity: str, title: str, path: Path) -> Check:
    """Free space where `path` is or will be: below 1 GiB or 2 % nothing is safe, below 5 GiB it is soon full."""
    usage = shutil.disk_usage(_existing(path))
    free = f"{usage.free / _GIB:.1f} GiB of {usage.total / _GIB:.0f} GiB are free"
    fix = "Free some space; see: kortix sessions ls, kortix sandboxes ls, docker system df"
    if usage.free < max(_GIB, usage.total // 50):
        return Check(id=identity, title=title, level=Level.FAIL, message=f"nearly full: {free}", fix=fix)
    if usage.free < 5 * _GIB:
        return Check(id=identity, title=title, level=Level.WARN, message=f"little space: {free}", fix=fix)
    return Check(id=identity, title=title, level=Level.OK, message=free)


def file_system(path: Path) -> str:
    """The kind of file system that a path is on, from the kernel's mount table; empty when unknown."""
    best, kind = "", ""
    real = str(path.resolve())
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, place, name, *_ = line.split(" ")
        place = place.encode().decode("unicode_escape")  # the table writes spaces as \040
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind


def _open_end(sentence: str) -> str:
    return sentence.rstrip(".")


def _existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    while not path.exists():
        path = path.parent
    return path


def _failed(identity: str, title: str, error: KortixError) -> Check:
    return Check(id=identity, title=title, level=Level.FAIL, message=error.message, fix=error.hint)
