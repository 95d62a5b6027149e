"""Which provider makes the sandboxes: Docker, or another distribution's by entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.settings import Settings
from kortix_tui.sandbox.docker.provider import DockerProvider
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
