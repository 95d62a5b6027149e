"""What the shells of this machine make of a value when they print it: a backslash begins a character of its own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess

import pytest

from kortix_tui.vault.needles import LINE, needles
from kortix_tui.vault.redaction import Redactor

MANY = 300
END = b"\xff\xfe\xff"
SHELLS = [name for name in ("sh", "dash", "bash", "busybox") if shutil.which(name)]
PRINTS = ('echo "$V{0}"', 'echo -e "$V{0}"', "printf '%b' \"$V{0}\"", "printf '%s' \"$V{0}\"")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("prints", PRINTS)
def test_what_a_shell_prints_of_a_value_is_found(shell: str, prints: str) -> None:
    choose = random.Random(f"{shell} {prints}").choice
    values = ["v" + "".join(choose("abcdefnrtvxE0189\\\\\\\\Qq#") for _ in range(28)) + "v" for _ in range(MANY)]
    script = "\n".join(f"{prints.format(number)}; printf '\\377\\376\\377'" for number in range(MANY))
    environment = {f"V{number}": value for number, value in enumerate(values)}
    command = [shell, "sh"] if shell == "busybox" else [shell]
    printed = subprocess.run(
        [*command, "-c", script], env=environment | {"PATH": os.environ["PATH"]}, capture_output=True, check=True
    ).stdout.split(END)[:-1]
    assert len(printed) == MANY
    for value, output in zip(values, printed, strict=True):
        shown = output.removesuffix(b"\n").removeprefix(b"-e ")
        assert len(shown) < LINE or shown.strip() in {needle.strip() for needle in needles(value.encode())}, value


def test_a_line_of_what_a_shell_prints_is_found_by_itself() -> None:
    redactor = Redactor.of([("A", rb"first-of-two-lines\nsecond-of-two-lines")])
    assert redactor.data(b"> first-of-two-lines\n> second-of-two-lines\n") == b"> [redacted:A]\n> [redacted:A]\n"
