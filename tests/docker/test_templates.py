"""Templates: chosen, built when first needed, content-addressed."""

from __future__ import annotations

import pytest
from desk import Desk, git

from kortix_tui.base.errors import Refused
from kortix_tui.base.words import PromptState

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MANIFEST = """\
kortix_version: 2
default_agent: script
policy: {default_mode: risk}
sandbox:
  default: tools
  templates:
    - {slug: tools, dockerfile: ops/Dockerfile, cpu: 1, memory: 1}
    - {slug: bare, image: kortix-base, cpu: 1, memory: 1}
agents:
  script: {kortix_permissions: [project.gitops.push]}
  plain: {sandbox: bare, kortix_permissions: [project.gitops.push]}
"""


def use_templates(desk: Desk) -> None:
    folder = desk.repository
    (folder / "kortix.yaml").write_text(MANIFEST)
    (folder / "agents" / "plain.md").write_text((folder / "agents" / "script.md").read_text())
    (folder / "agents" / "blind.md").unlink()
    (folder / "ops").mkdir()
    (folder / "ops" / "Dockerfile").write_text(
        "FROM kortix-base\nCOPY greeting /etc/greeting\nRUN echo built > /etc/built\n"
    )
    (folder / "ops" / "greeting").write_text("hello from the image\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Templates")


def test_a_dockerfile_of_the_base_branch_makes_the_sandbox(desk: Desk) -> None:
    use_templates(desk)
    session, prompt = desk.run("cat /etc/greeting /etc/built; nproc; kortix info")
    assert prompt.state is PromptState.FINISHED
    assert "hello from the image\nbuilt\n" in desk.text(session)
    assert session.template == "tools"
    again, _ = desk.run("true")
    assert again.image == session.image, "the same inputs were built twice"
    views = {view.slug: view for view in desk.runtime.sandboxes.list(desk.project)}
    assert views["tools"].built and views["tools"].image == session.image
    with pytest.raises(Refused, match="sandbox"):
        desk.runtime.sandboxes.remove(str(session.image))
    (desk.repository / "ops" / "greeting").write_text("another hello\n")
    git(desk.repository, "commit", "-qam", "Greet differently")
    other, _ = desk.run("cat /etc/greeting")
    assert "another hello" in desk.text(other) and other.image != session.image
    for view in (session, again, other):
        desk.gone(view)
    for image in {session.image, other.image}:
        desk.runtime.sandboxes.remove(str(image))


def test_the_session_chooses_before_the_agent_before_the_project(desk: Desk) -> None:
    use_templates(desk)
    by_agent, _ = desk.run("true", agent="plain")
    by_session, _ = desk.run("true", agent="script", template="default")
    assert (by_agent.template, by_session.template) == ("bare", "default")
