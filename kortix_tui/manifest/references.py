"""Rules that no single field can check: every name must lead somewhere, and what is granted must mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kortix_tui.base.errors import KortixError
from kortix_tui.base.faults import Path, choose
from kortix_tui.manifest.agents import Agent
from kortix_tui.manifest.assembly import Assembly
from kortix_tui.manifest.connectors import is_url
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.policies import as_regex, covers, unreachable
from kortix_tui.manifest.source import Source
from kortix_tui.manifest.support import unserved
from kortix_tui.manifest.templates import DEFAULT_TEMPLATE, HIGHEST
from kortix_tui.manifest.vocabulary import MERGE_PERMISSIONS, PERSON_ONLY

_NO_MERGE = "cannot confer merge here: merge is default-deny for agents, only a person merges"


class References:
    """Checks one valid model and notes faults in its assembly."""

    def __init__(self, manifest: Manifest, assembly: Assembly, source: Source) -> None:
        self._manifest = manifest
        self._assembly = assembly
        self._source = source
        self._templates = {DEFAULT_TEMPLATE, *(template.slug for template in manifest.sandbox.templates)}
        self._connectors = {connector.slug for connector in manifest.connectors}

    def check(self) -> None:
        """Note everything that is wrong or without effect."""
        self._default_agent()
        self._templates_and_checks()
        self._unique_slugs()
        for name, agent in self._manifest.agents.items():
            self._agent(name, agent)
        self._triggers()
        self._policies()
        self._files()
        for path, message in unserved(self._manifest):
            self._warn(path, "not_supported", message, "Agents that do not use it run as usual.")

    def _error(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self._assembly.note(path, code, message, hint)

    def _warn(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self._assembly.note(path, code, message, hint, warning=True)

    def _must_exist(self, path: Path, kind: str, name: str, there: Iterable[str]) -> None:
        if name not in there:
            self._error(path, "reference", f"there is no {kind} `{name}`", choose(name, there))

    def _default_agent(self) -> None:
        name = self._manifest.default_agent
        agent = self._manifest.agents.get(name)
        if agent is None:
            self._must_exist(("default_agent",), "agent", name, self._manifest.enabled_agents())
        elif not agent.enabled:
            self._error(
                ("default_agent",),
                "reference",
                f"the agent `{name}` is not enabled",
                choose(name, self._manifest.enabled_agents(), none="Enable it, or declare another."),
            )

    def _templates_and_checks(self) -> None:
        sandbox = self._manifest.sandbox
        if sandbox.default is not None:
            self._must_exist(("sandbox", "default"), "template", sandbox.default, self._templates)
        for index, template in enumerate(sandbox.templates):
            for key, highest in HIGHEST.items():
                size = getattr(template, key)
                if size is not None and size > highest:
                    self._warn(
                        ("sandbox", "templates", index, key),
                        "clamped",
                        f"{size} is more than {highest}; {highest} is used",
                    )
            if template.image is not None and ":" not in template.image.rsplit("/", 1)[-1]:
                self._warn(
                    ("sandbox", "templates", index, "image"),
                    "unpinned",
                    f"`{template.image}` has neither tag nor digest",
                    "Pin it, such as `python:3.12-slim-bookworm`.",
                )
        for index, check in enumerate(self._manifest.checks):
            if check.template is not None:
                self._must_exist(("checks", index, "template"), "template", check.template, self._templates)

    def _unique_slugs(self) -> None:
        manifest = self._manifest
        lists: tuple[tuple[Path, str, list[str]], ...] = (
            (("connectors",), "slug", [connector.slug for connector in manifest.connectors]),
            (("triggers",), "slug", [trigger.slug for trigger in manifest.triggers]),
            (("sandbox", "templates"), "slug", [template.slug for template in manifest.sandbox.templates]),
            (("checks",), "name", [check.name for check in manifest.checks]),
        )
        for above, key, names in lists:
            for name, count in Counter(names).items():
                if count < 2:
                    continue
                first, *others = [index for index, own in enumerate(names) if own == name]
                place = self._assembly.key_place((*above, first))
                for index in others:
                    self._error(
                        (*above, index, key),
                        "duplicate_name",
                        f"`{name}` is already in {place.file}, line {place.line}",
                        "Keep one of them, or rename one.",
                    )

    def _agent(self, name: str, agent: Agent) -> None:
        at: Path = ("agents", name)
        if agent.sandbox is not None:
            self._must_exist((*at, "sandbox"), "template", agent.sandbox, self._templates)
        for index, slug in enumerate(agent.connectors.names):
            self._must_exist((*at, "connectors", index), "connector", slug, self._connectors)
        for index, slug in enumerate(agent.connectors_required):
            connector = self._manifest.connector(slug)
            if connector is not None and not connector.enabled:
                self._error((*at, "connectors_required", index), "reference", f"the connector `{slug}` is not enabled")
        for index, app in enumerate(agent.apps.names):
            self._must_exist((*at, "apps", index), "app", app, self._manifest.apps)
        for volume in agent.volumes:
            self._must_exist((*at, "volumes", volume), "volume", volume, self._manifest.volumes)
            self._volume_secrets((*at, "volumes", volume), agent, volume)
        for index, skill in enumerate(agent.skills.names):
            if self._exists(f"skills/{skill}/SKILL.md") is False:
                self._warn(
                    (*at, "skills", index),
                    "reference",
                    f"there is no skill `{skill}`",
                    f"Write skills/{skill}/SKILL.md.",
                )
        self._permissions(at, agent)

    def _volume_secrets(self, path: Path, agent: Agent, name: str) -> None:
        volume = self._manifest.volumes.get(name)
        for identifier in (volume.access_key_id, volume.secret_access_key) if volume else ():
            if identifier is not None and not agent.secrets.names_it(identifier):
                self._error(
                    path,
                    "reference",
                    f"the volume's secret `{identifier}` is not granted to this agent",
                    f"Add `{identifier}` to its `secrets`.",
                )

    def _permissions(self, at: Path, agent: Agent) -> None:
        grant = agent.kortix_permissions
        path: Path = (*at, "kortix_permissions")
        if grant.everything:
            self._warn(
                path,
                "cannot_confer",
                "`all` " + _NO_MERGE,
                "Name the permissions that the agent needs, such as `project.gitops.push`.",
            )
        for index, name in enumerate(grant.names):
            if name in MERGE_PERMISSIONS:
                self._warn(
                    (*path, index),
                    "cannot_confer",
                    f"`{name}` " + _NO_MERGE,
                    "Remove it; `project.gitops.push` lets the agent open a change request.",
                )
            elif name in PERSON_ONLY:
                self._warn(
                    (*path, index),
                    "cannot_confer",
                    f"`{name}` has no effect here: only a person may {PERSON_ONLY[name]}",
                )

    def _triggers(self) -> None:
        enabled = self._manifest.enabled_agents()
        for index, trigger in enumerate(self._manifest.triggers):
            if trigger.agent is not None:
                self._must_exist(("triggers", index, "agent"), "enabled agent", trigger.agent, enabled)

    def _policies(self) -> None:
        rules = self._manifest.policies
        for later, earlier in unreachable(rules):
            self._unreachable(("policies", later), f"rule {earlier + 1}, `{rules[earlier].match}`,")
        for index, rule in enumerate(rules):
            slug, dot, _ = rule.match.partition(".")
            if as_regex(rule.match) is None and "*" not in slug and slug.casefold() not in self._connectors:
                message = f"no connector is called `{slug}`" if dot else f"`{rule.match}` matches no action"
                self._warn(
                    ("policies", index),
                    "matches_nothing",
                    message,
                    "Write `<connector>.<action>`, such as `billing.get_*`.",
                )
        for number, connector in enumerate(self._manifest.connectors):
            for later, earlier in unreachable(connector.policies):
                match = connector.policies[earlier].match
                self._unreachable(("connectors", number, "policies", later), f"rule {earlier + 1}, `{match}`,")
            for index, rule in enumerate(connector.policies):
                full = f"{connector.slug}.{rule.match}"
                above = [
                    own
                    for own in rules
                    if not own.conditions and as_regex(rule.match) is None and covers(own.match, full)
                ]
                if above:
                    self._unreachable(
                        ("connectors", number, "policies", index), f"the project's rule `{above[0].match}`"
                    )

    def _unreachable(self, path: Path, by: str) -> None:
        self._warn(path, "unreachable", f"this rule is never reached: {by} decides first", "Move it up, or remove it.")

    def _files(self) -> None:
        for index, template in enumerate(self._manifest.sandbox.templates):
            if template.dockerfile is not None:
                self._file(("sandbox", "templates", index, "dockerfile"), template.dockerfile)
        for index, connector in enumerate(self._manifest.connectors):
            spec = getattr(connector, "spec", None)
            if spec is not None and not is_url(spec):
                self._file(("connectors", index, "spec"), spec)

    def _file(self, path: Path, file: str) -> None:
        if self._exists(file) is False:
            self._error(
                path, "not_found", f"there is no file `{file}`", "Check the path; it begins at the repository's root."
            )

    def _exists(self, file: str) -> bool | None:
        """Whether a file is there; `None` when the source refuses to say, which its own fault tells."""
        try:
            return self._source.read(file) is not None
        except KortixError as error:
            self._assembly.note((), "unreadable", error.message, error.hint)
            return None
