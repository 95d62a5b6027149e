"""Image work on the engine: build, pull, import. Long, with progress, and ended when the caller is cancelled."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kortix_tui.base.errors import EngineUnavailable, NotFound
from kortix_tui.base.text import visible, visible_line, without_sgr
from kortix_tui.sandbox.commands import Progress
from kortix_tui.sandbox.docker.engine import Client, Engine
from kortix_tui.sandbox.docker.guest import is_executable
from kortix_tui.sandbox.failures import BuildFailed, ImageRefused, SandboxFailed

_REFUSED = "kortix-refused: "
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_TAIL_LINES = 15


async def image_id(engine: Engine, reference: str) -> str | None:
    """The id of a local image; `None` when the engine has none of that name."""
    try:
        return str((await engine.call(lambda client: client.inspect_image(reference)))["Id"])
    except NotFound:
        return None


async def build(
    engine: Engine,
    tag: str,
    context: Mapping[str, bytes],
    progress: Progress,
    *,
    subject: str,
    labels: Mapping[str, str],
    seconds: float,
    fresh: bool = False,
) -> None:
    """Build an image with the engine's own builder.

    The build steps use the host's network: the default bridge may be missing, and is not needed for anything else.

    Args:
        engine: Where.
        tag: Name of the result.
        context: Files of the build, `Dockerfile` among them.
        progress: Gets each line.
        subject: What is being built, in words, for errors.
        labels: Put on the image.
        seconds: Deadline of the whole build.
        fresh: Use no cached step.

    Raises:
        ImageRefused: Our layer cannot be put on the image.
        BuildFailed: A step failed or the deadline passed.
    """
    archive = _pack({**context, "Dockerfile": _labelled(context["Dockerfile"], labels)})
    arguments = {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}
    lines: list[str] = []
    failure: list[str] = []
    pending = ""

    def start(client: Client, limit: float, /) -> Iterator[dict[str, Any]]:
        stream: Iterator[dict[str, Any]] = client.build(
            fileobj=io.BytesIO(archive),
            custom_context=True,
            tag=tag,
            decode=True,
            rm=True,
            forcerm=True,
            nocache=fresh,
            network_mode="host",
            buildargs=arguments,
            timeout=limit,
        )
        return stream

    def receive(message: dict[str, Any]) -> None:
        nonlocal pending
        if "error" in message:
            failure.append(visible_line(str(message["error"])))
        # A message ends where the builder's read ended, which may be within a line.
        *whole, pending = f"{pending}{message.get('stream', '')}".split("\n")
        for line in whole:
            text = without_sgr(visible(line.rsplit("\r", 1)[-1], sgr=True)).strip()
            if text:
                lines.append(text)
                progress(text)

    try:
        await engine.stream(start, receive, seconds=seconds)
    except EngineUnavailable as error:
        if "within" in error.message and await image_id(engine, tag) is None:
            raise BuildFailed(f"Building {subject} took longer than {seconds:.0f} s and was stopped.") from error
        raise
    if failure:
        raise _build_error(subject, failure[-1], lines)
    if await image_id(engine, tag) is None:
        raise EngineUnavailable(f"The engine ended the build of {subject} without a result.", hint="Try again.")


async def pull(engine: Engine, reference: str, progress: Progress, *, seconds: float) -> None:
    """Fetch an image from its registry.

    Raises:
        NotFound: No registry answers, or it has no such image.
    """
    name, tag = _split(reference)
    seen: set[str] = set()
    failure: list[str] = []

    def start(client: Client, _: float, /) -> Iterator[dict[str, Any]]:
        stream: Iterator[dict[str, Any]] = client.pull(name, tag=tag, stream=True, decode=True)
        return stream

    def receive(message: dict[str, Any]) -> None:
        if "error" in message:
            failure.append(visible_line(str(message["error"])))
        # Downloads report many times a second: each layer's state is said once.
        state = visible_line(f"{message.get('id', '')} {message.get('status', '')}").strip()
        if state and state not in seen:
            seen.add(state)
            progress(state)

    try:
        await engine.stream(start, receive, seconds=seconds)
    except (NotFound, SandboxFailed) as error:  # no such image, or no registry
        failure.append(error.message)
    if failure:
        raise NotFound(f"The image {visible_line(reference)} could not be pulled. {failure[-1]}")


async def registry_answers(engine: Engine, reference: str, *, seconds: float) -> bool:
    """Whether the image's registry can be asked at all: quick to fail where there is none."""
    try:
        await engine.call(lambda client: client.inspect_distribution(reference), seconds=seconds)
    except Exception as error:  # whatever the engine says, the answer is no
        if isinstance(error, EngineUnavailable):
            await engine.call(lambda client: client.ping())  # ... unless the engine itself is gone
        return False
    return True


async def import_archive(engine: Engine, archive: Path, tag: str, labels: Mapping[str, str], *, seconds: float) -> None:
    """Make an image of a root file system in a tar file."""
    name, _, version = tag.rpartition(":")
    changes = ['CMD ["bash"]', *(f"LABEL {key}={value}" for key, value in labels.items())]

    def send(client: Client) -> None:
        client.import_image_from_file(str(archive), repository=name, tag=version, changes=changes)

    await engine.call(send, seconds=seconds)
    if await image_id(engine, tag) is None:
        raise BuildFailed(f"The engine did not take the root file system as {tag}.")


def _labelled(dockerfile: bytes, labels: Mapping[str, str]) -> bytes:
    """The Dockerfile with all labels as one step; as an argument of the build each would be a step of its own."""
    if not labels:
        return dockerfile
    pairs = (f"{key}={json.dumps(value).replace('$', chr(92) + '$')}" for key, value in labels.items())
    return dockerfile.rstrip(b"\n") + f"\nLABEL {' '.join(pairs)}\n".encode()


def _pack(context: Mapping[str, bytes]) -> bytes:
    """The context as a tar: same files, same bytes, so that the engine's build cache works."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folders: set[str] = set()
        for path in sorted(context):
            parent = ""
            for part in path.split("/")[:-1]:
                parent = f"{parent}/{part}".lstrip("/")
                if parent not in folders:
                    folders.add(parent)
                    entry = tarfile.TarInfo(parent)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(context[path]), 0o755 if is_executable(path) else 0o644
            archive.addfile(entry, io.BytesIO(context[path]))
    return whole.getvalue()


def _split(reference: str) -> tuple[str, str | None]:
    """Name and tag; a digest stays with the name, as the engine wants it."""
    if "@" in reference:
        return reference, None
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


def _build_error(subject: str, failure: str, lines: list[str]) -> BuildFailed | ImageRefused:
    name = subject[:1].upper() + subject[1:]
    for line in lines:
        if line.startswith(_REFUSED):
            return ImageRefused(
                f"{name} cannot carry a sandbox: {line.removeprefix(_REFUSED)}",
                hint="Choose an image of a common distribution, or install git and python3 in it.",
            )
    if "/bin/sh" in failure and ("no such file" in failure or "not found" in failure):
        return ImageRefused(
            f"{name} cannot carry a sandbox: it has no shell.",
            hint="Choose an image of a common distribution; distroless images cannot be used.",
        )
    tail = "\n".join(lines[-_TAIL_LINES:])
    with suppress(ValueError):
        failure = failure[failure.index("returned a non-zero code") :]
    return BuildFailed(f"Building {subject} failed: {failure}\n{tail}", hint="Correct the Dockerfile and build again.")
