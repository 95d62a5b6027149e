"""What policy makes of calls: every action and rule of a connector, and a changed policy over the recorded calls."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import NotFound
from kortix_tui.base.words import CallState, Verdict
from kortix_tui.broker.connectors.model import Action, Catalogue, Decision, HttpOperation, RuleSource
from kortix_tui.broker.connectors.openapi.routes import routes_catalogue
from kortix_tui.broker.policy import (
    ExplainedAction,
    ExplainedRule,
    PastCall,
    PastCalls,
    PolicySet,
    condition_says,
    decide,
    explain,
)
from kortix_tui.manifest.assembly import MANIFEST
from kortix_tui.manifest.connectors import Connector, HttpConnector
from kortix_tui.manifest.granting import EditedFile, EditedSource
from kortix_tui.runtime.base_manifest import BaseManifests, valid_manifest
from kortix_tui.runtime.call_usage import COUNTING, RecordedUsage, stored_arguments
from kortix_tui.runtime.catalogue_store import accepted, definition_hash
from kortix_tui.runtime.connector_views import ActionView, PolicyView, ReplayLine, ReplayResult, RuleView
from kortix_tui.runtime.context import Context
from kortix_tui.store.database import Store
from kortix_tui.store.models import Call, Project

if TYPE_CHECKING:
    from kortix_tui.manifest.check import Report
    from kortix_tui.manifest.model import Manifest
    from kortix_tui.manifest.source import Source

READ_S: Final = 60.0
MOST_CALLS: Final = 10_000
"""A replay takes the newest ones, so many at most."""

_UNKNOWN: Final = "actions are not known yet: `kortix connectors sync {}` reads them"


class Policies:
    """The policy verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._manifests = BaseManifests(context)

    def view(self, project: Project, connector: str) -> PolicyView:
        """A connector's policy on the base branch: every rule and what it does, every action and what would happen.

        Raises:
            InvalidInput: The manifest cannot be read or is not valid.
            NotFound: It declares no such connector.
        """
        manifest, found = self._manifests.connector(project, connector)
        context = self._context
        context.reading("connector.policy.read", scope=f"connector {connector}", project_id=project.id)
        catalogue = _catalogue(context.store, project, found)
        policy = PolicySet.of(manifest, found)
        usage = RecordedUsage(context.store, project.id)
        explained = explain(policy, connector, catalogue.actions if catalogue else (), usage)
        unknown = None if catalogue else _UNKNOWN.format(connector)
        return PolicyView(
            project=project.slug,
            connector=connector,
            default_mode=policy.default_mode,
            sensitive=policy.sensitive,
            rules=tuple(_rule_view(rule, unknown) for rule in explained.rules),
            actions=tuple(_action_view(action) for action in explained.actions),
        )

    def replay(self, project: Project, changed: bytes | int) -> ReplayResult:
        """Run a changed policy over the recorded calls that policy decided.

        Args:
            project: Whose calls.
            changed: The text of another `kortix.yaml`, whose imports are those of the base branch; or the number of a
                change request, whose head is read.

        Raises:
            InvalidInput: The manifest is not valid.
            NotFound: There is no such change request.
        """
        if isinstance(changed, int):
            text, head, where = None, self._head(project, changed), f"change request {changed}"
        else:
            text, head, where = changed, None, "the given file"
        report = self._context.loop.call(self._report(project, text, head), deadline_s=READ_S)
        manifest = valid_manifest(report, where)
        return _Replay(self._context, project, manifest).run()

    def _head(self, project: Project, number: int) -> str:
        row = self._context.store.one(
            "SELECT head_commit FROM change_requests WHERE project_id = ? AND number = ?", (project.id, number)
        )
        if row is None:
            raise NotFound(f"Project {project.slug} has no change request {number}.", hint="See `kortix cr ls`.")
        return str(row[0])

    async def _report(self, project: Project, text: bytes | None, head: str | None) -> Report:
        from kortix_tui.manifest.check import check
        from kortix_tui.repository.mirror import Mirror
        from kortix_tui.repository.names import branch_ref
        from kortix_tui.runtime.preparing import CommitSource

        mirror = await Mirror.open(self._context.home.mirror(project.id))
        commit = head or await mirror.resolve(branch_ref(project.base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {project.base_branch}.", hint="Fetch the project anew.")
        source: Source = CommitSource(mirror, commit, asyncio.get_running_loop())
        if text is not None:
            source = EditedSource(source, EditedFile(MANIFEST, text))
        return await asyncio.to_thread(check, source)


class _Replay:
    """One manifest over the recorded calls of a project."""

    def __init__(self, context: Context, project: Project, manifest: Manifest) -> None:
        self._store = context.store
        self._project = project
        self._manifest = manifest
        self._known: dict[str, tuple[PolicySet, Catalogue | None] | None] = {}

    def run(self) -> ReplayResult:
        rows = self._store.all(
            f"SELECT {Call.columns()} FROM calls WHERE project_id = ? AND (state != ? OR code = 'policy_block')"
            " ORDER BY created_at DESC, rowid DESC LIMIT ?",
            (self._project.id, CallState.REFUSED, MOST_CALLS),
        )
        calls = [Call.of(row) for row in reversed(rows)]
        past = [
            PastCall(call.started_at or call.created_at, call.connector, call.action, stored_arguments(call.arguments))
            for call in calls
            if call.state in COUNTING
        ]
        history = PastCalls(self._store.clock.now(), past)
        counts = dict.fromkeys(Verdict, 0)
        changed = list[ReplayLine]()
        for call in calls:
            decision = self._decide(call, history)
            if decision is None:
                continue
            counts[decision.verdict] += 1
            was = _recorded(call)
            if was is not decision.verdict:
                changed.append(_line(call, was, decision))
        decided = sum(counts.values())
        return ReplayResult(
            calls=len(calls),
            changed=tuple(changed),
            would_run=counts[Verdict.RUN],
            would_ask=counts[Verdict.ASK],
            would_block=counts[Verdict.BLOCK],
            skipped=len(calls) - decided,
        )

    def _decide(self, call: Call, history: PastCalls) -> Decision | None:
        """What the policy says of a call; `None` when the manifest does not have its connector or action."""
        if call.connector not in self._known:
            self._known[call.connector] = self._connector(call.connector)
        found = self._known[call.connector]
        if found is None:
            return None
        policy, catalogue = found
        action: Action | None = None
        if catalogue is not None and (action := catalogue.action(call.action)) is None:
            return None
        before = call.created_at - timedelta(microseconds=1)  # the call itself is not among those before it
        return decide(
            policy,
            connector=call.connector,
            action=call.action,
            risk=action.risk if action else call.risk,
            arguments=stored_arguments(call.arguments),
            usage=history.at(before),
        )

    def _connector(self, slug: str) -> tuple[PolicySet, Catalogue | None] | None:
        connector = self._manifest.connector(slug)
        if connector is None or not connector.enabled:
            return None
        return PolicySet.of(self._manifest, connector), _catalogue(self._store, self._project, connector)


def _catalogue(store: Store, project: Project, connector: Connector) -> Catalogue | None:
    """What a connector can do: as it was accepted, or as its routes in the manifest say."""
    found = accepted(store, project.id, connector.slug, definition_hash(connector))
    if found is None and isinstance(connector, HttpConnector) and connector.spec is None:
        return routes_catalogue(connector)
    return found


def _recorded(call: Call) -> Verdict:
    """What policy said then: where a remembered approval or the operator let it run, policy had asked."""
    if RuleSource.model_validate_json(call.rule).source in ("memory", "operator"):
        return Verdict.ASK
    return call.verdict


def _line(call: Call, was: Verdict, decision: Decision) -> ReplayLine:
    return ReplayLine(
        call_id=call.id,
        session_id=call.session_id,
        action=f"{call.connector}.{call.action}",
        created_at=call.created_at,
        was=was,
        now=decision.verdict,
        rule=decision.rule.says(),
    )


def _rule_view(rule: ExplainedRule, unknown: str | None) -> RuleView:
    return RuleView(
        source=rule.source,
        index=rule.index,
        match=rule.rule.match,
        verdict=Verdict(rule.rule.action),
        conditions=tuple(condition_says(condition, rule.rule.action) for condition in rule.rule.conditions),
        matches=rule.matches,
        decides=rule.decides,
        note=unknown or rule.note,
    )


def _action_view(explained: ExplainedAction) -> ActionView:
    action, operation = explained.action, explained.action.operation
    http = operation if isinstance(operation, HttpOperation) else None
    return ActionView(
        name=action.name,
        title=action.title,
        description=action.description,
        risk=action.risk,
        method=http.method if http else None,
        path=http.path if http else None,
        verdict=explained.decision.verdict,
        rule=explained.decision.rule.says(),
        conditional=explained.conditional,
        unavailable=action.unavailable,
        input_schema=action.input_schema,
    )
