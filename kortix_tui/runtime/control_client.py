"""A process's end of `control.sock`: reach the host, and call for what must not be stored."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from kortix_tui.base.errors import DeadlineExceeded, KortixError, Refused
from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_frames import Answer, Call, FromHost, Part, Rejected, pack_whole, short_path

CONNECT_S: Final = 15.0
_CHUNK: Final = 64 * 1024
R = TypeVar("R", bound=BaseModel)


class HostGone(KortixError):
    """The host went in the middle of it."""

    code = "host_gone"


def connect(context: Context, *, deadline_s: float) -> socket.socket:
    """Reach the host, which may be about to start or to change.

    Args:
        context: This process's; it becomes the host when nobody is.
        deadline_s: Longest wait of each later read and write.

    Raises:
        Refused: No host answers.
    """
    context.ensure_host()
    end = time.monotonic() + CONNECT_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(deadline_s)
            with short_path(context.home.control_socket) as name:
                connection.connect(name)
        except OSError as error:
            connection.close()
            if time.monotonic() > end:
                raise Refused("No host answers.", hint="See `kortix host`.") from error
            time.sleep(0.05)
        else:
            return connection


def call(
    context: Context,
    verb: str,
    arguments: BaseModel,
    answer: type[R],
    *,
    secrets: Sequence[bytes] = (),
    deadline_s: float = 60.0,
) -> tuple[R, bytes]:
    """Have the host do something, with secrets that are stored nowhere.

    Args:
        context: This process's.
        verb: What is to be done.
        arguments: Its model.
        answer: The model of what it gives.
        secrets: Values in the order that the verb wants.
        deadline_s: Longest wait for the answer.

    Returns:
        The answer, and bytes that came beside it.

    Raises:
        KortixError: What the host answered, of the same type.
        HostGone: It went before it answered; whether it acted is for its record to say.
        DeadlineExceeded: No answer in time.
    """
    first = Call(
        verb=verb,
        arguments=arguments.model_dump_json(),
        sizes=tuple(len(secret) for secret in secrets),
        actor=context.actor,
    )
    with contextlib.closing(connect(context, deadline_s=deadline_s)) as connection:
        try:
            for frame in pack_whole(first, b"".join(secrets)):
                connection.sendall(frame)
            return _answer(connection, answer)
        except TimeoutError:
            raise DeadlineExceeded(
                f"The host did not answer within {deadline_s:.0f} s; it may still do it.", hint="See `kortix audit ls`."
            ) from None
        except OSError as error:
            raise HostGone(
                "The connection to the host broke.", hint="Look whether it was done, then repeat."
            ) from error


def _answer(connection: socket.socket, model: type[R]) -> tuple[R, bytes]:
    decoder, body, result = wire.Decoder(), bytearray(), 0
    while data := connection.recv(_CHUNK):
        try:
            for header, piece in decoder.feed(data):
                frame = FromHost.validate_json(header)
                if isinstance(frame, Rejected):
                    raise frame.failure.error()
                if not isinstance(frame, Answer | Part):
                    raise HostGone("The host answered out of turn.", hint="It may be of another version: end it.")
                body += piece
                if isinstance(frame, Answer):
                    result = frame.result
                if not frame.more:
                    return model.model_validate_json(bytes(body[:result])), bytes(body[result:])
        except (wire.FrameError, ValidationError) as error:
            raise HostGone(
                "The host speaks another version.",
                hint="Look whether it was done. End that host, as `kortix host` says, before you repeat it.",
            ) from error
    raise HostGone("The host went before it answered.", hint="Look whether it was done, then repeat.")
