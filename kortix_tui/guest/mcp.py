"""`kortix mcp`: this session's connectors as tools of a Model Context Protocol server on standard input and output.

For agents that know nothing of us: one tool an action. A call that a person must approve is held for as long as such
clients wait (45 s, or as the operator's settings say), and then answered with its id and "end your turn": the answer
comes with a new prompt. Protocol: JSON-RPC 2.0, one message a line; https://modelcontextprotocol.io, revision
2025-06-18.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from typing import Any, Dict, List, Optional, TextIO

from kortix_tui.guest import connectors
from kortix_tui.guest.asking import Failed

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
WAIT_S = 45.0
LINE_LIMIT = 8 << 20
RESULT_TOOL = "kortix_call_result"
REASON = "kortix_reason"
"""An argument that every tool takes beside its own: what the call is for."""
_PARSE, _INVALID, _UNKNOWN, _PARAMETERS, _INTERNAL = -32700, -32600, -32601, -32602, -32603
_NAME_LIMIT = 64
_INSTRUCTIONS = (
    "Tools call outside systems through the host, which holds the credentials. Some calls wait for a person. When one"
    " answers pending_approval, do not repeat it: end your turn, you are told what became of it."
)
_NOTES = {
    "require_approval": "A person is asked before it runs.",
    "block": "Policy blocks it.",
}


class _Refused(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Server:
    """One client's connection.

    Args:
        output: Where answers are written, one a line.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._writing = threading.Lock()
        self._names: Dict[str, str] = {}
        self._calls: Dict[str, connectors.Call] = {}
        self._guard = threading.Lock()
        self._threads: List[threading.Thread] = []

    def take(self, line: str) -> None:
        """Handle one line; what takes long goes on in a thread, so that pings and cancellations are heard."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._send({"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE, "message": "This is not JSON."}})
            return
        for one in message if isinstance(message, list) else [message]:
            self._take_one(one)

    def _take_one(self, message: Any) -> None:
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            if not (isinstance(message, dict) and ("result" in message or "error" in message)):
                self._fail(None, _INVALID, "This is not a request.")
            return
        method, identity = message["method"], message.get("id")
        given = message.get("params")
        parameters: Dict[str, Any] = given if isinstance(given, dict) else {}
        if "id" not in message:
            if method == "notifications/cancelled":
                self._cancel(parameters.get("requestId"))
            return
        if not isinstance(identity, (str, int)) or isinstance(identity, bool):
            self._fail(None, _INVALID, "The id of a request is a text or a number.")
            return
        if method in ("tools/list", "tools/call"):
            thread = threading.Thread(target=self._answer, args=(method, identity, parameters), daemon=True)
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()
        else:
            self._answer(method, identity, parameters)

    def close(self) -> None:
        """The client is gone: nobody waits for its calls any more."""
        with self._guard:
            calls = list(self._calls.values())
        for call in calls:
            try:
                call.leave()
            except Failed:
                continue

    def _answer(self, method: str, identity: Any, parameters: Dict[str, Any]) -> None:
        try:
            result = self._result(method, identity, parameters)
        except _Refused as refusal:
            self._fail(identity, refusal.code, refusal.message)
        except Failed as error:
            if method == "tools/call":
                self._reply(identity, _text(f"{error.message} {error.hint or ''}".strip(), broken=True))
            else:
                self._fail(identity, _INTERNAL, error.message)
        except Exception as error:
            self._fail(identity, _INTERNAL, f"The server failed ({type(error).__name__}).")
        else:
            if result is not None:
                self._reply(identity, result)

    def _result(self, method: str, identity: Any, parameters: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        if method == "initialize":
            wanted = parameters.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "kortix-connectors", "version": "1"},
                "instructions": _INSTRUCTIONS,
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [self._tool(action) for action in connectors.actions()] + [_result_tool()]}
        if method == "tools/call":
            return self._call(identity, parameters)
        raise _Refused(_UNKNOWN, f"There is no method {method[:100]!r}.")

    def _tool(self, action: Dict[str, Any]) -> Dict[str, Any]:
        name = tool_name(str(action["name"]))
        self._names[name] = str(action["name"])
        schema = dict(action["input_schema"])
        reason = {"type": "string", "description": "What this call is for. A person who must approve it reads this."}
        known = schema.get("properties")  # as a tool server wrote it: one of them must not spoil the whole list
        schema["properties"] = {**(known if isinstance(known, dict) else {}), REASON: reason}
        schema["type"] = "object"
        words = [str(action["title"]), str(action["description"]), _NOTES.get(str(action["verdict"]), "")]
        return {
            "name": name,
            "title": str(action["title"]),
            "description": "\n".join(part for part in words if part),
            "inputSchema": schema,
            "annotations": {
                "readOnlyHint": action["risk"] == "read",
                "destructiveHint": action["risk"] == "destructive",
                "openWorldHint": True,
            },
        }

    def _call(self, identity: Any, parameters: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        name, arguments = parameters.get("name"), parameters.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise _Refused(_PARAMETERS, "A call needs `name` and an object of `arguments`.")
        seconds = connectors.wait_seconds("KORTIX_WAIT_SECONDS", "KORTIX_TOOL_WAIT_SECONDS", default=WAIT_S)
        if name == RESULT_TOOL:
            if not isinstance(arguments.get("call_id"), str):
                raise _Refused(_PARAMETERS, "`call_id` is missing.")
            return _report(connectors.follow(arguments["call_id"], min(seconds or 0.0, connectors.HOLD_S)))
        if name not in self._names:  # the client may know the list from an earlier process
            for action in connectors.actions():
                self._tool(action)
        full = self._names.get(name)
        if full is None:
            raise _Refused(_PARAMETERS, f"There is no tool {name[:100]!r}.")
        given = {key: value for key, value in arguments.items() if key != REASON}
        connector, _, action_name = full.partition(".")
        call = connectors.Call(connector, action_name, json.dumps(given), str(arguments.get(REASON, ""))[:4000])
        key = json.dumps(identity)
        with self._guard:
            self._calls[key] = call
        try:
            report = call.run(seconds)
        finally:
            with self._guard:
                cancelled = self._calls.pop(key, None) is None
        return None if cancelled else _report(report)

    def _cancel(self, identity: Any) -> None:
        """A client that gives a call up gets no answer to it; the session is told later by a prompt."""
        with self._guard:
            call = self._calls.pop(json.dumps(identity), None)
        if call is not None:
            try:
                call.leave()
            except Failed:
                return

    def _reply(self, identity: Any, result: Dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "id": identity, "result": result})

    def _fail(self, identity: Any, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})

    def _send(self, message: Dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=True)
        with self._writing:
            self._output.write(line + "\n")
            self._output.flush()


def tool_name(full: str) -> str:
    """`connector.action` as every client takes it: letters, digits, `_`, `-`, at most 64; always the same."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", full.replace(".", "__", 1))
    if len(name) <= _NAME_LIMIT and name.replace("__", ".", 1) == full:
        return name
    return f"{name[: _NAME_LIMIT - 9]}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"


def _result_tool() -> Dict[str, Any]:
    return {
        "name": RESULT_TOOL,
        "title": "Result of a call",
        "description": "What became of a call that answered pending_approval. Asking is not needed: the answer also"
        " comes with a new prompt once you end your turn.",
        "inputSchema": {
            "type": "object",
            "properties": {"call_id": {"type": "string", "description": "The id that the call answered with."}},
            "required": ["call_id"],
        },
        "annotations": {"readOnlyHint": True},
    }


def _report(report: Dict[str, Any]) -> Dict[str, Any]:
    """A call's report as a tool's result."""
    if report["state"] != "done" and report.get("body") is None:
        return _text(connectors.says(report), broken=connectors.ended_badly(report))
    if report.get("binary"):
        text = f"{connectors.says(report)} Binary answer of {report.get('bytes')} bytes."
    else:
        text = str(report.get("body") or connectors.says(report))
    if report.get("truncated"):
        text += f"\n(cut: {report.get('bytes')} bytes in all)"
    return _text(text, broken=connectors.ended_badly(report))


def _text(text: str, *, broken: bool = False) -> Dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": broken}


def serve() -> int:
    """Serve until standard input ends."""
    output = open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as we do
    sys.stdout = sys.stderr  # nothing else may print into the protocol
    server = Server(output)
    try:
        while line := sys.stdin.readline(LINE_LIMIT):
            if line.strip():
                server.take(line)
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
    return 0
