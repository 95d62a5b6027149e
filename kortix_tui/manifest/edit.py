"""Edits of what an agent may use, in the text of a manifest: comments, order, style and every other byte stay."""

from __future__ import annotations

import copy
import re
from typing import Final

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.manifest.agents import AGENT_ALIASES
from kortix_tui.manifest.assembly import MANIFEST
from kortix_tui.manifest.marks import Mapping, Sequence, last_character
from kortix_tui.manifest.splicing import Draft, Splice, spelled

GRANT_KEYS: Final = ("secrets", "connectors", "connectors_required", "skills", "apps", "kortix_permissions")
"""The keys of an agent that hold a grant by name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_EVERYTHING = ("all", "*")


def add_to_grant(
    source: bytes, agent: str, key: str, name: str, *, replace_all: bool = False, file: str = MANIFEST
) -> bytes:
    """Name one more thing in `agents.<agent>.<key>`.

    Args:
        source: The file that declares the agent.
        agent: The agent's name.
        key: One of `GRANT_KEYS`.
        name: What is granted.
        replace_all: Where the grant is `all`: write a list of only this name instead.
        file: How messages call the file.

    Returns:
        The edited file; the very same bytes when the agent has that grant already.

    Raises:
        NotFound: The file declares no such agent.
        Refused: The grant of secrets is `all`, which names no secret.
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    grant = _Grant(source, agent, key, name, file)
    if grant.everything and not replace_all:
        if key != "secrets":
            return source
        raise Refused(
            f"{grant.place}: `{grant.path}` is `all`: every secret that goes into the environment is granted already.",
            hint="One that is kept outside the sandbox has to be named: replace `all` by the list of what it may use.",
        )
    if grant.held and not grant.everything:
        return source
    return grant.changed([*([] if grant.everything else grant.names), name], grant.adding())


def remove_from_grant(source: bytes, agent: str, key: str, name: str, *, file: str = MANIFEST) -> bytes:
    """Take a name out of `agents.<agent>.<key>`; the arguments are those of `add_to_grant`.

    Returns:
        The edited file; the very same bytes when the agent has no such grant.

    Raises:
        NotFound: The file declares no such agent.
        Refused: The grant is `all`, which has no names to take away.
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    while True:
        grant = _Grant(source, agent, key, name, file)
        if grant.everything:
            raise Refused(
                f"{grant.place}: `{grant.path}` is `all`; a single name cannot be taken out of it.",
                hint="Write the list of what the agent may use in its place.",
            )
        if not grant.held:
            return source
        index = grant.held[-1]
        source = grant.changed([*grant.names[:index], *grant.names[index + 1 :]], grant.removing(index))


class _Grant:
    """One grant in one text: what it says, where it stands, and how to change it.

    Attributes:
        place: File and line, for messages.
        path: The key's path, for messages.
        everything: The grant is `all`.
        names: What it names, in order.
        held: Indexes of `names` that mean the name that is asked about.
    """

    def __init__(self, source: bytes, agent: str, key: str, name: str, file: str) -> None:
        if key not in GRANT_KEYS:
            raise InvalidInput(f"`{visible_line(shorten(key, 60))}` is no grant.", hint=choose(key, GRANT_KEYS))
        if not _NAME.match(name) or name in _EVERYTHING:
            raise InvalidInput(
                f"`{visible_line(shorten(name, 140))}` cannot be granted by name.",
                hint="Use letters, digits, `_`, `.` and `-`, at most 128, beginning with a letter or digit.",
            )
        self._draft = draft = Draft(source, file)
        self._agent, self._name = agent, name
        agents = draft.data.get("agents") if isinstance(draft.data, dict) else None
        if not isinstance(agents, dict) or agent not in agents:
            known = agents if isinstance(agents, dict) else {}
            raise NotFound(
                f"{draft.file} declares no agent `{visible_line(shorten(agent, 60))}`.", hint=choose(agent, known)
            )
        self._entry = draft.entry(draft.entry(draft.root, "agents")[1], agent)
        declared = agents[agent]
        if declared is not None and not isinstance(declared, dict):
            raise InvalidInput(
                f"{draft.place_of(self._entry[0])}: the agent `{agent}` is not a mapping.",
                hint="Write `key: value` below it, one a line.",
            )
        written = declared or {}
        old = next((old for old, new in AGENT_ALIASES.items() if new == key and old in written), key)
        self._key = key if key in written else old
        self._grant = self._entry[1].entry(self._key) if isinstance(self._entry[1], Mapping) else None
        self.place = draft.place_of((self._grant or self._entry)[0])
        self.path = f"agents.{agent}.{self._key}"
        self._read(written.get(self._key), fold=key == "secrets")

    def _read(self, value: object, *, fold: bool) -> None:
        self.everything = isinstance(value, str) and value in _EVERYTHING
        self.names: list[str] = []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            self.names = value
        elif value is not None and value != "none" and not self.everything:
            raise InvalidInput(
                f"{self.place}: `{self.path}` is neither a list of names nor `all` or `none`.",
                hint="Write `[name, name]`.",
            )
        wanted = self._name.casefold() if fold else self._name
        self.held = [n for n, item in enumerate(self.names) if (item.casefold() if fold else item) == wanted]

    # ---- the two changes ---------------------------------------------------------------------------------

    def adding(self) -> list[Splice]:
        """Where to cut, and what to put there, for one more name."""
        draft = self._draft
        new = f"[{spelled(self._name)}]"
        if self._grant is None:
            key, agent = self._entry
            entry = f"{self._key}: {new}"
            if not isinstance(agent, Mapping):
                return [draft.written(key, agent, f"{{{entry}}}")]
            return draft.new_entry(agent, [entry], entry, self.path)
        key, value = self._grant
        if not isinstance(value, Sequence):
            return [draft.written(key, value, new)]
        item = spelled(self._name, value.items)
        if value.flow:
            return draft.into_flow(value, value.items, item)
        last = value.items[-1]
        end = last_character(last)
        if end is None:
            draft.by_hand(last, self.path)
        return [draft.new_line(end, draft.item_prefix(last, self.path) + item)]

    def removing(self, index: int) -> list[Splice]:
        """Where to cut for one name less."""
        assert self._grant is not None and isinstance(self._grant[1], Sequence)  # noqa: S101 - it names something
        key, value = self._grant[0], self._grant[1]
        if value.flow:
            return self._draft.out_of_flow(value, index)
        return self._draft.out_of_block(key, value, index, self.path)

    def changed(self, names: list[str], splices: list[Splice]) -> bytes:
        """The edited file, when it means the old data with these names and nothing else."""
        expected = copy.deepcopy(self._draft.data)
        agents = expected["agents"]
        agents[self._agent] = {**(agents[self._agent] or {}), self._key: names}
        return self._draft.edited(splices, expected, (self._grant or self._entry)[0], self.path)
