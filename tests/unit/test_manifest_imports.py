"""Imported files are merged, within limits, and faults point into the file where they are."""

from __future__ import annotations

from kortix_tui.manifest.check import Report, check

AGENT = "---\nharness: command\ncommand: [true]\n---\n".replace("[true]", "['true']")
ROOT = "kortix_version: 2\ndefault_agent: builder\n"


class Files(dict[str, str]):
    """A source in memory."""

    def read(self, path: str) -> bytes | None:
        return self[path].encode() if path in self else None

    def list(self, path: str) -> list[str]:
        return sorted(name for name in self if name.startswith(path + "/"))


def checked(root: str, **files: str) -> Report:
    source = Files({"agents/builder.md": AGENT, "kortix.yaml": ROOT + root})
    source.update({name.replace("__", "/") + ".yaml": text for name, text in files.items()})
    return check(source)


def places(report: Report) -> list[tuple[str, int, str]]:
    return [(fault.file, fault.line, fault.code) for fault in report.errors]


def test_agents_may_come_from_imports_alone() -> None:
    report = checked(
        "imports: [ops/]\n", ops__a="agents:\n  builder: {}\n", ops__b="agents:\n  helper: {file: agents/builder.md}\n"
    )
    assert report.valid and report.manifest is not None
    assert list(report.manifest.agents) == ["builder", "helper"]


def test_faults_point_into_the_imported_file() -> None:
    report = checked(
        "imports: [ops/t.yaml]\nagents: { builder: {} }\n"
        "triggers:\n  - { slug: a, type: cron, cron: '0 0 7 * * 1', prompt: p }\n",
        ops__t="triggers:\n  - slug: b\n    type: cron\n    cron: 'x'\n    prompt: p\n",
    )
    assert places(report) == [("ops/t.yaml", 4, "value")]
    assert report.errors[0].path == "triggers[1].cron"


def test_the_same_name_in_two_files_names_both() -> None:
    report = checked("imports: [a.yaml]\nagents: { builder: {} }\n", a="agents:\n  builder: {}\n")
    fault = report.errors[0]
    assert (fault.file, fault.line) == ("a.yaml", 2)
    assert "kortix.yaml, line 4" in fault.message


def test_the_same_slug_in_two_files_names_both() -> None:
    connector = "connectors:\n  - { slug: c, provider: http, base_url: 'https://c.example' }\n"
    report = checked("imports: [a.yaml]\nagents: { builder: {} }\n" + connector, a=connector)
    fault = report.errors[0]
    assert (fault.file, fault.line, fault.code) == ("a.yaml", 2, "duplicate_name")
    assert "kortix.yaml, line 6" in fault.message


def test_root_only_keys_are_refused_inside_an_import() -> None:
    report = checked("imports: [a.yaml]\nagents: { builder: {} }\n", a="policy: { default_mode: allow_all }\n")
    assert places(report) == [("a.yaml", 1, "root_only")]


def test_unknown_keys_inside_an_import_are_warnings() -> None:
    report = checked("imports: [a.yaml]\nagents: { builder: {} }\n", a="notes: x\n")
    assert report.valid
    assert [(fault.file, fault.code) for fault in report.warnings] == [("a.yaml", "unknown_key")]


def test_circles_are_told() -> None:
    report = checked("imports: [a.yaml]\nagents: { builder: {} }\n", a="imports: [b.yaml]\n", b="imports: [a.yaml]\n")
    assert places(report) == [("b.yaml", 1, "cycle")]
    assert "a.yaml → b.yaml → a.yaml" in report.errors[0].message


def test_importing_the_manifest_itself_is_a_circle() -> None:
    assert places(checked("imports: [kortix.yaml]\nagents: { builder: {} }\n")) == [("kortix.yaml", 3, "cycle")]


def test_eight_levels_are_read_and_nine_refused() -> None:
    chain = {f"f{level}": f"imports: [f{level + 1}.yaml]\n" for level in range(1, 8)}
    base = "imports: [f1.yaml]\nagents: { builder: {} }\n"
    assert checked(base, **chain, f8="apps: {}\n").valid
    assert places(checked(base, **chain, f8="imports: [f9.yaml]\n", f9="apps: {}\n")) == [("f8.yaml", 1, "too_deep")]


def test_two_hundred_files_are_read_and_more_refused() -> None:
    base = "imports: [many]\nagents: { builder: {} }\n"
    many = {f"many__f{number:03}": "apps: {}\n" for number in range(200)}
    assert checked(base, **many).valid
    assert places(checked(base, **many, many__g="apps: {}\n")) == [("kortix.yaml", 3, "too_many")]


def test_paths_out_of_the_repository_are_refused() -> None:
    for path in ("../x.yaml", "/etc/x.yaml", "a/./b.yaml", "C:/x.yaml", ".git/config"):
        assert places(checked(f"imports: ['{path}']\nagents: {{ builder: {{}} }}\n")) == [("kortix.yaml", 3, "value")]
    nested = checked("imports: [a.yaml]\nagents: { builder: {} }\n", a="imports: [../x.yaml]\n")
    assert places(nested) == [("a.yaml", 1, "path")]


def test_a_broken_import_is_told_and_the_rest_is_checked() -> None:
    report = checked("imports: [a.yaml, b.yaml]\nagents: { builder: { sandbox: x } }\n", a="x: [\n", b="- 1\n")
    assert places(report) == [("kortix.yaml", 4, "reference"), ("a.yaml", 2, "not_yaml"), ("b.yaml", 1, "type")]
