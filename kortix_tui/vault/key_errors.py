"""Why a place that should hold a key does not give it. Each source of keys raises these, so that the next is asked."""

from __future__ import annotations

from kortix_tui.base.errors import VaultFailed


class KeyUnavailable(VaultFailed):
    """The place cannot be used now, or must not be."""

    code = "key_unavailable"


class KeyMissing(KeyUnavailable):
    """The place can be used and holds no such key; making a new one there loses nothing."""

    code = "key_missing"
