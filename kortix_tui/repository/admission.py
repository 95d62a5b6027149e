"""What a push may bring in: the caps, the rule on refs, and the hook that checks a push in quarantine."""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import DeadlineExceeded, GitFailed
from kortix_tui.repository import admission_hook, names
from kortix_tui.repository.process import sealed_environment

MERGE_DENIED = "merge is default-deny for agents"
NOT_OWN = "only the session's own branch can be pushed"
NO_DELETE = "refs cannot be deleted"
RESCUE_ONLY = "this session may not push its branch; project.gitops.push is not granted"
RESCUE_ONCE = "rescued work is never overwritten"

_MIB = 1 << 20
_proven: set[tuple[str, int, int]] = set()
"""Hook files that this process has seen run."""


class AdmissionCaps(BaseModel):
    """How much one push may bring. Sizes are of unpacked objects, except `pack_bytes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pack_bytes: int = Field(default=200 * _MIB, gt=0)
    object_bytes: int = Field(default=10 * _MIB, gt=0)
    new_bytes: int = Field(default=200 * _MIB, gt=0)
    objects: int = Field(default=100_000, gt=0)
    commits: int = Field(default=2_000, gt=0)
    paths: int = Field(default=20_000, gt=0)
    depth: int = Field(default=64, gt=0)


class HookSettings(BaseModel):
    """What the hook is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    base_branch: str
    verdict: str = Field(description="The file that the hook writes its verdict to.")
    inquiry: int | None = Field(default=None, description="The descriptor on which it asks the host; none: no need.")
    caps: AdmissionCaps

    def environment(self) -> dict[str, str]:
        """The hook's variable: `name=value` lines, which it reads without a parser to load."""
        values = {**self.model_dump(exclude={"caps"}, exclude_none=True), **self.caps.model_dump()}
        return {admission_hook.SETTINGS: "\n".join(f"{name}={value}" for name, value in values.items())}


def ref_fault(ref: str, old: str, new: str, *, session_id: str, base_branch: str, rescue_only: bool) -> str | None:
    """Why a session may not make this change to a ref, in fixed words, or `None` when it may."""
    rescue = re.fullmatch(re.escape(names.rescue_prefix(session_id)) + r"[1-9][0-9]{0,8}", ref) is not None
    own = ref == names.session_ref(session_id)
    if ref == names.branch_ref(base_branch):
        return MERGE_DENIED
    if not rescue and not own:
        return NOT_OWN
    if not new.strip("0"):
        return NO_DELETE
    if rescue and old.strip("0"):
        return RESCUE_ONCE
    if own and rescue_only:
        return RESCUE_ONLY
    return None


async def install_hook(mirror: Path) -> Path:
    """Write the hook and prove that it runs: git passes over a hook that cannot be executed without a word.

    Returns:
        The folder for `core.hooksPath`.

    Raises:
        GitFailed: The hook does not run here, for example on a file system mounted `noexec`.
    """
    hook = _write_hook(mirror)
    status = hook.stat()
    version = (str(hook), status.st_ino, status.st_mtime_ns)
    if version not in _proven:
        await _prove(hook)
        _proven.add(version)
    return hook.parent


def _write_hook(mirror: Path) -> Path:
    folder = mirror / "kortix" / "hooks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hook = folder / "pre-receive"
    program = Path(admission_hook.__file__).resolve()
    # As an imported module it is compiled once, not for each push.
    run = f"import sys; sys.path.append(sys.argv[1]); import {program.stem}; sys.exit({program.stem}.main())"
    words = (sys.executable, "-I", "-S", "-c", run, str(program.parent))
    text = f"#!/bin/sh\nexec {' '.join(shlex.quote(word) for word in words)}\n"
    if not hook.is_file() or hook.read_text("utf-8") != text:
        new = folder / f".pre-receive.{secrets.token_hex(4)}"
        new.write_text(text, "utf-8")
        new.chmod(0o700)
        new.rename(hook)
    hook.chmod(0o700)
    return hook


async def _prove(hook: Path) -> None:
    word = secrets.token_hex(8)
    try:
        process = await asyncio.create_subprocess_exec(
            str(hook),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env={**sealed_environment(), admission_hook.PROBE: word},
        )
        async with asyncio.timeout(30):
            answer, _ = await process.communicate()
    except OSError as error:
        raise GitFailed(
            f"The check of pushes cannot run: {error.strerror}.",
            hint="The home must be on a file system that is not mounted noexec.",
        ) from error
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise DeadlineExceeded("The check of pushes did not start within 30 seconds.") from error
    if answer.decode("ascii", "replace").strip() != word:
        raise GitFailed("The check of pushes does not run.", hint="Reinstall kortix, then try again.")
