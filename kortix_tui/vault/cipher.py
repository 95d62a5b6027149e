"""The few cryptographic calls of the vault, all from `cryptography`; nothing here knows what is sealed.

Every key is used for one purpose: purposes differ in the `info` of HKDF, and what a ciphertext belongs to is bound to
it as associated data, so that nothing sealed can be moved to another place.
"""

from __future__ import annotations

import binascii
import hmac
import json
import secrets
from typing import Annotated, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import BaseModel, ConfigDict, Field

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
MAC_BYTES: Final = 32
BLOCK_BYTES: Final = 64
"""Plaintexts are padded to multiples of this, so that a ciphertext tells little about a value's length."""

Key = bytes | bytearray
Bytes = bytes | bytearray | memoryview


class NotOpened(Exception):
    """The key is wrong or the ciphertext was changed; which of both cannot be known. Never leaves this package."""


class Cost(BaseModel):
    """What one guess of a passphrase costs (Argon2id). The default is the second choice of RFC 9106.

    The limits are checked when the file is read: before a slot has opened, its numbers are anyone's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    memory_kib: Annotated[int, Field(ge=19456, le=1048576)] = 65536
    passes: Annotated[int, Field(ge=1, le=10)] = 3
    lanes: Annotated[int, Field(ge=1, le=8)] = 4


def canonical(value: dict[str, Any]) -> bytes:
    """The one JSON text of a value: sorted keys, no space, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def to_base64(data: bytes) -> str:
    """Bytes as they stand in JSON."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def from_base64(text: str) -> bytes:
    """Undo `to_base64`.

    Raises:
        NotOpened: It is not base64, so it is not what was written.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise NotOpened from None


def random_key() -> bytearray:
    """32 random bytes that can be overwritten."""
    return bytearray(secrets.token_bytes(KEY_BYTES))


def stretch(passphrase: bytes, salt: bytes, cost: Cost) -> bytes:
    """A key from something that can be guessed; slow on purpose (about 0.25 s by default)."""
    kdf = Argon2id(salt=salt, length=KEY_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory_kib)
    return kdf.derive(passphrase)


def derive(key: Key, purpose: str, salt: bytes | None = None) -> bytes:
    """A key for one purpose from a random key (HKDF-SHA256)."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=purpose.encode()).derive(key)


def seal(key: Key, nonce: bytes, plain: Key, bound: bytes) -> bytes:
    """Encrypt; `bound` must be given again to open."""
    return ChaCha20Poly1305(key).encrypt(nonce, plain, bound)


def unseal(key: Key, nonce: bytes, sealed: bytes, bound: bytes) -> bytes:
    """Decrypt.

    Raises:
        NotOpened: Wrong key, or anything of ciphertext, nonce and `bound` differs from what was sealed.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, bound)
    except (InvalidTag, ValueError):  # ValueError: shorter than a tag
        raise NotOpened from None


def sign(key: Key, *parts: Bytes) -> bytes:
    """HMAC-SHA256 over the parts, one after the other."""
    mac = hmac.new(key, digestmod="sha256")
    for part in parts:
        mac.update(part)
    return mac.digest()


def same(one: bytes, other: bytes) -> bool:
    """Comparison of two MACs in constant time."""
    return hmac.compare_digest(one, other)


def pad(plain: bytes) -> bytes:
    """Append 0x80 and zeros up to the next multiple of `BLOCK_BYTES`; always at least one byte."""
    return plain + b"\x80" + bytes(-(len(plain) + 1) % BLOCK_BYTES)


def unpad(padded: bytes) -> bytes:
    """Undo `pad`.

    Raises:
        NotOpened: There is no padding; only a fault of the writer can cause that, as the text was authentic.
    """
    plain, mark, zeros = padded.rpartition(b"\x80")
    if not mark or zeros.strip(b"\0"):
        raise NotOpened
    return plain
