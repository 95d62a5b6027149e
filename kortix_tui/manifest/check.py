"""The one gate for a project's manifest: used by `validate`, before a merge, and when a session starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kortix_tui.base.errors import KortixError
from kortix_tui.base.faults import Fault, FaultLevel, Place
from kortix_tui.base.validation import validate
from kortix_tui.manifest.advice import advise_on_manifest
from kortix_tui.manifest.assembly import Assembly, assemble
from kortix_tui.manifest.behaviour import AgentFile, read_agent_file
from kortix_tui.manifest.fields import is_slug, path_problem
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.references import References
from kortix_tui.manifest.source import Source

_LEGACY_AGENTS = (".kortix/opencode/agents", ".kortix/opencode/agent")


@dataclass(frozen=True)
class Report:
    """What was read, and everything that is wrong with it.

    Attributes:
        manifest: The model; `None` when it could not be made.
        agents: The Markdown file of each enabled agent that has a readable one.
        faults: Errors and warnings, by file and line.
    """

    manifest: Manifest | None
    agents: Mapping[str, AgentFile]
    faults: tuple[Fault, ...]

    @property
    def errors(self) -> tuple[Fault, ...]:
        """Faults that make it invalid."""
        return tuple(fault for fault in self.faults if fault.is_error)

    @property
    def warnings(self) -> tuple[Fault, ...]:
        """What has no effect, is deprecated, or is not served here."""
        return tuple(fault for fault in self.faults if not fault.is_error)

    @property
    def valid(self) -> bool:
        """Whether a session may be governed by it."""
        return self.manifest is not None and not self.errors

    @property
    def missing(self) -> bool:
        """Whether there is no manifest at all."""
        return any(fault.code == "missing_manifest" for fault in self.faults)


def check(source: Source) -> Report:
    """Read and check a project's manifest with its imports and agent files. Never raises for what it reads."""
    assembly = assemble(source)
    if not assembly.data:
        return _report(None, {}, assembly)
    manifest, faults = validate(Manifest, assembly.data, assembly, advise=advise_on_manifest)
    assembly.faults += faults
    agents = _agent_files(assembly, source)
    if manifest is not None:
        References(manifest, assembly, source).check()
        _undeclared(manifest, assembly, source)
    return _report(manifest, agents, assembly)


def _report(manifest: Manifest | None, agents: dict[str, AgentFile], assembly: Assembly) -> Report:
    faults = sorted(
        dict.fromkeys(assembly.faults),
        key=lambda fault: (fault.file != "kortix.yaml", fault.file, fault.line, fault.column),
    )
    return Report(manifest, MappingProxyType(agents), tuple(faults))


def _agent_files(assembly: Assembly, source: Source) -> dict[str, AgentFile]:
    """Read the file of every enabled agent; from the data, so that their faults show even if the manifest is wrong."""
    declared = assembly.data.get("agents")
    files: dict[str, AgentFile] = {}
    for name, agent in declared.items() if isinstance(declared, dict) else ():
        if not isinstance(agent, dict) or agent.get("enabled", True) is False or not is_slug(name):
            continue
        path = agent.get("file", f"agents/{name}.md")
        if not isinstance(path, str) or path_problem(path) is not None or not path.endswith(".md"):
            continue  # the model says so
        file = _agent_file(name, path, assembly, source)
        if file is not None:
            files[name] = file
    return files


def _agent_file(name: str, file: str, assembly: Assembly, source: Source) -> AgentFile | None:
    path = ("agents", name)
    try:
        raw = source.read(file)
    except KortixError as error:
        assembly.note(path, "unreadable", error.message, error.hint)
        return None
    if raw is None:
        assembly.note(
            path, "no_agent_file", f"there is no file `{file}` for the agent `{name}`", _legacy_hint(name, file, source)
        )
        return None
    read, faults = read_agent_file(file, raw)
    assembly.faults += faults
    if read is not None and read.behaviour.disable:
        place = Place(file, 1, 1)
        assembly.faults.append(
            Fault.at(
                place,
                ("disable",),
                f"the agent `{name}` is switched off by `disable: true`",
                code="disabled",
                hint="Use `enabled: false` in kortix.yaml, which says so where it is declared.",
                level=FaultLevel.WARNING,
            )
        )
    return read


def _legacy_hint(name: str, file: str, source: Source) -> str:
    for folder in _LEGACY_AGENTS:
        try:
            if source.read(f"{folder}/{name}.md") is not None:
                return f"Move {folder}/{name}.md there, or write `file: {folder}/{name}.md`."
        except KortixError:
            continue
    return f"Write {file}: front matter between two `---` lines, then the agent's instructions."


def _undeclared(manifest: Manifest, assembly: Assembly, source: Source) -> None:
    """A file in `agents/` that no agent uses is probably a forgotten declaration."""
    used = {agent.file_for(name) for name, agent in manifest.agents.items()}
    try:
        files = source.list("agents")
    except KortixError:
        return
    for file in files:
        if file.endswith(".md") and file.count("/") == 1 and file not in used and file != "agents/README.md":
            name = file.removeprefix("agents/").removesuffix(".md")
            assembly.faults.append(
                Fault.at(
                    Place(file),
                    (),
                    "no agent in kortix.yaml uses this file",
                    code="undeclared",
                    hint=f"Declare `{name}:` under `agents:`, or remove the file.",
                    level=FaultLevel.WARNING,
                )
            )
