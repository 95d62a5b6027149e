"""Identifiers: session ids double as branch and sandbox names."""

from __future__ import annotations

import re
import secrets

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
SESSION_ID = re.compile(r"k[a-z2-7]{11}\Z")
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")


def new_session_id() -> str:
    """`k` and 11 base-32 characters (55 bits); never readable as an abbreviated commit."""
    return "k" + "".join(secrets.choice(_ALPHABET) for _ in range(11))


def is_session_id(text: str) -> bool:
    """Whether the whole text is a session id."""
    return SESSION_ID.match(text) is not None


def new_id(prefix: str) -> str:
    """An opaque row id such as `prj_…`, 80 bits."""
    return prefix + "_" + "".join(secrets.choice(_ALPHABET) for _ in range(16))


def slugify(text: str) -> str:
    """Turn a folder name or URL ending into a project slug; `project` when nothing is left."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")
    return slug or "project"
