"""The group of the engine's socket: who is in it, and working at once after having been added.

A process gets its groups when its user logs in. After `usermod` only a new login has the new one, or a program
started through `sg`, which reads the group file anew.
"""

from __future__ import annotations

import getpass
import grp
import os
import pwd
import shlex
import shutil
from collections.abc import Sequence

GROUP = "docker"


def user_name() -> str:
    """The account of this process, whatever its environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return getpass.getuser()


def is_member(name: str, group: str = GROUP) -> bool:
    """Whether the group file has the user in the group, be it that this process has no use of it yet."""
    try:
        entry = grp.getgrnam(group)
        primary = pwd.getpwnam(name).pw_gid
    except KeyError:
        return False
    return name in entry.gr_mem or primary == entry.gr_gid


def lacks_new_group(group: str = GROUP) -> bool:
    """Whether this user is in the group, but this process does not have it yet."""
    if os.geteuid() == 0 or not is_member(user_name(), group):
        return False
    return grp.getgrnam(group).gr_gid not in {os.getegid(), *os.getgroups()}


def with_group(command: Sequence[str], group: str = GROUP) -> list[str] | None:
    """The same command as a member of the group; `None` when the process has the group or `sg` is missing."""
    if not lacks_new_group(group) or shutil.which("sg") is None:
        return None
    return ["sg", group, "-c", shlex.join(command)]
