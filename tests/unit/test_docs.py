"""README and help pages are held to the program: commands parse, tables are in step, links and pictures are there."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import reference
import yaml

import kortix_tui
from kortix_tui.base.errors import KortixError
from kortix_tui.base.settings import load
from kortix_tui.cli.main import ALIASES, NOUNS
from kortix_tui.cli.parsing import Parser, parse
from kortix_tui.console.keymap import ACTIONS, Keymap
from kortix_tui.manifest.behaviour import Behaviour
from kortix_tui.runtime.doctor_isolation import GROUPS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
HELP = ROOT / "kortix_tui" / "help"
PAGES = [README, *sorted(HELP.glob("*.md"))]
OTHER_PROGRAMS = {"cd", "git", "python3", "pip", "python", "source"}
IDS = [page.name for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Each command of the `sh` blocks of all pages, as words."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                for command in line.split("&&"):
                    if words := shlex.split(command):
                        yield words


def grammar(noun: str) -> Parser:
    """The whole grammar of a noun."""
    parser = Parser(prog=f"kortix {noun}")
    getattr(importlib.import_module(f"kortix_tui.cli.{NOUNS[noun][0]}"), f"add_{noun}")(parser)
    return parser


def verbs(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its full name, aliases left out."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for entry in group._choices_actions:
            verb = str(entry.dest).split(" ", 1)[0]
            yield from verbs(group.choices[verb], f"{name} {verb}")


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_in_the_pages_is_one(words: list[str]) -> None:
    program = Path(words[0]).name
    if program != "kortix":
        assert program in OTHER_PROGRAMS, "neither ours nor what a Debian machine has"
        return
    if words[1:]:
        noun = ALIASES.get(words[1], words[1])
        assert noun in NOUNS
        module = importlib.import_module(f"kortix_tui.cli.{NOUNS[noun][0]}")
        assert callable(parse(noun, "", getattr(module, f"add_{noun}"), words[2:]).run)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_in_the_text_exist(page: Path) -> None:
    known = {name for noun in NOUNS for name, _ in verbs(grammar(noun), noun)}
    known |= set(NOUNS) | {f"sessions {group}" for group in ("queue", "rescue")}
    guest = {"info", "cr open", "cr ls", "cr show", "cr merge"}
    for found in re.findall(r"`kortix ([a-z][^`]*)`", page.read_text("utf-8")):
        words = [word for word in found.split() if re.fullmatch(r"[a-z]+", word)]
        names = {" ".join(words[:count]) for count in (1, 2, 3)}
        assert names & (known | guest), f"kortix {found}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=[*IDS, "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        assert "://" not in target, "pages need nothing from elsewhere"
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


@pytest.mark.parametrize("name", ["console", "change"])
def test_pictures_are_of_the_real_console(name: str) -> None:
    path = HELP / f"{name}.svg"
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = "".join(root.itertext()).replace("\xa0", " ")
    shown = "Refactor charge(amount)" if name == "console" else "Charge in the customer's currency"
    assert "kortix" in text and "Inbox" in text and shown in text
    assert "url(http" not in path.read_text("utf-8"), "a picture fetches nothing"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_generated_parts_are_in_step(page: Path) -> None:
    text = page.read_text("utf-8")
    assert reference.render(text) == text, "run: python tests/support/reference.py, and say what new fields mean"
    assert f"| {reference.UNKNOWN} |" not in text


def test_every_shape_has_its_table() -> None:
    found = re.findall(r"<!-- table: (\w+) -->", (HELP / "json.md").read_text("utf-8"))
    assert sorted(found) == sorted(reference.MODELS)


def test_every_command_with_json_says_what_it_prints() -> None:
    table = (HELP / "json.md").read_text("utf-8").split("\n### ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    real = {
        name
        for noun in NOUNS
        for name, parser in verbs(grammar(noun), noun)
        if any("--json" in action.option_strings for action in parser._actions)
    }
    assert told == real


def test_every_key_is_in_the_table_and_the_example_works() -> None:
    page = (HELP / "console.md").read_text("utf-8")
    assert all(f"`{action.id}`" in page for action in ACTIONS)
    (example,) = (yaml.safe_load(block) for block in blocks(HELP / "console.md", "yaml"))
    assert not Keymap(example["keymap"]).problems


def test_settings_in_the_pages_are_valid(tmp_path: Path) -> None:
    for page in (HELP / "console.md", HELP / "sandbox.md", HELP / "egress.md"):
        for block in blocks(page, "yaml"):
            file = tmp_path / "config.yaml"
            file.write_text(block)
            assert load(file)


def test_the_readmes_agent_connector_and_template_are_valid() -> None:
    agent, connector, template = blocks(README, "yaml")
    head = yaml.safe_load(agent.split("---")[1])
    assert Behaviour.model_validate(head).harness == "command"
    from kortix_tui.manifest.connectors import OpenApiConnector
    from kortix_tui.manifest.templates import Sandbox

    (declared,) = yaml.safe_load(connector)["connectors"]
    assert OpenApiConnector.model_validate(declared).slug == "billing"
    assert Sandbox.model_validate(yaml.safe_load(template)["sandbox"]).find("tools")


def reason_words() -> set[str]:
    """Codes of all errors of the program, and reasons that the runtime writes itself."""
    for module in pkgutil.walk_packages(kortix_tui.__path__, "kortix_tui."):
        if not module.name.startswith("kortix_tui.guest"):
            importlib.import_module(module.name)

    def codes(kind: type[KortixError]) -> set[str]:
        ours = {kind.code} if kind.__module__.startswith("kortix_tui.") else set()
        return ours.union(*(codes(below) for below in kind.__subclasses__()))

    runtime = "".join(path.read_text("utf-8") for path in (ROOT / "kortix_tui" / "runtime").glob("*.py"))
    return codes(KortixError) | set(re.findall(r"\breason=\"(\w+)\"", runtime))


def test_every_reason_word_says_what_to_do() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", (HELP / "troubleshooting.md").read_text("utf-8"), re.MULTILINE)
    told = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert not reason_words() - told, "say what to do"
    source = "".join(path.read_text("utf-8") for path in (ROOT / "kortix_tui").rglob("*.py"))
    assert not [word for word in told if f'"{word}"' not in source], "no such reason any more"


def test_every_row_of_isolation_is_explained() -> None:
    page = (HELP / "sandbox.md").read_text("utf-8")
    doctor = (ROOT / "kortix_tui" / "runtime" / "doctor.py").read_text("utf-8")
    titles = set(re.findall(r"title(?: =|=)\s*\"([^\"]+)\"", doctor)) | {group.title for group in GROUPS}
    assert not [title for title in titles - {"Isolation"} if title not in page]


def test_the_readme_is_short_and_belongs_to_no_machine() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 250
    for page in PAGES:
        assert not re.search(r"/work/|/root/|/home/(?!agent)|pypi\.|docker\.io/", page.read_text("utf-8")), page.name
