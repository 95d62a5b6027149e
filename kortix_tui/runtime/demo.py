"""The demo: a home and a repository of their own, made from a sample, in one folder that can be thrown away."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, NotFound, Refused
from kortix_tui.base.faults import choose
from kortix_tui.base.paths import Home
from kortix_tui.base.text import visible_line
from kortix_tui.runtime.demo_desk import HelpDesk
from kortix_tui.runtime.demo_home import DESK, HOME, MARKER
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.scaffold import install_sample
from kortix_tui.runtime.vault_calls import SlotWish
from kortix_tui.runtime.views import SessionView
from kortix_tui.store.models import HostRow
from kortix_tui.vault.secret import Secret

REFACTORING: Final = "acme-api"
SUPPORT: Final = "northwind-support"
PROMPTS: Final = {
    REFACTORING: (
        "Refactor charge(amount) to charge(amount, currency) across code and tests, run the tests, commit in sensible"
        " steps and open a change request."
    ),
    SUPPORT: (
        "Work through the open tickets: draft a reply on each, ask before you send it, and propose a table of what"
        " became of them."
    ),
}
"""What the agent of each sample is asked."""
CONNECTOR: Final = "helpdesk"
SHIPPED_URL: Final = "http://127.0.0.1:4180"
"""Where the sample's manifest has its help desk; each demo's is at a port of its own."""
REMOVE_S: Final = 180.0
LEAVE_S: Final = 20.0
"""How long a background host may take to end; it stays some seconds after its last work."""
POLL_S: Final = 0.05


@dataclass(frozen=True)
class Demo:
    """One demo's folder.

    Attributes:
        folder: Everything of it.
        sample: The project that it shows.
        token: What opens its help desk, from its making until it is in the vault.
    """

    folder: Path
    sample: str = REFACTORING
    token: Secret | None = None

    @property
    def home(self) -> Home:
        """Its state."""
        return Home(self.folder / HOME)

    @property
    def repository(self) -> Path:
        """Its checkout, which plays the operator's own."""
        return self.folder / self.sample

    @property
    def asks(self) -> bool:
        """Whether its agent stops on the way until a person has decided."""
        return self.sample == SUPPORT

    def open(self) -> Runtime:
        """A runtime on its home. The record says that it was the demo that acted."""
        return Runtime.open(via="demo", home=self.home)


def demos_folder() -> Path:
    """Where demos are: beside the operator's home, never in it."""
    return Home.locate().path.parent / "kortix-demo"


def check_sample(name: str) -> None:
    """Check that there is a demo of that name.

    Raises:
        NotFound: There is none; the hint names those that there are.
    """
    if name not in PROMPTS:
        raise NotFound(f"There is no demo {visible_line(name)}.", hint=choose(name, list(PROMPTS)))


def make_demo(folder: Path | None = None, sample: str = REFACTORING) -> Demo:
    """Make a fresh folder with a copy of the sample, committed; and a help desk, for the sample that is about one.

    Args:
        folder: A folder that is not there yet, or is empty; a new one in `demos_folder` when absent.
        sample: Its name.

    Raises:
        NotFound: There is no such sample.
        Refused: The folder is in use or cannot be written.
    """
    check_sample(sample)
    place = folder.expanduser().absolute() if folder else demos_folder() / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise Refused(f"{place} is not empty.", hint="Choose a folder that is not there yet.")
        place.chmod(0o700)
        (place / MARKER).write_text("Made by `kortix demo`; removed by `kortix demo --clean`.\n")
    except OSError as error:
        raise Refused(f"{place} cannot be made: {error.strerror}.", hint="Choose another with --home DIR.") from error
    demo = Demo(place, sample)
    if not demo.asks:
        install_sample(sample, demo.repository)
        return demo
    desk, token = HelpDesk.make(place)
    install_sample(sample, demo.repository, {SHIPPED_URL: desk.url})
    return replace(demo, token=Secret(token.encode()))


def start_demo(runtime: Runtime, demo: Demo) -> SessionView:
    """Make the repository known, connect what it needs, and store the session that works on it. Needs a host."""
    project = runtime.projects.add(str(demo.repository), slug=demo.sample)
    if demo.token is not None:
        # A key file of the demo's own: the operator's vault and keyring have nothing to do with it.
        runtime.vault.init((SlotWish(kind="keyfile", place=str(demo.folder / "vault.key")),), recovery=False)
        runtime.connectors.sync(project, CONNECTOR)
        runtime.connections.connect(project, CONNECTOR, demo.token, make_default=True)
    return runtime.sessions.new(PROMPTS[demo.sample], project=project)


def found_demos(folder: Path | None = None) -> list[Demo]:
    """Demos that are there: all, or the one in `folder`.

    Raises:
        NotFound: `folder` holds no demo.
    """
    if folder is not None:
        place = folder.expanduser().absolute()
        if not (place / MARKER).is_file():
            raise NotFound(f"{place} was not made by `kortix demo`.", hint="It is left as it is.")
        return [_found(place)]
    return [_found(marker.parent) for marker in sorted(demos_folder().glob(f"*/{MARKER}"))]


def _found(place: Path) -> Demo:
    return Demo(place, next((name for name in PROMPTS if (place / name).is_dir()), REFACTORING))


def remove_demo(demo: Demo) -> None:
    """Remove its sandboxes and disks from the engine, end its help desk, then remove its folder.

    Raises:
        Refused: Another process works in it.
        DeadlineExceeded: The engine did not remove everything in time; the folder stays.
    """
    if demo.home.database.exists():
        with demo.open() as runtime:
            _remove_sessions(runtime)
            if (host := _staying_host(runtime)) is not None:
                way = f"End it with `kill {host.pid}`" if host.kind == "serve" else "Close it"
                raise Refused(f"Process {host.pid} ({host.kind}) works in {demo.folder}.", hint=f"{way}, then repeat.")
    HelpDesk(demo.folder / DESK).end()
    shutil.rmtree(demo.folder)


def _staying_host(runtime: Runtime) -> HostRow | None:
    """The other process that is host; a background host is given time to end, as it has nothing left to do."""
    end = time.monotonic() + LEAVE_S
    while True:
        view = runtime.host()
        if view.host is None or view.here:
            return None
        if view.host.kind != "serve" or time.monotonic() > end:
            return view.host
        time.sleep(POLL_S)


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
