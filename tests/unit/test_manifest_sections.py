"""Connectors, policies, triggers, egress, agent files: each rule of the manifest's sections."""

from __future__ import annotations

import json

import pytest

from kortix_tui.manifest.behaviour import read_agent_file
from kortix_tui.manifest.check import Report, check
from kortix_tui.manifest.policies import covers, glob_matches, nested_quantifier
from kortix_tui.manifest.schedule import cron_problem, moment_problem, timezone_problem

AGENT = b"---\nharness: command\ncommand: run\n---\n"


class One:
    """A repository with one manifest and one agent."""

    def __init__(self, body: dict[str, object]) -> None:
        base: dict[str, object] = {"kortix_version": 2, "default_agent": "a", "agents": {"a": {}}}
        self.text = json.dumps(base | body)

    def read(self, path: str) -> bytes | None:
        return {"kortix.yaml": self.text.encode(), "agents/a.md": AGENT, "specs/api.yaml": b"openapi: 3.1.0\n"}.get(
            path
        )

    def list(self, path: str) -> list[str]:
        return []


def checked(**body: object) -> Report:
    return check(One(body))


def words(report: Report) -> str:
    return "\n".join(str(fault) for fault in report.faults)


def connector(**fields: object) -> Report:
    return checked(connectors=[{"slug": "c"} | fields])


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": "openapi", "spec": "https://api.example.com/openapi.json"},
        {"provider": "openapi", "spec": "specs/api.yaml", "base_url": "https://api.example.com/v1"},
        {"provider": "postman", "spec": "specs/api.yaml", "auth": {"type": "oauth1"}},
        {"provider": "graphql", "endpoint": "https://api.example.com/graphql", "auth": {"type": "bearer"}},
        {
            "provider": "http",
            "base_url": "https://api.example.com",
            "routes": [{"name": "list", "path": "/x", "risk": "read"}],
        },
        {"provider": "http", "base_url": "https://x.example", "auth": {"type": "api_key", "in": "query", "name": "k"}},
        {"provider": "http", "base_url": "https://x.example", "headers": {"X-Client": "kortix"}},
        {"provider": "mcp", "url": "https://mcp.example/mcp", "transport": "sse", "sensitive": True},
        {
            "provider": "mcp",
            "transport": "stdio",
            "command": ["npx", "server"],
            "image": "node:22",
            "hosts": ["*.example.com"],
        },
        {
            "provider": "http",
            "base_url": "https://x.example",
            "auth": {
                "type": "oauth2",
                "grant": "client_credentials",
                "token_url": "https://x.example/token",
                "scopes": ["r"],
            },
        },
    ],
)
def test_connectors_of_each_provider_are_valid(fields: dict[str, object]) -> None:
    assert connector(**fields).valid


@pytest.mark.parametrize(
    ("fields", "path", "text"),
    [
        ({"provider": "openapi"}, "connectors[0].spec", "`spec` is missing"),
        ({"provider": "openapi", "spec": "gone.yaml"}, "connectors[0].spec", "no file"),
        ({"provider": "openapi", "spec": "/etc/passwd"}, "connectors[0].spec", "relative"),
        ({"provider": "openapi", "spec": "ftp://x.example/y"}, "connectors[0].spec", "not a URL"),
        ({"provider": "http", "base_url": "https://u:p@x.example"}, "connectors[0].base_url", "user name or password"),
        ({"provider": "mcp"}, "connectors[0].url", "missing"),
        ({"provider": "mcp", "transport": "stdio", "command": "x"}, "connectors[0].image", "missing"),
        ({"provider": "mcp", "url": "https://x.example", "command": "x"}, "connectors[0]", "stdio"),
        ({"provider": "mcp", "url": "https://x.example", "auth": {"type": "oauth1"}}, "connectors[0].auth", "oauth1"),
        (
            {"provider": "http", "base_url": "https://x.example", "auth": {"type": "custom"}},
            "connectors[0].auth.name",
            "name",
        ),
        (
            {"provider": "http", "base_url": "https://x.example", "auth": {"token": "t"}},
            "connectors[0].auth.token",
            "credential",
        ),
        (
            {"provider": "http", "base_url": "https://x.example", "headers": {"Authorization": "Bearer x"}},
            "connectors[0].headers.Authorization",
            "credential",
        ),
        (
            {"provider": "http", "base_url": "https://x.example", "headers": {"X Y": "x"}},
            "connectors[0].headers.X Y",
            "header name",
        ),
        (
            {"provider": "http", "base_url": "https://x.example", "headers": {"X": "a\nb"}},
            "connectors[0].headers.X",
            "line break",
        ),
        ({"slug": "computer", "provider": "http", "base_url": "https://x.example"}, "connectors[0].slug", "reserved"),
        ({"provider": "htpp", "base_url": "https://x.example"}, "connectors[0].provider", "htpp"),
        ({}, "connectors[0].provider", "`provider` is missing"),
    ],
)
def test_faults_of_connectors(fields: dict[str, object], path: str, text: str) -> None:
    report = connector(**fields)
    assert not report.valid
    assert [fault.path for fault in report.errors] == [path]
    assert text in words(report)


def test_duplicate_slugs_are_refused() -> None:
    one = {"slug": "c", "provider": "http", "base_url": "https://c.example"}
    assert "already in kortix.yaml" in words(checked(connectors=[one, one]))


def test_rules_that_never_decide_are_marked() -> None:
    report = checked(
        policies=[{"match": "c.delete_*", "action": "block"}],
        connectors=[
            {
                "slug": "c",
                "provider": "http",
                "base_url": "https://c.example",
                "policies": [
                    {"match": "delete_user", "action": "always_run"},
                    {"match": "get_*", "action": "always_run", "conditions": [{"arg": "id", "match": "1*"}]},
                    {"match": "get_one", "action": "block"},
                    {"match": "*", "action": "require_approval"},
                    {"match": "post_*", "action": "block"},
                ],
            }
        ],
    )
    assert report.valid
    marked = [fault.path for fault in report.warnings if fault.code == "unreachable"]
    assert marked == ["connectors[0].policies[0]", "connectors[0].policies[4]"]


def test_project_rules_must_name_a_connector() -> None:
    report = checked(policies=[{"match": "billing.*", "action": "block"}, {"match": "*.delete_*", "action": "block"}])
    assert [fault.path for fault in report.warnings] == ["policies[0]"]


@pytest.mark.parametrize(
    ("condition", "valid"),
    [
        ({"arg": "to", "match": "*@x.example"}, True),
        ({"arg": "a.b", "match": "/^x/", "negate": True}, True),
        ({"max_calls": 10, "per": "hour"}, True),
        ({"arg": "amount", "max_sum": 100, "per": "day"}, True),
        ({"arg": "to"}, False),
        ({"match": "x"}, False),
        ({"max_calls": 10}, False),
        ({"arg": "__proto__.x", "match": "*"}, False),
        ({"arg": "to", "match": "x", "per": "day"}, False),
    ],
)
def test_conditions(condition: dict[str, object], valid: bool) -> None:
    report = checked(policies=[{"match": "*", "action": "block", "conditions": [condition]}])
    assert report.valid is valid, words(report)


def test_at_most_ten_conditions() -> None:
    ten = [{"arg": "a", "match": "x"}] * 10
    assert checked(policies=[{"match": "*", "action": "block", "conditions": ten}]).valid
    assert not checked(policies=[{"match": "*", "action": "block", "conditions": ten * 2}]).valid


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("get_*", "GET_invoice", True),
        ("get_*", "forget_it", False),
        ("*", "", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b", "a.b.c", False),
        ("a?", "ab", False),
        ("*" * 50 + "x", "y" * 500, False),
    ],
)
def test_globs(pattern: str, text: str, fits: bool) -> None:
    assert glob_matches(pattern, text) is fits


@pytest.mark.parametrize(
    ("first", "second", "covered"),
    [
        ("*", "get_*", True),
        ("*", "/x/", True),
        ("get_*", "get_a*", True),
        ("get_*", "get_*_b", True),
        ("get_a*", "get_*", False),
        ("*.x", "c.*", False),
        ("/x/", "x", False),
        ("a*b", "a*b", True),
    ],
)
def test_which_rule_covers_which(first: str, second: str, covered: bool) -> None:
    assert covers(first, second) is covered


@pytest.mark.parametrize(
    ("body", "nested"),
    [
        ("(a+)+", True),
        ("(a|b+)*", True),
        ("((ab)*c){2,}", True),
        ("(ab)+c+", False),
        ("[(+)]+", False),
        (r"\(a+\)+", False),
    ],
)
def test_expressions_that_can_run_for_ever(body: str, nested: bool) -> None:
    assert nested_quantifier(body) is nested


def trigger(**fields: object) -> Report:
    return checked(triggers=[{"slug": "t", "prompt": "p"} | fields])


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "cron", "cron": "0 0 7 * * 1"},
        {"type": "cron", "run_at": "2026-12-01T07:00:00+01:00", "timezone": "UTC"},
        {"type": "cron", "schedule": "0 */5 * * * MON-FRI"},
        {
            "type": "webhook",
            "secret_env": "hook_key",
            "filter": {"body.kind": "x", "body.n": 3},
            "session_key": "{{ body.id }}",
        },
        {"type": "monitor", "run": "tail -f log", "mode": "stream"},
        {"type": "monitor", "run": "curl x", "mode": "poll", "interval": "5m", "expect_event_within": 600},
        {"type": "cron", "cron": "0 0 7 * * 1", "enabled": "off", "model": "anthropic/claude"},
    ],
)
def test_triggers_of_each_type_are_valid(fields: dict[str, object]) -> None:
    report = trigger(**fields)
    assert report.valid, words(report)


@pytest.mark.parametrize(
    ("fields", "path", "text"),
    [
        ({"type": "cron"}, "triggers[0]", "exactly one"),
        ({"type": "cron", "cron": "0 7 * * 1"}, "triggers[0].cron", "five fields"),
        ({"type": "cron", "cron": "0 0 25 * * 1"}, "triggers[0].cron", "`25` as hour"),
        ({"type": "cron", "run_at": "tomorrow"}, "triggers[0].run_at", "not a date"),
        ({"type": "cron", "cron": "0 0 7 * * 1", "timezone": "Mars/Base"}, "triggers[0].timezone", "Mars/Base"),
        ({"type": "cron", "cron": "0 0 7 * * 1", "agent": "b"}, "triggers[0].agent", "no enabled agent `b`"),
        ({"type": "cron", "cron": "0 0 7 * * 1", "session_mode": "pinned"}, "triggers[0].session_id", "missing"),
        ({"type": "webhook"}, "triggers[0].secret_env", "missing"),
        ({"type": "monitor", "run": "x", "mode": "poll", "interval": 10}, "triggers[0].interval", "30 seconds"),
        ({"type": "crom"}, "triggers[0].type", "crom"),
    ],
)
def test_faults_of_triggers(fields: dict[str, object], path: str, text: str) -> None:
    report = trigger(**fields)
    assert [fault.path for fault in report.errors] == [path], words(report)
    assert text in words(report)


def test_schedules() -> None:
    assert cron_problem("0 0,30 9-17 ? jan-mar mon") is None
    assert cron_problem("*/0 * * * * *")
    assert cron_problem("0 0 17-9 * * *")
    assert moment_problem("2026-12-01T07:00:00Z") is None
    assert timezone_problem("UTC") is None
    assert timezone_problem("../etc/passwd")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"host": "https://x.example"}, "URL"),
        ({"host": "10.0.0.1"}, "address"),
        ({"host": "[::1]"}, "address"),
        ({"host": "x.example:443"}, "port"),
        ({"host": "*"}, "host name"),
        ({"host": "*.com"}, "too wide"),
        ({"host": "x.example", "ports": []}, "at least 1"),
        ({"host": "x.example", "ports": [0]}, "at least 1"),
        ({"host": "x..example"}, "host name"),
    ],
)
def test_faults_of_egress_rules(rule: dict[str, object], text: str) -> None:
    report = checked(agents={"a": {"network_egress": {"version": 1, "rules": [rule]}}})
    assert not report.valid
    assert text in words(report)


def test_egress_rules_default_to_https() -> None:
    egress = {"version": 1, "default": "deny", "rules": [{"host": "*.Example.com"}], "presets": ["pypi"]}
    report = checked(agents={"a": {"network_egress": egress}})
    assert report.manifest is not None
    found = report.manifest.agents["a"].network_egress
    assert found is not None and found.rules[0].host == "*.example.com" and found.rules[0].ports == (443,)


def front(text: str) -> tuple[object, list[str]]:
    file, faults = read_agent_file("agents/a.md", f"---\n{text}---\nBody\n".encode())
    return file, [f"{fault.line} {fault.path} {fault.message}" for fault in faults]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "description: x\nharness: claude\nmodel: anthropic/claude-sonnet\n",
        "harness: acp\ncommand: [my-agent, --acp]\n",
        "harness: command\ncommand: ./run.sh --fast\n",
        "mode: primary\nvariant: high\ntemperature: 0.2\ntop_p: 1\nsteps: 30\ncolor: '#44f'\noptions: { a: [1] }\n",
        "permission: ask\n",
        "permission:\n  bash: { 'git *': allow, '*': ask }\n  edit: allow\n  webfetch: deny\n",
    ],
)
def test_front_matter_is_read(text: str) -> None:
    file, faults = front(text)
    assert file is not None and faults == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("harness: command\n", "2 command `command` is missing"),
        ("command: [x]\n", "2 command `harness` is missing"),
        ("harness: codex\ncommand: [x]\n", "3 command `harness: codex` brings its own program"),
        ("harness: claud\n", "2 harness `claud` is not one of"),
        ("tools: [bash]\n", "2 tools `tools` is not read here"),
        ("maxSteps: 3\n", "2 maxSteps `maxSteps` is called `steps`"),
        ("permissions: deny\n", "2 permissions unknown key `permissions`"),
        ("permission: never\n", "2 permission must be ask, allow, deny"),
        ("permission: { webfetch: { '*': ask } }\n", "2 permission.webfetch"),
        ("permission: { bash: { 'rm *': no } }\n", "2 permission.bash `rm *: no`"),
        ("permission: { fly: ask }\n", "2 permission.fly `fly` is not a tool"),
        ("temperature: 9\n", "2 temperature must be at most 2"),
        ("steps: 0\n", "2 steps must be more than 0"),
        ("color: [red]\n", "2 color must be a text"),
        ("- x\n", "2  the front matter must be a mapping"),
    ],
)
def test_faults_of_front_matter(text: str, fault: str) -> None:
    file, faults = front(text)
    assert file is None
    assert len(faults) == 1 and faults[0].startswith(fault), faults
