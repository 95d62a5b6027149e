"""`init` and the samples: valid projects, a trusted first commit, nothing overwritten."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kortix_tui.base.errors import GitFailed, NotFound, Refused
from kortix_tui.manifest.check import check
from kortix_tui.manifest.plan import plan_agent
from kortix_tui.manifest.source import FolderSource
from kortix_tui.runtime.scaffold import init, install_sample, sample_names

Git = Callable[..., str]


@pytest.fixture(autouse=True)
def own_git_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No setting of the machine reaches a test."""
    config = tmp_path / "gitconfig"
    config.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))]:
        monkeypatch.delenv(name)
    return config


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_new_project_is_valid_and_committed_on_main(tmp_path: Path) -> None:
    made = init(tmp_path / "shop")
    report = check(FolderSource(made.folder))
    assert report.faults == ()
    assert report.manifest is not None
    assert report.manifest.policy.default_mode == "risk"
    assert report.manifest.project.name == "shop"
    plan = plan_agent(report)
    assert (plan.harness, plan.command) == ("command", ("python3", "tools/tidy.py"))
    assert git(made.folder, "rev-parse", "main") == made.commit
    assert git(made.folder, "status", "--porcelain") == ""
    assert sorted(git(made.folder, "ls-files").splitlines()) == sorted(made.written)
    assert "PROJECT_NAME" not in (made.folder / "AGENTS.md").read_text()


def test_the_commit_has_the_operators_identity_or_says_that_there_is_none(
    tmp_path: Path, own_git_configuration: Path
) -> None:
    made = init(tmp_path / "a")
    assert git(made.folder, "log", "-1", "--format=%an <%ae> %cn") == "Kortix <kortix@localhost> Kortix"
    own_git_configuration.write_text("[user]\n\tname = Ada\n\temail = ada@example.com\n")
    made = init(tmp_path / "b")
    assert git(made.folder, "log", "-1", "--format=%an <%ae> %cn") == "Ada <ada@example.com> Ada"


def test_no_hook_runs_and_nothing_is_signed(tmp_path: Path, own_git_configuration: Path) -> None:
    witness = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    template = tmp_path / "template"
    for folder in (hooks, template / "hooks"):
        folder.mkdir(parents=True)
        for hook in ("pre-commit", "commit-msg", "post-commit", "post-checkout"):
            (folder / hook).write_text(f"#!/bin/sh\ntouch {witness}\n")
            (folder / hook).chmod(0o755)
    own_git_configuration.write_text(
        f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {template}\n[commit]\n\tgpgSign = true\n"
    )
    made = init(tmp_path / "shop")
    assert made.commit is not None
    assert not witness.exists()
    assert not list((made.folder / ".git").glob("hooks/*"))


def test_a_name_cannot_break_out_of_the_manifest(tmp_path: Path) -> None:
    name = 'x"\npolicy: { default_mode: allow_all } # \x1b[31m'
    made = init(tmp_path / "shop", name)
    report = check(FolderSource(made.folder))
    assert report.valid and report.manifest is not None
    assert report.manifest.project.name == name
    assert report.manifest.policy.default_mode == "risk"


def test_files_in_the_way_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "kortix.yaml").write_text("mine")
    with pytest.raises(Refused, match=r"kortix\.yaml") as caught:
        init(tmp_path)
    assert caught.value.hint is not None and "--force" in caught.value.hint
    assert (tmp_path / "kortix.yaml").read_text() == "mine"
    assert not (tmp_path / "agents").exists()


def test_force_replaces_the_starters_files_and_keeps_yours(tmp_path: Path) -> None:
    (tmp_path / "kortix.yaml").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine")
    (tmp_path / "main.py").write_text("print()")
    made = init(tmp_path, force=True)
    assert made.kept == (".gitignore",)
    assert check(FolderSource(tmp_path)).valid
    assert (tmp_path / ".gitignore").read_text() == "mine"
    assert (tmp_path / "main.py").read_text() == "print()"


def test_in_a_repository_the_operator_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=trunk")
    made = init(tmp_path)
    assert made.commit is None
    assert "?? kortix.yaml" in git(tmp_path, "status", "--porcelain")


def test_inside_another_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with pytest.raises(Refused, match="inside the repository"):
        init(tmp_path / "sub" / "folder")
    assert not (tmp_path / "sub").exists()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / "agents").symlink_to(outside)
    with pytest.raises(Refused, match="through a link"):
        init(project)
    assert list(outside.iterdir()) == []


def test_a_linked_manifest_is_replaced_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target.yaml"
    target.write_text("mine")
    project = tmp_path / "project"
    project.mkdir()
    (project / "kortix.yaml").symlink_to(target)
    init(project, force=True)
    assert target.read_text() == "mine"
    assert not (project / "kortix.yaml").is_symlink()


def test_a_file_as_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(Refused, match="is a file"):
        init(tmp_path / "x")


def test_without_git_it_says_so(tmp_path: Path) -> None:
    # In a process of its own: GitPython remembers the git that it found.
    program = (
        "import sys; from pathlib import Path\n"
        "from kortix_tui.base.errors import GitFailed\n"
        "from kortix_tui.runtime.scaffold import init\n"
        "try: init(Path(sys.argv[1]))\n"
        "except GitFailed as error: print(error.message)\n"
    )
    import sys

    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "shop")],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(root), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "git is not installed.", done.stderr


def test_every_sample_is_valid_and_installs(tmp_path: Path) -> None:
    names = sample_names()
    assert "acme-api" in names and "starter" not in names
    for name in names:
        made = install_sample(name, tmp_path / name)
        assert check(FolderSource(made.folder)).faults == ()
        assert git(made.folder, "rev-parse", "main") == made.commit
        assert git(made.folder, "status", "--porcelain", "--ignored") == ""
        assert git(made.folder, "rev-list", "--count", "main") == "1"


def test_a_sample_never_lands_on_something(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(Refused, match="not an empty folder"):
        install_sample("acme-api", tmp_path)


def test_an_unknown_sample_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        install_sample("acme-ap", tmp_path / "x")
    assert caught.value.hint is not None and "`acme-api`" in caught.value.hint


def test_a_broken_repository_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    with pytest.raises((GitFailed, Refused)):
        init(tmp_path)
