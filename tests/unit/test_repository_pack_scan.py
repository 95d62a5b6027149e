"""The scan of packs on the wire: real packs pass, in whatever pieces they come; lies and bombs do not."""

from __future__ import annotations

import contextlib
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.repository.admission import AdmissionCaps
from kortix_tui.repository.pack_scan import PackRefused, PackScan
from tests.support.git_door import git, make_source

CAPS = AdmissionCaps(object_bytes=100_000, new_bytes=400_000, objects=200)


def pack_of(tmp_path: Path, *, file_bytes: int = 40_000, versions: int = 8, object_format: str = "sha1") -> bytes:
    """A pack with trees, commits, files, and differences of both kinds."""
    source = make_source(tmp_path / "source", object_format=object_format)
    chance = random.Random(1)
    text = [f"line {n} {chance.random()}\n" for n in range(file_bytes // 28)]
    for n in range(versions):
        text[n * 3] = f"changed {n}\n"
        (source / "big.txt").write_text("".join(text))
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", f"Version {n}")
    git(source, "repack", "-a", "-d", "-f", "-q")
    (pack,) = (source / ".git/objects/pack").glob("*.pack")
    assert "chain length" in git(source, "verify-pack", "-v", str(pack.with_suffix(".idx"))), "no differences in it"
    return pack.read_bytes()


def scan(pack: bytes, pieces: list[int], caps: AdmissionCaps = CAPS, id_bytes: int = 20) -> None:
    scanning = PackScan(caps, id_bytes)
    at = 0
    for piece in [*pieces, len(pack)]:
        scanning.feed(pack[at : at + piece])
        at += piece


@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 20])
def test_a_real_pack_passes_in_any_pieces(tmp_path: Path, piece: int) -> None:
    pack = pack_of(tmp_path)
    scan(pack, [piece] * (len(pack) // piece))


def test_a_real_pack_of_a_sha256_repository(tmp_path: Path) -> None:
    scan(pack_of(tmp_path, object_format="sha256"), [1000] * 5, id_bytes=32)


def test_differences_count_with_what_they_unpack_to(tmp_path: Path) -> None:
    pack = pack_of(tmp_path)
    scan(pack, [])
    with pytest.raises(PackRefused, match="together"):
        scan(pack, [], CAPS.model_copy(update={"new_bytes": 200_000}))
    with pytest.raises(PackRefused, match="a file is larger"):
        scan(pack, [], CAPS.model_copy(update={"object_bytes": 30_000}))
    with pytest.raises(PackRefused, match="more than 5 new objects"):
        scan(pack, [], CAPS.model_copy(update={"objects": 5}))


def one(head: bytes, body: bytes) -> bytes:
    return b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + head + body


@pytest.mark.parametrize(
    "pack",
    [
        b"GIFT" + bytes(20),
        one(bytes([0x00]), b"x" * 100),
        one(bytes([0x50]), b"x" * 100),
        one(bytes([0x35]), b"no zlib at all"),
        one(bytes([0x35]), zlib.compress(b"more than five bytes")),
        one(bytes([0xB5]) + b"\xff" * 100, b""),
        one(bytes([0x63, 0x01]), zlib.compress(b"\xff" * 3)),
    ],
    ids=["no pack", "kind 0", "kind 5", "no zlib", "longer than said", "endless head", "endless size"],
)
def test_lies(pack: bytes) -> None:
    with pytest.raises(PackRefused):
        scan(pack, [3] * 5)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=20))
def test_any_bytes_are_refused_or_waited_for(data: bytes, pieces: list[int]) -> None:
    with contextlib.suppress(PackRefused):
        scan(b"PACK" + data, pieces)
