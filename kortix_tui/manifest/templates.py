"""`sandbox:` the images and sizes that sandboxes start from."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from kortix_tui.base.validation import Many, Part, wrong
from kortix_tui.manifest.fields import Command, NonEmpty, RepoPath, Slug

DEFAULT_TEMPLATE: Final = "default"
"""The template that always exists: the runtime's own image."""

HIGHEST: Final[dict[str, int]] = {"cpu": 32, "memory": 128, "disk": 500}
"""Above these a size is cut, with a warning."""


def _check_template_slug(slug: object) -> object:
    if slug == DEFAULT_TEMPLATE:
        raise wrong(
            "the template name `default` is reserved", "Choose another name; `default` is the built-in template."
        )
    return slug


class Template(Part):
    """One image with a size. Sizes are whole CPUs and GiB."""

    slug: Annotated[Slug, BeforeValidator(_check_template_slug, json_schema_input_type=Slug)]
    name: str | None = None
    image: Annotated[NonEmpty, Field(max_length=512, pattern=r"^[^\s-]\S*$")] | None = None
    dockerfile: RepoPath | None = None
    entrypoint: Command | None = None
    cpu: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[int, Field(ge=1)] | None = None
    disk: Annotated[int, Field(ge=1)] | None = None
    gpu: int | bool | str | None = None
    container_runtime: bool = False

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.image is None) == (self.dockerfile is None):
            raise wrong(
                "needs exactly one of `image` and `dockerfile`",
                'Write `image: "python:3.12-slim"` or `dockerfile: ops/Dockerfile`.',
            )
        return self


class Sandbox(Part):
    """The project's templates and which one is used when nobody says."""

    default: Slug | None = None
    templates: Many[Template] = ()

    def find(self, slug: str) -> Template | None:
        """The template of that name."""
        return next((template for template in self.templates if template.slug == slug), None)
