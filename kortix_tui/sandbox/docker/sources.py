"""Where this machine gets its packages from: the mirror for a base image is the one that its apt uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import Refused

DEBIAN_SUITE = "bookworm"
_PARTS = {"debian": ("main",), "ubuntu": ("main", "universe")}
_OPTION = re.compile(r"signed-by=(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Archive:
    """One entry of apt's sources."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""


@dataclass(frozen=True)
class Sources:
    """What a base image is made from.

    Attributes:
        suite: The release.
        lines: Entries in apt's one-line form.
    """

    suite: str
    lines: tuple[str, ...]


def machine_sources(root: Path = Path("/"), *, mirror: str | None = None) -> Sources:
    """The archives of the machine's own distribution, without those of third parties.

    On Debian of any release the base is always Debian 12, so that two machines get the same; on Ubuntu it is the
    machine's own release, as its mirror has nothing else.

    Args:
        root: Where the machine's files are.
        mirror: The operator's choice for the main archive; security updates keep their own place.

    Raises:
        Refused: The machine is neither, or its sources name no archive of the distribution.
    """
    name, release = _distribution(root)
    if name not in _PARTS:
        raise Refused(
            "Without an image registry, the base image can be made on Debian and Ubuntu only.",
            hint="Make the registry of debian:bookworm-slim reachable, or use a template with an image of your own.",
        )
    suite = DEBIAN_SUITE if name == "debian" else release
    names = {release, *({"stable", "oldstable", "testing", "sid", DEBIAN_SUITE} if name == "debian" else ())}
    lines: dict[str, None] = {}
    for archive in _archives(root):
        own, dash, pocket = archive.suite.partition("-")
        # `components` of the distribution itself; third parties use other names for suites or components.
        if own not in names or "main" not in archive.components or pocket not in ("", "updates", "security"):
            continue
        option = f"[signed-by={archive.signed_by}] " if archive.signed_by else ""
        uri = mirror if mirror is not None and pocket != "security" else archive.uri
        lines[f"deb {option}{uri} {suite}{dash}{pocket} {' '.join(_PARTS[name])}"] = None
    if not any(f" {suite} " in line for line in lines):
        raise Refused(
            "The apt sources of this machine name no archive of its distribution.",
            hint="Make the registry of debian:bookworm-slim reachable, or add the distribution's mirror to apt.",
        )
    return Sources(suite, tuple(lines))


def distribution(root: Path = Path("/")) -> str:
    """`debian`, `ubuntu`, or whatever `os-release` says; empty when it says nothing."""
    return _distribution(root)[0]


def _distribution(root: Path) -> tuple[str, str]:
    try:
        text = (root / "etc/os-release").read_text()
    except OSError:
        return "", ""
    pairs = (line.partition("=")[::2] for line in text.splitlines())
    fields = {key: value.strip("\"'") for key, value in pairs}
    return fields.get("ID", ""), fields.get("VERSION_CODENAME", "")


def _archives(root: Path) -> Iterator[Archive]:
    folder = root / "etc/apt"
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in files:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        found = _deb822(text) if path.suffix == ".sources" else _one_line(text) if path.suffix == ".list" else ()
        for archive in found:
            uri = _resolve(archive.uri, root)
            if uri.startswith(("http://", "https://", "file:")):
                yield Archive(uri, archive.suite, archive.components, archive.signed_by)


def _resolve(uri: str, root: Path) -> str:
    """The first mirror of a mirror list, which cloud images use; other addresses as they are."""
    if not uri.startswith("mirror+file:"):
        return uri
    path = root / uri.removeprefix("mirror+file:").lstrip("/")
    try:
        words = path.read_text().split()
    except OSError:
        return ""
    return words[0] if words else ""


def _deb822(text: str) -> Iterator[Archive]:
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        signed_by = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = tuple(fields.get("components", "").split())
                yield Archive(uri, suite, components, signed_by if signed_by.startswith("/") else "")


def _one_line(text: str) -> Iterator[Archive]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match is not None:
            option = _OPTION.search(match[1] or "")
            yield Archive(match[2], match[3], tuple(match[4].split()), option[1] if option else "")
