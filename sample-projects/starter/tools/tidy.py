#!/usr/bin/env python3
"""A small agent: tidies white space in the files that git knows, commits, and opens a change request."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 1024 * 1024
KEEP_TRAILING = {".md", ".patch", ".diff", ".snap"}  # white space at a line's end means something there


def git(*arguments: str) -> str:
    """Run git in the project and return what it prints."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def read_prompt() -> str:
    """The prompt, from its file or from standard input."""
    path = os.environ.get("KORTIX_PROMPT_FILE")
    if path and os.path.isfile(path):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return "" if sys.stdin.isatty() else sys.stdin.read()


def tidied(path: Path) -> bytes | None:
    """The tidy content, or nothing when the file is tidy, large, linked or no text."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    before = path.read_bytes()
    if not before or b"\0" in before or b"\r" in before:
        return None
    after = before if path.suffix in KEEP_TRAILING else re.sub(rb"[ \t]+$", b"", before, flags=re.MULTILINE)
    after = after.rstrip(b"\n") + b"\n"
    return after if after != before else None


def main() -> int:
    """Tidy, commit, propose."""
    prompt = read_prompt().strip()
    print(f"tidy: {prompt.splitlines()[0][:200] if prompt else 'no prompt'}", flush=True)
    names = [name for name in git("ls-files", "-z").split("\0") if name]
    print(f"Looking at {len(names)} files", flush=True)
    changed = []
    for name in names:
        content = tidied(ROOT / name)
        if content is not None:
            (ROOT / name).write_bytes(content)
            changed.append(name)
            print(f"  tidied {name}", flush=True)
    if not changed:
        print("Nothing to do: every file is tidy")
        return 0
    git("add", "--", *changed)
    git("commit", "--quiet", "-m", "Tidy white space", "--", *changed)
    print(f"Committed {git('rev-parse', '--short', 'HEAD').strip()}", flush=True)
    program = shutil.which("kortix")
    if program is None:
        print("`kortix` is not in PATH, so no change request was opened")
        return 1
    description = "\n".join(["White space only:", "", *(f"- {name}" for name in changed)])
    command = [program, "cr", "open", "--title", "Tidy white space", "--description", description]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=300, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"Stopped: {error}")
        sys.exit(1)
