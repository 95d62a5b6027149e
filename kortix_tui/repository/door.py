"""Git's smart HTTP for one session, independent of what carries the HTTP.

Protocol 0 only: version 2 serves every object whose id is known. A session sees the base branch and its own branch,
and may change its own branch and add rescued work, nothing else. That rule is held three times: by the door itself,
which reads the ref changes before git does; by git's hidden refs; and by the admission hook.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs

from kortix_tui.base.errors import DeadlineExceeded, GitFailed
from kortix_tui.base.text import visible_line
from kortix_tui.repository import names, pktline
from kortix_tui.repository.admission import AdmissionCaps, HookSettings, install_hook, ref_fault
from kortix_tui.repository.errors import clean_stderr
from kortix_tui.repository.inquiry import Inquiry
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.pack_scan import PackRefused, PackScan
from kortix_tui.repository.pktline import BadPacket
from kortix_tui.repository.process import Git, Limits, feed, tail
from kortix_tui.repository.streams import (
    Chunks,
    Push,
    TooLarge,
    Watch,
    bounded,
    discard,
    feed_push,
    read_push,
    timely,
    unpacked,
)
from kortix_tui.repository.value_scan import FoundValue, ValueScan, ascii_words

_MIB = 1 << 20
_REQUEST_BYTES = 16 * _MIB
_ANSWER_BYTES = 4 * _MIB
_PUSH = Limits(wall_s=120.0, cpu_s=30)
_ADVERTISE = Limits(wall_s=60.0, output_bytes=16 * _MIB)
# A clone of a large project is honest work: more time than a push, in pieces that must keep moving.
_UPLOAD = Limits(wall_s=900.0, cpu_s=300, memory_bytes=2 << 30)
_REQUEST_S = 240.0
_IDLE_S = 30.0
_UPLOADS = 4

_FSCK_ERRORS = ("gitattributesSymlink", "badFilemode", "gitmodulesSymlink", "zeroPaddedFilemode")
_NO_CACHE = (
    ("Expires", "Fri, 01 Jan 1980 00:00:00 GMT"),
    ("Pragma", "no-cache"),
    ("Cache-Control", "no-cache, max-age=0, must-revalidate"),
)


class Access(StrEnum):
    """What a door lets through."""

    FULL = "full"
    READ = "read"
    """Fetch everything visible, push rescued work only: an agent without the grant to push."""
    PUSH_ONLY = "push_only"
    """Rescued work only: nothing can be fetched."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """What became of one ref change; `reason` says why it was not made, in fixed words or git's. Safe to show."""

    ref: str
    old: str
    new: str
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PushReport:
    """One push as the host saw it.

    Attributes:
        session_id: Whose.
        updates: What became of each ref change.
        head_number: The number under which a new head is kept.
        values: Where values of secrets are in it. A branch with one is refused; rescued work is let in.
        unsearched: Why it was not searched for values although there may be some; safe to show.
    """

    session_id: str
    updates: tuple[RefUpdate, ...]
    head_number: int | None = None
    values: tuple[FoundValue, ...] = ()
    unsearched: str | None = None

    @property
    def is_refused(self) -> bool:
        """Whether nothing of it was taken."""
        return not any(update.accepted for update in self.updates)


@dataclass(frozen=True, slots=True)
class DoorAnswer:
    """An HTTP answer. Whoever gets it must read `body` to the end or `aclose()` it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: Chunks


class GitDoor:
    """The git service of one session.

    Args:
        mirror: The project's mirror; the session's branch must exist in it.
        session_id: Whose door this is.
        base_branch: What the session may read besides its own branch, and never write.
        access: Can be changed at any time; holds for the next request.
        caps: What one push may bring.
        scan: The values that no branch may hold; `None`: there are none.
        on_push: Told of every push that names a ref, refused ones included, before the pusher hears the answer.
        idle_s: Seconds without a byte from or to the client until it is cut off.
    """

    def __init__(
        self,
        mirror: Mirror,
        session_id: str,
        base_branch: str,
        *,
        access: Access = Access.FULL,
        caps: AdmissionCaps | None = None,
        scan: ValueScan | None = None,
        on_push: Callable[[PushReport], Awaitable[None]] | None = None,
        idle_s: float = _IDLE_S,
    ) -> None:
        self.access = access
        self.rescue_number: int | None = None
        """The only number under which work may be rescued now; any, as long as nobody has set one."""
        self._mirror = mirror
        self._session = names.check_session(session_id)
        self._base = names.check_branch(base_branch)
        self._caps = caps or AdmissionCaps()
        self._scan = scan
        self._on_push = on_push
        self._idle_s = idle_s
        self._uploads = asyncio.Semaphore(_UPLOADS)
        self._pushing = asyncio.Lock()
        self._rescuing = asyncio.Lock()

    async def handle(
        self, method: str, tail: str, query: str, headers: Mapping[str, str], body: AsyncIterator[bytes]
    ) -> DoorAnswer:
        """Serve one request.

        Args:
            method: The HTTP method.
            tail: The path below the repository: `info/refs`, `git-upload-pack` or `git-receive-pack`.
            query: The raw query string.
            headers: With names in lower case.
            body: The request's body as it comes in.

        Raises:
            DeadlineExceeded: The client stopped sending; close the connection.
        """
        if method == "GET" and tail == "info/refs":
            service = parse_qs(query, max_num_fields=8).get("service", [""])[0]
            # Whoever rescues work asks first what is outside already: ids of what the session can see anyway.
            asking = service == "git-upload-pack" and self.access is Access.PUSH_ONLY
            if not asking and not self._admits(service):
                return _plain(403, "This service is not available here.")
            return await self._advertise(service)
        if method == "POST" and tail in ("git-upload-pack", "git-receive-pack"):
            if not self._admits(tail):
                return _plain(403, "This service is not available here.")
            if headers.get("content-type", "") != f"application/x-{tail}-request":
                return _plain(415, "This content type is not served here.")
            return await self._post(tail, headers.get("content-encoding", ""), body)
        return _plain(404, "There is nothing here.")

    def _admits(self, service: str) -> bool:
        if service == "git-upload-pack":
            return self.access in (Access.FULL, Access.READ)
        return service == "git-receive-pack" and self.access is not Access.NONE

    # ---- what git is told -----------------------------------------------------------------------------------

    def _upload_git(self) -> Git:
        shown = {names.branch_ref(self._base), names.session_ref(self._session)}
        hidden = ["refs/", *(f"!{ref}" for ref in sorted(shown))]
        if self._mirror.head_ref() not in shown:
            hidden.append("HEAD")
        return self._mirror.git.having(
            *(f"uploadpack.hideRefs={ref}" for ref in hidden),
            "uploadpack.allowFilter=false",
            "uploadpack.allowAnySHA1InWant=false",
            "uploadpack.allowRefInWant=false",
            "protocol.version=0",
        )

    async def _receive_git(self, verdict: str, inquiry: int | None = None) -> Git:
        hooks = await install_hook(self._mirror.path)
        settings = HookSettings(
            session_id=self._session, base_branch=self._base, verdict=verdict, inquiry=inquiry, caps=self._caps
        )
        own = (names.session_ref(self._session), names.rescue_prefix(self._session).rstrip("/"))
        git = self._mirror.git if inquiry is None else self._mirror.git.holding(inquiry)
        return git.having(
            f"core.hooksPath={hooks}",
            "receive.hideRefs=refs/",
            *(f"receive.hideRefs=!{ref}" for ref in own),
            "receive.fsckObjects=true",
            *(f"receive.fsck.{name}=error" for name in _FSCK_ERRORS),
            f"receive.maxInputSize={self._caps.pack_bytes}",
            "receive.denyDeletes=true",
            "receive.unpackLimit=1",
            "receive.autogc=false",
            "receive.advertisePushOptions=false",
            "receive.advertiseAtomic=false",
            "protocol.version=0",
            environment=settings.environment(),
        )

    # ---- requests -------------------------------------------------------------------------------------------

    async def _advertise(self, service: str) -> DoorAnswer:
        command = service.removeprefix("git-")
        git = self._upload_git() if command == "upload-pack" else await self._receive_git("")
        async with self._uploads:
            refs = await git.run(
                command, "--stateless-rpc", "--advertise-refs", str(self._mirror.path), limits=_ADVERTISE
            )
        listing = refs.stdout
        if command == "receive-pack":
            # A thin pack could name a hidden object as the base of a difference and so get at its content.
            listing = pktline.with_capability(listing, b"no-thin")
        content = pktline.packet(f"# service={service}\n".encode("ascii")) + pktline.FLUSH + listing
        return _whole(f"application/x-{service}-advertisement", content)

    async def _post(self, service: str, encoding: str, body: AsyncIterator[bytes]) -> DoorAnswer:
        chunks = timely(body, self._idle_s)
        if encoding in ("gzip", "x-gzip"):
            chunks = unpacked(chunks)
        elif encoding not in ("", "identity"):
            return _plain(415, "This content encoding is not served here.")
        try:
            async with asyncio.timeout(_REQUEST_S):
                if service == "git-receive-pack":
                    return await self._receive(chunks)
                request = await bounded(chunks, _REQUEST_BYTES)
            return DoorAnswer(200, _headers(f"application/x-{service}-result"), self._upload(request))
        except TimeoutError as error:
            raise DeadlineExceeded("A git request took too long and was ended.") from error
        except BadPacket:
            return _plain(400, "The request is malformed.")
        except TooLarge:
            return _plain(413, "The request is too large.")
        finally:
            await chunks.aclose()

    async def _upload(self, request: bytes) -> Chunks:
        async with (
            self._uploads,
            self._upload_git().running("upload-pack", "--stateless-rpc", str(self._mirror.path), limits=_UPLOAD) as git,
        ):
            watch = Watch(git.process, self._idle_s, _UPLOAD.wall_s)
            words = asyncio.create_task(tail(git.stderr))
            sending = asyncio.create_task(feed(git.stdin, request))
            try:
                while chunk := await git.stdout.read(65536):
                    watch.touch()
                    yield chunk
                    watch.touch()
                await git.process.wait()
                if watch.fired:
                    raise DeadlineExceeded("A fetch stood still and was ended.")
            finally:
                watch.cancel()
                for task in (words, sending):
                    task.cancel()
                await asyncio.gather(words, sending, return_exceptions=True)

    async def _receive(self, body: Chunks) -> DoorAnswer:
        push = await read_push(body)
        if not push.commands:
            return _result(b"")  # git's question whether it may push at all, before a large one
        faults = [self._fault(command.ref, command.old, command.new) for command in push.commands]
        try:
            if any(faults):
                await discard(body, self._caps.pack_bytes)
                return await self._refuse(push, [fault or "another ref was refused" for fault in faults])
            own = any(command.ref == names.session_ref(self._session) for command in push.commands)
            # One push to the branch at a time, so that every head is kept; rescued work never waits for those.
            async with asyncio.timeout(_PUSH.wall_s), self._pushing if own else self._rescuing:
                return await self._admit(push, body)
        except TimeoutError:
            return await self._refuse(push, ["the push took too long"] * len(push.commands))
        except PackRefused as refusal:
            await discard(body, self._caps.pack_bytes)
            return await self._refuse(push, [refusal.message] * len(push.commands))
        except TooLarge:
            return await self._refuse(push, ["the push is too large"] * len(push.commands))

    def _fault(self, ref: str, old: str, new: str) -> str | None:
        fault = ref_fault(
            ref, old, new, session_id=self._session, base_branch=self._base,
            rescue_only=self.access is not Access.FULL,
        )  # fmt: skip
        prefix = names.rescue_prefix(self._session)
        if fault is None and ref.startswith(prefix) and self.rescue_number is not None:
            # The agent has the same token as the rescue: it must neither take numbers nor make thousands of refs.
            return None if ref == f"{prefix}{self.rescue_number}" else "the host did not ask for this rescue"
        if fault is None and ref == names.session_ref(self._session) and self._scan is not None:
            barred = self._scan.barred()
            return ascii_words(barred) if barred is not None else None
        return fault

    async def _refuse(self, push: Push, reasons: list[str]) -> DoorAnswer:
        pairs = list(zip(push.commands, reasons, strict=True))
        updates = tuple(
            RefUpdate(visible_line(command.ref), command.old, command.new, accepted=False, reason=why)
            for command, why in pairs
        )
        await self._tell(PushReport(self._session, updates))
        return _result(pktline.refusal([(command.ref, why) for command, why in pairs], push.capabilities))

    async def _admit(self, push: Push, body: Chunks) -> DoorAnswer:
        # The head that may be rewritten now is kept first, the new one before the pusher hears of success: there is
        # no instant at which a head that was accepted exists only on the branch.
        before = await self._mirror.head(self._session)
        if before is not None:
            await self._mirror.keep_head(self._session, before)
        verdict = self._mirror.path / "kortix" / f"verdict-{secrets.token_hex(8)}"
        inquiry = self._inquiry(push)
        try:
            async with inquiry.running() as descriptor:
                git = await self._receive_git(str(verdict), descriptor)
                answer, words = await self._run_receive(git, push, body)
            judged = verdict.read_text("ascii").strip() if verdict.is_file() else ""
        finally:
            verdict.unlink(missing_ok=True)
        refs = await self._mirror.refs(*(command.ref for command in push.commands))
        updates = []
        for command in push.commands:
            accepted = refs.get(command.ref) == command.new
            if accepted and judged != "accepted" and command.old != command.new:
                raise GitFailed("A push was taken without being checked.", hint="Run kortix doctor.")
            why = "" if accepted else judged.removeprefix("refused ") if judged.startswith("refused ") else words
            updates.append(RefUpdate(command.ref, command.old, command.new, accepted, why))
        number = None
        for update in updates:
            if update.accepted and update.ref == names.session_ref(self._session):
                number = await self._mirror.keep_head(self._session, update.new)
        report = PushReport(self._session, tuple(updates), number, inquiry.found, inquiry.unsearched)
        await self._tell(report)
        return _result(answer)

    def _inquiry(self, push: Push) -> Inquiry:
        """What has to be searched: rescued work was let in whatever it holds, so it does not count for a branch."""
        own = names.session_ref(self._session)
        known = [names.branch_ref(self._base), own, names.heads_prefix(self._session)]
        binding = any(command.ref == own for command in push.commands)
        if not binding:
            known.append(names.rescue_prefix(self._session))
        return Inquiry(
            self._mirror,
            self._scan,
            tips=[command.new for command in push.commands],
            known=known,
            binding=binding,
            objects=self._caps.objects,
        )

    async def _run_receive(self, git: Git, push: Push, body: Chunks) -> tuple[bytes, str]:
        """Let git take the push. Returns its answer to the pusher, and the last words of its standard error."""
        async with git.running(
            "receive-pack", "--stateless-rpc", "--reject-thin-pack-for-testing", str(self._mirror.path), limits=_PUSH
        ) as running:
            words = asyncio.create_task(tail(running.stderr))
            scan = PackScan(self._caps, len(self._mirror.object_format.zero) // 2)
            sending = asyncio.create_task(feed_push(running.stdin, push, body, scan, self._caps.pack_bytes + _MIB))
            answer = b""
            try:
                while chunk := await running.stdout.read(65536):
                    answer += chunk
                    if len(answer) > _ANSWER_BYTES:
                        raise GitFailed("git receive-pack printed too much.")
                await running.process.wait()
                await sending
                said = clean_stderr(await words, lines=1)
            finally:
                for task in (words, sending):
                    task.cancel()
                await asyncio.gather(words, sending, return_exceptions=True)
        return answer, said or "refused by git"

    async def _tell(self, report: PushReport) -> None:
        if self._on_push is not None:
            await self._on_push(report)


async def _once(content: bytes) -> Chunks:
    if content:
        yield content


def _headers(content_type: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", content_type), *_NO_CACHE)


def _whole(content_type: str, content: bytes, status: int = 200) -> DoorAnswer:
    headers = (*_headers(content_type), ("Content-Length", str(len(content))))
    return DoorAnswer(status, headers, _once(content))


def _result(content: bytes) -> DoorAnswer:
    return _whole("application/x-git-receive-pack-result", content)


def _plain(status: int, words: str) -> DoorAnswer:
    return _whole("text/plain; charset=us-ascii", words.encode("ascii") + b"\n", status)
