"""Makes the user `agent`, the folders and the git configuration of a sandbox image.

Runs once, as root, while the image is built; Python 3.9 and its standard library only. It edits the account
files itself, as the tools for that differ between distributions and small images have none.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

UID = 1000
NAME = "agent"
HOME = Path("/home/agent")
JOURNAL = Path("/var/lib/kortix")
OLDEST_GIT = (2, 30)
GIT_SETTINGS = (
    ("safe.directory", "*"),
    ("include.path", "/run/kortix-agent/gitconfig"),
    ("init.defaultBranch", "main"),
    ("advice.detachedHead", "false"),
)


def refuse(reason: str) -> NoReturn:
    """End the build with a reason that the builder shows."""
    sys.exit("kortix-refused: " + reason)


def rewrite(path: Path, entry: str, *, id_field: int) -> None:
    """Put `entry` into an account file, in place of any that has our name or our id.

    Args:
        path: `/etc/passwd` and its kin.
        entry: The whole line.
        id_field: Where the numeric id stands; 0 when the file has none.
    """
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else []
    kept = []
    for line in lines:
        fields = line.split(":")
        same_id = 0 < id_field < len(fields) and fields[id_field] == str(UID)
        if fields[0] != NAME and not same_id:
            kept.append(line)
    path.write_text("\n".join([*kept, entry]) + "\n", encoding="utf-8", errors="surrogateescape")


def own(folder: Path) -> None:
    """Give a folder and all in it to the agent."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    os.chown(folder, UID, UID)
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            os.chown(Path(parent, name), UID, UID, follow_symlinks=False)


def usable_git() -> str:
    """The path of git; ends the build when it is missing or too old."""
    git = shutil.which("git")
    if git is None:
        refuse("git could not be installed.")
    text = subprocess.check_output([git, "--version"]).decode("utf-8", "replace")
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        refuse(f"its git is older than 2.30: {text.strip()}")
    return git


def main() -> None:
    """Do it all."""
    git = usable_git()
    shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if Path(path).exists()), "/bin/sh")
    rewrite(Path("/etc/passwd"), f"{NAME}:x:{UID}:{UID}:Agent:{HOME}:{shell}", id_field=2)
    rewrite(Path("/etc/group"), f"{NAME}:x:{UID}:", id_field=2)
    if Path("/etc/shadow").exists():
        rewrite(Path("/etc/shadow"), f"{NAME}:!:19000:0:99999:7:::", id_field=0)
    if not HOME.is_dir() and Path("/etc/skel").is_dir():
        HOME.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree("/etc/skel", HOME, symlinks=True)
    own(HOME)
    own(Path("/workspace"))
    JOURNAL.mkdir(mode=0o700, parents=True, exist_ok=True)
    JOURNAL.chmod(0o700)
    for key, value in GIT_SETTINGS:
        subprocess.check_call([git, "config", "--system", "--replace-all", key, value])
    command = Path("/usr/local/bin/kortix")
    command.parent.mkdir(parents=True, exist_ok=True)
    command.unlink(missing_ok=True)
    command.symlink_to("/opt/kortix/bin/kortix")
    compile_guest()


def compile_guest() -> None:
    """Keep the guest's bytecode in the image: its root is read-only later, and each start would compile it anew."""
    guest = "/opt/kortix"
    # Valid whatever an engine makes of a file's time.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(guest, quiet=1, invalidation_mode=mode)
    # Some images leave the standard library's bytecode out; importing writes what the supervisor needs of it.
    if subprocess.call([guest + "/bin/python3", "-I", "-S", guest + "/supervisor.py", "--check"]) != 0:
        refuse("its Python cannot run the supervisor.")


if __name__ == "__main__":
    main()
