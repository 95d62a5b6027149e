"""Templates and their images as the operator handles them. Needs no host: builds are safe from any process."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kortix_tui.base.errors import KortixError, NotFound
from kortix_tui.base.faults import choose
from kortix_tui.base.words import Outcome
from kortix_tui.manifest.plan import TemplatePlan
from kortix_tui.manifest.templates import DEFAULT_TEMPLATE
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.preparing import read_manifest, template_at
from kortix_tui.runtime.providers import open_images, open_provider, provider_names
from kortix_tui.runtime.views import TemplateView
from kortix_tui.sandbox.images import BuiltImage, Images, Template
from kortix_tui.sandbox.provider import EngineInfo, Provider
from kortix_tui.store.models import Project

R = TypeVar("R")
LOOK_S = 60.0
BUILD_S = 3600.0


class Sandboxes:
    """The verbs of `kortix sandboxes`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def providers(self) -> list[str]:
        """Names of the sandbox providers installed here."""
        return provider_names()

    def engine(self) -> EngineInfo:
        """The engine in use."""

        async def ask(provider: Provider, images: Images) -> EngineInfo:
            return await provider.info()

        return self._with_engine(ask, LOOK_S)

    def images(self) -> list[BuiltImage]:
        """All template images of the engine."""

        async def ask(provider: Provider, images: Images) -> list[BuiltImage]:
            return await images.listing()

        return self._with_engine(ask, LOOK_S)

    def list(self, project: Project | None = None) -> list[TemplateView]:
        """The default template and those of a project, with what is built of them."""

        async def ask(provider: Provider, images: Images) -> list[TemplateView]:
            built = {image.tag: image for image in await images.listing()}
            views = []
            for template in await _templates(self._context, project):
                tag = await images.find(template)
                image = built.get(tag) if tag else None
                views.append(
                    TemplateView(
                        slug=template.slug,
                        project=project.slug if project and template.slug != DEFAULT_TEMPLATE else None,
                        image=tag,
                        built=tag is not None,
                        created_at=image.created_at if image else None,
                        size_bytes=image.size_bytes if image else None,
                    )
                )
            return views

        return self._with_engine(ask, LOOK_S)

    def build(
        self, slug: str, progress: Callable[[str], None], *, project: Project | None = None, fresh: bool = False
    ) -> str:
        """Build a template's image; `fresh` builds it anew. Returns its tag."""

        async def work(provider: Provider, images: Images) -> str:
            templates = {template.slug: template for template in await _templates(self._context, project)}
            if slug not in templates:
                raise NotFound(f"There is no template {slug!r}.", hint=choose(slug, list(templates)))
            chosen = templates[slug]
            return await (images.rebuild(chosen, progress) if fresh else images.ensure(chosen, progress))

        tag = self._with_engine(work, BUILD_S)
        self._record("sandbox.template.build", slug, tag)
        return tag

    def remove(self, name: str) -> tuple[str, ...]:
        """Remove images by template name or tag; those in use stay."""

        async def work(provider: Provider, images: Images) -> tuple[str, ...]:
            return tuple(await images.remove(name))

        tags = self._with_engine(work, LOOK_S)
        for tag in tags:
            self._record("sandbox.template.delete", name, tag)
        return tags

    def _record(self, event: str, slug: str, tag: str) -> None:
        with self._context.store.write() as tx:
            tx.audit(event, scope=f"template {slug}", actor=self._context.actor, outcome=Outcome.SUCCESS, image=tag)

    def _with_engine(self, work: Callable[[Provider, Images], Awaitable[R]], deadline_s: float) -> R:
        async def run() -> R:
            provider = open_provider(self._context.settings)
            try:
                return await work(provider, open_images(provider, self._context.settings))
            finally:
                await provider.close()

        return self._context.loop.call(run(), deadline_s=deadline_s)


async def _templates(context: Context, project: Project | None) -> list[Template]:
    found = [Template()]
    if project is None:
        return found
    mirror = await Mirror.open(context.home.mirror(project.id))
    with contextlib.suppress(KortixError):
        # A source that cannot be reached now is no reason to say nothing of what is known.
        await mirror.fetch(project.source, base=project.base_branch, wall_s=LOOK_S / 2)
    commit = await mirror.resolve(f"refs/heads/{project.base_branch}")
    report = await read_manifest(mirror, commit) if commit else None
    for own in report.manifest.sandbox.templates if report and report.manifest else ():
        plan = TemplatePlan(slug=own.slug, image=own.image, dockerfile=own.dockerfile, cpu=1, memory_gib=1, disk_gib=1)
        if own.dockerfile is None:
            found.append(Template(slug=own.slug, image=own.image))
        else:
            found.append(await template_at(mirror, commit or "", plan))
    return found
