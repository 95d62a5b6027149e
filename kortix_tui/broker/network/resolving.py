"""From a name to an address that may be connected to, without a second look-up in between.

A name is looked up once, every answer is judged, and the connection goes to the address that was judged. Whoever lets
another program look the name up again can be shown another answer.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from typing import ClassVar, Final, Literal, Protocol

from kortix_tui.base.errors import DeadlineExceeded, KortixError, Refused
from kortix_tui.base.settings import settings_file
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.network.addresses import IPNetwork, is_closed, is_named

Section = Literal["connectors", "egress"]

_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)")
_MOST_LOOKUPS: Final = 256
_MOST_TRIES: Final = 8

_lookups: Final = threading.BoundedSemaphore(_MOST_LOOKUPS)


class AddressRefused(Refused):
    """A host is written in a way that is not served, or leads to an address that is closed."""

    code: ClassVar[str] = "address_refused"


class Unreachable(KortixError):
    """A host has no address, or nothing answers there."""

    code: ClassVar[str] = "unreachable"


class Resolver(Protocol):
    """Looks names up."""

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        """Every address of a host, best first, as text.

        Raises:
            OSError: It has none, or nobody could be asked.
        """
        ...


async def system_resolver(host: str, port: int, /) -> Sequence[str]:
    """Looks a name up as the machine is configured to.

    Each look-up has a thread of its own that nobody waits for: names under a stranger's control can be slow to look up,
    and must hold up neither other work in the loop's threads nor the end of the program.
    """
    if not _lookups.acquire(blocking=False):
        raise OSError("too many names are being looked up")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(addresses: Sequence[str], error: OSError | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(error)

    def look_up() -> None:
        addresses: Sequence[str] = ()
        failure: OSError | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, OSError) else OSError("the name cannot be looked up")
        finally:
            _lookups.release()
        try:
            loop.call_soon_threadsafe(settle, addresses, failure)
        except RuntimeError:
            return  # the loop has ended, and whoever asked with it

    threading.Thread(target=look_up, name="look-up", daemon=True).start()
    return await answer


def checked_host(host: str) -> str:
    """A host as it is looked up: a name in lower case, or an address in its usual spelling, without brackets.

    Raises:
        AddressRefused: It is neither: other spellings of addresses (decimal, octal, hexadecimal, shortened) and names
            with a user, a zone or characters beyond ASCII mean different things to different programs.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare:
        try:
            address = ip_address(bare)
        except ValueError:
            raise _odd(host) from None
        if "%" in bare:
            raise _odd(host)
        return str(address)
    if bare != host:
        raise _odd(host)
    labels = bare.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ip_address(bare))
        except ValueError:
            raise _odd(host) from None
    if len(bare) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _odd(host)
    return bare.lower()


def _odd(host: str) -> AddressRefused:
    shown = shorten(visible_line(host), 100)
    return AddressRefused(
        f"`{shown}` is not a host in its usual spelling.",
        hint="Write a name in ASCII, or an address as `192.0.2.1` or `[2001:db8::1]`.",
    )


async def resolve(
    host: str,
    port: int,
    *,
    allow_private: Sequence[IPNetwork],
    deadline_s: float = 5.0,
    resolver: Resolver = system_resolver,
    named_only: bool = False,
    setting: Section = "connectors",
) -> tuple[str, ...]:
    """The addresses of a host, all of which are open.

    Args:
        allow_private: Networks that the operator opened; see `addresses.networks`.
        deadline_s: Seconds that the look-up may take.
        named_only: Take only addresses in `allow_private`, not public ones.
        setting: The section of config.yaml that `allow_private` comes from.

    Raises:
        AddressRefused: An answer is closed (then none is used), or the host is oddly written.
        Unreachable: The name has no address.
        DeadlineExceeded: The look-up took too long.
    """
    name = checked_host(host)
    if not 0 < port < 65536:
        raise AddressRefused(f"{port} is not a port.", hint="Ports are 1 to 65535.")
    try:
        literal = str(ip_address(name))
    except ValueError:
        answers = await _look_up(name, port, deadline_s, resolver)
    else:
        answers = (literal,)
    for answer in answers:
        _judge(name, answer, allow_private, named_only=named_only, setting=setting)
    return answers


async def _look_up(name: str, port: int, deadline_s: float, resolver: Resolver) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(deadline_s):
            answers = tuple(await resolver(name, port))
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"The name {name} was not found within {deadline_s:g} s.", hint="Check this machine's name servers."
        ) from error
    except OSError as error:
        raise Unreachable(
            f"The name {name} was not found: {error.strerror or error}.",
            hint="Check the spelling, and this machine's name servers.",
        ) from error
    if not answers:
        raise Unreachable(f"The name {name} has no address.", hint="Check the spelling.")
    return answers


def _judge(name: str, answer: str, allow_private: Sequence[IPNetwork], *, named_only: bool, setting: Section) -> None:
    try:
        address = ip_address(answer)
    except ValueError:
        raise AddressRefused(f"{name} leads to something that is not an address.") from None
    where = name if name == answer else f"{name} leads to {answer}, and that"
    closed = is_closed(address, allow_private)
    if closed is not None:
        raise AddressRefused(
            f"{where} is {closed}; nothing was sent.",
            hint=f"If it is meant, the operator names its network under {setting}.allow_private in {settings_file()}. "
            "Metadata services stay closed always.",
        )
    if named_only and not is_named(address, allow_private):
        raise AddressRefused(
            f"{where} is a public address, which is reached by https only; nothing was sent.",
            hint="Write `https://`.",
        )


async def connect(
    host: str,
    port: int,
    *,
    allow_private: Sequence[IPNetwork],
    deadline_s: float = 10.0,
    resolver: Resolver = system_resolver,
    setting: Section = "connectors",
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Open a TCP connection to a host, and say to which address.

    Args:
        allow_private: Networks that the operator opened; see `addresses.networks`.
        deadline_s: Seconds for all: the look-up, and every address that is tried.
        setting: The section of config.yaml that `allow_private` comes from.

    Raises:
        AddressRefused: The host is closed, or oddly written.
        Unreachable: It has no address, or nothing answers there.
        DeadlineExceeded: It took too long.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    found = await resolve(
        host, port, allow_private=allow_private, deadline_s=deadline_s, resolver=resolver, setting=setting
    )
    addresses = found[:_MOST_TRIES]
    failure: OSError | None = None
    for at, address in enumerate(addresses):
        try:
            async with asyncio.timeout(share(end - loop.time(), len(addresses) - at)):
                reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:  # TimeoutError is one
            failure = error
        else:
            return reader, writer, address
    if isinstance(failure, TimeoutError):
        raise DeadlineExceeded(f"{host}:{port} did not answer within {deadline_s:g} s.") from failure
    raise Unreachable(f"{host}:{port} cannot be reached: {_reason(failure)}.") from failure


def share(remaining_s: float, tries: int) -> float:
    """Seconds for the next of so many tries, so that one silent address leaves time for the others."""
    return max(0.0, remaining_s) / max(1, tries)


def _reason(error: OSError | None) -> str:
    strerror = error.strerror if error is not None else None
    return strerror.lower() if strerror and strerror.isprintable() else "no connection"
