"""The package mirror of a base image is the one that the machine's apt uses, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kortix_tui.base.errors import Refused
from kortix_tui.sandbox.docker.bootstrap import bootstrap
from kortix_tui.sandbox.docker.endpoint import Endpoint
from kortix_tui.sandbox.docker.engine import Engine
from kortix_tui.sandbox.docker.sources import machine_sources
from kortix_tui.sandbox.failures import BuildFailed


def machine(root: Path, release: str, files: dict[str, str]) -> Path:
    (root / "etc/apt/sources.list.d").mkdir(parents=True)
    (root / "etc/os-release").write_text(release)
    for name, text in files.items():
        path = root / "etc/apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


DEBIAN_12 = 'ID=debian\nVERSION_CODENAME="bookworm"\n'
DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


def test_the_new_format(tmp_path: Path) -> None:
    found = machine_sources(machine(tmp_path, DEBIAN_12, {"sources.list.d/debian.sources": DEB822}))
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
    assert found.suite == "bookworm"
    assert found.lines == (
        f"deb {key}http://mirror.example/debian bookworm main",
        f"deb {key}http://mirror.example/debian bookworm-updates main",
        "deb http://mirror.example/debian-security bookworm-security main",
    )


def test_the_old_format_on_a_newer_debian_still_gives_debian_12(tmp_path: Path) -> None:
    text = (
        "# deb http://commented.example/debian trixie main\n"
        "deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian trixie main # note\n"
        "deb-src http://mirror.example/debian trixie main\n"
        "deb http://mirror.example/debian-security/ trixie-security main\n"
    )
    found = machine_sources(machine(tmp_path, "ID=debian\nVERSION_CODENAME=trixie", {"sources.list": text}))
    assert found.lines == (
        "deb [signed-by=/k.gpg] https://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian-security/ bookworm-security main",
    )


def test_ubuntu_keeps_its_own_release(tmp_path: Path) -> None:
    text = "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble noble-updates noble-backports\n"
    text += "Components: main universe restricted multiverse\n"
    release = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"
    found = machine_sources(machine(tmp_path, release, {"sources.list.d/ubuntu.sources": text}))
    assert found.suite == "noble"
    assert found.lines == (
        "deb http://mirror.example/ubuntu noble main universe",
        "deb http://mirror.example/ubuntu noble-updates main universe",
    )


def test_third_parties_are_left_out(tmp_path: Path) -> None:
    files = {
        "sources.list.d/debian.sources": DEB822,
        "sources.list.d/tool.list": "deb https://tool.example/apt nodistro main\ndeb https://x.example stable-x main",
        "sources.list.d/vendor.list": "deb https://vendor.example/apt bookworm stable\n",
        "sources.list.d/off.sources": DEB822.replace("mirror", "off").replace("Types:", "Enabled: no\nTypes:"),
        "sources.list.d/disc.list": "deb cdrom:[Debian]/ bookworm main\n",
        "sources.list.d/ignored.save": "deb http://saved.example/debian bookworm main\n",
    }
    found = machine_sources(machine(tmp_path, DEBIAN_12, files))
    assert len(found.lines) == 3
    assert all("mirror.example" in line for line in found.lines)


def test_the_mirror_lists_of_cloud_images(tmp_path: Path) -> None:
    files = {
        "sources.list.d/debian.sources": DEB822.replace(
            "http://mirror.example/debian\n", "mirror+file:///etc/apt/mirrors/debian.list\n"
        ),
        "mirrors/debian.list": "https://cloud.example/debian\nhttps://second.example/debian\n",
    }
    assert "https://cloud.example/debian bookworm main" in machine_sources(machine(tmp_path, DEBIAN_12, files)).lines[0]


def test_the_operators_mirror_takes_the_main_archives_place_only(tmp_path: Path) -> None:
    root = machine(tmp_path, DEBIAN_12, {"sources.list.d/debian.sources": DEB822})
    lines = machine_sources(root, mirror="http://near.example/debian").lines
    assert [line.split()[-3] for line in lines] == [
        "http://near.example/debian",
        "http://near.example/debian",
        "http://mirror.example/debian-security",
    ]


@pytest.mark.parametrize("release", ["", "ID=fedora\nVERSION_CODENAME=x\n"])
def test_other_distributions_are_refused_with_a_way_out(release: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="Debian and Ubuntu"):
        machine_sources(machine(tmp_path, release, {}))


def test_a_machine_without_its_own_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no archive"):
        machine_sources(machine(tmp_path, DEBIAN_12, {"sources.list": "deb http://v.example bookworm extra\n"}))


async def test_without_the_tool_and_without_leave_to_install_it_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked: list[str] = []

    async def refuse(question: str) -> bool:
        asked.append(question)
        return False

    engine = Engine(Endpoint("unix:///none", "test"))
    for ask in (None, refuse):
        with pytest.raises(BuildFailed, match="mmdebstrap") as caught:
            await bootstrap(engine, "t:1", ("git",), print, cache=tmp_path / "c", mirror=None, labels={}, ask=ask)
        assert "kortix setup" in (caught.value.hint or "")
    assert len(asked) == 1 and "mmdebstrap" in asked[0]
    await engine.close()
