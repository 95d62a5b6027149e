"""The parts of the help pages that the code decides: `python tests/support/reference.py` writes them anew.

Tables of fields keep the meanings that people wrote; a new field gets its model's words, or `?`, which the tests
refuse. Marks in a page say where such a part is: `<!-- table: Session -->` or `<!-- keys -->`, each ended by
`<!-- end -->`.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from kortix_tui.base.faults import Fault
from kortix_tui.broker.connectors.model import CatalogueDifference
from kortix_tui.broker.services import CallReport
from kortix_tui.console.keymap import ACTIONS, Keymap, Where
from kortix_tui.repository.difference import DiffSummary, FileChange
from kortix_tui.repository.merge import Identity
from kortix_tui.repository.source import SourceState
from kortix_tui.runtime import connector_views, secret_views, views
from kortix_tui.runtime.connections import ConnectionChange
from kortix_tui.runtime.connectors import ConnectorCheck, ConnectorTest
from kortix_tui.runtime.doctor import Check
from kortix_tui.runtime.edits import EditResult
from kortix_tui.runtime.inbox import InboxItem
from kortix_tui.sandbox.provider import EngineInfo
from kortix_tui.store.audit import Actor, AuditEvent, ChainReport
from kortix_tui.store.models import (
    Call,
    CallRule,
    Change,
    Egress,
    HostRow,
    Project,
    Prompt,
    Rescue,
    SecretRequest,
    SecretRow,
    Session,
)

HELP = Path(__file__).resolve().parents[2] / "kortix_tui" / "help"
UNKNOWN = "?"
MODELS: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        Project, views.ProjectDetail, SourceState, Identity, Session, views.SessionView, views.SessionDetail, Prompt,
        Rescue, views.JoinedRescue, Change, views.ChangeView, views.ChangeDetail, DiffSummary, FileChange,
        views.MergePreview, views.MergeResult, views.TemplateView, EngineInfo, Check, Fault, AuditEvent, Actor,
        ChainReport, views.HostView, HostRow, InboxItem, EditResult, SecretRow, secret_views.SecretView,
        secret_views.HeldBy, secret_views.AgentReach, secret_views.SecretDetail, secret_views.SecretChange,
        SecretRequest, secret_views.SecretRequestView, secret_views.VaultStatus, secret_views.SlotView,
        secret_views.VaultCheck, secret_views.ImportReport, Egress, connector_views.EgressView,
        connector_views.PolicyView, connector_views.RuleView, connector_views.ActionView, connector_views.ReplayResult,
        connector_views.ReplayLine, CallRule, connector_views.CallRuleView, connector_views.ConnectorView,
        connector_views.ConnectionView, ConnectionChange, connector_views.SyncResult, CatalogueDifference,
        ConnectorTest, ConnectorCheck, CallReport, Call, connector_views.CallView,
    )
}  # fmt: skip
_PART = re.compile(r"(<!-- (table: (\w+)|keys) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \| .*? \| (.*) \|$", re.MULTILINE)
_PLAIN: dict[object, str] = {
    str: "text", int: "number", float: "number", bool: "true or false", datetime: "time", Path: "text", Any: "any",
    type(None): "null",
}  # fmt: skip


def render(page: str) -> str:
    """A page with its generated parts as the code says now."""
    return _PART.sub(lambda found: found[1] + (_table(found[3], found[4]) if found[3] else _keys()) + found[5], page)


def own_fields(model: type[Any]) -> dict[str, tuple[object, str | None]]:
    """Fields that a model adds to those of a documented base: name → annotation and description."""
    hints = typing.get_type_hints(model)
    if not issubclass(model, BaseModel):
        return {field.name: (hints[field.name], None) for field in dataclasses.fields(model)}
    bases = [base for base in model.__mro__[1:] if base in MODELS.values() and issubclass(base, BaseModel)]
    inherited = {name for base in bases for name in base.model_fields}
    return {
        name: (hints[name], field.description) for name, field in model.model_fields.items() if name not in inherited
    }


def type_words(annotation: object) -> str:
    """A type as people read it; other tables are linked."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_words(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(each) for each in inner)
    if origin is tuple:
        return f"list of {type_words(inner[0])}"
    if origin is dict:
        return "object"
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    assert isinstance(annotation, type), annotation
    if issubclass(annotation, StrEnum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    assert annotation.__name__ in MODELS, f"{annotation.__name__} needs a table"
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})"


def _table(name: str, before: str) -> str:
    meanings = dict(_ROW.findall(before))
    rows = []
    for field, (annotation, description) in own_fields(MODELS[name]).items():
        meaning = meanings.get(field) or description or UNKNOWN
        rows.append(f"| `{field}` | {type_words(annotation)} | {meaning} |")
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _keys() -> str:
    keymap, parts = Keymap(), []
    for place, entries in keymap.help(Where):
        rows = []
        for keys, entry in entries:
            command = f"`kortix {entry.command}`" if entry.command else ""
            rows.append(f"| {_marked(keys)} | {entry.title} | {command} | `{entry.id}` |")
        parts.append("\n".join([f"| {place.value} | | the same by command | id |", "| --- | --- | --- | --- |", *rows]))
    keyless = ", ".join(f"`{entry.id}` ({entry.title.lower()})" for entry in ACTIONS if not entry.keys)
    return "\n\n".join([*parts, f"Without a key, in the palette: {keyless}."]) + "\n"


def _marked(keys: str) -> str:
    return " ".join(f"`{key}`" for key in keys.split())


def main() -> None:
    """Write what has changed."""
    for path in sorted(HELP.glob("*.md")):
        before = path.read_text("utf-8")
        after = render(before)
        if after != before:
            path.write_text(after, "utf-8")
            print(path.name)


if __name__ == "__main__":
    main()
