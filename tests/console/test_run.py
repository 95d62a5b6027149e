"""`kortix` without an argument, as a person starts it: a process at a terminal, on a real home."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from at_terminal import ROOT, AtTerminal
from seeded import Seeded

from kortix_tui.base.paths import Home


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    seeded = Seeded(home)
    seeded.project()
    session = seeded.session(title="Add a currency")
    seeded.change(session, title="Say more")
    yield seeded
    seeded.close()


def test_a_viewer_sees_the_home_and_leaves_it_to_its_host(seeded: Seeded) -> None:
    seeded.lead()
    with AtTerminal() as terminal:
        terminal.see("Add a currency")
        terminal.type("3")
        terminal.see("not read yet")
        terminal.type("\x11")
        terminal.see("Another process is the host")
        # The dialog takes no answer before a person could have read it; asking again until it does waits for that.
        for _ in range(200):
            terminal.type("y")
            if terminal.process.poll() is not None or b"\x1b[?1049l" in terminal.screen:
                break
            terminal._read()
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.screen
        assert terminal.settings_now == terminal.before
    assert not (seeded.home.path / "host.log").exists(), "no background host was started beside the other one"


def test_bad_settings_are_named_and_nothing_starts(seeded: Seeded, home: Home) -> None:
    config = home.path.parent / "config"
    config.mkdir()
    (config / "config.yaml").write_text("mouse: sometimes\n")
    with AtTerminal() as terminal:
        terminal.see("mouse")
        assert terminal.end() != 0
    assert b"\x1b[?1049h" not in terminal.screen


def test_the_terminal_is_known_before_textual_reads_its_switches() -> None:
    code = (
        "import sys, kortix_tui.console.start, kortix_tui.console.terminal;"
        "print([name for name in sys.modules if name.startswith('textual')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_kitty_keys_are_off_where_they_would_swallow_text(seeded: Seeded) -> None:
    seeded.lead()
    with AtTerminal(TERM_PROGRAM="iTerm.app") as terminal:
        before = terminal.see("Add a currency")
        assert b"\x1b[>25u" not in before
