"""Which provider makes the sandboxes: Docker, or another distribution's by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.settings import Settings
from kortix_tui.broker.connectors.mcp_programs import Programs
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.tool_egress import ToolEgress
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.docker.tool_server import DockerToolServers
from kortix_tui.sandbox.images import Images
from kortix_tui.sandbox.provider import ENTRY_POINT_GROUP, Provider


def provider_names() -> list[str]:
    """`docker` and what other distributions add."""
    return ["docker", *sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP) if point.name != "docker")]


def open_provider(settings: Settings) -> Provider:
    """The provider that the operator chose; connects at its first call.

    Raises:
        InvalidInput: Nobody provides it here.
    """
    name = settings.sandbox.provider
    if name == "docker":
        return DockerProvider(settings.docker.endpoint, runtime=settings.docker.runtime)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            made: Provider = point.load()(settings)
            return made
    raise InvalidInput(
        f"No sandbox provider «{name}» is installed; this edition runs on the operator's own Docker.",
        hint=f"Set sandbox.provider: docker, or install a distribution with an entry point in {ENTRY_POINT_GROUP}.",
    )


def open_images(provider: Provider, settings: Settings) -> Images:
    """The template images of the provider's engine.

    Raises:
        Refused: The provider builds no images.
    """
    if not isinstance(provider, DockerProvider):
        raise Refused("This sandbox provider builds no images.", hint="Set sandbox.provider: docker.")
    return Images.configured(provider.engine, settings)


def open_programs(
    provider: Provider, images: Images, context: Context, ledger: Ledger, told: Callable[[str], str]
) -> Programs | None:
    """Who runs the programs of tool servers; nobody where sandboxes are made otherwise than by Docker.

    Args:
        provider: Of sandboxes; its engine is used.
        images: Puts our layer on an image.
        context: The host's.
        ledger: Where a program's attempts to reach the network are written.
        told: Makes a program's words storable.
    """
    if not isinstance(provider, DockerProvider):
        return None
    settings, store = context.settings, context.store

    def egress(project_id: str, connector: str, hosts: tuple[str, ...]) -> ToolEgress:
        return ToolEgress(project_id, connector, hosts, settings, ledger, told)

    return Programs(
        DockerToolServers(provider.engine, images), store.install_id, context.home.tools, egress,
        runtime=settings.docker.runtime,
    )  # fmt: skip
