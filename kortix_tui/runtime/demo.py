"""The demo: a home and a repository of their own, made from a sample, in one folder that can be thrown away."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.scaffold import install_sample
from kortix_tui.runtime.views import SessionView

SAMPLE: Final = "acme-api"
PROMPT: Final = (
    "Refactor charge(amount) to charge(amount, currency) across code and tests, run the tests, commit in sensible"
    " steps and open a change request."
)
MARKER: Final = "KORTIX-DEMO"
"""A file that says that the folder was made here and may be removed as a whole."""
REMOVE_S: Final = 180.0
POLL_S: Final = 0.05


@dataclass(frozen=True)
class Demo:
    """One demo's folder."""

    folder: Path

    @property
    def home(self) -> Home:
        """Its state."""
        return Home(self.folder / "home")

    @property
    def repository(self) -> Path:
        """Its checkout, which plays the operator's own."""
        return self.folder / SAMPLE

    def open(self) -> Runtime:
        """A runtime on its home. The record says that it was the demo that acted."""
        return Runtime.open(via="demo", home=self.home)


def demos_folder() -> Path:
    """Where demos are: beside the operator's home, never in it."""
    return Home.locate().path.parent / "kortix-demo"


def make_demo(folder: Path | None = None) -> Demo:
    """Make a fresh folder with a copy of the sample, committed.

    Args:
        folder: A folder that is not there yet, or is empty; a new one in `demos_folder` when absent.

    Raises:
        Refused: The folder is in use or cannot be written.
    """
    place = folder.expanduser().absolute() if folder else demos_folder() / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise Refused(f"{place} is not empty.", hint="Choose a folder that is not there yet.")
        place.chmod(0o700)
        (place / MARKER).write_text("Made by `kortix demo`; removed by `kortix demo --clean`.\n")
    except OSError as error:
        raise Refused(f"{place} cannot be made: {error.strerror}.", hint="Choose another with --home DIR.") from error
    demo = Demo(place)
    install_sample(SAMPLE, demo.repository)
    return demo


def start_demo(runtime: Runtime, demo: Demo) -> SessionView:
    """Make the repository known and store the session that refactors it. Needs a host."""
    project = runtime.projects.add(str(demo.repository), slug=SAMPLE)
    return runtime.sessions.new(PROMPT, project=project)


def found_demos(folder: Path | None = None) -> list[Demo]:
    """Demos that are there: all, or the one in `folder`.

    Raises:
        NotFound: `folder` holds no demo.
    """
    if folder is not None:
        place = folder.expanduser().absolute()
        if not (place / MARKER).is_file():
            raise NotFound(f"{place} was not made by `kortix demo`.", hint="It is left as it is.")
        return [Demo(place)]
    root = demos_folder()
    return sorted((Demo(marker.parent) for marker in root.glob(f"*/{MARKER}")), key=lambda demo: demo.folder)


def remove_demo(demo: Demo) -> None:
    """Remove its sandboxes and disks from the engine, then its folder.

    Raises:
        Refused: Another process works in it.
        DeadlineExceeded: The engine did not remove everything in time; the folder stays.
    """
    if demo.home.database.exists():
        with demo.open() as runtime:
            _remove_sessions(runtime)
            host = runtime.host()
            if host.host is not None and not host.here:
                raise Refused(
                    f"Process {host.host.pid} ({host.host.kind}) works in {demo.folder}.", hint="Close it, then repeat."
                )
    shutil.rmtree(demo.folder)


def _remove_sessions(runtime: Runtime) -> None:
    """Remove every session, by this process or by the one that is host."""
    if not runtime.sessions.list():
        return
    end = time.monotonic() + REMOVE_S
    with runtime.hosting():
        for session in runtime.sessions.list():
            runtime.sessions.remove(session.id)
        while left := runtime.sessions.list():
            if time.monotonic() > end:
                raise DeadlineExceeded(
                    f"{len(left)} sandboxes of {runtime.context.home.path} are not removed yet.",
                    hint="See `kortix doctor`, then repeat.",
                )
            time.sleep(POLL_S)
