"""`check` names every fault of a manifest with file, line, path and hint."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.base.faults import Fault
from kortix_tui.manifest.check import Report, check
from kortix_tui.manifest.source import FolderSource

AGENT = "---\nharness: command\ncommand: [python3, tools/agent.py]\n---\nDo it.\n"
HEAD = "kortix_version: 2\ndefault_agent: builder\n"
AGENTS = "agents:\n  builder: {}\n"


class Files:
    """A source in memory, as a git commit is one."""

    def __init__(self) -> None:
        self.files = {"agents/builder.md": AGENT}

    def put(self, path: str, text: str) -> Files:
        self.files[path] = text
        return self

    def read(self, path: str) -> bytes | None:
        return self.files[path].encode() if path in self.files else None

    def list(self, path: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(path + "/"))


def checked(manifest: str, files: Files | None = None) -> Report:
    return check((files or Files()).put("kortix.yaml", manifest))


def only(report: Report, *, warning: bool = False) -> Fault:
    faults = report.warnings if warning else report.errors
    assert len(faults) == 1, [str(fault) for fault in report.faults]
    return faults[0]


def test_the_smallest_manifest_is_valid() -> None:
    report = checked(HEAD + AGENTS)
    assert report.valid
    assert report.faults == ()
    assert report.agents["builder"].behaviour.command == ("python3", "tools/agent.py")
    assert report.agents["builder"].instructions == "Do it."


def test_an_agent_with_nothing_below_it_may_touch_nothing() -> None:
    report = checked(HEAD + "agents:\n  builder:\n")
    assert report.valid and report.manifest is not None
    agent = report.manifest.agents["builder"]
    assert not (agent.connectors or agent.secrets or agent.skills or agent.kortix_permissions)
    assert agent.network_egress is None


@pytest.mark.parametrize(
    ("body", "line", "path", "code", "words"),
    [
        (
            "kortix_version: 3\ndefault_agent: builder\n" + AGENTS,
            1,
            "kortix_version",
            "version",
            "version 3 is not known",
        ),
        ("kortix_version: 1\ndefault_agent: builder\n" + AGENTS, 1, "kortix_version", "version", "version 1"),
        ("kortix_version: '2'\ndefault_agent: builder\n" + AGENTS, 1, "kortix_version", "version", "the number 2"),
        ("default_agent: builder\n" + AGENTS, 1, "kortix_version", "missing", "`kortix_version` is missing"),
        ("kortix_version: 2\n" + AGENTS, 1, "default_agent", "missing", "`default_agent` is missing"),
        (HEAD, 1, "agents", "missing", "`agents` is missing"),
        (HEAD + "agents: {}\n", 3, "agents", "value", "at least 1"),
        (HEAD + "agents: [builder]\n", 3, "agents", "type", "mapping"),
        ("kortix_version: 2\ndefault_agent: buildr\n" + AGENTS, 2, "default_agent", "reference", "no agent `buildr`"),
        (HEAD + "agents:\n  builder: {enabled: false}\n", 2, "default_agent", "reference", "not enabled"),
        (HEAD + AGENTS + "  Bad: {}\n", 5, "agents.Bad", "value", "not a valid name"),
        (HEAD + "agents:\n  builder:\n    conectors: all\n", 5, "agents.builder.conectors", "unknown_key", "conectors"),
        (HEAD + "agents:\n  builder:\n    model: a/b\n", 5, "agents.builder.model", "behaviour_key", "behaves"),
        (HEAD + "agents:\n  builder:\n    env: {A: b}\n", 5, "agents.builder.env", "unknown_key", "`env`"),
        (HEAD + "agents:\n  builder:\n    workspace: read\n", 5, "agents.builder.workspace", "unknown_key", "replaced"),
        (HEAD + "agents:\n  builder: {enabled: yes}\n", 4, "agents.builder.enabled", "type", "true or false"),
        (HEAD + "agents:\n  builder: {secrets: some}\n", 4, "agents.builder.secrets", "value", "not a grant"),
        (HEAD + "agents:\n  builder: {secrets: [all]}\n", 4, "agents.builder.secrets", "value", "stand alone"),
        (HEAD + "agents:\n  builder: {secrets: {a: b}}\n", 4, "agents.builder.secrets", "type", "list of names"),
        (
            HEAD + "agents:\n  builder: {connectors: [x]}\n",
            4,
            "agents.builder.connectors[0]",
            "reference",
            "no connector",
        ),
        (
            HEAD + "agents:\n  builder: {connectors_required: [x]}\n",
            4,
            "agents.builder.connectors_required",
            "reference",
            "x",
        ),
        (
            HEAD + "agents:\n  builder: {kortix_permissions: [project.fly]}\n",
            4,
            "agents.builder.kortix_permissions",
            "choice",
            "fly",
        ),
        (HEAD + "agents:\n  builder: {sandbox: big}\n", 4, "agents.builder.sandbox", "reference", "no template `big`"),
        (HEAD + "agents:\n  builder: {volumes: [x]}\n", 4, "agents.builder.volumes.x", "reference", "no volume `x`"),
        (HEAD + "agents:\n  builder: {apps: [x]}\n", 4, "agents.builder.apps[0]", "reference", "no app `x`"),
        (HEAD + "agents:\n  builder: {file: ../x.md}\n", 4, "agents.builder.file", "value", "`..`"),
        (HEAD + "agents:\n  builder: {file: x.txt}\n", 4, "agents.builder.file", "value", "Markdown"),
        (HEAD + "agents:\n  builder: {file: x.md}\n", 4, "agents.builder", "no_agent_file", "no file `x.md`"),
        (HEAD + AGENTS + "channels: []\n", 5, "channels", "unknown_key", "not a key"),
        (HEAD + AGENTS + "sandboxes: []\n", 5, "sandboxes", "unknown_key", "not a key"),
        (HEAD + AGENTS + "sandbox: {image: x}\n", 5, "sandbox.image", "unknown_key", "sandbox"),
        (HEAD + AGENTS + "sandbox: {default: big}\n", 5, "sandbox.default", "reference", "no template"),
        (HEAD + AGENTS + "sandbox: {templates: [{slug: a}]}\n", 5, "sandbox.templates[0]", "value", "exactly one"),
        (
            HEAD + AGENTS + "sandbox: {templates: [{slug: a, dockerfile: D}]}\n",
            5,
            "sandbox.templates[0].dockerfile",
            "not_found",
            "D",
        ),
        (
            HEAD + AGENTS + "sandbox: {templates: [{slug: a, image: 'x:1', cpu: 0}]}\n",
            5,
            "sandbox.templates[0].cpu",
            "value",
            "1",
        ),
        (
            HEAD + AGENTS + "sandbox: {templates: [{slug: default, image: 'x:1'}]}\n",
            5,
            "sandbox.templates[0].slug",
            "value",
            "reserved",
        ),
        (HEAD + AGENTS + "policy: {default_mode: rsk}\n", 5, "policy.default_mode", "choice", "risk"),
        (HEAD + AGENTS + "policy:\n", 5, "policy", "type", "mapping"),
        (
            HEAD + AGENTS + "policies: [{match: '/(a+)+$/', action: block}]\n",
            5,
            "policies[0].match",
            "value",
            "repeats",
        ),
        (HEAD + AGENTS + "policies: [{match: '/(/', action: block}]\n", 5, "policies[0].match", "value", "invalid"),
        (HEAD + AGENTS + "env: {required: [KORTIX_X]}\n", 5, "env.required[0]", "value", "reserved"),
        (HEAD + AGENTS + "env: {required: [1X]}\n", 5, "env.required[0]", "value", "environment name"),
        (HEAD + AGENTS + "opencode: {config_dir: ../x}\n", 5, "opencode.config_dir", "value", "`..`"),
        (HEAD + AGENTS + "tools: {Search: 'kortix:web_search'}\n", 5, "tools.Search", "value", "tool name"),
        (HEAD + AGENTS + "tools: {search: tools/x.py}\n", 5, "tools.search", "value", "tool module"),
        (HEAD + AGENTS + "harnesses: {pi: {packages: ['npm:x']}}\n", 5, "harnesses.pi.packages[0]", "value", "pinned"),
        (HEAD + AGENTS + "checks: [{name: a}]\n", 5, "checks[0].command", "missing", "`command` is missing"),
        (HEAD + AGENTS + "checks: [{name: a, command: x, template: y}]\n", 5, "checks[0].template", "reference", "y"),
        (HEAD + AGENTS + "volumes: {v: {type: s3, bucket: b, access_key_id: A}}\n", 5, "volumes.v", "value", "both"),
        (HEAD + AGENTS + "apps: {a: {type: static, port: 8080}}\n", 5, "apps.a.port", "value", "reserved"),
        (HEAD + AGENTS + "imports: [x/*.yaml]\n", 5, "imports[0]", "value", "pattern"),
        (HEAD + AGENTS + "imports: [gone.yaml]\n", 5, "imports[0]", "not_found", "gone.yaml"),
        (HEAD + AGENTS + "agents: {}\n", 5, "agents", "duplicate_key", "already on line 3"),
    ],
)
def test_each_fault_is_named_by_line_and_path(body: str, line: int, path: str, code: str, words: str) -> None:
    fault = only(checked(body))
    assert (fault.file, fault.line, fault.path, fault.code) == ("kortix.yaml", line, path, code)
    assert words in fault.message


def test_all_faults_are_told_at_once() -> None:
    report = checked(
        "kortix_version: 2\ndefault_agent: builder\nagnets: {}\n"
        "agents:\n  builder:\n    prompt: x\n    model: y/z\n    enabled: on\n"
        "policy: { default_mode: no }\nconnectors:\n  - { slug: A, provider: openap }\n"
    )
    assert [(fault.line, fault.code) for fault in report.faults] == [
        (3, "unknown_key"),
        (6, "behaviour_key"),
        (7, "behaviour_key"),
        (8, "type"),
        (9, "choice"),
        (11, "choice"),
    ]


def test_an_unknown_root_key_is_a_warning_with_a_suggestion() -> None:
    report = checked(HEAD + AGENTS + "triggres: []\n")
    fault = only(report, warning=True)
    assert report.valid
    assert fault.hint is not None and fault.hint.startswith("Did you mean `triggers`?")


@pytest.mark.parametrize("grant", ["all", "['project.gitops.merge']", "['project.cr.merge']", "'*'"])
def test_a_grant_of_merge_is_said_to_have_no_effect(grant: str) -> None:
    report = checked(HEAD + f"agents:\n  builder: {{kortix_permissions: {grant}}}\n")
    fault = only(report, warning=True)
    assert report.valid
    assert "cannot confer merge here" in fault.message
    assert "merge is default-deny for agents" in fault.message


def test_deprecated_spellings_are_taken_and_named() -> None:
    report = checked(
        HEAD + "connectors: [{slug: c, provider: http, base_url: 'https://c.example'}]\n"
        "agents:\n  builder:\n    connectors: [c]\n"
        "    kortix_cli: [project.gitops.push]\n    connectors_personal: [c]\n"
    )
    assert report.valid and report.manifest is not None
    agent = report.manifest.agents["builder"]
    assert agent.kortix_permissions.names == ("project.gitops.push",)
    assert agent.connectors_required == ("c",)
    assert [(fault.code, fault.line) for fault in report.warnings] == [("deprecated", 7), ("deprecated", 8)]


def test_a_fault_below_a_deprecated_key_points_at_what_was_written() -> None:
    fault = only(checked(HEAD + "agents:\n  builder:\n    kortix_cli: [project.fly]\n"))
    assert fault.line == 5


def test_two_spellings_that_differ_are_an_error() -> None:
    report = checked(HEAD + "agents:\n  builder:\n    kortix_cli: all\n    kortix_permissions: none\n")
    assert only(report).code == "duplicate_key"


def test_a_repository_without_manifest_says_how_to_begin() -> None:
    report = check(Files())
    assert report.missing and not report.valid
    fault = only(report)
    assert fault.hint is not None and "kortix init" in fault.hint


@pytest.mark.parametrize(("other", "word"), [("kortix.yml", "Rename"), ("kortix.toml", "version 1")])
def test_a_manifest_by_another_name_is_pointed_out(other: str, word: str) -> None:
    fault = only(check(Files().put(other, "")))
    assert fault.hint is not None and word in fault.hint


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_manifest_is_named(text: str) -> None:
    assert only(checked(text)).code == "empty_manifest"


@pytest.mark.parametrize("text", ["- a\n", "just words\n", "42\n"])
def test_a_manifest_that_is_no_mapping_is_named(text: str) -> None:
    assert only(checked(text)).code == "type"


def test_undeclared_agent_files_and_missing_skills_are_warnings() -> None:
    report = checked(HEAD + "agents:\n  builder: {skills: [writing]}\n", Files().put("agents/ghost.md", AGENT))
    assert report.valid
    assert {(fault.file, fault.code) for fault in report.warnings} == {
        ("agents/ghost.md", "undeclared"),
        ("kortix.yaml", "reference"),
    }


def test_faults_of_agent_files_show_even_beside_a_wrong_manifest() -> None:
    report = checked(HEAD + AGENTS + "policy: 3\n", Files().put("agents/builder.md", "---\nharness: acpp\n---\n"))
    assert {(fault.file, fault.line) for fault in report.errors} == {("kortix.yaml", 5), ("agents/builder.md", 2)}


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(AGENT)
    project = tmp_path / "project"
    (project / "agents").mkdir(parents=True)
    (project / "kortix.yaml").write_text(HEAD + AGENTS)
    (project / "agents/builder.md").symlink_to(outside)
    fault = only(check(FolderSource(project)))
    assert fault.code == "unreadable"
    assert "leads out of the project" in fault.message


@pytest.mark.parametrize("name", ["x" * 3000, "loop"], ids=["too long", "a link in a circle"])
def test_paths_that_cannot_be_followed_are_faults(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "kortix.yaml").write_text(HEAD + AGENTS + f"imports: [{name}]\n")
    report = check(FolderSource(tmp_path))
    assert {fault.code for fault in report.errors} >= {"unreadable"} and not report.valid


def test_a_folder_is_read_as_a_commit_is(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "ops").mkdir()
    (tmp_path / "agents/builder.md").write_text(AGENT)
    (tmp_path / "kortix.yaml").write_text(HEAD + AGENTS + "imports: [ops]\n")
    (tmp_path / "ops/b.yaml").write_text("connectors: [{slug: b, provider: http, base_url: 'https://b.example'}]\n")
    (tmp_path / "ops/a.yml").write_text("connectors: [{slug: a, provider: http, base_url: 'https://a.example'}]\n")
    report = check(FolderSource(tmp_path))
    assert report.valid and report.manifest is not None
    assert [connector.slug for connector in report.manifest.connectors] == ["a", "b"]
    assert FolderSource(tmp_path).read("ops") is None


def test_untrusted_names_never_reach_the_terminal_raw() -> None:
    report = checked(HEAD + 'agents:\n  builder: { "\\e]0;x\\a": 1 }\n')
    assert all("\x1b" not in str(fault) and "\x07" not in str(fault) for fault in report.faults)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 300)
    | st.text(max_size=8)
    | st.sampled_from(["all", "none", "builder", "risk"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["slug", "type", "provider", "match", "action", "builder", "x", "cron"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
_KEYS = [
    "agents",
    "imports",
    "connectors",
    "triggers",
    "policies",
    "sandbox",
    "volumes",
    "apps",
    "tools",
    "checks",
    "policy",
    "env",
]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5))
def test_no_shape_of_data_breaks_the_check(body: dict[str, object]) -> None:
    import json

    manifest = json.dumps({"kortix_version": 2, "default_agent": "builder"} | body)
    report = checked(manifest)
    assert report.valid or report.errors
    assert all(fault.line >= 1 for fault in report.errors)
