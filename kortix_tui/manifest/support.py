"""What Kortix serves and this edition does not. It parses; only an agent that uses it is refused."""

from __future__ import annotations

from collections.abc import Iterator

from kortix_tui.base.faults import Path
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.templates import DEFAULT_TEMPLATE
from kortix_tui.manifest.vocabulary import UNSERVED_PROVIDERS


def unserved(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Every declared thing that does nothing here, with its place and why."""
    for name in manifest.apps:
        yield ("apps", name), "hosted apps are not supported here"
    for name in manifest.volumes:
        yield ("volumes", name), "S3 volumes are not supported here"
    for index, connector in enumerate(manifest.connectors):
        if connector.provider in UNSERVED_PROVIDERS:
            reason = UNSERVED_PROVIDERS[connector.provider]
            yield ("connectors", index, "provider"), f"provider `{connector.provider}` is not supported here: {reason}"
    for index, template in enumerate(manifest.sandbox.templates):
        if template.container_runtime:
            yield (
                ("sandbox", "templates", index, "container_runtime"),
                "`container_runtime` is not supported here: a sandbox has no right to run containers",
            )
        if template.entrypoint is not None:
            yield (
                ("sandbox", "templates", index, "entrypoint"),
                "`entrypoint` is not supported here: the sandbox's supervisor is its main process",
            )
        if template.gpu:
            yield ("sandbox", "templates", index, "gpu"), "`gpu` is not supported here"
    for index, trigger in enumerate(manifest.triggers):
        if trigger.type == "event":
            yield (
                ("triggers", index, "type"),
                "triggers of type `event` are not supported here: they need a hosted catalogue",
            )
        if trigger.subproject is not None:
            yield ("triggers", index, "subproject"), "`subproject` is not supported here"
    if manifest.runtime == "pi":
        yield ("runtime",), "`runtime: pi` is not supported here; say `harness:` in each agent's Markdown file"


def refusals(manifest: Manifest, agent: str, *, template: str | None = None) -> tuple[str, ...]:
    """Why an agent cannot run here: it uses something that is not served. Empty when it can.

    `all` means everything that is served, so only what is named counts.

    Args:
        manifest: A valid manifest.
        agent: Name of a declared agent.
        template: The template that its session would use, when it is not the agent's or the project's own choice.
    """
    grants = manifest.agents[agent]
    reasons = [f"it names the app `{name}`" for name in grants.apps.names]
    reasons += [f"it mounts the volume `{name}`" for name in grants.volumes]
    for slug in dict.fromkeys((*grants.connectors.names, *grants.connectors_required)):
        connector = manifest.connector(slug)
        if connector is not None and connector.enabled and connector.provider in UNSERVED_PROVIDERS:
            reasons.append(f"it uses the connector `{slug}` ({connector.provider})")
    chosen = template or grants.sandbox or manifest.sandbox.default or DEFAULT_TEMPLATE
    found = manifest.sandbox.find(chosen)
    if found is not None and found.container_runtime:
        reasons.append(f"its template `{chosen}` asks for `container_runtime`")
    return tuple(reasons)
