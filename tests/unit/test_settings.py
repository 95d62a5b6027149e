"""The operator's config.yaml: defaults, faults with line and hint, and keys of later versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Ceilings, Settings, SettingsInvalid, inspect, load, settings_file
from kortix_tui.cli.main import run


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_no_file_means_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORTIX_CONFIG_HOME", str(tmp_path / "nowhere"))
    settings = load()
    assert settings == Settings()
    assert settings.sandbox.idle_minutes == 15
    assert settings.decisions.unattended == "refuse"
    assert settings.secrets.default_exposure == "environment"


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n"])
def test_an_empty_file_means_defaults(tmp_path: Path, text: str) -> None:
    assert load(write(tmp_path, text)) == Settings()


def test_everything_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    settings = load(
        write(
            tmp_path,
            """\
docker: { endpoint: "unix:///run/user/1000/docker.sock", runtime: runsc }
sandbox: { provider: docker, idle_minutes: 0.5, prompt_timeout_minutes: 60, default_cpu: 4, default_memory_gib: 8 }
images: { mirror: "http://mirror.example/debian", ca_certificates: [/etc/ssl/corp.pem, ~/corp.pem] }
ceilings: { cpu: 8, memory_gib: 16, disk_gib: 40, running_sessions: 3 }
decisions: { unattended: allow }
secrets: { default_exposure: connector }
keymap: { session.stop: x, app.quit: "ctrl+q" }
theme: kortix-dark
notify: { bell: false, desktop: true }
mouse: off
""".replace("mouse: off", "mouse: 'off'"),
        )
    )
    assert settings.docker.runtime == "runsc"
    assert settings.images.ca_certificates == ("/etc/ssl/corp.pem", "/home/someone/corp.pem")
    assert settings.ceilings.running_limit() == 3
    assert settings.keymap == {"session.stop": "x", "app.quit": "ctrl+q"}
    assert settings.mouse == "off"


def test_mouse_off_needs_no_quotes(tmp_path: Path) -> None:
    assert load(write(tmp_path, "mouse: off\n")).mouse == "off"


@pytest.mark.parametrize("provider", ["daytona", "platinum", "e2b", "E2B"])
def test_hosted_providers_get_one_clear_error(tmp_path: Path, provider: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(write(tmp_path, f"theme: x\nsandbox:\n  provider: {provider}\n"))
    (fault,) = caught.value.faults
    assert fault.line == 3
    assert "the operator's own Docker" in fault.message
    assert fault.hint is not None and "kortix_tui.sandbox_providers" in fault.hint


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("sandbox: { idle_minutes: 0 }\n", 1, "more than 0"),
        ("sandbox:\n  idle: 3\n", 2, "unknown key `idle`"),
        ("sandbox: { default_cpu: 1.5 }\n", 1, "whole number"),
        ("docker: { endpoint: /var/run/docker.sock }\n", 1, "not an engine's address"),
        ("images: { ca_certificates: [corp.pem] }\n", 1, "absolute path"),
        ("decisions: { unattended: yes }\n", 1, "not one of: refuse, allow"),
        ("keymap: { session.stop: 3 }\n", 1, "must be a text"),
        ("- x\n", 1, "must be a mapping"),
        ("a: *x\n", 1, "aliases"),
        ("theme: [\n", 2, "not valid YAML"),
    ],
)
def test_faults_tell_line_and_what_is_wrong(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(write(tmp_path, text))
    assert caught.value.faults[0].line == line
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_keys_of_later_versions_and_unknown_ones_are_warnings(tmp_path: Path) -> None:
    settings, warnings = inspect(write(tmp_path, "providers: { anthropic: {} }\nthmee: dark\n"))
    assert settings == Settings()
    assert [(fault.line, fault.level) for fault in warnings] == [(1, "warning"), (2, "warning")]
    assert warnings[1].hint is not None and "Did you mean `theme`?" in warnings[1].hint


def test_a_key_outside_its_section_is_told_where_it_belongs(tmp_path: Path) -> None:
    (warning,) = inspect(write(tmp_path, "allow_private: [10.0.0.0/8]\n"))[1]
    assert warning.hint == "Write it under `connectors:` or `egress:`."


def test_doctor_names_keys_without_effect(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    file = settings_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"docker: {{endpoint: 'unix://{home.path}/no.sock'}}\nallow_private: [10.0.0.0/8]\nprices: {{}}\n")
    assert run(["doctor", "--json"]) == 1, "there is no engine"
    found = [check for check in json.loads(capfd.readouterr().out) if check["id"] == "settings"]
    assert [check["level"] for check in found] == ["warn", "ok"]
    assert f"({file}, line 2)" in found[0]["message"] and "connectors" in found[0]["fix"]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path / "config.yaml")


def test_the_number_of_running_sessions_follows_the_memory() -> None:
    assert 2 <= Ceilings().running_limit() <= 50
