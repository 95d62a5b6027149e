"""Edits of the manifest through the runtime: real git, a real store, the host in this process, no engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import desk as desk_module
import pytest
from desk import MANIFEST, git, make_repository, wait_for

from kortix_tui.base.errors import Conflict, InvalidInput, NotFound, Refused
from kortix_tui.base.ids import is_session_id, new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import ChangeStatus, SessionStatus, Wanted
from kortix_tui.manifest.granting import GrantAction, GrantEdit
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.editing import session_of
from kortix_tui.runtime.edits import REQUEST, EditManifest, EditResult
from kortix_tui.runtime.facade import Runtime

DOOMED = Path(desk_module.__file__).with_name("doomed_host.py")
GRANTED = "    kortix_permissions: [project.gitops.push, project.review.submit]\n    secrets: [STRIPE_API_KEY]\n"


class Bench:
    """A home with one project, and a host that has no engine."""

    def __init__(self, home: Home, repository: Path) -> None:
        self.home = home
        self.repository = repository
        settings = Settings.model_validate({"docker": {"endpoint": f"unix://{home.path}/no.sock"}})
        self.runtime = Runtime(home, settings, operator_actor("cli"))
        self.project = self.runtime.projects.add(str(repository))

    def grant(self, name: str = "STRIPE_API_KEY", *, agent: str = "script", **options: Any) -> EditResult:
        return self.runtime.edits.grant(self.project, agent=agent, name=name, **options)

    def commit(self, text: str, message: str = "Later") -> str:
        """The operator commits another manifest on `main`."""
        (self.repository / "kortix.yaml").write_text(text)
        git(self.repository, "commit", "-qam", message)
        return git(self.repository, "rev-parse", "HEAD")

    def merge(self, number: int, **options: Any) -> None:
        self.runtime.changes.show(self.project, number)
        self.runtime.changes.merge(self.project, number, **options)

    def manifest(self, commit: str = "main") -> str:
        return git(self.repository, "show", f"{commit}:kortix.yaml") + "\n"

    def in_mirror(self, *arguments: str) -> str:
        return git(self.home.mirror(self.project.id), *arguments)

    def rows(self, query: str, *values: object) -> list[Any]:
        return self.runtime.context.store.all(query, values)

    @property
    def made(self) -> tuple[int, int, int]:
        """How many sessions, change requests and branches of sessions there are."""
        (sessions,), (changes,) = (
            self.rows(f"SELECT count(*) FROM {table}")[0] for table in ("sessions", "change_requests")
        )
        heads = self.in_mirror("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
        return sessions, changes, len([head for head in heads if is_session_id(head)])


@pytest.fixture
def bench(home: Home, repository: Path) -> Iterator[Bench]:
    git(repository, "config", "user.name", "Dana Op")
    git(repository, "config", "user.email", "dana@example.invalid")
    bench = Bench(home, repository)
    yield bench
    bench.runtime.close()


def test_a_grant_is_a_change_request_of_one_line_that_a_person_merges(bench: Bench) -> None:
    result = bench.grant()
    assert (result.project, result.number, result.already) == (bench.project.slug, 1, False)
    assert result.session_id is not None and result.head_commit is not None
    change = bench.runtime.changes.find(bench.project, 1)
    assert change.title == "Grant STRIPE_API_KEY to script" and change.status is ChangeStatus.OPEN
    assert (change.head_commit, change.session_id) == (result.head_commit, result.session_id)
    assert (change.files, change.additions, change.deletions) == (1, 1, 0)
    assert change.opened_by == bench.runtime.context.actor.label
    patch = bench.runtime.changes.patch(bench.project, 1)
    changed = [line for line in patch.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["+    secrets: [STRIPE_API_KEY]"]
    assert bench.manifest() == MANIFEST  # nothing is granted by asking
    author = bench.in_mirror("show", "-s", "--format=%an <%ae>|%cn|%s", result.head_commit)
    assert author == "Dana Op <dana@example.invalid>|Dana Op|Grant STRIPE_API_KEY to script"
    bench.merge(1)
    assert bench.manifest() == MANIFEST.replace(GRANTED.splitlines(keepends=True)[0], GRANTED)
    assert bench.runtime.changes.find(bench.project, 1).status is ChangeStatus.MERGED
    again = bench.grant("stripe_api_key")
    assert (again.number, again.session_id, again.already) == (None, None, True)
    back = bench.runtime.edits.revoke(bench.project, agent="script", name="STRIPE_API_KEY")
    assert (back.number, bench.runtime.changes.find(bench.project, 2).title) == (2, "Revoke STRIPE_API_KEY from script")
    bench.merge(2)
    assert "    secrets: []\n" in bench.manifest()
    assert bench.runtime.edits.revoke(bench.project, agent="script", name="STRIPE_API_KEY").already


def test_its_session_has_no_sandbox_and_stays_out_of_the_lists(bench: Bench) -> None:
    result = bench.grant()
    sessions = bench.runtime.sessions
    assert sessions.list() == []
    (view,) = sessions.list(removed=True)
    assert (view.id, view.origin, view.reason) == (result.session_id, "edit", "edit")
    assert (view.status, view.wanted) == (SessionStatus.STOPPED, Wanted.STOPPED) and "no sandbox" in (
        view.reason_text or ""
    )
    assert sessions.show(view.id).changes[0].number == 1
    for act in (lambda: sessions.prompt(view.id, "Do it"), lambda: sessions.resume(view.id)):
        with pytest.raises(Refused, match="has no agent"):
            act()
    assert bench.runtime.unfinished() == 0
    kept = bench.in_mirror("for-each-ref", "--format=%(refname) %(objectname)", "refs/kortix/heads")
    assert kept == f"refs/kortix/heads/{view.id}/1 {result.head_commit}"
    assert bench.rows("SELECT n, commit_id FROM heads WHERE session_id = ?", view.id) == [(1, result.head_commit)]
    assert bench.runtime.projects.show(bench.project.slug).sessions == 0
    bench.runtime.changes.close(bench.project, 1)
    bench.runtime.projects.remove(bench.project.slug)


def test_the_record_tells_who_asked(bench: Bench) -> None:
    result = bench.grant()
    label = bench.runtime.context.actor.label
    for event in ("session.create", "change_request.create"):
        rows = bench.rows("SELECT performed_by, session_id, project_id, detail FROM audit WHERE event = ?", event)
        assert [row[:3] for row in rows] == [(label, result.session_id, bench.project.id)]
    (detail,) = bench.rows("SELECT detail FROM audit WHERE event = 'session.create'")[0:1]
    assert '"name":"STRIPE_API_KEY"' in detail[0].replace(" ", "") and result.head_commit in detail[0]  # type: ignore[operator]


def test_the_same_edit_is_opened_once(bench: Bench) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: bench.grant(), range(4)))
    assert {(result.number, result.head_commit) for result in results} == {(1, results[0].head_commit)}
    assert sorted(result.already for result in results) == [False, True, True, True]
    assert bench.made == (1, 1, 1)
    bench.runtime.changes.close(bench.project, 1)
    assert (bench.grant().number, bench.made) == (2, (2, 2, 2))  # what a person closed is not opened again by itself


def test_two_edits_at_once_are_two_change_requests_and_the_later_follows_the_base(bench: Bench) -> None:
    bench.commit(MANIFEST.replace("  reader: {}\n", "  reader:\n    secrets: [A]  # one\n"))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda name: bench.grant(name, agent="reader"), ("B", "C"))
    assert {first.number, second.number} == {1, 2} and bench.made == (2, 2, 2)
    assert first.number is not None and second.number is not None
    bench.merge(first.number)
    bench.runtime.changes.show(bench.project, second.number)
    with pytest.raises(Refused, match="conflicts with main"):
        bench.runtime.changes.merge(bench.project, second.number)
    again = bench.grant("C", agent="reader")
    assert (again.number, again.session_id, again.already) == (second.number, second.session_id, True)
    assert again.moved and not second.moved
    assert again.head_commit != second.head_commit and bench.made == (2, 2, 2)
    with pytest.raises(Conflict, match="it moved"):  # another head needs another look
        bench.runtime.changes.merge(bench.project, second.number)
    bench.merge(second.number)
    assert "    secrets: [A, B, C]  # one\n" in bench.manifest()
    kept = bench.in_mirror("for-each-ref", "--format=%(objectname)", f"refs/kortix/heads/{second.session_id}")
    assert kept.splitlines() == [second.head_commit, again.head_commit]
    (number,) = bench.rows("SELECT count(*) FROM audit WHERE event = 'change_request.update'")[0]
    assert number == 1


def test_an_edit_starts_from_the_base_as_it_is_now(bench: Bench) -> None:
    moved = bench.commit(MANIFEST.replace("version: 2", "version: 2  # moved"))
    result = bench.grant()
    assert bench.in_mirror("rev-parse", f"{result.head_commit}^") == moved
    later = bench.commit(bench.manifest().replace("# moved", "# moved again"))
    assert (bench.grant().number, bench.grant().head_commit) == (1, result.head_commit)  # it still merges
    bench.merge(1)
    assert "# moved again" in bench.manifest() and "[STRIPE_API_KEY]" in bench.manifest()
    assert git(bench.repository, "merge-base", "--is-ancestor", later, "main") == ""


def test_an_edit_goes_to_the_file_that_declares_the_agent(bench: Bench) -> None:
    folder = bench.repository / "ops"
    folder.mkdir()
    imported = b"# agents of ops\r\nagents:\r\n  night: {file: agents/reader.md}\r\n"
    (folder / "agents.yaml").write_bytes(imported)
    os.chmod(folder / "agents.yaml", 0o755)
    git(bench.repository, "add", "-A")
    bench.commit(MANIFEST + "imports: [ops/]\n")
    result = bench.grant("A", agent="night")
    assert (
        bench.in_mirror("diff", "--name-only", f"{result.head_commit}^", str(result.head_commit)) == "ops/agents.yaml"
    )
    listed = bench.in_mirror("ls-tree", "-r", str(result.head_commit), "ops")
    assert listed.startswith("100755 blob ")
    command = ["git", "cat-file", "blob", f"{result.head_commit}:ops/agents.yaml"]
    text = subprocess.run(command, cwd=bench.home.mirror(bench.project.id), capture_output=True).stdout
    assert text == imported.replace(b"reader.md}", b"reader.md, secrets: [A]}")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"agent": "scrpt"}, NotFound, "Did you mean `script`"),
        ({"agent": ""}, InvalidInput, "The agent is empty"),
        ({"key": "models"}, InvalidInput, "is no grant"),
        ({"name": "A B"}, InvalidInput, "cannot be granted"),
        ({"key": "connectors", "name": "billing"}, InvalidInput, "would not be valid with this edit: kortix.yaml:8"),
        ({"key": "kortix_permissions", "name": "root"}, InvalidInput, "not a permission"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_made(
    bench: Bench, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught:
        bench.grant(**{"name": "STRIPE_API_KEY", **options})
    assert words in str(caught.value)
    assert bench.made == (0, 0, 0)


def test_a_manifest_that_is_broken_already_is_not_edited(bench: Bench) -> None:
    bench.commit(MANIFEST + "nonsense: [\n")
    with pytest.raises(InvalidInput, match=r"kortix.yaml:\d+"):
        bench.grant()
    bench.commit(MANIFEST.replace("default_agent: script", "default_agent: nobody"))
    with pytest.raises(InvalidInput, match="would not be valid"):
        bench.grant()
    bench.commit(MANIFEST.replace("  reader: {}", "  reader: {secrets: all}"))
    with pytest.raises(Refused, match="has to be named"):
        bench.grant(agent="reader")
    assert bench.made == (0, 0, 0)
    assert bench.grant(agent="reader", replace_all=True).number == 1


def test_nothing_of_the_repository_runs(home: Home, short_folder: Path) -> None:
    repository = make_repository(short_folder / "hooked")
    marker = short_folder / "ran"
    husky = repository / ".husky"
    husky.mkdir()
    names = ("pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "reference-transaction", "post-merge",
             "post-checkout", "pre-push", "post-index-change", "update", "pre-receive", "post-receive")  # fmt: skip
    for folder in (husky, repository / ".git" / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\n")
            (folder / name).chmod(0o755)
    (repository / ".gitattributes").write_text("*.yaml filter=evil diff=evil merge=evil text eol=crlf\n")
    git(repository, "-c", "core.hooksPath=/dev/null", "add", "-A")
    git(repository, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "Hooks")
    git(repository, "config", "core.hooksPath", ".husky")
    bench = Bench(home, repository)
    try:
        result = bench.grant()
        assert result.number == 1 and not marker.exists()
        shown = bench.in_mirror("cat-file", "blob", f"{result.head_commit}:kortix.yaml")
        assert "\r" not in shown and "[STRIPE_API_KEY]" in shown
        bench.merge(1)
        assert not marker.exists()
    finally:
        bench.runtime.close()


@pytest.mark.parametrize(
    "where",
    [
        "commit:1", "commit:2", "commit:3", "after:kortix_tui.runtime.editing:commit_files",
        "after:kortix_tui.runtime.editing:put_branch",
    ],
)  # fmt: skip
def test_a_request_whose_host_dies_is_done_once(bench: Bench, where: str) -> None:
    bench.runtime.stop_hosting()
    request, context = new_id("req"), bench.runtime.context
    edit = GrantEdit(action=GrantAction.GRANT, agent="script", key="secrets", name="STRIPE_API_KEY")
    with context.store.write() as tx:
        tx.execute(
            "INSERT INTO requests (id, kind, payload, state, actor, created_at) VALUES (?, ?, ?, 'pending', ?, ?)",
            (
                request, REQUEST, EditManifest(project_id=bench.project.id, edit=edit).model_dump_json(),
                context.actor.model_dump_json(), tx.now_text,
            ),
        )  # fmt: skip
        tx.audit(REQUEST, scope="test", actor=context.actor)
    environment = {**os.environ, "KORTIX_HOME": str(bench.home.path)}
    process = subprocess.Popen([sys.executable, str(DOOMED), where], env=environment)
    try:
        wait_for(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -9
    with bench.runtime.hosting():
        wait_for(lambda: bench.rows("SELECT 1 FROM requests WHERE id = ? AND state = 'done'", request))
    (row,) = bench.rows("SELECT result FROM requests WHERE id = ?", request)
    result = EditResult.model_validate_json(row[0])
    assert (result.number, result.session_id, result.already) == (1, session_of(request), False)
    assert bench.made == (1, 1, 1)
    for event in ("session.create", "change_request.create"):
        assert bench.rows("SELECT count(*) FROM audit WHERE event = ?", event) == [(1,)]
    assert bench.in_mirror("rev-parse", f"refs/heads/{result.session_id}") == result.head_commit
