"""The `kortix` command inside a sandbox: what an agent may ask of the host, and nothing else.

Every answer of the host is shown as it is; a refusal is an answer too, with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import types
from typing import Any, NoReturn, Sequence


def _name_the_package() -> None:
    """Make the package's names where this file is run alone; see `supervisor`."""
    folder = os.path.dirname(os.path.realpath(__file__))
    for name, paths in (("kortix_tui", []), ("kortix_tui.guest", [folder])):
        module = types.ModuleType(name)
        module.__path__ = paths
        sys.modules[name] = module


if __name__ == "__main__":
    _name_the_package()

from kortix_tui.guest import connectors  # noqa: E402
from kortix_tui.guest.asking import PATIENCE_S, Failed, ask, warn  # noqa: E402

_GIT_S = 300.0
_LOST_PUSH = (
    "cannot lock ref",
    "unexpected disconnect",
    "hung up",
    "Empty reply",
    "RPC failed",
    "Could not connect",
    "Failed to connect",
    "Recv failure",
    "error: 50",
)
"""Git's words for a host that went away in the middle of a push."""
_ANSWER_LOOK_S = 2.0
_WAIT_S = 3600.0
_EXAMPLES = """\
examples:
  kortix cr open --title "Charge in a currency" --description "What changed, why, how it was tested."
  kortix cr ls
  kortix cr show 3
  kortix secrets ls
  kortix secrets request STRIPE_API_KEY --reason "To run the payment tests." --scope environment
  kortix connectors ls
  kortix connectors call billing.get_customer '{"id": "42"}'
  kortix info --json

Commit your work before you open a change request. A person reviews and merges it.
"""


def git(*arguments: str) -> str:
    """Run git here and return what it prints.

    Raises:
        Failed: It ended badly; its own words are the message.
    """
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, timeout=_GIT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"git {arguments[0]}: {error}", code="git_failed") from error
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip() or f"it ended with status {done.returncode}"
        raise Failed(f"git {arguments[0]}: {words}", code="git_failed")
    return done.stdout.decode("utf-8", "replace").strip()


def push(branch: str, head: str) -> None:
    """Push a commit to the session's branch, also across a change of hosts.

    Agents amend and rebase, so what this clone pushed before may be replaced; what somebody else brought to the branch
    (a person may join rescued work) may not.

    Raises:
        Failed: The host refuses it, the branch has work that this clone has not, or the host is not there.
    """
    patience = time.monotonic() + PATIENCE_S
    ref = f"refs/heads/{branch}"
    while True:
        try:
            git("push", "--quiet", f"--force-with-lease={ref}", "origin", f"{head}:{ref}")
        except Failed as error:
            if "stale info" in error.message and _pushed(ref) != head:
                raise Failed(
                    "The branch has work at the host that this clone has not.",
                    "git pull --rebase, then again.",
                    "stale",
                ) from error
            # A push whose answer was lost may have arrived, or may be arriving still.
            if _pushed(ref) == head:
                return
            lost = any(words in error.message for words in _LOST_PUSH)
            if not lost or time.monotonic() > patience:
                raise
            time.sleep(0.5)
        else:
            return


def _pushed(ref: str) -> str:
    """What the host has under a ref; empty when it cannot be asked."""
    try:
        return git("ls-remote", "origin", ref).partition("\t")[0]
    except Failed:
        return ""


def open_change(options: argparse.Namespace) -> Any:
    """Push the branch and open a change request for its head."""
    session = ask("GET", "session")
    branch, base = str(session["branch"]), str(session["base_branch"])
    head = git("rev-parse", "--verify", "HEAD^{commit}")
    if not git("rev-list", "--max-count=1", head, "--not", f"refs/remotes/origin/{base}"):
        raise Failed(
            f"There is nothing to propose: HEAD has no commits that {base} does not have.",
            "Commit your work first: git add …, git commit.",
            "nothing_to_propose",
        )
    if git("status", "--porcelain"):
        warn("the working tree has changes that are not committed; they are not part of the change request")
    if not options.no_push:
        push(branch, head)
    proposal = {"title": options.title, "description": options.description, "head_commit": head}
    return ask("POST", "cr", proposal)


def list_changes(options: argparse.Namespace) -> Any:
    """This session's change requests."""
    return ask("GET", "cr")


def show_change(options: argparse.Namespace) -> Any:
    """One change request of this session."""
    for change in ask("GET", "cr"):
        if change.get("number") == options.number:
            return change
    raise Failed(f"This session has no change request {options.number}.", "kortix cr ls", "not_found")


def merge_change(options: argparse.Namespace) -> NoReturn:
    """Ask for what no agent may do, so that it is on record, and pass the refusal on."""
    ask("POST", "cr/merge", {})
    raise Failed("merge is default-deny for agents", code="agent_human_only_action")


def list_secrets(options: argparse.Namespace) -> Any:
    """What this session has of the project's secrets, without their values."""
    return ask("GET", "secrets")


def request_secret(options: argparse.Namespace) -> Any:
    """Ask a person for a value, and wait for the answer if that is wanted."""
    wish = {"identifier": options.name, "exposure": options.scope, "reason": options.reason}
    asked = ask("POST", "secrets/request", wish)
    until = time.monotonic() + options.timeout
    while options.wait and asked.get("state") == "open":
        if time.monotonic() > until:
            raise Failed(
                f"Nobody has answered within {options.timeout:g} s; the request stays open.",
                "Go on with what needs no secret, or end your answer: it can be provided later.",
                "timeout",
            )
        time.sleep(_ANSWER_LOOK_S)
        asked = ask("GET", f"secrets/request/{asked['id']}")
    if asked.get("state") == "declined":
        raise Failed(f"A person declined to give {asked.get('identifier')}.", code="declined")
    return asked


def set_secret(options: argparse.Namespace) -> NoReturn:
    """Storing values is for people."""
    raise Failed(
        "Only a person stores values, outside of this sandbox.",
        "Ask for it: kortix secrets request NAME --reason TEXT",
        "agent_human_only_action",
    )


def info(options: argparse.Namespace) -> Any:
    """Facts about this session."""
    return ask("GET", "session")


def describe(answer: Any) -> str:
    """Facts for people, one a line."""
    return "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in answer.items() if value is not None)


def describe_changes(answer: Any) -> str:
    """Change requests, one a line."""
    lines = [f"#{one.get('number')}  {one.get('status')}  {one.get('title')}" for one in answer]
    return "\n".join(lines) or "There are no change requests."


def describe_secrets(answer: Any) -> str:
    """Secrets, one a line: identifier, state, environment variable."""
    if not answer:
        return "There are no secrets that this session may know of."
    width = max(len(str(one.get("identifier"))) for one in answer)
    lines = []
    for one in answer:
        name = f"  ${one['name']}" if one.get("state") in ("delivered", "granted") else ""
        lines.append(f"{one.get('identifier')!s:{width}}  {one.get('state')}{name}")
    return "\n".join(lines)


def describe_request(answer: Any) -> str:
    """What became of a request."""
    name, scope = answer.get("identifier"), answer.get("exposure")
    if answer.get("state") != "provided":
        return f"A person was asked for {name} ({scope}). Request {answer.get('id')} is {answer.get('state')}."
    if scope != "environment":
        return f"{name} was provided. It stays on the host."
    return f"{name} was provided. It comes with the next prompt, if the agent's grant names it: kortix secrets ls"


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(
        prog="kortix", description="Talk to the host of this session.", epilog=_EXAMPLES, formatter_class=form
    )
    nouns = parser.add_subparsers(dest="noun", required=True, metavar="COMMAND")
    facts = nouns.add_parser("info", parents=[shared], help="this session: project, branch, base branch")
    facts.set_defaults(run=info, describe=describe)
    change = nouns.add_parser("cr", help="change requests", epilog=_EXAMPLES, formatter_class=form)
    verbs = change.add_subparsers(dest="verb", required=True, metavar="VERB")
    opening = verbs.add_parser("open", parents=[shared], help="push the commits and propose them to a person")
    opening.add_argument("--title", required=True, help="one line: what changes")
    opening.add_argument("--description", default="", help="what changed, why, and how it was tested")
    opening.add_argument("--no-push", action="store_true", help="the branch was pushed already")
    opening.set_defaults(run=open_change, describe=describe)
    listing = verbs.add_parser("ls", parents=[shared], help="this session's change requests")
    listing.set_defaults(run=list_changes, describe=describe_changes)
    showing = verbs.add_parser("show", parents=[shared], help="one change request")
    showing.add_argument("number", type=int)
    showing.set_defaults(run=show_change, describe=describe)
    merging = verbs.add_parser("merge", parents=[shared], help="refused: only a person merges")
    merging.add_argument("number", type=int, nargs="?")
    merging.set_defaults(run=merge_change, describe=describe)
    _add_secrets(nouns.add_parser("secrets", help="secrets, without their values"), shared)
    connectors.add(nouns, shared)
    serving = nouns.add_parser("mcp", help="serve this session's connectors as MCP tools on standard input and output")
    serving.set_defaults(run=None)
    return parser


def _add_secrets(secrets: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    verbs = secrets.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("ls", parents=[shared], help="which there are, and which this session has")
    listing.set_defaults(run=list_secrets, describe=describe_secrets)
    asking = verbs.add_parser("request", parents=[shared], help="ask a person for a value, which you never see typed")
    asking.add_argument("name", metavar="NAME", help="the identifier, such as STRIPE_API_KEY")
    asking.add_argument("--reason", default="", help="what it is needed for, at most 500 characters")
    asking.add_argument(
        "--scope", choices=("connector", "environment"), default="connector",
        help="connector: it stays on the host (the default); environment: your programs can read it",
    )  # fmt: skip
    asking.add_argument("--wait", action="store_true", help="return when a person has answered")
    asking.add_argument("--timeout", type=float, default=_WAIT_S, metavar="SECONDS", help="wait so long at most")
    asking.set_defaults(run=request_secret, describe=describe_request)
    setting = verbs.add_parser("set", parents=[shared], help="refused: only a person stores values")
    setting.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    setting.set_defaults(run=set_secret, describe=describe)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(arguments)
    if options.run is None:
        from kortix_tui.guest import mcp

        return mcp.serve()
    try:
        answer = options.run(options)
    except Failed as error:
        fault = {"code": error.code, "message": error.message, "hint": error.hint}
        if options.json:
            print(json.dumps({"error": fault}, indent=2))
        else:
            print(f"kortix: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2) if options.json else options.describe(answer))
    return options.status(answer) if hasattr(options, "status") else 0


if __name__ == "__main__":
    sys.exit(main())
