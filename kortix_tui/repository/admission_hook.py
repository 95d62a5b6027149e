"""The pre-receive hook: looks at a push while it is still in git's quarantine.

Run by a Python of its own (`-I -S`), standard library only. It prints fixed ASCII words to the pusher and
writes one line, `accepted` or `refused <words>`, to the file that the host named. Refused objects vanish with the
quarantine.

What it holds: every object small enough; not too many commits or paths; no name that a terminal or another file
system would read differently; and no link to an object that this session has neither sent nor can see, since
whoever knows an object's id could otherwise fetch another session's work through a branch of its own. Whether
values of secrets came in is the host's to say, since only it knows them: it is asked last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import unicodedata

# Every push waits for this program to start, so it imports little: no json, pathlib or typing (60 ms together).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

PROBE = "KORTIX_ADMISSION_PROBE"
SETTINGS = "KORTIX_ADMISSION"

_TREE = 0o040000
_GITLINK = 0o160000
_CACHED_ENTRIES = 500_000
_ANSWER_S = 100


class Refusal(Exception):
    """The push is not taken; the argument says why, in fixed words."""


class Settings:
    """What the host tells: `name=value` lines; whatever is a number is a cap."""

    def __init__(self, text: str) -> None:
        values = dict(line.split("=", 1) for line in text.split("\n"))
        self.session = values.pop("session_id")
        self.base = values.pop("base_branch")
        self.verdict = values.pop("verdict")
        self.inquiry = int(values.pop("inquiry", "-1"))
        self.caps = {name: int(value) for name, value in values.items()}


def main() -> int:
    """Read the ref changes from standard input; 0 admits the push."""
    if PROBE in os.environ:
        sys.stdout.write(os.environ[PROBE] + "\n")
        return 0
    settings = Settings(os.environ[SETTINGS])
    try:
        check(settings, [line.split(" ", 2) for line in sys.stdin.read().splitlines()])
    except Refusal as refusal:
        words = str(refusal)
    except subprocess.SubprocessError:
        words = "the objects could not be read"
    else:
        _write(settings.verdict, "accepted")
        return 0
    _write(settings.verdict, f"refused {words}")
    sys.stderr.write(f"kortix: refused: {words}\n")
    return 1


def _write(path: str, words: str) -> None:
    with open(path, "w", encoding="ascii") as verdict:  # noqa: PTH123 - see the imports
        verdict.write(words + "\n")


def check(settings: Settings, changes: list[list[str]]) -> None:
    """All checks, cheapest first.

    Raises:
        Refusal: One of them failed.
    """
    caps = settings.caps
    check_refs(settings.session, changes)
    sent = sent_objects(len(changes[0][1]) // 2, caps)
    with Objects() as objects:
        for _, new, _ in changes:
            if objects.kind(new) != b"commit":
                raise Refusal("a branch must point at a commit")
        commits = check_links(settings, [new for _, new, _ in changes], sent)
        if len(commits) > caps["commits"]:
            raise Refusal(f"more than {caps['commits']} new commits")
        Walk(objects, caps).commits(commits)
    if settings.inquiry >= 0:
        ask(settings.inquiry, sent)


def ask(host: int, sent: set[str]) -> None:
    """Let the host search what came, over the descriptor that it passed on.

    Raises:
        Refusal: It found something, or is gone.
    """
    signal.alarm(_ANSWER_S)  # a host that neither answers nor dies: the push fails
    folder = os.path.basename(os.environ.get("GIT_QUARANTINE_PATH", ""))  # noqa: PTH119 - see the imports
    question = memoryview("\n".join([f"{len(sent)} {folder}", *sent, ""]).encode("ascii"))
    answer = b""
    try:
        while question:
            question = question[os.write(host, question) :]
        while not answer.endswith(b"\n"):
            piece = os.read(host, 65536)
            if not piece:
                raise Refusal("the host is gone")
            answer += piece
    except OSError:
        raise Refusal("the host is gone") from None
    signal.alarm(0)
    word, _, why = answer.decode("ascii").strip().partition(" ")
    if word != "accepted":
        raise Refusal(why)


def check_refs(session: str, changes: list[list[str]]) -> None:
    """The exact names: git's own rule knows prefixes only, and guards deletion in refs/heads/ only."""
    rescue = f"refs/kortix/rescue/{session}/"
    for old, new, ref in changes:
        number = ref[len(rescue) :]
        is_rescue = ref.startswith(rescue) and number.isdigit() and not number.startswith("0") and len(number) < 10
        if ref != f"refs/heads/{session}" and not is_rescue:
            raise Refusal("only the session's own branch can be pushed")
        if not new.strip("0"):
            raise Refusal("refs cannot be deleted")
        if is_rescue and old.strip("0"):
            raise Refusal("rescued work is never overwritten")


# ---- objects ------------------------------------------------------------------------------------------------


def sent_objects(width: int, caps: dict[str, int]) -> set[str]:
    """The ids of all objects in quarantine, after checking how many and how large they are.

    All of them, reachable or not: what is admitted is stored for good.
    """
    quarantine = os.environ.get("GIT_QUARANTINE_PATH")
    if not quarantine:
        return set()
    sent: set[str] = set()
    for name in os.listdir(quarantine):  # noqa: PTH208 - see the imports
        folder = os.path.join(quarantine, name)  # noqa: PTH118
        if name == "pack":
            for file in os.listdir(folder):  # noqa: PTH208
                if file.endswith(".idx"):
                    sent.update(index_ids(os.path.join(folder, file), width, caps["objects"]))  # noqa: PTH118
        elif len(name) == 2:
            sent.update(name + rest for rest in os.listdir(folder))  # noqa: PTH208
    if len(sent) > caps["objects"]:
        raise Refusal(f"more than {caps['objects']} new objects")
    total = 0
    for kind, size in sizes(sent):
        if size > caps["object_bytes"]:
            what = "file" if kind == b"blob" else "object"
            raise Refusal(f"a {what} is larger than {caps['object_bytes']} bytes")
        total += size
        if total > caps["new_bytes"]:
            raise Refusal(f"the new objects are larger than {caps['new_bytes']} bytes together")
    return sent


def index_ids(path: str, width: int, limit: int) -> Iterator[str]:
    """The object ids, `width` bytes each, in a pack index of version 2."""
    with open(path, "rb") as index:  # noqa: PTH123 - see the imports
        data = index.read()
    if data[:8] != b"\xfftOc\x00\x00\x00\x02":
        raise Refusal("the objects could not be read")
    count = int.from_bytes(data[8 + 255 * 4 : 8 + 256 * 4], "big")
    if count > limit:
        raise Refusal(f"more than {limit} new objects")
    start = 8 + 256 * 4
    for number in range(count):
        yield data[start + number * width : start + (number + 1) * width].hex()


def sizes(ids: set[str]) -> Iterator[tuple[bytes, int]]:
    """Kind and unpacked size of each object, without unpacking it."""
    listing = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer"],
        input="".join(f"{object_id}\n" for object_id in ids).encode("ascii"),
        stdout=subprocess.PIPE,
        check=True,
    )
    for line in listing.stdout.splitlines():
        kind, _, size = line.partition(b" ")
        if not size.isdigit():
            raise Refusal("the objects could not be read")
        yield kind, int(size)


def check_links(settings: Settings, new: list[str], sent: set[str]) -> list[str]:
    """Everything that the new heads reach was sent now, or is visible to the session. Returns the new commits."""
    session = settings.session
    visible = set(
        _lines(
            "for-each-ref",
            "--format=%(objectname)",
            f"refs/heads/{settings.base}",
            f"refs/heads/{session}",
            f"refs/kortix/heads/{session}/",
            f"refs/kortix/rescue/{session}/",
        )
    )
    tips = "".join(f"{tip}\n" for tip in new) + "".join(f"^{tip}\n" for tip in visible)
    commits: list[str] = []
    strange: set[str] = set()
    for line in _lines("rev-list", "--objects", "--stdin", stdin=tips):
        object_id, space, _ = line.partition(" ")
        # A commit stands alone on its line; trees and files have a space and a (maybe empty) path after the id.
        if not space:
            commits.append(object_id)
        if object_id not in sent:
            strange.add(object_id)
    if strange:
        # Rare: an old file came back, say, and the pusher knew that we have it. Now ask for the whole truth.
        shown = "".join(f"{tip}\n" for tip in visible)
        for line in _lines("rev-list", "--objects", "--stdin", stdin=shown):
            strange.discard(line.partition(" ")[0])
            if not strange:
                break
    if strange:
        raise Refusal("the push refers to objects that it does not bring")
    return commits


def _lines(*args: str, stdin: str = "") -> Iterator[str]:
    with subprocess.Popen(["git", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        given, made = _pipes(process)
        given.write(stdin.encode("ascii"))
        given.close()
        for line in made:
            yield line.decode("utf-8", "surrogateescape").rstrip("\n")
        if process.wait() != 0:
            raise subprocess.SubprocessError(args[0])


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise Refusal("the objects could not be read")
    return process.stdin, process.stdout


class Objects:
    """One `git cat-file --batch` for the whole check."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["git", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._pipes = _pipes(self._process)

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, object_id: str) -> tuple[bytes, bytes]:
        stdin, stdout = self._pipes
        stdin.write(object_id.encode("ascii") + b"\n")
        stdin.flush()
        head = stdout.readline().split()
        if len(head) != 3:
            raise Refusal("the objects could not be read")
        body = stdout.read(int(head[2]))
        stdout.read(1)
        return head[1], body

    def kind(self, object_id: str) -> bytes:
        """The type of an object."""
        return self._read(object_id)[0]

    def commit(self, object_id: str) -> tuple[str, list[str]]:
        """A commit's tree and parents."""
        kind, body = self._read(object_id)
        if kind != b"commit":
            raise Refusal("the objects could not be read")
        tree, parents = "", []
        for line in body.split(b"\n\n", 1)[0].split(b"\n"):
            key, _, value = line.partition(b" ")
            if key == b"tree":
                tree = value.decode("ascii")
            elif key == b"parent":
                parents.append(value.decode("ascii"))
        return tree, parents

    def tree(self, object_id: str) -> dict[bytes, tuple[int, str]]:
        """A tree's entries: name to mode and id."""
        kind, body = self._read(object_id)
        if kind != b"tree":
            raise Refusal("the objects could not be read")
        width = len(object_id) // 2
        entries: dict[bytes, tuple[int, str]] = {}
        at = 0
        while at < len(body):
            space = body.index(b" ", at)
            end = body.index(b"\0", space)
            entries[body[space + 1 : end]] = (int(body[at:space], 8), body[end + 1 : end + 1 + width].hex())
            at = end + 1 + width
        return entries


class Walk:
    """Compares the tree of each new commit with its parents' trees and looks at what is new.

    It goes into a folder only where it differs from that of every parent, counts each path it meets, and stops at
    the cap: a tree that repeats itself a billion times costs no more than one with 20,000 files.
    """

    def __init__(self, objects: Objects, caps: dict[str, int]) -> None:
        self._objects = objects
        self._caps = caps
        self._paths = 0
        self._cache: dict[str, dict[bytes, tuple[int, str]]] = {}
        self._cached = 0

    def commits(self, commits: Iterable[str]) -> None:
        """Look at each commit."""
        for commit in commits:
            tree, parents = self._objects.commit(commit)
            before = [self._objects.commit(parent)[0] for parent in parents]
            if tree not in before:
                self._tree(tree, before)

    def _entries(self, tree: str) -> dict[bytes, tuple[int, str]]:
        found = self._cache.get(tree)
        if found is None:
            found = self._objects.tree(tree)
            if self._cached > _CACHED_ENTRIES:
                self._cache.clear()
                self._cached = 0
            self._cache[tree] = found
            self._cached += len(found)
        return found

    def _tree(self, root: str, before: list[str]) -> None:
        todo = [(root, before, 1)]
        while todo:
            tree, parents, depth = todo.pop()
            if depth > self._caps["depth"]:
                raise Refusal(f"folders are nested deeper than {self._caps['depth']}")
            entries = self._entries(tree)
            old = [self._entries(parent) for parent in parents]
            added = set()
            for name, (mode, object_id) in entries.items():
                if any(parent.get(name) == (mode, object_id) for parent in old):
                    continue
                self._paths += 1
                if self._paths > self._caps["paths"]:
                    raise Refusal(f"more than {self._caps['paths']} new or changed paths")
                if not any(name in parent for parent in old):
                    check_name(name)
                    added.add(name)
                if mode == _TREE:
                    same = [parent[name][1] for parent in old if name in parent and parent[name][0] == _TREE]
                    todo.append((object_id, same, depth + 1))
            if added:
                check_collisions(entries, added)


def check_name(name: bytes) -> None:
    """Refuse names that a terminal or another system would read differently."""
    if any(byte < 0x20 or byte == 0x7F for byte in name):
        raise Refusal("a file name has a control character")
    if b"\\" in name:
        raise Refusal("a file name has a backslash")


def check_collisions(entries: Iterable[bytes], added: set[bytes]) -> None:
    """Refuse a new name that differs from its neighbour only in case or composition of characters.

    On a file system that does not tell them apart one would silently take the other's place.
    """
    seen: dict[str, bytes] = {}
    for name in entries:
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", _text(name)).casefold())
        other = seen.setdefault(key, name)
        if other != name and (name in added or other in added):
            raise Refusal("two file names differ only in case or composition")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
