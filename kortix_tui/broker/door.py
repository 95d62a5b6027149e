"""Routes of a session's door: the supervisor's channel, the agent's verbs, git, the way to the network.

Which session this is follows from the socket alone. Tokens are a second lock, compared in constant time. There is no
verb that merges, approves or names another session (invariants I1 and I11): there is nothing to call.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError

from kortix_tui.base.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    KortixError,
    NotFound,
    Refused,
    VaultFailed,
)
from kortix_tui.broker.egress import EgressProxy, is_proxied
from kortix_tui.broker.http import Answer, Request, Response, Upgrade, error_response, json_response, read_body
from kortix_tui.broker.services import CallReport, CallWish, ChangeProposal, ConnectorService, DoorServices, SecretWish
from kortix_tui.sandbox.channel import Channel

PROTOCOL = "kortix/1"
BODY_LIMIT = 8 << 20
_GIT = "/v1/git/repo.git/"
_CALL = re.compile(r"/v1/agent/calls/([a-z0-9_]{1,64})(/output)?")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:; ?[A-Za-z0-9=\"_.-]+){0,4}")
_SECRET_REQUEST = re.compile(r"/v1/agent/secrets/request/([a-z0-9_]{1,64})")
_STATUS: tuple[tuple[type[KortixError], int], ...] = (
    (NotFound, 404),
    (InvalidInput, 422),
    (Conflict, 409),
    (Refused, 403),
    (VaultFailed, 503),
    (DeadlineExceeded, 504),
)
M = TypeVar("M", bound=BaseModel)
Verb = Callable[[Request], Awaitable[Response]]


class Door:
    """Answers the requests of one session's sandbox; the handler of a `DoorListener`.

    Args:
        services: What stands behind it.
        root_uids: How the kernel names the sandbox's root to us: 0, or another number where the engine maps users.
    """

    def __init__(self, services: DoorServices, *, root_uids: frozenset[int] = frozenset({0})) -> None:
        self._services = services
        self._root_uids = root_uids
        self._verbs: Mapping[tuple[str, str], Verb] = {
            ("GET", "/v1/agent/session"): self._session,
            ("GET", "/v1/agent/cr"): self._changes,
            ("POST", "/v1/agent/cr"): self._open_change,
            ("POST", "/v1/agent/cr/merge"): self._merge,
            ("GET", "/v1/agent/secrets"): self._secrets,
            ("POST", "/v1/agent/secrets/request"): self._request_secret,
            ("GET", "/v1/agent/connectors"): self._connectors,
            ("GET", "/v1/agent/actions"): self._actions,
            ("POST", "/v1/agent/calls"): self._call,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer one request."""
        if is_proxied(request):
            return await EgressProxy(self._services.egress, self._services.agent_token).handle(request)
        if request.path == "/v1/supervisor":
            return self._supervisor(request)
        if not request.path.startswith(("/v1/agent/", _GIT)):
            return error_response(404, "not_found", "There is nothing here.")
        if not _same(request.bearer(), self._services.agent_token):
            return _unauthorized()
        try:
            if request.path.startswith(_GIT):
                return await self._git(request)
            if request.method == "GET" and (asked := _SECRET_REQUEST.fullmatch(request.path)):
                return _model(200, await self._services.secrets.report(asked[1]))
            if request.method == "GET" and (called := _CALL.fullmatch(request.path)):
                return await self._called(called[1], request, output=called[2] is not None)
            verb = self._verbs.get((request.method, request.path))
            if verb is None:
                return error_response(404, "not_found", "There is no such verb for agents.")
            return await verb(request)
        except KortixError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return error_response(status, error.code, error.message, error.hint)

    def _supervisor(self, request: Request) -> Response | Upgrade:
        if request.method != "POST" or (request.header("upgrade") or "").lower() != PROTOCOL:
            return error_response(426, "upgrade_required", f"Ask for {PROTOCOL} with POST and Upgrade.")
        key = self._services.channel_key
        if request.peer.uid not in self._root_uids or (key is not None and not _same(request.bearer(), key)):
            return error_response(403, "forbidden", "Only the sandbox's supervisor may do this.")
        return Upgrade(PROTOCOL, self._supervise)

    async def _supervise(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trailing: bytes) -> None:
        channel = Channel(reader, writer, trailing)
        try:
            await self._services.supervise(channel)
        finally:
            await channel.close()

    async def _git(self, request: Request) -> Response:
        git = self._services.git
        if git is None:
            return error_response(403, "refused", "This agent has no access to the repository.")
        headers = dict(reversed(request.headers))  # the first of a repeated name counts
        tail = request.path.removeprefix(_GIT)
        answer = await git.handle(request.method, tail, request.query, headers, request.body)
        return Response(answer.status, answer.body, answer.headers)

    async def _session(self, request: Request) -> Response:
        return _model(200, await self._services.session())

    async def _changes(self, request: Request) -> Response:
        changes = await self._services.changes()
        return json_response(200, [change.model_dump(mode="json") for change in changes])

    async def _open_change(self, request: Request) -> Response:
        return _model(201, await self._services.open_change(await _read(request, ChangeProposal)))

    async def _secrets(self, request: Request) -> Response:
        secrets = await self._services.secrets.list()
        return json_response(200, [secret.model_dump(mode="json") for secret in secrets])

    async def _request_secret(self, request: Request) -> Response:
        return _model(201, await self._services.secrets.request(await _read(request, SecretWish)))

    async def _connectors(self, request: Request) -> Response:
        connectors = await self._brokering().connectors()
        return json_response(200, [connector.model_dump(mode="json") for connector in connectors])

    async def _actions(self, request: Request) -> Response:
        wanted = parse_qs(request.query).get("connector")
        actions = await self._brokering().actions(wanted[0] if wanted else None)
        return json_response(200, [action.model_dump(mode="json") for action in actions])

    async def _call(self, request: Request) -> Response:
        return self._reported(await self._brokering().call(await _read(request, CallWish)))

    async def _called(self, call_id: str, request: Request, *, output: bool) -> Response:
        if output:
            data, media_type = await self._brokering().output(call_id)
            plain = _MEDIA_TYPE.fullmatch(media_type) is not None
            return Response(200, data, (("content-type", media_type if plain else "application/octet-stream"),))
        asked = parse_qs(request.query)
        report = await self._brokering().report(call_id, _seconds(asked.get("wait")), asked.get("leave") == ["1"])
        return self._reported(report)

    def _reported(self, report: CallReport) -> Response:
        """A call's report. One that has its end and does not arrive is told to the session in another way."""
        answer = _model(200, report)
        return replace(answer, lost=partial(self._brokering().lost, report.id)) if report.state.final else answer

    def _brokering(self) -> ConnectorService:
        connectors = self._services.connectors
        if connectors is None:
            raise Refused("Nothing can be called now: the session's work is being saved.")
        return connectors

    async def _merge(self, request: Request) -> Response:
        await self._services.deny_merge()
        return error_response(
            403,
            "agent_human_only_action",
            "merge is default-deny for agents",
            "Open a change request; a person merges it.",
        )


def _seconds(texts: list[str] | None) -> float:
    """How long a request may be held open, as the client says; longer holds are cut where it is served."""
    try:
        seconds = float(texts[0]) if texts else 0.0
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidInput("`wait` is not a number of seconds.")
    return seconds


async def _read(request: Request, model: type[M]) -> M:
    try:
        return model.model_validate_json(await read_body(request, BODY_LIMIT))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "body"
        raise InvalidInput(f"{where}: {fault['msg']}.") from error


def _same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


def _unauthorized() -> Response:
    answer = error_response(401, "unauthorized", "The agent's token is missing or wrong.")
    return Response(answer.status, answer.body, (*answer.headers, ("www-authenticate", "Bearer")))


def _model(status: int, model: BaseModel) -> Response:
    return Response(status, model.model_dump_json().encode(), (("content-type", "application/json"),))
