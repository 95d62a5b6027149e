"""Making a repository known: the host's part of `kortix projects add`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.ids import SLUG, new_id, slugify
from kortix_tui.base.paths import Home
from kortix_tui.base.text import visible_line
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.source import inspect_source, is_url
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.projects import AddProject
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Project

CLONE_S = 840.0


async def add_project(home: Home, ledger: Ledger, wanted: AddProject, actor: Actor) -> Project:
    """Mirror a repository and write its row. Repeated after a crash it finds or makes the same project.

    Raises:
        NotFound: There is no repository.
        InvalidInput: The slug has a wrong form.
        Refused: Another project has the slug.
    """
    source, kind = await _place(wanted.source)
    known = _known(ledger, source)
    if known is not None:
        if wanted.slug not in (None, known.slug):
            raise Refused(f"That repository is project {known.slug} already.", hint="Remove it first to rename it.")
        return known
    slug = _slug(ledger, wanted.slug, source)
    identity = new_id("prj")
    # The folder is made under the id before the row exists; what a crash leaves is swept by the next host.
    try:
        mirror, refs = await Mirror.create_from(home.mirror(identity), source, wall_s=CLONE_S)
        base = refs.base(wanted.base_branch)
        commit = await mirror.copy_base(base)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, home.mirror(identity), ignore_errors=True)
        raise

    def write(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO projects (id, slug, source, kind, base_branch, base_commit, owner, created_at, fetched_at)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            (identity, slug, source, kind, base, commit, actor.name, tx.now_text, tx.now_text),
        )
        tx.audit(
            "project.repository.link", scope=f"project {slug}", actor=actor, project_id=identity,
            source=visible_line(source), base=base,
        )  # fmt: skip

    await ledger.write(write)
    return ledger.project(identity)


async def _place(source: str) -> tuple[str, str]:
    if is_url(source):
        return source, "url"
    state = await asyncio.to_thread(inspect_source, Path(source))
    return str(state.root), "bare" if state.bare else "checkout"


def _known(ledger: Ledger, source: str) -> Project | None:
    row = ledger.store.one(
        f"SELECT {Project.columns()} FROM projects WHERE source = ? AND removed_at IS NULL", (source,)
    )
    return Project.of(row) if row else None


def _slug(ledger: Ledger, wanted: str | None, source: str) -> str:
    taken = {row[0] for row in ledger.store.all("SELECT slug FROM projects WHERE removed_at IS NULL")}
    if wanted is not None:
        if not SLUG.match(wanted):
            raise InvalidInput(
                f"«{visible_line(wanted)}» is no slug.", hint="Use a-z, 0-9 and -, beginning with a letter or digit."
            )
        if wanted in taken:
            raise Refused(f"Another project is called {wanted}.", hint="Choose another --slug.")
        return wanted
    name = slugify(source.rstrip("/").rpartition("/")[2].removesuffix(".git"))
    candidates = [name, *(f"{name[:60]}-{n}" for n in range(2, 100))]
    return next(candidate for candidate in candidates if candidate not in taken)


def sweep_mirrors(home: Home, store: Store) -> None:
    """Remove mirrors that no project ever named: a host died while it made them."""
    known = {f"{row[0]}.git" for row in store.all("SELECT id FROM projects")}
    for path in home.repositories.iterdir():
        if path.name not in known:
            shutil.rmtree(path, ignore_errors=True)
