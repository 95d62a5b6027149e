"""From a caller's wish to the exact request that would be sent, or to the word why it is refused. Nothing here waits,
asks or sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import rfc8785

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.connectors.arguments import build, check_arguments, read_arguments
from kortix_tui.broker.connectors.model import (
    Action,
    Catalogue,
    Decision,
    HttpCall,
    Materialised,
    McpCall,
    McpProgram,
    McpTool,
)
from kortix_tui.broker.network.exchange import canonical
from kortix_tui.broker.policy import PolicySet, Usage, decide, stricter
from kortix_tui.manifest.connectors import Connector, McpConnector
from kortix_tui.manifest.fields import Grant
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.vocabulary import UNSERVED_PROVIDERS

_SAME_REACH: Final = {"policies", "routes", "spec", "name", "sensitive", "enabled"}
"""What may differ between the commit that a session began at and the base branch without making it another system."""
_RISKS: Final = (Risk.READ, Risk.WRITE, Risk.DESTRUCTIVE)


class CallRefused(KortixError):
    """A call that is not made and that no person is asked about.

    Args:
        word: Why, as a stable word for agents: `connector_not_assigned`, `invalid_arguments` …
        decision: The policy's, where that is why.
    """

    code = "refused"

    def __init__(self, word: str, message: str, *, hint: str | None = None, decision: Decision | None = None) -> None:
        super().__init__(message, hint=hint)
        self.word = word
        self.decision = decision


@dataclass(frozen=True)
class Side:
    """What a manifest at one commit grants.

    Attributes:
        grant: The connectors of the agent that calls.
    """

    manifest: Manifest
    grant: Grant


@dataclass(frozen=True)
class Wanted:
    """A declared connector that the caller may use.

    Attributes:
        connector: As the commit has it that governs the session.
        current: As the base branch has it now.
        policies: Both policies; the stricter one counts.
    """

    connector: Connector
    current: Connector
    policies: tuple[PolicySet, PolicySet]


def find_connector(slug: str, pinned: Side, base: Side) -> Wanted:
    """The connector, if both the commit that the session began at and the base branch now let the agent use it.

    Raises:
        CallRefused: They do not.
    """
    shown = visible_line(shorten(slug, 80))
    if not (pinned.grant.allows(slug) and base.grant.allows(slug)):
        raise CallRefused(
            "connector_not_assigned", f"The connector {shown} is not assigned to this agent.",
            hint="A person can grant it on the base branch, for new sessions. Go on without it.",
        )  # fmt: skip
    connector, current = pinned.manifest.connector(slug), base.manifest.connector(slug)
    if connector is None or current is None:
        raise CallRefused("connector_not_found", f"There is no connector {shown}.", hint="See: kortix connectors ls")
    if not connector.enabled or not current.enabled:
        raise CallRefused("connector_disabled", f"The connector {shown} is switched off.", hint="Go on without it.")
    if connector.provider in UNSERVED_PROVIDERS:
        raise CallRefused("connector_not_served", f"Connectors of provider {connector.provider} do not work here.")
    if _reach(connector) != _reach(current):
        raise CallRefused(
            "connector_changed", f"Where {shown} leads was changed on the base branch since this session began.",
            hint="A new session uses it as it is now; end your turn and say so.",
        )  # fmt: skip
    policies = (PolicySet.of(pinned.manifest, connector), PolicySet.of(base.manifest, current))
    return Wanted(connector, current, policies)


def _reach(connector: Connector) -> dict[str, Any]:
    return connector.model_dump(exclude=_SAME_REACH)


def find_action(slug: str, name: str, catalogue: Catalogue, current: Catalogue) -> tuple[Action, Risk]:
    """An action that both catalogues have, and the higher of both risks.

    Raises:
        CallRefused: There is none, it cannot be called, or the base branch has made another request of it.
    """
    action, now = catalogue.action(name), current.action(name)
    if action is None or now is None:
        shown = visible_line(shorten(name, 80))
        raise CallRefused(
            "action_not_found", f"{slug} has no action {shown}.", hint=f"See: kortix connectors show {slug}"
        )
    if (why := action.unavailable or now.unavailable) is not None:
        raise CallRefused("action_unavailable", f"{slug}.{name} cannot be called: {visible_line(why)}")
    if (action.operation, action.input_schema) != (now.operation, now.input_schema):
        raise CallRefused(
            "action_changed", f"{slug}.{name} was changed on the base branch since this session began.",
            hint="A new session uses it as it is now; end your turn and say so.",
        )  # fmt: skip
    return action, max(action.risk, now.risk, key=_RISKS.index)


def read(action: Action, text: str) -> dict[str, Any]:
    """The arguments, read strictly and checked against the action's schema.

    Raises:
        CallRefused: They are not what the action takes; says where.
    """
    try:
        arguments = read_arguments(text)
        check_arguments(action, arguments)
    except KortixError as error:
        raise CallRefused("invalid_arguments", error.message, hint=error.hint) from None
    return arguments


def materialise(
    action: Action,
    arguments: Mapping[str, Any],
    *,
    project_id: str,
    connector: Connector,
    catalogue: Catalogue,
    definition_hash: str,
    credential: str | None,
    credential_place: str | None,
) -> Materialised:
    """Everything that will be sent, but for the credential's value.

    Raises:
        CallRefused: The arguments make no request, or the connector has no address.
    """
    text = rfc8785.dumps(dict(arguments)).decode()
    call: HttpCall | McpCall
    if isinstance(action.operation, McpTool) and isinstance(connector, McpConnector):
        call = McpCall(
            endpoint=connector.url or f"stdio:{connector.image}", transport=connector.transport,
            program=_program(connector, catalogue), tool=action.operation.tool,
            fingerprint=action.operation.fingerprint, arguments=text,
        )  # fmt: skip
    else:
        if catalogue.base_url is None:
            raise CallRefused("action_unavailable", f"The document of {connector.slug} names no server.")
        try:
            built = build(action, arguments, base_url=catalogue.base_url, headers=connector.headers)
            call = built.model_copy(update={"url": canonical(built.url)})
        except KortixError as error:
            raise CallRefused("invalid_arguments", error.message, hint=error.hint) from None
    return Materialised(
        project_id=project_id, connector=connector.slug, action=action.name, definition_hash=definition_hash,
        document_hash=catalogue.document_hash, credential=credential, credential_place=credential_place,
        arguments=text, call=call,
    )  # fmt: skip


def _program(connector: McpConnector, catalogue: Catalogue) -> McpProgram | None:
    if connector.transport != "stdio":
        return None
    if catalogue.image is None or connector.command is None:
        raise CallRefused(
            "action_unavailable", f"The image of {connector.slug} is not known.",
            hint=f"A person must have it read: kortix connectors sync {connector.slug}",
        )  # fmt: skip
    return McpProgram(image=catalogue.image, command=connector.command, hosts=connector.hosts)


def judge(wanted: Wanted, action: str, risk: Risk, arguments: Mapping[str, Any] | None, usage: Usage) -> Decision:
    """What policy says, of the governing commit and of the base branch now: the stricter one."""
    first, second = (
        decide(
            policy, connector=wanted.connector.slug, action=action, risk=risk, arguments=arguments, usage=usage
        )
        for policy in wanted.policies
    )  # fmt: skip
    return stricter(first, second)


def blocked(decision: Decision, slug: str, action: str) -> CallRefused | None:
    """The refusal of a call that policy blocks."""
    if decision.verdict is not Verdict.BLOCK:
        return None
    return CallRefused(
        "policy_block", f"Policy blocks {slug}.{action} ({decision.rule.says()}).",
        hint="This is final: do not try it again or in another way.", decision=decision,
    )  # fmt: skip
