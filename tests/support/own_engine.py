"""A Docker engine of a test's own, in its own network namespace and folders, that can be stopped and started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class OwnEngine:
    """One daemon. The machine's own is not touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "1200"])

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def docker(self, *arguments: str) -> str:
        command = ["docker", "-H", self.endpoint, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    def start(self) -> None:
        # What a killed engine left: a new one waits in vain for its containerd.
        (self.folder / "pid").unlink(missing_ok=True)
        self._end("containerd")
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)
        command = [
            "nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "dockerd", "--data-root", f"{self.folder}/data",
            "--exec-root", f"{self.folder}/exec", "-p", f"{self.folder}/pid", "-H", self.endpoint,
            "--bridge", "none", "--iptables=false",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        _until(self._answers, "the engine does not start: " + str(self.folder / "log"))

    def stop(self) -> None:
        """As `systemctl stop docker` does: containers end too."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """As the out-of-memory killer does: containers live on for now."""
        assert self._process is not None
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        self._process.wait(60)

    def _answers(self) -> bool:
        try:
            self.docker("version")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def load(self, *images: str) -> None:
        """Bring images from the machine's engine."""
        archive = self.folder / "images.tar"
        subprocess.run(["docker", "save", "-o", str(archive), *images], check=True, timeout=300)
        self.docker("load", "-q", "-i", str(archive))
        archive.unlink()

    def _end(self, *names: str) -> None:
        """Kill processes that have this folder in their command line, all or those of a name."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    ours = f"{self.folder}/".encode() in (entry / "cmdline").read_bytes()
                    if ours and (not names or (entry / "comm").read_text().strip() in names):
                        os.kill(int(entry.name), signal.SIGKILL)
                except (FileNotFoundError, ProcessLookupError):
                    continue

    def close(self) -> None:
        self._end()
        self._holder.kill()
        self._holder.wait()
        if self._process is not None:
            self._process.wait(60)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split(" ")[1]
            if place.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", place], check=True)
        _until(lambda: shutil.rmtree(self.folder, ignore_errors=True) or not self.folder.exists(), "files are left")


def _until(condition: Callable[[], object], words: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, words
        time.sleep(0.05)


@contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """A running engine that is gone afterwards."""
    # Not in /tmp, which may be memory; a daemon's storage needs a real disk.
    folder = Path("/var/tmp") / f"kxe{os.getpid()}"
    folder.mkdir()
    made = OwnEngine(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()
