"""Frames on `control.sock`: a JSON header, checked against a model, and raw bytes, as on the sandbox's channel.

Secrets travel in the raw bytes only, so that no header, and no error about one, ever shows a value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from kortix_tui.guest import wire
from kortix_tui.runtime.context import Failure
from kortix_tui.store.audit import Actor

MAX_CALL: Final = 64 << 20
"""Largest body of a call or an answer, in bytes; it takes many frames."""
MAX_SECRETS: Final = 200
"""Most secrets of one call."""
Size = Annotated[int, Field(ge=1, le=9999)]


class Frame(BaseModel):
    """The header of one frame; its raw bytes travel beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenRequest(Frame):
    """First frame of a client: a shell in this session's sandbox."""

    type: Literal["open"] = "open"
    session_id: str = Field(max_length=32)
    rows: Size
    columns: Size
    term: str = Field(max_length=64, pattern=r"^[A-Za-z0-9._+-]+$")
    actor: Actor


class Data(Frame):
    """Keys to the shell, or output from it; the bytes are the body."""

    type: Literal["data"] = "data"


class Resize(Frame):
    """The operator's window changed."""

    type: Literal["resize"] = "resize"
    rows: Size
    columns: Size


class Opened(Frame):
    """The shell runs."""

    type: Literal["opened"] = "opened"


class Closed(Frame):
    """The shell ended; without a code, the sandbox was lost before it did."""

    type: Literal["closed"] = "closed"
    exit_code: int | None


class Call(Frame):
    """First frame of a client: one act that needs what must not be stored.

    Attributes:
        arguments: The JSON of the model that belongs to the verb.
        sizes: How the whole body is cut into secrets, in bytes.
        more: Whether further `Part` frames carry the rest of the body.
    """

    type: Literal["call"] = "call"
    verb: str = Field(max_length=64)
    arguments: str = Field(max_length=256 * 1024)
    sizes: tuple[Annotated[int, Field(ge=0, le=MAX_CALL)], ...] = Field(default=(), max_length=MAX_SECRETS)
    actor: Actor
    more: bool = False


class Part(Frame):
    """The next piece of a body."""

    type: Literal["part"] = "part"
    more: bool = False


class Answer(Frame):
    """What a call gave: a body that may go on in `Part` frames.

    Attributes:
        result: So many bytes at the beginning of the body are the JSON of its model: it may be longer than a frame.
        more: Whether `Part` frames follow.
    """

    type: Literal["answer"] = "answer"
    result: int = Field(ge=0, le=MAX_CALL)
    more: bool = False


class Rejected(Frame):
    """It was not done, and why."""

    type: Literal["rejected"] = "rejected"
    failure: Failure


FromClient = TypeAdapter[OpenRequest | Data | Resize | Call | Part](
    Annotated[OpenRequest | Data | Resize | Call | Part, Field(discriminator="type")]
)
FromHost = TypeAdapter[Opened | Data | Closed | Answer | Part | Rejected](
    Annotated[Opened | Data | Closed | Answer | Part | Rejected, Field(discriminator="type")]
)


def pack(frame: Frame, body: bytes = b"") -> bytes:
    """A frame's bytes."""
    return wire.pack(frame.model_dump_json().encode(), body)


def pack_whole(first: Call | Answer, body: bytes) -> Iterator[bytes]:
    """A call or an answer with a body of any size, as frames."""
    pieces = list(wire.pieces(body)) or [b""]
    last = len(pieces) - 1
    for number, piece in enumerate(pieces):
        more = number < last
        yield pack(first.model_copy(update={"more": more}) if number == 0 else Part(more=more), piece)


@contextmanager
def short_path(socket_file: Path) -> Iterator[str]:
    """A name of the socket that fits into `sun_path` (108 bytes) however long the home's path is."""
    folder = os.open(socket_file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{socket_file.name}"
    finally:
        os.close(folder)
