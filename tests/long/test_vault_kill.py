"""`kill -9` at random moments of a write loop: no file is torn, and nothing that was promised is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from strongbox import meta, two_slots
from vault_writer import content

from kortix_tui.vault.secret import Secret

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "support" / "vault_writer.py"
ROUNDS = int(os.environ.get("VAULT_KILLS", "250"))


def test_nothing_is_torn_or_lost_by_kills(tmp_path: Path) -> None:
    path = tmp_path / "vault.kxv"
    vault = two_slots(path)
    with vault.change() as draft:
        for number in (1, 2):
            draft.put(meta(number), Secret(content(1)))
    seed = random.randrange(2**32)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "kills", str(path), str(ROUNDS), str(seed)],
        capture_output=True, text=True, timeout=500, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    told = json.loads(done.stdout)
    # Most rounds write something, and some die with a draft on disk: else the kills came at the wrong moments.
    assert told["rounds"] == ROUNDS >= 200 and told["written"] >= ROUNDS // 2 and told["left"] > 0, told
