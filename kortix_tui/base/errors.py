"""Every failure a person can meet has a type here, a message, and a hint that says what to do."""

from __future__ import annotations

from typing import ClassVar


class KortixError(Exception):
    """Base of all expected failures.

    Args:
        message: What is wrong, in one sentence, without control characters.
        hint: What the person can do about it.
    """

    code: ClassVar[str] = "failed"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class UsageError(KortixError):
    """The command was called wrongly."""

    code = "usage"
    exit_status = 2


class InvalidInput(KortixError):
    """A file, a message or a value does not have the required shape."""

    code = "invalid"


class NotFound(KortixError):
    """Nothing of that name exists."""

    code = "not_found"


class Ambiguous(KortixError):
    """A prefix or a default fits more than one thing."""

    code = "ambiguous"
    exit_status = 2


class Refused(KortixError):
    """Policy, an invariant or the state of the world forbids the act; nothing was changed."""

    code = "refused"


class Conflict(KortixError):
    """The thing changed since it was looked at; look again."""

    code = "conflict"


class DeadlineExceeded(KortixError):
    """A wait ended before what it waited for."""

    code = "timeout"
    exit_status = 124


class EngineUnavailable(KortixError):
    """No Docker engine answers, or it cannot do what is needed."""

    code = "engine_unavailable"


class GitFailed(KortixError):
    """A git command ended badly."""

    code = "git_failed"


class StoreFailed(KortixError):
    """The state cannot be read or written."""

    code = "store_failed"


class DiskFull(Refused):
    """Too little space to start work without losing some of it."""

    code = "disk_full"


class VaultFailed(KortixError):
    """The vault cannot be used, or does not allow what was asked; the base of all its failures."""

    code = "vault_failed"


class VaultLocked(VaultFailed):
    """The vault must be unlocked first."""

    code = "vault_locked"


class WrongKey(VaultFailed):
    """A passphrase, key file or recovery key opens no slot."""

    code = "wrong_key"


class TooSoon(WrongKey):
    """The key was not tried: after wrong ones, the next try has to wait."""

    code = "too_soon"


class VaultMissing(VaultFailed):
    """There is no vault yet."""

    code = "vault_missing"


class VaultTampered(VaultFailed):
    """The vault's file is not what was written: nothing is released from it."""

    code = "vault_tampered"
