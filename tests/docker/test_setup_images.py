"""Template images on the real engine: built once, refused with a reason, and nothing lost when interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine import docker

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.settings import ImageSettings, Settings
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.failures import BuildFailed, ImageRefused
from kortix_tui.sandbox.images import BASE_NAME, TEMPLATE_NAME, Images, Template

pytestmark = pytest.mark.docker

FROM_BASE = f"FROM {BASE_NAME}\n"


@dataclass
class Shop:
    """Images under names that only this test uses."""

    provider: DockerProvider
    images: Images
    name: str
    lines: list[str] = field(default_factory=list)

    def template(self, dockerfile: str, **files: bytes) -> Template:
        """A Dockerfile template that no other test has built."""
        text = f"{dockerfile}LABEL kortix.test={self.name}\n"
        return Template(slug=self.name, dockerfile=text.encode(), files=files)

    async def ensure(self, template: Template) -> str:
        return await self.images.ensure(template, self.lines.append)

    def make(self, dockerfile: str, suffix: str = "user") -> str:
        """An image as a user would have it, made without our code."""
        tag = f"kortix-test-{self.name}:{suffix}"
        labelled = f"{dockerfile}LABEL kortix.test={self.name}\n"
        command = ["docker", "build", "--network", "host", "-q", "-t", tag, "-"]
        environment = os.environ | {"DOCKER_BUILDKIT": "0"}
        subprocess.run(command, input=labelled.encode(), check=True, capture_output=True, env=environment)
        return tag


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    provider = DockerProvider()
    made = Shop(provider, Images(provider.engine), f"t{secrets.token_hex(5)}")
    try:
        await made.images.ensure(Template(), print)
        yield made
    finally:
        await provider.close()
        # Removing may leave the parents of a removed image for a second round.
        for _ in range(3):
            left = docker("images", "-aq", "--filter", f"label=kortix.test={made.name}").split()
            if left:
                with contextlib.suppress(subprocess.CalledProcessError):
                    docker("rmi", "-f", *set(left))


async def test_the_default_image_is_built_once_and_found_at_once(shop: Shop) -> None:
    tag = await shop.ensure(Template())
    assert shop.lines == []  # the fixture built it, or somebody before
    assert await shop.images.find(Template()) == tag
    answer = docker(
        "run", "--rm", "--network", "none", tag, "sh", "-c", "id -u agent; git --version; python3 -m pytest --version"
    )
    assert answer.startswith("1000\ngit version 2.")


async def test_what_our_layer_adds(shop: Shop) -> None:
    tag = await shop.ensure(Template())
    script = (
        "stat -c '%n %U %a' /workspace /home/agent /var/lib/kortix /opt/kortix /opt/kortix/supervisor.py; "
        "readlink -f /usr/local/bin/kortix; /opt/kortix/bin/python3 -c 'import json, asyncio'; "
        "git config --system --list; kortix --help | head -1"
    )
    lines = docker("run", "--rm", "--network", "none", tag, "sh", "-c", script).splitlines()
    assert "/workspace agent 755" in lines and "/home/agent agent 755" in lines
    assert "/var/lib/kortix root 700" in lines and "/opt/kortix root 755" in lines
    assert "/opt/kortix/supervisor.py root 644" in lines and "/opt/kortix/bin/kortix" in lines
    assert "safe.directory=*" in lines and "include.path=/run/kortix-agent/gitconfig" in lines
    assert not any(line.startswith("core.hookspath") for line in lines)
    assert lines[-1].startswith("usage: kortix")


async def test_an_image_of_the_user_gets_our_layer_on_top(shop: Shop) -> None:
    image = shop.make(FROM_BASE + "RUN useradd -m -u 1000 node && echo kept > /etc/theirs\nUSER node\nENV THEIRS=1\n")
    template = Template(slug=shop.name, image=image)
    tag = await shop.ensure(template)
    assert tag.startswith(f"{TEMPLATE_NAME}:")
    answer = docker(
        "run", "--rm", "--network", "none", tag, "sh", "-c", "cat /etc/theirs; id -un 1000; echo $THEIRS; id -u"
    )
    assert answer.split() == ["kept", "agent", "1", "0"]
    assert await shop.ensure(template) == tag


async def test_a_dockerfile_with_files_is_addressed_by_its_content(shop: Shop) -> None:
    first = shop.template(FROM_BASE + "COPY a.txt /a.txt\n", **{"a.txt": b"one"})
    tag = await shop.ensure(first)
    assert docker("run", "--rm", "--network", "none", tag, "cat", "/a.txt") == "one"
    assert await shop.images.find(first) == tag
    assert "kortix-stage" not in docker(
        "images", "--format", "{{.Repository}}", "--filter", f"label=kortix.test={shop.name}"
    )
    assert await shop.images.find(shop.template(FROM_BASE + "COPY a.txt /a.txt\n", **{"a.txt": b"two"})) is None


@pytest.mark.parametrize(
    ("contents", "lacks"),
    [
        ("COPY --from=base /etc/hostname /etc/hostname\n", "no shell"),
        (
            "COPY --from=base /bin/sh /bin/sh\nCOPY --from=base /lib /lib\nCOPY --from=base /lib64 /lib64\n",
            "git python3",
        ),
    ],
)
async def test_an_image_that_cannot_carry_a_sandbox_is_refused_by_name(contents: str, lacks: str, shop: Shop) -> None:
    image = shop.make(f"FROM {BASE_NAME} AS base\nFROM scratch\n{contents}")
    with pytest.raises(ImageRefused) as caught:
        await shop.ensure(Template(slug=shop.name, image=image))
    assert lacks in caught.value.message and image in caught.value.message.lower()
    assert await shop.images.find(Template(slug=shop.name, image=image)) is None


async def test_an_old_git_is_refused(shop: Shop) -> None:
    fake = "RUN printf '#!/bin/sh\\necho git version 2.20.1\\n' > /usr/local/bin/git && chmod +x /usr/local/bin/git\n"
    with pytest.raises(ImageRefused, match=r"git is older than 2\.30"):
        await shop.ensure(shop.template(FROM_BASE + fake))


async def test_a_failing_step_ends_with_its_output(shop: Shop) -> None:
    with pytest.raises(BuildFailed) as caught:
        await shop.ensure(shop.template(FROM_BASE + "RUN echo 'the \\033[31mreason' && exit 3\n"))
    assert "the reason" in caught.value.message and "\x1b" not in caught.value.message
    assert "3" in caught.value.message


async def test_an_image_that_is_nowhere_says_what_to_start_from(shop: Shop) -> None:
    with pytest.raises(NotFound) as caught:
        await shop.ensure(Template(slug=shop.name, image=f"kortix-test/{shop.name}:none"))
    assert BASE_NAME in (caught.value.hint or "")


async def test_an_interrupted_build_stops_on_the_engine_and_can_be_repeated(shop: Shop) -> None:
    marker = f"interrupted-{shop.name}"
    template = shop.template(FROM_BASE + f"RUN echo {marker} && sleep 300\n")
    building = asyncio.create_task(shop.ensure(template))
    while not any(line == marker for line in shop.lines):
        assert not building.done()
        await asyncio.sleep(0.05)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building

    async def step_runs() -> bool:
        rows = await asyncio.to_thread(docker, "ps", "--no-trunc", "--format", "{{.Command}}")
        return marker in rows

    async with asyncio.timeout(60):
        while await step_runs():
            await asyncio.sleep(0.1)
    assert await shop.images.find(template) is None
    # The lock is free again.
    assert await shop.ensure(shop.template(FROM_BASE))


async def test_two_builders_at_once_build_once(shop: Shop) -> None:
    template = shop.template(FROM_BASE + "RUN sleep 1\n")
    other = Images(shop.provider.engine)
    told: list[str] = []
    first, second = await asyncio.gather(shop.ensure(template), other.ensure(template, told.append))
    assert first == second
    assert told == ["Another process builds an image; waiting for it."] or shop.lines[0] == (
        "Another process builds an image; waiting for it."
    )


async def test_an_image_is_found_when_its_base_was_pruned(shop: Shop) -> None:
    image = shop.make(FROM_BASE)
    template = Template(slug=shop.name, image=image)
    tag = await shop.ensure(template)
    docker("rmi", image)
    assert await shop.images.find(template) == tag


async def test_list_and_remove(shop: Shop) -> None:
    tag = await shop.ensure(shop.template(FROM_BASE))
    (row,) = [row for row in await shop.images.listing() if row.template == shop.name]
    assert (row.tag, row.source, row.in_use) == (tag, "dockerfile", 0) and row.size_bytes > 0
    docker("create", "--name", shop.name, tag, "true")
    try:
        with pytest.raises(Refused, match="1 sandbox"):
            await shop.images.remove(shop.name)
    finally:
        docker("rm", shop.name)
    assert await shop.images.remove(shop.name) == [tag]
    with pytest.raises(NotFound):
        await shop.images.remove(shop.name)


async def test_the_operators_certificates_are_an_input_and_not_ours(shop: Shop, tmp_path: Path) -> None:
    plain = await shop.images.find(Template())
    assert plain is not None
    listed = docker("run", "--rm", "--network", "none", plain, "ls", "/usr/local/share/ca-certificates")
    assert "kortix" not in listed
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nbm90IHJlYWw=\n-----END CERTIFICATE-----\n")
    image = shop.make(FROM_BASE)
    settings = Settings(images=ImageSettings(ca_certificates=(str(authority),)))
    images = Images.configured(shop.provider.engine, settings)
    template = Template(slug=shop.name, image=image)
    tag = await images.ensure(template, shop.lines.append)
    assert tag != await shop.ensure(template)
    path = "/usr/local/share/ca-certificates/kortix-0.crt"
    assert docker("run", "--rm", "--network", "none", tag, "cat", path) == authority.read_text()
    authority.unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        await images.find(template)
