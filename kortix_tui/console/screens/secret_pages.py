"""A secret, a request for one, and the vault, each as a page. A secret's page is the map of where its value may be."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Exposure, SessionStatus, VaultState
from kortix_tui.console.screens.secret_rows import exposure_words, vault_words
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.cells import fit
from kortix_tui.runtime.secret_views import HeldBy, SecretDetail, SecretRequestView, SecretView, SlotView, VaultStatus
from kortix_tui.runtime.secret_words import MEANING, exposure_says

LABEL: Final = 11
NAME: Final = 20
MIN_WIDTH: Final = 40
Lines = list[list[Part]]


def field(label: str, text: str, width: int, role: str = "text") -> Lines:
    """A labelled text, wrapped below itself."""
    rows = textwrap.wrap(text, max(MIN_WIDTH, width) - LABEL - 3, break_long_words=True) or [""]
    return [
        [Part(f" {label if not at else '':<{LABEL}} ", "muted"), Part(row, role)] for at, row in enumerate(rows)
    ]  # fmt: skip


def _heading(text: str, note: str = "") -> list[Part]:
    return [Part(f" {text}", "title"), Part(f"   {note}" if note else "", "muted")]


def secret_page(secret: SecretView, detail: SecretDetail | None, now: datetime, width: int) -> Lines:
    """Everything that is known of a secret but its value.

    Args:
        secret: As the list has it.
        detail: With the reach of each agent; `None` while that is being read.
        now: For ages.
        width: Cells of the page.
    """
    _, role = exposure_words(secret.exposure, gateway=secret.gateway)
    says = exposure_says(secret)
    lines = field("exposure", says, width, role)
    if secret.hosts:
        lines += field("hosts", ", ".join(visible_line(host) for host in secret.hosts), width)
    whose = "the project" if secret.owner == "project" else f"{visible_line(secret.owner)}, for own sessions only"
    lines += field("variable", f"{visible_line(secret.name)} of {secret.project}; owner: {whose}", width)
    rotated = f"version {secret.version}, {age(secret.rotated_at, now)} old"
    lines += field(
        "value", f"{rotated}; last used {f'{age(secret.used_at, now)} ago' if secret.used_at else 'never'}", width
    )
    if secret.plain_at is not None:
        plain = f"! was in a sandbox as plain text since its last rotation, {age(secret.plain_at, now)} ago"
        lines += field("in plain", plain, width, "warning")
    lines += [[], *_reach(secret, detail), [], *_holders(secret.held_by, now), [], *_tighter(secret, width)]
    return lines


def _reach(secret: SecretView, detail: SecretDetail | None) -> Lines:
    lines = [_heading("Agents", "by their grants on the base branch")]
    if detail is None:
        return [*lines, [Part("   reading…", "muted")]]
    if detail.manifest_fault is not None:
        return [*lines, [Part(f"   ! none can have it now: {visible_line(detail.manifest_fault)}", "error")]]
    if not detail.reach:
        return [*lines, [Part("   kortix.yaml on the base branch has no agents.", "muted")]]
    delivered = secret.exposure is Exposure.ENVIRONMENT
    for one in detail.reach:
        sign, word, role = (
            ("✔", "granted", "warning" if delivered else "success") if one.granted else ("·", "no", "muted")
        )
        name = fit(visible_line(one.agent), NAME)
        lines.append([Part(f"   {sign} {name} "), Part(fit(word, 9), role), Part(visible_line(one.why), "muted")])
    return lines


def _holders(held_by: Sequence[HeldBy], now: datetime) -> Lines:
    lines = [_heading("Sandboxes that have its value")]
    if not held_by:
        return [*lines, [Part("   none", "muted")]]
    for one in held_by:
        live = one.status in {SessionStatus.RUNNING, SessionStatus.PROVISIONING}
        state, role = (f"● {one.status.value}", "state.running") if live else (f"■ {one.status.value}", "muted")
        row = [
            Part(f"   {fit(one.session_id, 13)}"),
            Part(fit(state, 14), role),
            Part(fit(f"version {one.version}", 11)),
        ]
        row.append(Part(fit("! stale" if one.stale else "", 8), "warning"))
        row.append(Part(f"{age(one.at, now):>4} ago  {visible_line(one.title)}", "muted"))
        lines.append(row)
    return lines


def _tighter(secret: SecretView, width: int) -> Lines:
    """What would make it safer, in the words of keys."""
    advice = []
    if secret.plain:
        advice.append("r gives it a new value; the old one must be made invalid where it came from")
    if secret.exposure is Exposure.ENVIRONMENT:
        advice.append("e and connector keep the value on the host")
        if secret.owner == "project":
            advice.append("O keeps it to sessions that you start yourself")
    elif secret.exposure is Exposure.EGRESS:
        advice.append("its proxy is not part of this version: no sandbox gets it")
    else:
        advice.append("no sandbox can read it")
    lines = []
    for at, text in enumerate(advice):
        lines += field("tighter" if not at else "", text, width)
    return lines


def request_page(request: SecretRequestView, now: datetime, width: int) -> Lines:
    """An agent's request for a value: what it says is a claim."""
    who, what = visible_line(request.agent) or "An agent", visible_line(request.identifier)
    lines: Lines = [[Part(f" {who} asks for {what}", "title")], []]
    lines += field("project", request.project, width)
    lines += field("session", f"{request.session_id}  {visible_line(request.session_title)}", width)
    lines += field("asked", f"{age(request.created_at, now)} ago", width)
    word, role = exposure_words(request.exposure)
    lines += field("exposure", f"{word}: {MEANING[request.exposure]}", width, role)
    if request.granted:
        lines += field("grant", "✔ the base branch grants it", width, "success")
    else:
        lines += field("grant", "! not granted: it gets nothing before you grant it, too", width, "warning")
    lines += [[], _heading("Why, it says")]
    for row in visible(request.reason or "No reason given.").split("\n"):
        lines += [[Part(f"   {part}")] for part in textwrap.wrap(row, max(MIN_WIDTH, width) - 4) or [""]]
    lines += [[], [Part(" enter", "key"), Part(" types the value unseen    "), Part("x", "key"), Part(" says no")]]
    return lines


def vault_page(status: VaultStatus, now: datetime, width: int) -> Lines:
    """The vault: state, file, keys."""
    word, role = vault_words(status.state)
    since = f", for {age(status.since, now)}" if status.since and status.state is not VaultState.MISSING else ""
    lines = field("state", f"{word}{since}", width, role)
    if status.reason:
        lines += field("reason", visible_line(status.reason), width, "warning")
    lines += field("file", visible_line(str(status.path)), width)
    if status.vault_id:
        lines += field("vault", f"{status.vault_id}, generation {status.generation}", width)
    if status.previous:
        lines += field("before it", visible_line(status.previous), width)
    lines += field("secrets", str(status.secrets), width)
    if status.waiting:
        lines += field("wait for it", ", ".join(status.waiting), width, "state.waiting")
    lines += [[], _heading("What opens it")]
    lines += [_slot(slot, now) for slot in status.slots] or [[Part("   nothing yet", "muted")]]
    return lines


def _slot(slot: SlotView, now: datetime) -> list[Part]:
    place = visible_line(slot.place or "")
    return [
        Part(f"   {fit(slot.type, 12)}"),
        Part(fit(visible_line(slot.owner), 12), "muted"),
        Part(f"{age(slot.created, now):>4} old  {place}", "muted"),
    ]
