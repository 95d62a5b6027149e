#!/usr/bin/env python3
"""The support agent: drafts a reply on each open ticket, and asks a person before it sends one.

It reaches the help desk through `kortix connectors call` only. Reads and drafts run at once; each `send_reply` waits until a
person has decided. What they deny stays a draft. It can be run again at any time: answered tickets are left alone.
"""

from __future__ import annotations

import sys

print("support: starting", flush=True)  # first, so that whoever watches sees life before the imports

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from replies import Draft, draft

ROOT = Path(__file__).resolve().parents[1]
TABLE = "TRIAGE.md"
TITLE = "Triage the open tickets"


class Stopped(Exception):
    """The work cannot go on; the message says why."""


class Outcome(NamedTuple):
    """What became of one ticket."""

    ticket: dict
    draft: Draft
    state: str
    note: str


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def call(action: str, arguments: dict, reason: str = "") -> dict:
    """Have the host call an action of the help desk; returns its report, whatever became of the call.

    Waits as long as a person takes to decide.
    """
    command = ["kortix", "connectors", "call", f"helpdesk.{action}", "-", "--json", "--wait"]
    if reason:
        command += ["--reason", reason]
    done = subprocess.run(command, input=json.dumps(arguments), capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise Stopped(f"helpdesk.{action}: {done.stderr.strip() or f'status {done.returncode}'}") from None
    if "error" in report:
        raise Stopped(f"helpdesk.{action}: {report['error'].get('message')}")
    return report


def answer(action: str, arguments: dict) -> Any:
    """What an action answers; one that was not done ends the work."""
    report = call(action, arguments)
    if report["state"] != "done" or (report.get("status") or 0) >= 400:
        raise Stopped(f"helpdesk.{action}: {report['state']}, {report.get('message') or report.get('status')}")
    return json.loads(report["body"])


def work_on(ticket_id: str) -> Outcome:
    """Read one ticket, keep a draft, and ask to send it."""
    ticket = answer("get_ticket", {"ticket_id": ticket_id})
    made = draft(ticket)
    say(f"{ticket_id}  {made.kind}, {made.urgency}  {ticket['subject']}")
    answer("save_draft", {"ticket_id": ticket_id, "text": made.text})
    say("  draft saved; a person decides whether it is sent")
    arguments = {
        "ticket_id": ticket_id,
        "to": ticket["customer"]["email"],
        "subject": made.subject,
        "text": made.text,
    }
    state, note = outcome(call("send_reply", arguments, made.reason))
    say(f"  {state}" + (f": {note}" if note else ""))
    return Outcome(ticket, made, state, note)


def outcome(report: dict) -> tuple[str, str]:
    """What became of a reply, in words, and what the person said."""
    note = str(report.get("note") or "")
    state, status = report["state"], report.get("status") or 0
    if state == "done" and status < 400:
        return "sent", note
    if state == "done":
        return ("already answered" if status == 409 else f"refused by the help desk ({status})"), note
    if state == "denied":
        return "draft kept", note or "denied"
    if state == "unknown":
        return "may have been sent", str(report.get("message") or "look at the help desk")
    return "draft kept", f"{state}: {report.get('message') or ''}".rstrip(": ")


def table(outcomes: list[Outcome]) -> str:
    """The triage table."""
    lines = [
        "# Triage",
        "",
        "What became of each open ticket, the urgent ones first. A draft that was kept waits at the help desk.",
        "",
        "| ticket | subject | kind | urgency | outcome | note |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in sorted(outcomes, key=lambda one: (one.draft.urgency != "high", one.ticket["id"])):
        cells = (one.ticket["id"], one.ticket["subject"], one.draft.kind, one.draft.urgency, one.state, one.note)
        lines.append("| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def run(*command: str) -> str:
    """Run a program in the project and return what it prints."""
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise Stopped(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def propose(outcomes: list[Outcome]) -> None:
    """Commit the table and hand it to a person."""
    (ROOT / TABLE).write_text(table(outcomes), encoding="utf-8")
    if not run("git", "status", "--porcelain", "--", TABLE).strip():
        say("The table is as it was; there is nothing to propose.")
        return
    sent = sum(one.state == "sent" for one in outcomes)
    kept = [one for one in outcomes if one.state != "sent"]
    told = f"{sent} of {len(outcomes)} replies were sent, each after a person had approved it."
    lines = [told, *(f"- {one.ticket['id']}: {one.state}, {one.note}" for one in kept)]
    identity = () if _has_identity() else ("-c", "user.name=Northwind support", "-c", "user.email=support@northwind.example")
    run("git", "add", "--", TABLE)
    run("git", *identity, "commit", "--quiet", "-m", "Say what became of the open tickets", "--", TABLE)
    say(f"Opening the change request: {TITLE}")
    run("kortix", "cr", "open", "--title", TITLE, "--description", "\n".join(lines))
    say(f"Done. {told}")


def _has_identity() -> bool:
    command = ["git", "config", "user.email"]
    known = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return known.returncode == 0 or bool(os.environ.get("GIT_AUTHOR_EMAIL"))


def main() -> int:
    """Work through the queue, and tell by the exit status how it went."""
    try:
        queue = answer("list_tickets", {"status": "open"})["tickets"]
        say(f"{len(queue)} tickets are open")
        outcomes = [work_on(ticket["id"]) for ticket in queue]
        if outcomes:
            propose(outcomes)
    except (Stopped, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        say(f"Stopped: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
