"""The words of the design as enumerations. Values are what the store and `--json` hold."""

from __future__ import annotations

from enum import StrEnum


class SessionStatus(StrEnum):
    """Life of a session."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


class Activity(StrEnum):
    """What a running session does."""

    WORKING = "working"
    WAITING = "waiting"
    IDLE = "idle"


class Wanted(StrEnum):
    """What the operator wants of a session; the reconciler makes it so."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"


class PromptState(StrEnum):
    """Life of a prompt. `unknown`: the sandbox died while the prompt ran; it may have had effects."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    REMOVED = "removed"
    UNKNOWN = "unknown"


class ChangeStatus(StrEnum):
    """Life of a change request."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class Outcome(StrEnum):
    """How an audited act ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    DENIED = "denied"
    PENDING = "pending"


class Level(StrEnum):
    """Result of one doctor check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class RequestState(StrEnum):
    """Life of a request to the host. `unknown`: the host died in mid-act and the truth could not be found."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Exposure(StrEnum):
    """Where a secret's value may go."""

    ENVIRONMENT = "environment"
    EGRESS = "egress-enforced"
    CONNECTOR = "connector"
    NONE = "none"


class VaultState(StrEnum):
    """What the host can do with the vault at this moment."""

    MISSING = "missing"
    LOCKED = "locked"
    UNLOCKED = "unlocked"
    TAMPERED = "tampered"
    CORRUPT = "corrupt"
    ROLLED_BACK = "rolled back"


class SecretRequestState(StrEnum):
    """Life of an agent's request for a value."""

    OPEN = "open"
    PROVIDED = "provided"
    DECLINED = "declined"


class Risk(StrEnum):
    """What an action may do outside."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"


class Verdict(StrEnum):
    """What policy says of one call. On screens: Allow, Ask, Block."""

    RUN = "always_run"
    ASK = "require_approval"
    BLOCK = "block"


class CallState(StrEnum):
    """Life of one brokered call.

    `pending → approved | denied | expired | superseded`; `approved | (allowed by policy) → executing → done | failed |
    unknown`. `failed`: certainly without effect, or answered with an error. `unknown`: the host died, or the connection
    broke, after the first byte may have left; it may have run, and is never repeated. `refused`: never asked for.
    """

    PENDING = "pending"
    APPROVED = "approved"
    EXECUTING = "executing"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    DENIED = "denied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    REFUSED = "refused"

    @property
    def final(self) -> bool:
        """Whether nothing more becomes of it."""
        return self not in (CallState.PENDING, CallState.APPROVED, CallState.EXECUTING)


class ConnectionState(StrEnum):
    """Whether a stored credential can be used."""

    READY = "ready"
    EXPIRED = "expired"
    REVOKED = "revoked"
