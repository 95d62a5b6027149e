"""One body of data from `kortix.yaml` and its imports, that still knows where each piece came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kortix_tui.base.errors import KortixError
from kortix_tui.base.faults import Fault, FaultLevel, Path, Place, choose
from kortix_tui.base.yaml import Document, YamlRefused, load
from kortix_tui.manifest.agents import AGENT_ALIASES
from kortix_tui.manifest.fields import path_problem
from kortix_tui.manifest.model import FORBIDDEN, IMPORTABLE, Manifest
from kortix_tui.manifest.source import Source
from kortix_tui.manifest.triggers import TRIGGER_ALIASES

MANIFEST: Final = "kortix.yaml"
_MOST_FILES = 200
_DEEPEST = 8
_LISTS = ("connectors", "triggers")


@dataclass
class Assembly:
    """The merged data, and the place of every piece in its own file."""

    data: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _documents: dict[str, Document] = field(default_factory=dict)
    _origins: dict[Path, tuple[str, Path]] = field(default_factory=dict)

    def key_place(self, path: Path) -> Place:
        """Where the key stands, in whichever file it is."""
        document, inside = self._origin(path)
        return document.key_place(inside)

    def value_place(self, path: Path) -> Place:
        """Where the value begins, in whichever file it is."""
        document, inside = self._origin(path)
        return document.value_place(inside)

    def _origin(self, path: Path) -> tuple[Document, Path]:
        for length in range(len(path), 0, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                file, inside = origin
                return self._documents[file], (*inside, *path[length:])
        return self._documents.get(MANIFEST) or Document(MANIFEST, None), path

    def note(self, path: Path, code: str, message: str, hint: str | None = None, *, warning: bool = False) -> None:
        """Add a fault at a key of the merged data."""
        level = FaultLevel.WARNING if warning else FaultLevel.ERROR
        self.faults.append(Fault.at(self.key_place(path), path, message, code=code, hint=hint, level=level))

    def add(self, document: Document) -> None:
        """Take in one file. Names that are there already are faults that tell both files."""
        self._documents[document.file] = document
        body = document.data
        if not isinstance(body, dict):
            return
        for key, value in body.items():
            if key == "imports" and document.file != MANIFEST:
                continue
            if key in _LISTS and isinstance(value, list) and isinstance(self.data.get(key, []), list):
                self._extend(key, value, document.file)
            elif key in IMPORTABLE and isinstance(value, dict) and isinstance(self.data.get(key, {}), dict):
                self._join(key, value, document.file)
            elif key not in self.data:
                self.data[key] = value
                self._origins[(key,)] = (document.file, (key,))

    def _extend(self, key: str, items: list[object], file: str) -> None:
        merged: list[object] = self.data.setdefault(key, [])
        self._origins.setdefault((key,), (file, (key,)))
        for index, item in enumerate(items):
            self._origins[(key, len(merged))] = (file, (key, index))
            merged.append(item)

    def _join(self, key: str, entries: dict[str, object], file: str) -> None:
        merged: dict[str, object] = self.data.setdefault(key, {})
        self._origins.setdefault((key,), (file, (key,)))
        for name, entry in entries.items():
            if name in merged:
                first = self.key_place((key, name))
                place = self._documents[file].key_place((key, name))
                self.faults.append(
                    Fault.at(
                        place,
                        (key, name),
                        f"`{name}` is already in {first.file}, line {first.line}",
                        code="duplicate_name",
                        hint="Keep one of them.",
                    )
                )
                continue
            merged[name] = entry
            self._origins[(key, name)] = (file, (key, name))

    def rename(self, path: Path, new: str) -> None:
        """Move a deprecated key to its new name; faults go on to point at what was written."""
        *above, old = path
        holder: Any = self.data
        for step in above:
            holder = holder[step]
        document, inside = self._origin(path)
        target = (*above, new)
        if new in holder and holder[new] != holder[old]:
            self.note(path, "duplicate_key", f"`{old}` and `{new}` differ", f"Keep `{new}` only.")
        elif new not in holder:
            self._origins[target] = (document.file, inside)
        self.note(path, "deprecated", f"`{old}` is called `{new}` now", f"Rename it to `{new}`.", warning=True)
        holder.setdefault(new, holder[old])
        del holder[old]


def assemble(source: Source) -> Assembly:
    """Read the manifest and everything that it imports.

    Without a usable root file the data is empty and a fault says why.
    """
    assembly = Assembly()
    root = _read_root(source, assembly)
    if root is None:
        return assembly
    assembly.add(root)
    _Imports(source, assembly).follow(root, ())
    _rename_aliases(assembly)
    _check_root_keys(assembly)
    return assembly


def _read_root(source: Source, assembly: Assembly) -> Document | None:
    raw = _bytes_of(source, MANIFEST, assembly, Place(MANIFEST))
    if raw is None:
        if not assembly.faults:
            assembly.faults.append(_missing(source))
        return None
    try:
        document = load(raw, file=MANIFEST)
    except YamlRefused as error:
        assembly.faults += error.faults
        return None
    if document.data is None:
        assembly.faults.append(
            Fault.at(
                Place(MANIFEST, 1, 1),
                (),
                "the manifest is empty",
                code="empty_manifest",
                hint="Run `kortix init --force` in this folder, or write `kortix_version: 2` and `agents:`.",
            )
        )
        return None
    if not isinstance(document.data, dict):
        fault = Fault.at(
            Place(MANIFEST, 1, 1), (), "must be a mapping", code="type", hint="Write `key: value`, one a line."
        )
        assembly.faults.append(fault)
        return None
    return document


def _missing(source: Source) -> Fault:
    def there(path: str) -> bool:
        try:
            return source.read(path) is not None
        except KortixError:
            return False

    hint = "Run `kortix init` in the project's folder, and commit what it writes."
    if there("kortix.yml"):
        hint = "Rename kortix.yml to kortix.yaml."
    elif there("kortix.toml"):
        hint = "kortix.toml is version 1 and is not read; run `kortix init` and move its agents over."
    return Fault.at(
        Place(MANIFEST), (), "there is no kortix.yaml at the project's root", code="missing_manifest", hint=hint
    )


def _bytes_of(source: Source, path: str, assembly: Assembly, place: Place) -> bytes | None:
    """The file's bytes; a refusal of the source becomes a fault."""
    try:
        return source.read(path)
    except KortixError as error:
        assembly.faults.append(Fault.at(place, (), error.message, code="unreadable", hint=error.hint))
        return None


class _Imports:
    """Follows `imports:` within the limits, each file once."""

    def __init__(self, source: Source, assembly: Assembly) -> None:
        self._source = source
        self._assembly = assembly
        self._read: set[str] = {MANIFEST}

    def follow(self, document: Document, chain: tuple[str, ...]) -> None:
        """Take in all files that a document imports.

        Args:
            document: A file that was taken in.
            chain: The files that led to it, the root first; for cycles and depth.
        """
        body = document.data
        entries = body.get("imports", []) if isinstance(body, dict) else []
        if not isinstance(entries, list):
            if document.file != MANIFEST:
                self._fault(document, ("imports",), "type", "must be a list", "Write `imports: [path]`.")
            return
        here = (*chain, document.file)
        for index, entry in enumerate(entries):
            at: Path = ("imports", index)
            if not isinstance(entry, str):
                if document.file != MANIFEST:
                    self._fault(document, at, "type", "must be a text", "Write a path in the repository.")
                continue
            problem = "is a pattern" if any(char in entry for char in "*?[") else path_problem(entry)
            if problem:
                if document.file != MANIFEST:  # the model says it for the root
                    self._fault(
                        document, at, "path", f"the path `{entry}` {problem}", "Write a path in the repository."
                    )
                continue
            for file in self._files(document, at, entry.rstrip("/")):
                self._take(document, at, file, here)

    def _files(self, document: Document, at: Path, path: str) -> list[str]:
        try:
            if self._source.read(path) is not None:
                return [path]
            below = [file for file in self._source.list(path) if file.endswith((".yaml", ".yml"))]
        except KortixError as error:
            self._fault(document, at, "unreadable", error.message, error.hint)
            return []
        if not below:
            self._fault(
                document,
                at,
                "not_found",
                f"`{path}` is neither a file nor a folder with .yaml files",
                "Check the path.",
            )
        return sorted(below)

    def _take(self, document: Document, at: Path, file: str, chain: tuple[str, ...]) -> None:
        if file in chain:
            circle = " → ".join((*chain[chain.index(file) :], file))
            self._fault(document, at, "cycle", f"the imports go in a circle: {circle}", "Remove one of them.")
            return
        if file in self._read:
            self._fault(
                document, at, "duplicate_import", f"`{file}` is imported twice", "Remove one of them.", warning=True
            )
            return
        if len(chain) > _DEEPEST:
            self._fault(
                document,
                at,
                "too_deep",
                f"imports go deeper than {_DEEPEST} files",
                "Import from kortix.yaml directly.",
            )
            return
        if len(self._read) > _MOST_FILES:
            self._fault(document, at, "too_many", f"more than {_MOST_FILES} files are imported", "Join some of them.")
            return
        self._read.add(file)
        raw = _bytes_of(self._source, file, self._assembly, document.value_place(at))
        if raw is None:
            return
        try:
            imported = load(raw, file=file)
        except YamlRefused as error:
            self._assembly.faults += error.faults
            return
        if not isinstance(imported.data, dict):
            if imported.data is not None:
                self._fault(
                    imported, (), "type", "must be a mapping", "Write `connectors:`, `agents:` or `triggers:` first."
                )
            return
        self._check_keys(imported, imported.data)
        self._assembly.add(imported)
        self.follow(imported, chain)

    def _check_keys(self, document: Document, body: dict[str, object]) -> None:
        for key in list(body):
            if key in IMPORTABLE or key == "imports":
                continue
            if key in Manifest.model_fields:
                self._fault(
                    document, (key,), "root_only", f"`{key}` can stand in {MANIFEST} only", f"Move it to {MANIFEST}."
                )
                del body[key]

    def _fault(
        self, document: Document, path: Path, code: str, message: str, hint: str | None, *, warning: bool = False
    ) -> None:
        level = FaultLevel.WARNING if warning else FaultLevel.ERROR
        self._assembly.faults.append(
            Fault.at(document.value_place(path), path, message, code=code, hint=hint, level=level)
        )


def _rename_aliases(assembly: Assembly) -> None:
    agents = assembly.data.get("agents")
    if isinstance(agents, dict):
        for name, agent in agents.items():
            for old, new in AGENT_ALIASES.items():
                if isinstance(agent, dict) and old in agent:
                    assembly.rename(("agents", name, old), new)
            if agent is None:
                agents[name] = {}  # `builder:` with nothing below it is an agent that may touch nothing
    triggers = assembly.data.get("triggers")
    if isinstance(triggers, list):
        for index, trigger in enumerate(triggers):
            for old, new in TRIGGER_ALIASES.items():
                if isinstance(trigger, dict) and old in trigger:
                    assembly.rename(("triggers", index, old), new)


def _check_root_keys(assembly: Assembly) -> None:
    known = Manifest.model_fields
    for key in list(assembly.data):
        if key in FORBIDDEN:
            assembly.note((key,), "unknown_key", f"`{key}` is not a key of version 2", FORBIDDEN[key])
        elif key not in known:
            assembly.note((key,), "unknown_key", f"unknown key `{key}` is ignored", choose(key, known), warning=True)
        else:
            continue
        del assembly.data[key]
