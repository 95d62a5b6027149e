"""A tool server over standard input and output, in an image of its own: standard library only, like many that people
write themselves."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine import docker

from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.images import BASE_NAME, Images, Template

SERVER = r"""
import hashlib, json, os, socket, ssl, sys, urllib.request

COUNT = 0

def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return line.split()[1]

def writable(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False

def whoami():
    return {
        "token": digest(os.environ.get("DESK_TOKEN", "")), "uid": os.getuid(), "capabilities": status("CapPrm"),
        "no_new_privileges": status("NoNewPrivs"), "arguments": sys.argv[1:], "folder": os.getcwd(),
        "networks": [name for _, name in socket.if_nameindex()], "image": os.environ.get("FROM_IMAGE"),
        "writes_root": writable("/srv/x"), "writes_home": writable(os.environ["HOME"] + "/x"),
        "proxy": "HTTPS_PROXY" in os.environ,
    }

def fetch(url, ca=None):
    try:
        context = ssl.create_default_context()
        if ca:
            context.load_verify_locations(cadata=ca)
        return urllib.request.urlopen(url, timeout=20, context=context).read().decode()
    except Exception as error:
        return "failed: %s" % error

def add():
    global COUNT
    COUNT += 1
    return str(COUNT)

def crash():
    sys.stderr.write("going down with %s\n" % os.environ.get("DESK_TOKEN"))
    sys.stderr.flush()
    os._exit(3)

TOOLS = {
    "whoAmI": (lambda: json.dumps(whoami()), True), "fetch": (fetch, True),
    "add": (add, False), "crash": (crash, False),
    "tell": (lambda: "the token is " + os.environ.get("DESK_TOKEN", ""), True),
}
TEXT = {"type": "string"}

def answer(message):
    method, wanted = message["method"], message.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": wanted["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "desk", "version": "1"}}
    if method == "tools/list":
        properties = {"fetch": {"url": TEXT, "ca": TEXT}}
        return {"tools": [
            {"name": name, "description": os.environ.get("DESK_WORDS", name), "annotations": {"readOnlyHint": reads},
             "inputSchema": {"type": "object", "properties": properties.get(name, {})}}
            for name, (_, reads) in TOOLS.items()]}
    if method == "tools/call":
        text = TOOLS[wanted["name"]][0](**(wanted.get("arguments") or {}))
        return {"content": [{"type": "text", "text": text}]}
    raise KeyError(method)

def main():
    print("Welcome to the desk!", flush=True)
    if "refuse" in sys.argv:
        sys.stderr.write("no licence for %s\n" % os.environ.get("DESK_TOKEN"))
        sys.exit(1)
    if "long" in sys.argv:
        sys.stdout.write("x" * (20 << 20))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            reply = {"result": answer(message)}
        except KeyError as error:
            reply = {"error": {"code": -32601, "message": "unknown: %s" % error}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
    while "stubborn" in sys.argv:
        __import__("signal").pause()

main()
"""
DOCKERFILE = f"""\
FROM {BASE_NAME}
ENV FROM_IMAGE=yes
WORKDIR /srv
COPY . /srv
"""


async def _base() -> None:
    provider = DockerProvider()
    try:
        await Images(provider.engine).ensure(Template(), print)
    finally:
        await provider.close()


@contextmanager
def tool_image(folder: Path, files: Mapping[str, str | Path]) -> Iterator[str]:
    """An image with files in `/srv` (text, or something to copy), built for one run; its name."""
    asyncio.run(_base())
    mark = secrets.token_hex(6)
    name = f"kortix-test-tools:{mark}"
    folder.mkdir()
    for path, source in files.items():
        place = folder / path
        if isinstance(source, Path):
            subprocess.run(["cp", "-rL", "--reflink=auto", str(source), str(place)], check=True, timeout=120)
        else:
            place.write_text(source)
    # The label makes the image one of its own: another run's removal of the same content would take it along.
    (folder / "Dockerfile").write_text(f"{DOCKERFILE}LABEL kortix-test={mark}\n")
    docker("build", "-q", "-t", name, str(folder))
    identity = docker("image", "inspect", "-f", "{{.Id}}", name).strip()
    try:
        yield name
    finally:
        for made in _made_from(identity):
            docker("rmi", "-f", made)
        docker("rmi", name)


def _made_from(identity: str) -> list[str]:
    """Our layer on the image, which is the same for every test of a run."""
    found = docker("images", "--filter", "label=kortix.source=" + identity, "-q", "--no-trunc").split()
    return sorted(set(found))


def tool_containers(install_id: str) -> list[str]:
    """Running containers of a home's tool servers."""
    labels = ["--filter", f"label=kortix.install={install_id}", "--filter", "label=kortix.role=tool-server"]
    return docker("ps", "-q", "--no-trunc", *labels).split()
