"""Templates and their images: content-addressed, built when first needed, never built twice.

An image's tag is a hash over everything that went into it (the base image's id, the Dockerfile, our guest
files, the operator's certificate authorities), so "is it built?" is one look at the engine.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import Conflict, DeadlineExceeded, InvalidInput, NotFound, Refused
from kortix_tui.base.paths import cache_folder
from kortix_tui.base.settings import Settings
from kortix_tui.base.text import visible_line
from kortix_tui.sandbox.commands import Ask, Progress
from kortix_tui.sandbox.docker import build
from kortix_tui.sandbox.docker.bootstrap import bootstrap
from kortix_tui.sandbox.docker.engine import Client, Engine
from kortix_tui.sandbox.docker.guest import AUTHORITIES_FOLDER, digest, guest_version, layer_context
from kortix_tui.sandbox.docker.sources import DEBIAN_SUITE

DEBIAN_IMAGE = f"debian:{DEBIAN_SUITE}-slim"
BASE_PACKAGES = (
    *("ca-certificates", "git", "python3"),
    *("curl", "file", "jq", "less", "make", "patch", "procps", "python3-pytest", "ripgrep", "unzip", "xz-utils"),
)
"""What the default template offers to agents beside the essentials of Debian."""
BASE_NAME = "kortix-base"
TEMPLATE_NAME = "kortix-template"
_STAGE_NAME = "kortix-stage"
LABEL_TEMPLATE = "kortix.template"
LABEL_SOURCE = "kortix.source"
LABEL_INPUTS = "kortix.inputs"
BUILD_SECONDS = 1800.0
_REGISTRY_SECONDS = 15.0
_LOCK_SECONDS = 3600.0
_TAG_DIGITS = 24  # of a hash in hexadecimal: 96 bits
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Template:
    """Where a sandbox's image comes from: our default, an image, or a Dockerfile.

    Attributes:
        slug: Its name in the manifest.
        image: A reference; pulled when the engine does not have it.
        dockerfile: The file's bytes at a commit of the base branch.
        files: What the Dockerfile may copy, from the same commit: path → content.
    """

    slug: str = "default"
    image: str | None = None
    dockerfile: bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """In words, for lists and errors."""
        if self.dockerfile is not None:
            return f"the Dockerfile of template {self.slug}"
        return f"the image {visible_line(self.image)}" if self.image is not None else "the default image"


class BuiltImage(BaseModel):
    """A template's image on the engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tag: str
    template: str
    source: str
    size_bytes: int
    created_at: datetime
    in_use: int


class Images:
    """The template images of one engine.

    Args:
        engine: Gives the connection; asked at each use, so that an engine that comes later is found.
        authorities: Certificate files of the operator that downloads during builds need.
        mirror: The operator's package mirror, for a base that is made without a registry.
        ask: Asked before a missing build tool is installed on this machine (`kortix setup`); else that is an error.
        cache: For archives and the lock; the user's cache folder when `None`.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        *,
        authorities: Sequence[Path] = (),
        mirror: str | None = None,
        ask: Ask | None = None,
        cache: Path | None = None,
    ) -> None:
        self._engine = engine
        self._authority_files = tuple(authorities)
        self._mirror = mirror
        self._ask = ask
        self._cache = cache or cache_folder()

    @classmethod
    def configured(
        cls, engine: Callable[[], Awaitable[Engine]], settings: Settings, *, ask: Ask | None = None
    ) -> Images:
        """The images as the operator's settings want them: everybody who names a tag has to agree on these."""
        authorities = [Path(path) for path in settings.images.ca_certificates]
        return cls(engine, authorities=authorities, mirror=settings.images.mirror, ask=ask)

    async def find(self, template: Template) -> str | None:
        """The template's image if it is built; a few milliseconds.

        Where the base image is gone from the engine (pruned), an image built from the same inputs earlier still
        counts: it holds all layers, and the base may not be to be had any more.
        """
        engine = await self._engine()
        bases = await self._base_ids(engine, template)
        if bases is not None:
            tag = self._tag(template, bases)
            return tag if await build.image_id(engine, tag) is not None else None
        wanted = {"label": f"{LABEL_INPUTS}={self._inputs(template)}"}
        rows = await engine.call(lambda client: client.images(filters=wanted))
        for row in sorted(rows, key=lambda row: -int(row["Created"])):
            for tag in row.get("RepoTags") or []:
                if tag.startswith(f"{TEMPLATE_NAME}:"):
                    return str(tag)
        return None

    async def ensure(self, template: Template, progress: Progress) -> str:
        """The template's image, built if it is not there. Safe to interrupt and to call from many processes.

        Raises:
            ImageRefused: The image cannot carry a sandbox.
            BuildFailed: A build step failed.
            NotFound: The base image is nowhere to be had.
        """
        tag = await self.find(template)
        if tag is not None:
            return tag
        async with self._exclusively(progress):
            return await self.find(template) or await self._build(template, progress, fresh=False)

    async def rebuild(self, template: Template, progress: Progress) -> str:
        """Build anew from freshly fetched bases; what runs keeps its old image."""
        async with self._exclusively(progress):
            return await self._build(template, progress, fresh=True)

    async def listing(self) -> list[BuiltImage]:
        """All template images of the engine, newest first."""
        engine = await self._engine()
        rows = await engine.call(lambda client: client.images(filters={"label": LABEL_TEMPLATE}))
        users = await self._users(engine)
        found = [
            BuiltImage(
                tag=tag,
                template=visible_line(row["Labels"][LABEL_TEMPLATE]),
                source=visible_line(row["Labels"].get(LABEL_SOURCE, "")),
                size_bytes=row["Size"],
                created_at=datetime.fromtimestamp(row["Created"], UTC),
                in_use=users.get(row["Id"], 0),
            )
            for row in rows
            for tag in row.get("RepoTags") or []
            if tag.startswith(f"{TEMPLATE_NAME}:")
        ]
        return sorted(found, key=lambda image: image.created_at, reverse=True)

    async def remove(self, name: str) -> list[str]:
        """Remove images by template name, tag, or the tag's hash; returns the tags removed.

        Raises:
            NotFound: No image of that name.
            Refused: A sandbox needs one of them; none was removed.
        """
        engine = await self._engine()
        chosen = [i for i in await self.listing() if name in (i.template, i.tag, i.tag.partition(":")[2])]
        if not chosen:
            raise NotFound(f"There is no template image {visible_line(name)}.", hint="See: kortix sandboxes ls")
        used = [image for image in chosen if image.in_use]
        if used:
            raise Refused(
                f"{used[0].tag} is the image of {used[0].in_use} sandbox{'es' if used[0].in_use != 1 else ''}.",
                hint="Remove those sessions first (kortix sessions rm).",
            )
        for image in chosen:
            try:
                await engine.call(partial(_remove_image, image.tag), seconds=120.0)
            except NotFound:
                continue
            except Conflict as error:
                raise Refused(f"{image.tag} is in use: {error.message}") from error
        return [image.tag for image in chosen]

    async def _build(self, template: Template, progress: Progress, *, fresh: bool) -> str:
        engine = await self._engine()
        await self._prepare_bases(engine, template, progress, fresh=fresh)
        bases = await self._base_ids(engine, template)
        if bases is None:
            raise NotFound(f"A base image of {template.source} is not on the engine after it was fetched.")
        base, stage = bases[0] if bases else "", None
        if template.dockerfile is not None:
            stage = f"{_STAGE_NAME}:{digest({'': self._inputs(template).encode()})[:_TAG_DIGITS]}"
            context = {**template.files, "Dockerfile": template.dockerfile}
            await build.build(
                engine, stage, context, progress, subject=template.source, labels={}, seconds=BUILD_SECONDS, fresh=fresh
            )
            base = await build.image_id(engine, stage) or stage
        tag = self._tag(template, bases)
        labels = {
            LABEL_TEMPLATE: template.slug,
            LABEL_SOURCE: template.image or ("dockerfile" if template.dockerfile is not None else "default"),
            LABEL_INPUTS: self._inputs(template),
        }
        await build.build(
            engine,
            tag,
            layer_context(base, self._authorities()),
            progress,
            subject=template.source,
            labels=labels,
            seconds=BUILD_SECONDS,
            fresh=fresh,
        )
        if stage is not None:
            # Only its name goes: it lives on as the parent of the template, and goes with it.
            with suppress(NotFound, Conflict):
                await engine.call(partial(_remove_image, stage), seconds=120.0)
        return tag

    async def _prepare_bases(self, engine: Engine, template: Template, progress: Progress, *, fresh: bool) -> None:
        for reference in _references(template):
            if reference == f"{BASE_NAME}:latest":
                await self._ensure_base(engine, progress, fresh=fresh)
            elif fresh or await build.image_id(engine, reference) is None:
                try:
                    await build.pull(engine, reference, progress, seconds=BUILD_SECONDS)
                except NotFound as error:
                    if await build.image_id(engine, reference) is None:
                        hint = f"Without a registry, start from {BASE_NAME} (FROM {BASE_NAME}) or import an image."
                        raise NotFound(error.message, hint=hint) from error
                    progress(f"Keeping the image {visible_line(reference)} that is here: {error.message}")

    async def _ensure_base(self, engine: Engine, progress: Progress, *, fresh: bool) -> None:
        tag = self._base_tag()
        if fresh or await build.image_id(engine, tag) is None:
            await self._make_base(engine, tag, progress, fresh=fresh)
        # Dockerfile templates start from this name on any machine.
        await engine.call(lambda client: client.tag(tag, BASE_NAME, "latest"))

    async def _make_base(self, engine: Engine, tag: str, progress: Progress, *, fresh: bool) -> None:
        """Pull the small Debian image and add our packages; without a registry, make the same from the mirror."""
        labels = {"kortix.base": "registry"}
        progress(f"Asking the registry for {DEBIAN_IMAGE}.")
        steps = ["RUN update-ca-certificates"]
        if await build.registry_answers(engine, DEBIAN_IMAGE, seconds=_REGISTRY_SECONDS):
            await build.pull(engine, DEBIAN_IMAGE, progress, seconds=BUILD_SECONDS)
            source = DEBIAN_IMAGE
            steps = [
                "RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                f"--no-install-recommends {' '.join(BASE_PACKAGES)} && update-ca-certificates "
                "&& rm -rf /var/lib/apt/lists/*"
            ]
        else:
            progress("No registry answers; the base is made from the package mirror.")
            labels = {"kortix.base": "mirror"}
            source = tag
            await bootstrap(
                engine,
                tag,
                BASE_PACKAGES,
                progress,
                cache=self._cache,
                mirror=self._mirror,
                labels=labels,
                ask=self._ask,
            )
            if not self._authority_files:
                return
        authorities = self._authorities()
        copy = [f"COPY authorities {AUTHORITIES_FOLDER}"] if authorities else []
        context = {f"authorities/{name}": content for name, content in authorities.items()}
        context["Dockerfile"] = "\n".join([f"FROM {source}", *copy, *steps, ""]).encode()
        await build.build(
            engine, tag, context, progress, subject="the base image", labels=labels, seconds=BUILD_SECONDS, fresh=fresh
        )

    async def _base_ids(self, engine: Engine, template: Template) -> list[str] | None:
        """The ids of the images that the template starts from; `None` when one is not here."""
        found = []
        for reference in _references(template):
            name = self._base_tag() if reference == f"{BASE_NAME}:latest" else reference
            identity = await build.image_id(engine, name)
            if identity is None:
                return None
            found.append(identity)
        return found

    def _base_tag(self) -> str:
        recipe = {"packages": " ".join(BASE_PACKAGES).encode(), "from": DEBIAN_IMAGE.encode(), **self._authorities()}
        return f"{BASE_NAME}:{digest(recipe)[:_TAG_DIGITS]}"

    def _inputs(self, template: Template) -> str:
        """Hash over everything but the base images' ids."""
        parts = {f"file/{name}": content for name, content in template.files.items()}
        parts |= {f"authority/{name}": content for name, content in self._authorities().items()}
        parts["image"] = (template.image or "").encode()
        parts["dockerfile"] = template.dockerfile or b""
        parts["guest"] = guest_version().encode()
        if template.image is None and template.dockerfile is None:
            parts["base"] = self._base_tag().encode()
        return digest(parts)

    def _tag(self, template: Template, bases: Sequence[str]) -> str:
        whole = digest({"inputs": self._inputs(template).encode(), "bases": "\n".join(bases).encode()})
        return f"{TEMPLATE_NAME}:{whole[:_TAG_DIGITS]}"

    def _authorities(self) -> dict[str, bytes]:
        """The operator's certificates under the names that the image's tools expect."""
        found = {}
        for number, path in enumerate(self._authority_files):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise InvalidInput(
                    f"The certificate file {path} cannot be read: {error.strerror}.",
                    hint="Correct sandbox.authorities in the configuration.",
                ) from error
            found[f"kortix-{number}.crt"] = content
        return found

    @asynccontextmanager
    async def _exclusively(self, progress: Progress) -> AsyncIterator[None]:
        """One build at a time on this machine: two set-ups at once would do the same work twice."""
        self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._cache / "build.lock").open("a") as lock:
            told = False
            try:
                async with asyncio.timeout(_LOCK_SECONDS):
                    while not _try_lock(lock.fileno()):
                        if not told:
                            progress("Another process builds an image; waiting for it.")
                            told = True
                        await asyncio.sleep(0.2)
            except TimeoutError:
                raise DeadlineExceeded("Another process has been building an image for an hour.") from None
            yield

    async def _users(self, engine: Engine) -> dict[str, int]:
        """Image id → number of containers of it."""
        rows: list[dict[str, Any]] = await engine.call(lambda client: client.containers(all=True))
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["ImageID"]] = counts.get(row["ImageID"], 0) + 1
        return counts


def _references(template: Template) -> list[str]:
    """The images that a template starts from; names of build stages and variables are not among them."""
    if template.dockerfile is None:
        return [template.image or f"{BASE_NAME}:latest"]
    stages: set[str] = set()
    found: dict[str, None] = {}
    for match in _FROM.finditer(template.dockerfile.decode("utf-8", "replace")):
        name = match[1]
        if name not in stages and name != "scratch" and "$" not in name:
            found[f"{BASE_NAME}:latest" if name == BASE_NAME else name] = None
        if match[2]:
            stages.add(match[2])
    return list(found)


def _remove_image(tag: str, client: Client) -> None:
    client.remove_image(tag)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
