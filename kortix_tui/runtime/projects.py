"""Projects as the operator handles them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import Ambiguous, KortixError, NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.repository.source import is_url, locate_checkout
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.sessions import EDIT_ORIGIN
from kortix_tui.runtime.views import ProjectDetail
from kortix_tui.store.models import Project

ADD_DEADLINE_S = 900.0
READ_DEADLINE_S = 60.0
_WORK = f"FROM sessions WHERE project_id = ? AND removed_at IS NULL AND origin != '{EDIT_ORIGIN}'"


class AddProject(BaseModel):
    """Request `project.create`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    slug: str | None
    base_branch: str | None


class Projects:
    """The project verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self) -> list[Project]:
        """All projects by slug."""
        self._context.reading("project.list", scope="all projects")
        rows = self._context.store.all(
            f"SELECT {Project.columns()} FROM projects WHERE removed_at IS NULL ORDER BY slug"
        )
        return [Project.of(row) for row in rows]

    def find(self, slug: str) -> Project:
        """The project of a slug.

        Raises:
            NotFound: There is none; the message names the choices.
        """
        projects = self.list()
        for project in projects:
            if project.slug == slug or project.id == slug:
                return project
        names = ", ".join(project.slug for project in projects) or "none yet"
        raise NotFound(f"No project «{visible_line(slug)}».", hint=f"Known: {names}. Add one: kortix projects add PATH")

    def resolve(
        self, slug: str | None = None, *, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Project:
        """The project a command means: named, `KORTIX_PROJECT_ID`, that of the folder, the only one.

        Raises:
            NotFound: There is no project, or the named one is unknown.
            Ambiguous: Several fit; the message names them.
        """
        variables = os.environ if environment is None else environment
        if named := slug or variables.get("KORTIX_PROJECT_ID"):
            return self.find(named)
        projects = self.list()
        root = locate_checkout(folder or Path.cwd())
        here = [project for project in projects if root is not None and project.source == str(root)]
        if here:
            return here[0]
        if len(projects) == 1:
            return projects[0]
        if not projects:
            raise NotFound("There is no project yet.", hint="Add one: kortix projects add PATH")
        raise Ambiguous(
            f"Which project? {', '.join(project.slug for project in projects)}.",
            hint="Give --project SLUG, set KORTIX_PROJECT_ID, or run the command inside the checkout.",
        )

    def add(self, source: str, *, slug: str | None = None, base_branch: str | None = None) -> Project:
        """Make a repository known: the host makes a bare mirror of it. Known already: the same project.

        Raises:
            NotFound: No git repository is there.
            Refused: The slug is taken, or the repository has no commit.
        """
        where = source if is_url(source) else str(Path(source).expanduser().absolute())
        payload = AddProject(source=where, slug=slug, base_branch=base_branch)
        shown = visible_line(where)
        return self._context.request(
            "project.create", payload, Project, scope=f"source {shown}", deadline_s=ADD_DEADLINE_S
        )

    def show(self, slug: str) -> ProjectDetail:
        """A project with the state of the operator's repository."""
        from kortix_tui.repository.source import inspect_source

        project, store = self.find(slug), self._context.store
        state, problem = None, None
        if project.kind != "url":
            try:
                state = inspect_source(Path(project.source)).model_dump(mode="json")
            except KortixError as error:
                problem = str(error)
        sessions = store.one(f"SELECT count(*) {_WORK}", (project.id,))
        changes = store.one(
            "SELECT count(*) FROM change_requests WHERE project_id = ? AND status = 'open'", (project.id,)
        )
        return ProjectDetail(
            project=project,
            source_state=state,
            problem=problem,
            sessions=sessions[0] if sessions else 0,
            open_changes=changes[0] if changes else 0,
        )

    def manifest_faults(self, project: Project) -> tuple[str, ...] | None:
        """Why no session of a project could start: what is wrong with `kortix.yaml` on its base.

        Returns:
            The faults; `None` where it is not known, because the base of a source on this machine has moved since it
            was fetched. The next session fetches it.

        Raises:
            GitFailed: The project's mirror or its source cannot be read.
        """
        return self._context.loop.call(self._manifest_faults(project), deadline_s=READ_DEADLINE_S)

    async def _manifest_faults(self, project: Project) -> tuple[str, ...] | None:
        from kortix_tui.repository.mirror import Mirror
        from kortix_tui.repository.names import branch_ref
        from kortix_tui.repository.remote import look_at
        from kortix_tui.runtime.preparing import manifest_faults

        mirror = await Mirror.open(self._context.home.mirror(project.id))
        commit = await mirror.resolve(branch_ref(project.base_branch))
        if commit is None:
            return None
        if project.kind != "url":
            refs = await look_at(project.source, wall_s=READ_DEADLINE_S)
            if refs.branches.get(project.base_branch) != commit:
                return None
        return await manifest_faults(mirror, commit)

    def move(self, slug: str, source: str) -> Project:
        """Tell the project that its repository lives elsewhere now."""
        project, context = self.find(slug), self._context
        root = source if is_url(source) else str(locate_checkout(Path(source).expanduser()) or "")
        if not root:
            raise NotFound(f"No git repository at {visible_line(source)}.", hint="Give the folder that holds it.")
        with context.store.write() as tx:
            tx.execute("UPDATE projects SET source = ? WHERE id = ?", (root, project.id))
            tx.audit("project.repository.link", scope=f"project {slug}", actor=context.actor, project_id=project.id)
        return self.find(slug)

    def remove(self, slug: str) -> Project:
        """Forget a project. Its mirror, rescue refs and records stay in the home; the operator's repository too.

        Raises:
            Refused: It still has sessions that are not removed, or open change requests.
        """
        project, context = self.find(slug), self._context
        with context.store.write() as tx:
            live = tx.execute(f"SELECT count(*) {_WORK}", (project.id,)).fetchone()[0]
            if live:
                raise Refused(
                    f"Project {slug} still has {live} session{'s' if live != 1 else ''}.",
                    hint=f"Remove them first: kortix sessions ls --project {slug}",
                )
            waiting = tx.execute(
                "SELECT count(*) FROM change_requests WHERE project_id = ? AND status = 'open'", (project.id,)
            ).fetchone()[0]
            if waiting:
                raise Refused(
                    f"Project {slug} still has {waiting} open change request{'s' if waiting != 1 else ''}.",
                    hint=f"Merge or close them first: kortix cr ls --project {slug}",
                )
            tx.execute("UPDATE projects SET removed_at = ? WHERE id = ?", (tx.now_text, project.id))
            tx.audit("project.delete", scope=f"project {slug}", actor=context.actor, project_id=project.id)
        return project
