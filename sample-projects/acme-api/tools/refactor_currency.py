#!/usr/bin/env python3
"""The refactorer: `charge(amount)` becomes `charge(amount, currency)` in code, tests and documents.

It reads its prompt, parses the source, runs the tests before and after, commits in steps, and opens a change request. It
can be run again at any time: what is done stays as it is.
"""

from __future__ import annotations

import sys

print("refactorer: starting", flush=True)  # first, so that whoever watches sees life before the imports

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

from currency_edits import Knowledge, Result, rewrite_markdown, rewrite_python
from run_tests import ROOT, run_tests

TITLE = "Charge in the customer's currency"
STEPS = (
    ("signature", "Take a currency in charge()"),
    ("callers", "Pass the currency at every call of charge()"),
    ("tests", "Say the currency in the tests"),
    ("documents", "Describe charge(amount, currency)"),
)
SKIPPED = {".git", "tools", "__pycache__", ".venv", "node_modules"}


class Stopped(Exception):
    """The work cannot go on; the message says why."""


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def read_prompt() -> str:
    """The prompt, from the file, the environment or standard input."""
    path = os.environ.get("KORTIX_PROMPT_FILE")
    if path and os.path.isfile(path):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    if "KORTIX_PROMPT" in os.environ:
        return os.environ["KORTIX_PROMPT"]
    return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()


def wants_tests_only(prompt: str) -> bool:
    """Whether the prompt asks to run the tests and for nothing that this program changes."""
    text = prompt.lower()
    asks_tests = re.search(r"\b(run|execute|repeat|check)\b[^.\n]*\b(tests?|suite)\b", text) is not None
    asks_change = re.search(r"\b(refactor|currency|currencies|charge|change|rewrite|signature)\b", text) is not None
    return asks_tests and not asks_change


def git(*arguments: str) -> str:
    """Run git in the project and return what it prints."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise Stopped(f"git {arguments[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def test(label: str) -> str:
    """Run the suite and return its summary; a red suite stops the work."""
    try:
        result = run_tests()
    except subprocess.TimeoutExpired:
        raise Stopped(f"{label}: the tests did not end in time") from None
    ran = re.search(r"^Ran (\d+) tests? in (\S+)$", result.stdout, re.MULTILINE)
    if result.returncode != 0 or ran is None:
        print(result.stdout, end="")
        raise Stopped(f"{label}: the tests fail")
    summary = f"{ran[1]} tests pass ({ran[2]})"
    say(f"{label}: {summary}")
    return summary


def files(*suffixes: str) -> list[Path]:
    """The project's own files, sorted."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        found += [Path(folder, name) for name in sorted(names) if name.endswith(suffixes)]
    return found


def learn(paths: list[Path]) -> Knowledge:
    """Read the source for what it says about money."""
    knowledge = Knowledge()
    source = ROOT / "src"
    for path in paths:
        if source in path.parents:
            module = ".".join(path.relative_to(source).with_suffix("").parts)
            knowledge.learn(ast.parse(path.read_text(encoding="utf-8")), module)
    return knowledge


def rewrite(path: Path, knowledge: Knowledge) -> Result:
    """Rewrite one file in memory."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return rewrite_markdown(text, knowledge)
    return rewrite_python(text, knowledge, test=ROOT / "tests" in path.parents)


def step_of(path: Path, result: Result) -> str:
    """The commit that a changed file belongs to."""
    if path.suffix == ".md":
        return "documents"
    if ROOT / "tests" in path.parents:
        return "tests"
    return "signature" if result.definitions else "callers"


def refactor() -> tuple[dict[str, list[str]], list[str], Result]:
    """Change the files. Returns them by step, what was left for a person, and the counts."""
    paths = files(".py")
    documents = [path for path in files(".md") if path.parent.name != "agents" and path.name != "AGENTS.md"]
    knowledge = learn(paths)
    say(f"Reading {len(paths)} Python files and {len(documents)} documents")
    changed: dict[str, list[str]] = {}
    left: list[str] = []
    total = Result("")
    for path in (*paths, *documents):
        name = path.relative_to(ROOT).as_posix()
        before = path.read_text(encoding="utf-8")
        result = rewrite(path, knowledge)
        left += [f"{name}, {note}" for note in result.left]
        if result.text == before:
            continue
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(result.text, encoding="utf-8")
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
        changed.setdefault(step_of(path, result), []).append(name)
        total.definitions += result.definitions
        total.calls += result.calls
        total.mentions += result.mentions
        say(f"  {name}: {result.definitions} definitions, {result.calls} calls, {result.mentions} mentions")
    return changed, left, total


def commit(changed: dict[str, list[str]]) -> None:
    """One commit a step."""
    identity = []
    if not _configured("user.email"):
        identity = ["-c", "user.name=acme refactorer", "-c", "user.email=refactorer@acme.example"]
    for step, message in STEPS:
        names = changed.get(step)
        if not names:
            continue
        git("add", "--", *names)
        git(*identity, "commit", "--quiet", "-m", message, "--", *names)
        short = git("rev-parse", "--short", "HEAD").strip()
        plural = "" if len(names) == 1 else "s"
        say(f"Committed {short} {message} ({len(names)} file{plural})")


def _configured(key: str) -> bool:
    try:
        return bool(os.environ.get("GIT_AUTHOR_EMAIL") or git("config", key).strip())
    except Stopped:
        return False


def open_change_request(total: Result, left: list[str], summary: str) -> None:
    """Hand the branch to a person."""
    program = shutil.which("kortix")
    lines = [
        "`charge(amount)` becomes `charge(amount, currency)`, so that invoices, plans and API clients are charged in their",
        "own currency. Where nobody says a currency, the house currency is used as before.",
        "",
        f"- {total.definitions} definitions, {total.calls} calls and {total.mentions} mentions changed",
        f"- {summary}",
        *(f"- left for a person: {note}" for note in left),
    ]
    if program is None:
        raise Stopped("the work is committed, but `kortix` is not in PATH, so no change request was opened")
    say(f"Opening the change request: {TITLE}")
    command = [program, "cr", "open", "--title", TITLE, "--description", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=300, check=False)
    if done.returncode != 0:
        raise Stopped(f"the work is committed, but `kortix cr open` ended with {done.returncode}")


def work(prompt: str) -> None:
    """Do what the prompt asks."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    if first:
        say(f"Prompt: {first[:200]}")
    if wants_tests_only(prompt):
        say("The prompt asks for the tests only; nothing is changed")
        test("The full test suite")
        return
    git("rev-parse", "--is-inside-work-tree")
    test("Before")
    changed, left, total = refactor()
    if not changed:
        say("Nothing to do: charge() takes a currency everywhere")
        for note in left:
            say(f"Left for a person: {note}")
        return
    say(f"Changed {total.definitions} definitions, {total.calls} calls, {total.mentions} mentions")
    for note in left:
        say(f"Left for a person: {note}")
    summary = test("After")
    commit(changed)
    open_change_request(total, left, summary)
    say("Done. A person decides now.")


def main() -> int:
    """Work, and tell by the exit status how it went."""
    try:
        work(read_prompt())
    except (Stopped, OSError, SyntaxError, ValueError, subprocess.SubprocessError) as error:
        say(f"Stopped: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
