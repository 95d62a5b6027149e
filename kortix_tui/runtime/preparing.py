"""What a session needs before its sandbox starts: the newest base, the plan that the base states, and an image."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter

from kortix_tui.base.errors import DeadlineExceeded, DiskFull, GitFailed, KortixError, NotFound
from kortix_tui.manifest.check import Report, check
from kortix_tui.manifest.plan import AgentPlan, TemplatePlan, plan_agent
from kortix_tui.repository.errors import SourceMissing
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.names import branch_ref
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.views import BUILD_MARK
from kortix_tui.sandbox.images import Images, Template
from kortix_tui.store.models import Session

FETCH_S = 120.0
READ_S = 20.0
AGAIN_S = 10.0
"""Longest time that a turn waits for the source to say whether a grant was tightened."""
Note = Callable[[str], None]
_PLAN: TypeAdapter[AgentPlan] = TypeAdapter(AgentPlan)


class CommitSource:
    """The manifest's files at one commit, for the reader that runs in a worker thread."""

    def __init__(self, mirror: Mirror, commit: str, loop: asyncio.AbstractEventLoop) -> None:
        self._mirror = mirror
        self._commit = commit
        self._loop = loop

    def read(self, path: str) -> bytes | None:
        """The bytes of a regular file at the commit."""
        return asyncio.run_coroutine_threadsafe(self._mirror.read(self._commit, path), self._loop).result(READ_S)

    def list(self, path: str) -> list[str]:
        """All regular files below a folder at the commit, as repository paths."""
        paths = self._mirror.tree(self._commit, path)
        return list(asyncio.run_coroutine_threadsafe(paths, self._loop).result(READ_S))


async def read_manifest(mirror: Mirror, commit: str) -> Report:
    """Read and check the manifest at a commit."""
    source = CommitSource(mirror, commit, asyncio.get_running_loop())
    return await asyncio.to_thread(check, source)


async def manifest_faults(mirror: Mirror, commit: str) -> tuple[str, ...]:
    """The errors that make the manifest at a commit invalid, each with file and line."""
    report = await read_manifest(mirror, commit)
    if report.missing:
        return tuple(fault.message for fault in report.errors)
    return tuple(f"{fault.file}:{fault.line}: {fault.message}" for fault in report.faults if fault.level == "error")


def check_space(folder: Path) -> None:
    """Refuse to start work on a disk that is nearly full: what cannot be recorded must not be done.

    Raises:
        DiskFull: Less than 1 GiB or 2 % is free, whichever is more.
    """
    usage = shutil.disk_usage(folder)
    needed = max(1 << 30, usage.total // 50)
    if usage.free < needed:
        raise DiskFull(
            f"Only {usage.free >> 20:,} MiB are free on the disk of {folder}; {needed >> 20:,} MiB are needed.",
            hint="Remove old sessions (`kortix sessions rm`) and unused images (`kortix sandboxes rm`), then resume.",
        )


class Preparing:
    """Plans and images, shared by all runners of one host."""

    def __init__(self, context: Context, ledger: Ledger, images: Images) -> None:
        self._context = context
        self._ledger = ledger
        self._images = images
        self._mirrors: dict[str, Mirror] = {}
        self._reports: dict[tuple[str, str], Report] = {}
        self._opening = asyncio.Lock()

    async def mirror(self, project_id: str) -> Mirror:
        """The project's mirror, opened once."""
        async with self._opening:
            if project_id not in self._mirrors:
                self._mirrors[project_id] = await Mirror.open(self._context.home.mirror(project_id))
            return self._mirrors[project_id]

    async def plan(self, session: Session, note: Note) -> AgentPlan:
        """The session's plan: pinned to the base commit of its first start, whatever happened since (I3).

        Raises:
            NotFound: The base branch or the manifest is missing.
            InvalidInput: The manifest on the base branch has errors; the first is named.
        """
        check_space(self._context.home.path)
        if session.base_commit is not None:
            return self.pinned(session)
        project = self._ledger.project(session.project_id)
        mirror = await self.mirror(project.id)
        await mirror.fetch(project.source, base=session.base_branch, wall_s=FETCH_S)
        commit = await mirror.resolve(branch_ref(session.base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {session.base_branch}.", hint="Try again: it moved just now.")
        report = await self.report(project.id, mirror, commit)
        plan = plan_agent(report, session.agent or None, template=session.template, settings=self._context.settings)
        await self._ledger.pin(
            session, base_commit=commit, agent=plan.name, template=plan.template.slug, image=None,
            plan=_PLAN.dump_json(plan).decode(),
        )  # fmt: skip
        return plan

    async def branch(self, session: Session) -> None:
        """Make the session's branch at its base, once; needed when the sandbox clones, not before."""
        if self.pinned(session).repository_access:
            mirror = await self.mirror(session.project_id)
            await mirror.create_session_branch(session.id, session.base_commit or "")

    async def report(self, project_id: str, mirror: Mirror, commit: str) -> Report:
        """The manifest at a commit, read once."""
        key = (project_id, commit)
        if key not in self._reports:
            if len(self._reports) > 64:
                self._reports.clear()
            self._reports[key] = await read_manifest(mirror, commit)
        return self._reports[key]

    async def base_report(self, session: Session, note: Note | None) -> Report:
        """The manifest on the base branch as it is now, which tightens what was pinned (I3).

        Args:
            session: Whose base branch.
            note: Told when the source cannot be reached; then, and without it, the mirror's last state counts.

        Raises:
            NotFound: The branch is gone.
            GitFailed: The mirror cannot be read.
        """
        project = self._ledger.project(session.project_id)
        mirror = await self.mirror(project.id)
        if note is not None:
            try:
                await mirror.fetch(project.source, base=session.base_branch, wall_s=AGAIN_S)
            except (GitFailed, DeadlineExceeded, SourceMissing) as error:
                note(f"The grants are those of the last fetch; the source cannot be read now: {error.message}")
        commit = await mirror.resolve(branch_ref(session.base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {session.base_branch}.", hint="Fetch the project anew.")
        return await self.report(project.id, mirror, commit)

    def pinned(self, session: Session) -> AgentPlan:
        """The plan that was pinned at the first start."""
        text = self._ledger.plan(session.id)
        if text is None:
            raise NotFound(f"Session {session.id} was never started.", hint="Run `kortix sessions resume`.")
        return _PLAN.validate_json(text)

    async def image(self, session: Session, plan: AgentPlan, note: Note) -> str:
        """The image of the session's template, built when it is missing, with progress in the session's record."""
        template = await self._template(session, plan.template)
        image = await self._images.find(template)
        if image is None:
            note(f"Building the image of template {plan.template.slug}; this happens once.")
            image = await self._images.ensure(template, lambda line: note(f"{BUILD_MARK}{line}"))
        if image != session.image:
            await self._ledger.use_image(session, image)
        return image

    async def _template(self, session: Session, plan: TemplatePlan) -> Template:
        if plan.dockerfile is None:
            return Template(slug=plan.slug, image=plan.image)
        mirror = await self.mirror(session.project_id)
        return await template_at(mirror, session.base_commit or "", plan)

    async def forget(self, session: Session) -> None:
        """Remove the session's branch from the mirror; kept heads and rescues stay."""
        try:
            mirror = await self.mirror(session.project_id)
        except KortixError:
            return  # the mirror is gone, and the branch with it
        await mirror.forget(session.id)


async def template_at(mirror: Mirror, commit: str, plan: TemplatePlan) -> Template:
    """A Dockerfile template with the files of its folder, as they are at a commit of the base branch.

    Raises:
        NotFound: The commit has no such Dockerfile.
    """
    path = plan.dockerfile or ""
    content = await mirror.read(commit, path)
    if content is None:
        raise NotFound(f"Template {plan.slug}: {path} is not on the base branch.", hint="Commit it there first.")
    folder = path.rpartition("/")[0]
    files = dict[str, bytes]()
    for name in await mirror.tree(commit, folder) if folder else []:
        data = await mirror.read(commit, name, limit=16 << 20)
        if data is not None:
            files[name.removeprefix(folder + "/")] = data
    return Template(slug=plan.slug, dockerfile=content, files=files)
