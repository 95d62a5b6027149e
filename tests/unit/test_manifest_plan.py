"""What the runtime gets to run: the agent, its sandbox's size, its grants; or a refusal that says what to do."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.settings import Ceilings, SandboxSettings, Settings
from kortix_tui.base.yaml import load
from kortix_tui.manifest.check import Report, check
from kortix_tui.manifest.plan import AgentPlan, plan_agent
from kortix_tui.manifest.schema import front_matter_schema, schema
from kortix_tui.manifest.source import FolderSource
from kortix_tui.manifest.support import refusals

LEDGER = """\
kortix_version: 2
default_agent: builder
imports: [ops/triggers/]
project: { name: ledger, description: Invoice service and its nightly jobs }
env: { required: [LEDGER_DB_URL], optional: [HOOK_SIGNING_KEY] }
sandbox:
  default: py
  templates:
    - { slug: py, image: "python:3.12-slim-bookworm", cpu: 2, memory: 4, disk: 20 }
    - { slug: big, dockerfile: ops/Dockerfile, cpu: 48, memory: 16 }
    - { slug: nested, image: "docker:27", container_runtime: true }
policy: { default_mode: risk }
policies:
  - { match: "*.delete_*", action: block }
  - { match: "mailer.send_*", action: always_run, conditions: [{ arg: to, match: "*@ledger.example" }] }
connectors:
  - slug: billing
    provider: openapi
    spec: https://billing.example/openapi.json
    auth: { type: bearer }
    policies:
      - { match: "get_*", action: always_run }
      - { match: "*", action: require_approval }
  - { slug: mailer, provider: mcp, url: "https://mcp.mailer.example/mcp", sensitive: true }
  - { slug: crm, provider: pipedream, app: hubspot }
  - { slug: chat, provider: channel, platform: slack }
volumes:
  statements: { type: s3, bucket: ledger-statements, prefix: "2026/", access_key_id: ST_ID, secret_access_key: ST_KEY }
apps:
  site: { type: static, port: 3000, anything: else }
checks:
  - { name: tests, command: "python3 -m unittest", template: py, required: true, timeout: 15m }
merge: { method: squash }
agents:
  builder:
    secrets: [LEDGER_DB_URL]
    connectors: [billing]
    connectors_required: [billing]
    kortix_permissions: [project.session.read, project.gitops.push, project.review.submit]
    network_egress: { version: 1, default: deny, rules: [{ host: pypi.example, ports: [443] }], presets: [pypi] }
  reporter: { sandbox: big, connectors: all, tools: { exclude: [web_search] }, repository_access: false }
  idle:
  seller: { connectors: [crm] }
  mounts: { secrets: [ST_ID, st_key], volumes: { statements: read-only } }
  hosts: { apps: [site] }
  rooted: { sandbox: nested }
  off: { enabled: false }
triggers:
  - { slug: monday, type: cron, cron: "0 0 7 * * 1", agent: reporter, session_mode: reuse, prompt: "Report." }
"""
NAMES = ("builder", "reporter", "idle", "seller", "mounts", "hosts", "rooted")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("agents", "ops/triggers"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "kortix.yaml").write_text(LEDGER)
    (tmp_path / "ops/Dockerfile").write_text("FROM debian:12\n")
    (tmp_path / "ops/triggers/hook.yaml").write_text(
        "triggers:\n  - { slug: hook, type: webhook, secret_env: HOOK_SIGNING_KEY, prompt: 'Check {{ body.id }}.' }\n"
    )
    for name in NAMES:
        (tmp_path / f"agents/{name}.md").write_text(
            f"---\ndescription: The {name}\nharness: command\ncommand: [python3, tools/{name}.py]\n---\nBe {name}.\n"
        )
    return tmp_path


@pytest.fixture
def report(project: Path) -> Report:
    report = check(FolderSource(project))
    assert report.valid, [str(fault) for fault in report.errors]
    return report


def test_what_is_not_served_is_a_warning(report: Report) -> None:
    found = {fault.path for fault in report.warnings if fault.code == "not_supported"}
    assert found == {
        "apps.site",
        "volumes.statements",
        "connectors[2].provider",
        "connectors[3].provider",
        "sandbox.templates[2].container_runtime",
    }
    assert all("not supported here" in fault.message for fault in report.warnings if fault.code == "not_supported")


def test_a_plan_holds_everything_of_the_agent(report: Report) -> None:
    plan = plan_agent(report)
    assert (plan.name, plan.harness, plan.command) == ("builder", "command", ("python3", "tools/builder.py"))
    assert (plan.description, plan.instructions) == ("The builder", "Be builder.")
    assert (plan.template.slug, plan.template.image) == ("py", "python:3.12-slim-bookworm")
    assert (plan.template.cpu, plan.template.memory_gib, plan.template.disk_gib) == (2, 4, 20)
    assert plan.repository_access
    assert plan.grants.connectors.allows("billing") and not plan.grants.connectors.allows("mailer")
    assert plan.grants.secrets.allows("ledger_db_url") and not plan.grants.secrets.allows("OTHER")
    assert plan.grants.network_egress is not None


def test_a_plan_survives_json(report: Report) -> None:
    plan = plan_agent(report, "builder")
    assert AgentPlan.model_validate_json(plan.model_dump_json()) == plan


def test_the_template_is_chosen_by_session_then_agent_then_project(report: Report) -> None:
    assert plan_agent(report, "builder", template="default").template.slug == "default"
    assert plan_agent(report, "reporter").template.slug == "big"
    assert plan_agent(report, "idle").template.slug == "py"


def test_without_any_choice_the_built_in_template_is_used(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/a.md").write_text("---\nharness: goose\n---\n")
    (tmp_path / "kortix.yaml").write_text("kortix_version: 2\ndefault_agent: a\nagents: { a: }\n")
    template = plan_agent(check(FolderSource(tmp_path))).template
    assert (template.slug, template.image, template.dockerfile) == ("default", None, None)
    assert (template.cpu, template.memory_gib, template.disk_gib) == (2, 4, 20)


def test_sizes_are_cut_to_bounds_and_to_the_operators_ceilings(report: Report) -> None:
    plan = plan_agent(report, "reporter").template
    assert (plan.cpu, plan.lowered) == (32, ("32 CPUs in place of 48",))
    settings = Settings(ceilings=Ceilings(cpu=4, memory_gib=8), sandbox=SandboxSettings(default_disk_gib=10))
    plan = plan_agent(report, "reporter", settings=settings).template
    assert (plan.cpu, plan.memory_gib, plan.disk_gib) == (4, 8, 10)
    assert len(plan.lowered) == 2


@pytest.mark.parametrize(
    ("name", "word"), [("seller", "crm"), ("mounts", "statements"), ("hosts", "site"), ("rooted", "container_runtime")]
)
def test_only_an_agent_that_uses_what_is_not_served_is_refused(report: Report, name: str, word: str) -> None:
    with pytest.raises(Refused, match=word):
        plan_agent(report, name)
    assert report.manifest is not None
    assert refusals(report.manifest, name) and not refusals(report.manifest, "builder")
    assert not refusals(report.manifest, "reporter")


def test_refusals_follow_the_sessions_template(report: Report) -> None:
    with pytest.raises(Refused, match="container_runtime"):
        plan_agent(report, "builder", template="nested")
    assert plan_agent(report, "rooted", template="py").template.slug == "py"


def test_unknown_names_are_answered_with_choices(report: Report) -> None:
    with pytest.raises(NotFound) as agent:
        plan_agent(report, "bilder")
    assert agent.value.hint is not None and "Did you mean `builder`?" in agent.value.hint
    with pytest.raises(NotFound) as template:
        plan_agent(report, "builder", template="pyy")
    assert template.value.hint is not None and "`py`" in template.value.hint


def test_a_switched_off_agent_is_refused(report: Report) -> None:
    with pytest.raises(Refused, match="switched off"):
        plan_agent(report, "off")


def test_no_manifest_and_a_wrong_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        plan_agent(check(FolderSource(tmp_path)))
    assert missing.value.hint is not None and "kortix init" in missing.value.hint
    (tmp_path / "kortix.yaml").write_text("kortix_version: 2\n")
    with pytest.raises(InvalidInput, match=r"kortix.yaml:1:1: .*is missing"):
        plan_agent(check(FolderSource(tmp_path)))


def test_the_schema_takes_what_check_takes(project: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    data = load((project / "kortix.yaml").read_bytes(), file="kortix.yaml").data
    assert list(validator.iter_errors(data)) == []
    assert isinstance(data, dict)
    old = data | {"agents": {"builder": {"kortix_cli": ["project.read"]}}, "some_root_key": 1}
    assert list(validator.iter_errors(old)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kortix_version": 3},
        {"agents": {"a": {"conectors": "all"}}},
        {"agents": {"a": {"connectors": 3}}},
        {"policy": {"default_mode": "x"}},
        {"connectors": [{"slug": "A", "provider": "http", "base_url": "https://x.example"}]},
        {"connectors": [{"slug": "a", "provider": "http"}]},
        {"triggers": [{"slug": "a", "type": "webhook", "prompt": "p"}]},
        {"sandbox": {"templates": [{"slug": "a", "image": "x", "cpu": "2"}]}},
    ],
)
def test_the_schema_refuses_what_check_refuses(change: dict[str, object]) -> None:
    data = {"kortix_version": 2, "default_agent": "a", "agents": {"a": {}}} | change
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(data))


def test_the_schema_wants_agents_or_imports() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    base = {"kortix_version": 2, "default_agent": "a"}
    assert list(validator.iter_errors(base))
    assert not list(validator.iter_errors(base | {"imports": ["ops"]}))


def test_the_front_matter_has_a_schema() -> None:
    validator = jsonschema.Draft202012Validator(front_matter_schema())
    assert not list(
        validator.iter_errors({"harness": "command", "command": ["x"], "permission": {"bash": {"*": "ask"}}})
    )
    assert list(validator.iter_errors({"harness": "claud"}))
