"""The rows of `kortix doctor` about isolation: what each promises, and its words when the promise is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kortix_tui.base.words import Level


@dataclass(frozen=True)
class Group:
    """Probes that are one row.

    Attributes:
        id: The row's, after `isolation.`.
        title: The promise.
        held: The sentence for a row where all hold.
        probes: Name of each probe, and the words for one that does not hold, followed by what it saw.
        fix: What to do then.
        level: How bad that is.
    """

    id: str
    title: str
    held: str
    probes: Mapping[str, str]
    fix: str
    level: Level = Level.FAIL


_UPGRADE: Final = "Upgrade Docker and the kernel of this machine; sessions are not safe on this engine."
GROUPS: Final = (
    Group(
        "privileges",
        "No privileges inside",
        "the agent has no capability and cannot gain one; a filter on system calls is active",
        {
            "privileges": "the agent has or can gain privileges",
            "seccomp": "there is no filter on system calls",
        },
        _UPGRADE,
    ),
    Group(
        "kernel",
        "Dangerous system calls refused",
        "mounts, namespaces, BPF, key rings, io_uring, modules and raw sockets are refused",
        {
            "system_calls": "these system calls are not refused",
            "socket_families": "these sockets can be opened",
        },
        _UPGRADE,
    ),
    Group(
        "network",
        "No network inside",
        "there is only loopback, no route, and no outside address answers",
        {"network": "something of the network can be reached"},
        _UPGRADE,
    ),
    Group(
        "files",
        "System files read-only, host hidden",
        "nothing of the system can be changed, nothing of the host can be seen",
        {
            "root_file_system": "these could be changed",
            "host_is_hidden": "these of the host can be seen",
        },
        _UPGRADE,
    ),
    Group(
        "door",
        "Only the door leads out",
        "the host answers at the door, and the door can be neither removed nor replaced",
        {
            "door_answers": "the host cannot be reached through the door",
            "door_folder": "the door can be tampered with",
        },
        "Run kortix on the machine where the engine runs, with the home on a local disk that the engine can see.",
    ),
    Group(
        "supervisor",
        "Supervisor and journal out of reach",
        "the agent can neither signal, trace, read nor imitate the supervisor, nor touch its journal",
        {"supervisor_is_safe": "the agent can do this to the supervisor"},
        _UPGRADE,
    ),
    Group(
        "limits",
        "Processes and memory limited",
        "the engine limits both",
        {
            "processes_limit": "the number of processes is not limited",
            "memory_limit": "memory is not limited",
        },
        "Enable the memory and pids controllers (rootless Docker needs cgroup v2 and systemd for it).",
        Level.WARN,
    ),
    Group(
        "workspace",
        "The agent's folders can be used",
        "the workspace, the agent's home and /tmp can be written, and programs run from them",
        {"workspace": "some cannot be used"},
        "Build the image again: kortix sandboxes rebuild",
    ),
)
