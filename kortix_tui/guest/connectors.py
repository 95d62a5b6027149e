"""`kortix connectors` inside a sandbox: the host makes the call, asks a person where policy says so, and answers."""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import sys
import time
from typing import Any, Dict, Optional
from urllib.parse import quote, urlencode

from kortix_tui.guest.asking import Failed, ask, fetch

HOLD_S = 25.0
"""One request waits so long at the host at most; then it is asked again."""
PENDING_STATUS = 3
"""Exit status of a call that still waits for a person."""
_OPEN = ("pending", "approved", "executing")
_BROKEN = ("failed", "unknown", "denied", "expired", "superseded", "refused")
_EXAMPLES = """\
examples:
  kortix connectors ls
  kortix connectors show billing
  kortix connectors show billing.create_refund
  kortix connectors call billing.get_customer '{"id": "42"}'
  kortix connectors call billing.create_refund @refund.json --reason "Order 81 arrived broken."
  echo '{"limit": 100}' | kortix connectors call billing.list_orders - --out orders.json

A call that a person must approve waits. With --no-wait, or when --timeout is over, it ends with status 3: end your
turn then; you are told what became of it by a new prompt. Never repeat such a call.
"""


def wait_seconds(*variables: str, default: Optional[float]) -> Optional[float]:
    """How long a call may wait for a person: as the first variable that is set says; `None` for ever."""
    text = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    try:
        return float(text) if text else default
    except ValueError:
        return default


class Call:
    """One call at the host, asked for once however often the connection is lost.

    Args:
        connector: Which connector.
        action: Which of its actions.
        arguments: JSON text, read strictly by the host.
        reason: What it is for, for the person who is asked.
        account: Which of several accounts.
    """

    def __init__(self, connector: str, action: str, arguments: str, reason: str = "", account: str = "") -> None:
        self._wish: Dict[str, Any] = {
            "key": secrets.token_hex(16), "connector": connector, "action": action, "arguments": arguments,
            "reason": reason,
        }  # fmt: skip
        if account:
            self._wish["account"] = account
        self.id: Optional[str] = None
        self.left = False

    def run(self, seconds: Optional[float]) -> Dict[str, Any]:
        """Ask for it and wait for the answer.

        Args:
            seconds: How long at most; `None` for ever. When it is over, the host is told that nobody waits any more.

        Raises:
            Failed: The host cannot be asked.
        """
        until = None if seconds is None else time.monotonic() + seconds
        report = self._asked({**self._wish, "wait": _hold(until)})
        while report["state"] in _OPEN and not self.left:
            if until is not None and time.monotonic() >= until:
                return self.leave()
            report = follow(str(self.id), _hold(until))
        return report

    def leave(self) -> Dict[str, Any]:
        """Wait no longer: the host tells of the answer by a prompt. Gives what is known now.

        Raises:
            Failed: The host cannot be asked.
        """
        self.left = True
        if self.id is None:  # the first request is still open; by its key it is the same call
            self._asked({**self._wish, "wait": 0})
        return follow(str(self.id), 0, leave=True)

    def _asked(self, wish: Dict[str, Any]) -> Dict[str, Any]:
        report: Dict[str, Any] = ask("POST", "calls", wish)
        self.id = str(report["id"])
        return report


def _hold(until: Optional[float]) -> float:
    return HOLD_S if until is None else max(0.0, min(HOLD_S, until - time.monotonic()))


def follow(call_id: str, seconds: float, *, leave: bool = False) -> Dict[str, Any]:
    """What became of a call, waiting up to so many seconds for news."""
    query = {"wait": f"{seconds:.1f}", **({"leave": "1"} if leave else {})}
    report: Dict[str, Any] = ask("GET", f"calls/{quote(call_id, safe='')}?{urlencode(query)}")
    return report


def actions(connector: Optional[str] = None) -> Any:
    """Actions of one connector of this session, or of all."""
    return ask("GET", "actions" + (f"?{urlencode({'connector': connector})}" if connector else ""))


def body(report: Dict[str, Any]) -> bytes:
    """The whole answer of a finished call."""
    if report.get("truncated"):
        return fetch(f"calls/{quote(str(report['id']), safe='')}/output")
    text = str(report.get("body") or "")
    return base64.b64decode(text) if report.get("binary") else text.encode()


def ended_badly(report: Dict[str, Any]) -> bool:
    """Whether the call did not do what it was for."""
    return report["state"] in _BROKEN or (report.get("status") or 200) >= 400


def says(report: Dict[str, Any]) -> str:
    """The state of a call in words, for a person or an agent."""
    name = f"{report.get('connector')}.{report.get('action')}"
    words = str(report.get("message") or "")
    note = f" The person says: {report['note']}" if report.get("note") else ""
    if report["state"] in _OPEN:
        state = "pending_approval" if report["state"] == "pending" else str(report["state"])
        return f"{name} is {state} (call {report['id']}). {words}".rstrip()
    if report["state"] == "done":
        return f"{name} answered {report.get('status')}.{note}"
    code = f" [{report['code']}]" if report.get("code") else ""
    return f"{name} was not done: {report['state']}{code}. {words}{note}".rstrip()


# ---- verbs -----------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> Any:
    found = ask("GET", "connectors")
    if options.filter:
        found = [one for one in found if options.filter.lower() in json.dumps(one).lower()]
    return found


def _show(options: argparse.Namespace) -> Any:
    connector, _, action = options.name.partition(".")
    found = actions(connector)
    if action:
        found = [one for one in found if one.get("name") == options.name]
        if not found:
            raise Failed(
                f"{connector} has no action {action}.", f"See them: kortix connectors show {connector}", "not_found"
            )
    return found


def _call(options: argparse.Namespace) -> Any:
    connector, dot, action = options.name.partition(".")
    if not dot or not action:
        raise Failed(f"{options.name} names no action.", "Write CONNECTOR.ACTION, such as billing.get_customer.")
    call = Call(connector, action, _arguments(options.arguments), options.reason, options.account)
    try:
        report = call.run(_patience(options))
    except KeyboardInterrupt:
        call.leave()
        raise
    if options.out and report["state"] == "done":
        report = {**report, "out": _written(options.out, report), "body": None}
    return report


def _patience(options: argparse.Namespace) -> Optional[float]:
    """How long this call waits for a person."""
    if options.no_wait:
        return 0.0
    if options.wait:
        return None
    if options.timeout is not None:
        return float(options.timeout)
    return wait_seconds("KORTIX_WAIT_SECONDS", default=None)


def _arguments(text: str) -> str:
    """The JSON that was given, from a file or standard input where that is said."""
    if text == "-":
        return sys.stdin.read()
    if text.startswith("@"):
        try:
            with open(text[1:], encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"{text[1:]} cannot be read: {error}") from error
    return text


def _written(path: str, report: Dict[str, Any]) -> Dict[str, Any]:
    data = body(report)
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}", "The call was made; do not repeat it.") from error
    return {"path": os.path.abspath(path), "bytes": len(data), "shape": _shape(data)}


def _shape(data: bytes) -> str:
    """What kind of thing an answer is, in a few words."""
    try:
        value = json.loads(data)
    except ValueError:
        return "text" if b"\0" not in data else "binary"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        keys = ", ".join(list(value)[:10])
        return f"object with {keys}" + (", …" if len(value) > 10 else "")
    return type(value).__name__


def _describe_list(answer: Any) -> str:
    if not answer:
        return "This session may use no connector."
    width = max(len(str(one["slug"])) for one in answer)
    return "\n".join(
        f"{one['slug']!s:{width}}  {one['provider']}  {one['actions']} actions"
        + (f"  accounts: {', '.join(one['accounts'])}" if len(one.get("accounts") or ()) > 1 else "")
        + (f"  ! {one['problem']}" if one.get("problem") else "")
        for one in answer
    )


_WORDS = {"always_run": "runs", "require_approval": "asks", "block": "blocked"}


def _describe_actions(answer: Any) -> str:
    if len(answer) == 1:
        one = answer[0]
        verdict = _WORDS.get(str(one["verdict"]), one["verdict"])
        head = f"{one['name']}  ({one['risk']}, {verdict})\n{one['title']}\n{one['description']}".strip()
        return f"{head}\n\narguments (JSON Schema):\n{json.dumps(one['input_schema'], indent=2)}"
    if not answer:
        return "It has no actions."
    width = min(56, max(len(str(one["name"])) for one in answer))
    return "\n".join(
        f"{one['name']!s:{width}}  {one['risk']!s:11}  {_WORDS.get(str(one['verdict']), one['verdict'])!s:7}"
        f"  {one['title']}"
        for one in answer
    )


def _describe_call(answer: Any) -> str:
    if answer["state"] != "done" and answer.get("body") is None:
        return says(answer)
    if (out := answer.get("out")) is not None:
        return f"{out['path']}  {out['bytes']} bytes  {out['shape']}"
    text = f"{len(body(answer))} bytes of binary data; use --out FILE" if answer.get("binary") else answer.get("body")
    more = f"\n(cut: {answer.get('bytes')} bytes in all; --out FILE has them)" if answer.get("truncated") else ""
    return f"{text or ''}{more}"


def _status(answer: Any) -> int:
    if answer["state"] in _OPEN:
        return PENDING_STATUS
    if not ended_badly(answer):
        return 0
    if answer.get("body") is not None:
        print(f"kortix: {says(answer)}", file=sys.stderr)
    return 1


def add(nouns: Any, shared: argparse.ArgumentParser) -> None:
    """Add the verbs to the command."""
    form = argparse.RawDescriptionHelpFormatter
    noun = nouns.add_parser(
        "connectors", help="outside systems, reached through the host", epilog=_EXAMPLES, formatter_class=form
    )
    verbs = noun.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("ls", parents=[shared], help="connectors that this session may use")
    listing.add_argument("--filter", metavar="TEXT", help="only those that hold this text")
    listing.set_defaults(run=_list, describe=_describe_list)
    showing = verbs.add_parser("show", parents=[shared], help="actions of a connector, or one action with its schema")
    showing.add_argument("name", metavar="CONNECTOR[.ACTION]")
    showing.set_defaults(run=_show, describe=_describe_actions)
    calling = verbs.add_parser(
        "call", parents=[shared], help="call an action", epilog=_EXAMPLES, formatter_class=form
    )  # fmt: skip
    calling.add_argument("name", metavar="CONNECTOR.ACTION")
    calling.add_argument(
        "arguments", nargs="?", default="{}", metavar="JSON|@FILE|-", help="its arguments; - reads standard input"
    )
    calling.add_argument("--reason", default="", help="what it is for; the person who approves reads it")
    calling.add_argument("--account", default="", help="which account, where the connector has several")
    calling.add_argument("--out", metavar="FILE", help="write the whole answer there, print its size and shape")
    waiting = calling.add_mutually_exclusive_group()
    waiting.add_argument("--wait", action="store_true", help="wait for a person without limit (the default)")
    waiting.add_argument("--no-wait", action="store_true", help="do not wait for a person")
    waiting.add_argument("--timeout", type=float, metavar="SECONDS", help="wait so long at most")
    calling.set_defaults(run=_call, describe=_describe_call, status=_status)
