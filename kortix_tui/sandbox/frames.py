"""Frames of the supervisor's channel as typed models.

From the sandbox everything is a claim: strict types, bounded texts and numbers, unknown fields ignored so that a
newer supervisor is served. What goes to the sandbox is ours, and its models forbid what they do not know.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from kortix_tui.guest.wire import PIECE

Number = Annotated[int, Field(ge=0, lt=1 << 53)]
Word = Annotated[str, Field(max_length=128)]
Text = Annotated[str, Field(max_length=16384)]
Commit = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class Claim(BaseModel):
    """Something that the sandbox says."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class RunningTurn(Claim):
    """The turn that runs while the channel is made; without a pid its program has not started yet."""

    turn_id: Word
    pid: Number | None = None


class Hello(Claim):
    """The first frame of a connection.

    Attributes:
        boot: New at each start of the supervisor.
        first_seq: Oldest record that it still has; `last_seq + 1` when there is none.
        last_seq: Newest record ever made.
        ended: The newest turns that it knows to have ended.
        cloned: Whether the workspace is there: the repository was put into it, or none was wanted.
        fresh: Whether the journal's volume was new at this start.
    """

    type: Literal["hello"]
    version: Number
    session_id: Word
    boot: Word
    first_seq: Number
    last_seq: Number
    running: RunningTurn | None
    ended: Annotated[list[Word], Field(max_length=100)]
    cloned: bool
    fresh: bool


class _Record(Claim):
    """What happened. `at` is the sandbox's wall clock in seconds: a claim, never used for order."""

    seq: Annotated[Number, Field(ge=1)]
    at: Annotated[float, Field(allow_inf_nan=False)]


class OutputRecord(_Record):
    """What a turn's program wrote; pieces may end inside a character."""

    kind: Literal["output"]
    turn_id: Word
    stream: Literal["stdout", "stderr"]
    body: Annotated[bytes, Field(repr=False, max_length=4 * PIECE)]


class StateData(Claim):
    """How far the sandbox is with its workspace."""

    name: Literal["clone_started", "clone_done", "clone_failed", "ready"]
    message: Text = ""


class StateRecord(_Record):
    """The workspace changed its state."""

    kind: Literal["state"]
    data: StateData


class TurnStartedData(Claim):
    """The program's number inside the sandbox."""

    pid: Number


class TurnStartedRecord(_Record):
    """A turn's program runs."""

    kind: Literal["turn_started"]
    turn_id: Word
    data: TurnStartedData


class TurnEndedData(Claim):
    """How a turn ended. With neither exit code nor signal nobody saw it, or it never started: never a success."""

    exit_code: Annotated[int, Field(ge=0, le=255)] | None
    signal: Annotated[int, Field(ge=1, le=64)] | None
    reason: Literal["exited", "killed", "not_started", "cancelled"]
    message: Text = ""


class TurnEndedRecord(_Record):
    """A turn is over."""

    kind: Literal["turn_ended"]
    turn_id: Word
    data: TurnEndedData


class GapData(Claim):
    """First and last number of what is missing."""

    first: Annotated[Number, Field(alias="from")]
    last: Annotated[Number, Field(alias="to")]


class GapRecord(_Record):
    """Records are lost: the sandbox could not keep them until a host came. Its own number is the last lost one."""

    kind: Literal["gap"]
    data: GapData


class NoteData(Claim):
    """The words."""

    text: Text


class NoteRecord(_Record):
    """Something that the supervisor wants known."""

    kind: Literal["note"]
    data: NoteData


Record = OutputRecord | StateRecord | TurnStartedRecord | TurnEndedRecord | GapRecord | NoteRecord
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


class RescueResult(Claim):
    """How saving went. `failed` with a commit: that much was pushed to `ref`, but it is not everything."""

    type: Literal["rescue_result"]
    id: Word
    outcome: Literal["saved", "clean", "failed"]
    commit: Commit | None
    ref: Word
    files: Number
    message: Text = ""


class ShellData(Claim):
    """What a shell printed."""

    type: Literal["shell_data"]
    id: Word
    body: Annotated[bytes, Field(repr=False)]


class ShellClosed(Claim):
    """A shell ended."""

    type: Literal["shell_closed"]
    id: Word
    exit_code: Annotated[int, Field(ge=0, le=255)]


class Pong(Claim):
    """Answer to a ping."""

    type: Literal["pong"]
    id: Word


class Stopping(Claim):
    """Answer to a shutdown: every program of the agent is gone."""

    type: Literal["stopping"]
    id: Word


class Status(Claim):
    """Answer to a status request."""

    type: Literal["status"]
    id: Word
    processes: Number
    workspace_dirty: bool | None


Incoming = Hello | Record | RescueResult | ShellData | ShellClosed | Pong | Stopping | Status
_FRAMES: dict[str, TypeAdapter[Any]] = {
    "record": _RECORD,
    **{
        model.model_fields["type"].annotation.__args__[0]: TypeAdapter(model)  # type: ignore[union-attr]
        for model in (Hello, RescueResult, ShellData, ShellClosed, Pong, Stopping, Status)
    },
}


def incoming(header: dict[str, Any], body: bytes) -> Incoming | None:
    """A frame from the sandbox as its model; `None` for a type that this version does not know.

    Raises:
        pydantic.ValidationError: It is not what its type says.
    """
    adapter = _FRAMES.get(header["type"])
    if adapter is None:
        return None
    frame: Incoming = adapter.validate_python({**header, "body": body})
    return frame


class Order(BaseModel):
    """Something that the host tells the sandbox. What is in it may be secret: neither it nor an error shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Repository(Order):
    """Where the workspace comes from: the git door as seen from inside."""

    url: str = "http://127.0.0.1:8118/v1/git/repo.git"
    branch: str
    base_branch: str
    base_commit: str


class Committer(Order):
    """Who commits in the sandbox."""

    name: str
    email: str


class SandboxLimits(Order):
    """What the agent's programs may use up beside the container's own limits."""

    fsize_bytes: int | None = None


class Welcome(Order):
    """The host's first frame.

    Attributes:
        channel_key: Only when it is new; the supervisor keeps it and proves itself with it from then on.
        stored_seq: The newest record that the host has.
        mode: `rescue` makes no clone: only the agent's files are written.
        repository: `None` for an agent without repository access.
        agent_token: For the agent's own requests at the door.
        proxy: Whether programs are pointed at the door's way to the network.
        environment: Added to what every turn's program gets.
    """

    channel_key: str | None = None
    stored_seq: int
    mode: Literal["normal", "rescue"] = "normal"
    repository: Repository | None
    agent_token: str
    proxy: bool = False
    identity: Committer
    environment: dict[str, str] = {}
    limits: SandboxLimits = SandboxLimits()


class TurnOrder(Order):
    """A turn to run; the same `turn_id` is never run twice, however often it is sent."""

    turn_id: Word
    command: Annotated[tuple[str, ...], Field(min_length=1)]
    environment: Annotated[dict[str, str], Field(repr=False)] = {}
    cwd: str = "/workspace"
    prompt_in: tuple[Literal["stdin", "file", "env"], ...] = ("stdin", "file", "env")
