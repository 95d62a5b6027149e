"""Arguments of actions: read strictly, checked, and turned into one request."""

from __future__ import annotations

import base64
import email
import email.policy
import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.arguments import build, check_arguments, read_arguments
from kortix_tui.broker.connectors.model import (
    Action,
    Body,
    GraphqlOperation,
    HttpCall,
    HttpOperation,
    McpTool,
    Parameter,
    Place,
)

BASE = "https://api.example.com/v1"


def http(
    path: str = "/things", *parameters: Parameter, method: str = "GET", body: Body | None = None, **schemas: Any
) -> Action:
    return Action(
        name="act",
        title="Act",
        risk=Risk.READ,
        input_schema={
            "type": "object",
            "properties": {one.key: {} for one in parameters} | schemas,
            "additionalProperties": False,
        },
        operation=HttpOperation(method=method, path=path, parameters=parameters, body=body),
    )


def parameter(name: str, place: Place = "query", style: str = "form", explode: bool = True) -> Parameter:
    return Parameter(key=name, name=name, place=place, required=place == "path", style=style, explode=explode)


def sent(action: Action, arguments: dict[str, Any], base: str = BASE, **headers: str) -> HttpCall:
    return build(action, arguments, base_url=base, headers=headers)


def header(call: HttpCall, name: str) -> str | None:
    return next((value for key, value in call.headers if key == name), None)


class TestReading:
    def test_an_object(self) -> None:
        text = '{"a": [1, 2.5, null, true, "é"], "b": {"c": "🙂"}}'
        assert read_arguments(text) == json.loads(text)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "not JSON"),
            ("{", "line 1, column 2"),
            ("[1]", "no JSON object"),
            ("7", "no JSON object"),
            ('{"a": 1, "a": 2}', "`a` stands twice"),
            ('{"x": {"a": 1, "b": 2, "a": 1}}', "`a` stands twice"),
            ('{"a": NaN}', "`NaN` is no JSON number"),
            ('{"a": -Infinity}', "`-Infinity` is no JSON number"),
            ('{"a": 1e999}', "`1e999` is no JSON number"),
            ('{"a": 9007199254740992}', "above 2\\^53"),
            ('{"a": ' + "9" * 5000 + "}", "above 2\\^53"),
            ('{"a": "\\ud800"}', "half a character"),
            ('{"\\udc00": 1}', "half a character"),
            ('{"a": 1} {"b": 2}', "Extra data"),
        ],
    )
    def test_what_two_readers_could_read_differently_is_refused(self, text: str, words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            read_arguments(text)

    def test_depth(self) -> None:
        deepest = '{"a": ' + "[" * 63 + "]" * 63 + "}"
        assert read_arguments(deepest)
        with pytest.raises(InvalidInput, match="64 levels"):
            read_arguments('{"a": ' + "[" * 65 + "]" * 65 + "}")
        with pytest.raises(InvalidInput, match="64 levels"):
            read_arguments('{"a": ' + "[" * 500_000 + "]" * 500_000 + "}")

    def test_size(self) -> None:
        with pytest.raises(InvalidInput, match="4 MiB"):
            read_arguments(json.dumps({"a": "é" * (3 << 20)}, ensure_ascii=False))
        with pytest.raises(InvalidInput, match="50000 keys and values"):
            read_arguments(json.dumps({"a": [1] * 60_000}))

    @given(
        st.dictionaries(
            st.text(max_size=5),
            st.recursive(
                st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                max_leaves=10,
            ),
            max_size=4,
        )
    )
    def test_what_json_writes_is_read(self, value: dict[str, Any]) -> None:
        assert read_arguments(json.dumps(value)) == value


class TestChecking:
    ACTION = http(
        "/things",
        id={"type": "integer", "minimum": 1},
        who={"type": "object", "properties": {"name": {"type": "string"}}},
    )

    def test_what_fits(self) -> None:
        check_arguments(self.ACTION, {"id": 1, "who": {"name": "Ann"}})

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"id": 0}, r"^arguments\.id: 0 is less than the minimum of 1"),
            ({"id": "1"}, r"^arguments\.id: '1' is not of type 'integer'"),
            ({"who": {"name": 3}}, r"^arguments\.who\.name: "),
            ({"ID": 1}, "has no argument `ID`. It takes: id, who"),
        ],
    )
    def test_what_does_not_names_its_place(self, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            check_arguments(self.ACTION, arguments)

    def test_a_hostile_pattern_does_not_hold_up_the_host(self) -> None:
        for pattern in ("(a+)+$", "(a|a)*b", "a*a*a*a*b", "(" * 5000):
            action = http("/", text={"type": "string", "pattern": pattern})
            check_arguments(action, {"text": "a" * 250})  # unguarded, some would not end before the test's deadline
            check_arguments(action, {"text": "a" * 30_000})

    def test_a_plain_pattern_is_checked(self) -> None:
        action = http("/", sid={"type": "string", "pattern": "^AC[0-9a-f]{4}$"})
        check_arguments(action, {"sid": "AC00ff"})
        with pytest.raises(InvalidInput, match="does not match"):
            check_arguments(action, {"sid": "AC00fg"})

    def test_equal_items_are_found_however_many(self) -> None:
        action = http("/", items={"type": "array", "uniqueItems": True})
        many = [{"number": number} for number in range(20_000)]
        check_arguments(action, {"items": many})
        with pytest.raises(InvalidInput, match="an item twice"):
            check_arguments(action, {"items": [*many, {"number": 7}]})

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}},
            {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
            {"type": "object", "properties": {"a": {"$ref": "#/nothing"}}},
        ],
    )
    def test_a_tool_schema_that_leads_elsewhere_is_refused(self, schema: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="refers to"):
            check_arguments(tool(schema), {"a": 1})

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"$ref": "#"}}},
            {"properties": {"a": {"$ref": "#/properties/a"}}},
            {"properties": {"a": {"multipleOf": 0}}},
            {"properties": {"a": {"type": "int", "minimum": "x", "enum": 7, "required": [1], "maxLength": []}}},
            {"properties": {"a": {"items": [1, {"type": "string"}], "allOf": [], "properties": []}}},
            {"properties": {"a": {"patternProperties": {"(a+)+$": {"type": "string"}}}}},
        ],
    )
    def test_a_malformed_tool_schema_checks_what_it_can(self, schema: dict[str, Any]) -> None:
        check_arguments(tool(schema), {"a": 1})

    def test_references_inside_a_schema_are_followed_and_others_never(self) -> None:
        more = {"$defs": {"Item": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Item"}}}}}
        action = http("/", item={"$ref": "#/$defs/Item"})
        action = action.model_copy(update={"input_schema": action.input_schema | more})
        check_arguments(action, {"item": {"next": {"next": {}}}})
        with pytest.raises(InvalidInput, match=r"arguments\.item\.next\.next: 7 is not"):
            check_arguments(action, {"item": {"next": {"next": 7}}})
        with pytest.raises(InvalidInput, match="not a part of it"):
            check_arguments(http("/", item={"$ref": "http://127.0.0.1:1/schema"}), {"item": 1})

    def test_a_laughing_tool_schema_is_refused(self) -> None:
        shelf = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(30)}
        schema = {"properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": {**shelf, "s30": {"type": "integer"}}}
        with pytest.raises(InvalidInput, match="more than 50000 values"):
            check_arguments(tool(schema), {"a": 1})

    def test_a_tool_takes_more_only_when_it_says_so(self) -> None:
        with pytest.raises(InvalidInput, match="has no argument `b`"):
            check_arguments(tool({"properties": {"a": {}}}), {"b": 1})
        check_arguments(tool({"properties": {"a": {}}, "additionalProperties": True}), {"b": 1})


def tool(schema: dict[str, Any]) -> Action:
    return Action(
        name="act", title="Act", risk=Risk.WRITE, input_schema=schema, operation=McpTool(tool="act", fingerprint="f")
    )


class TestPaths:
    ACTION = http("/a/{id}/b.json", parameter("id", "path", "simple", False))

    @given(st.text(min_size=1).filter(lambda text: not set(text) & set("\r\n\0")))
    def test_a_value_stays_one_segment_of_the_same_host(self, value: str) -> None:
        try:
            call = sent(self.ACTION, {"id": value})
        except InvalidInput:
            assert any(part in (".", "..") for part in value.replace("\\", "/").split("/"))
            return
        parts = urlsplit(call.url)
        assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "api.example.com", "", "")
        assert parts.path.isascii()
        first, a, *middle, last = parts.path[1:].split("/")
        assert (first, a, last) == ("v1", "a", "b.json")
        assert [unquote(one) for one in middle] == [value]

    @pytest.mark.parametrize(
        "value", ["", ".", "..", "../x", "a/../../b", "..\\x", "a/.", "x\r\ny", "x\0", [], {}, {"a": {"b": 1}}, [None]]
    )
    def test_a_value_that_would_leave_its_place_is_refused(self, value: object) -> None:
        with pytest.raises(InvalidInput):
            sent(self.ACTION, {"id": value})

    @pytest.mark.parametrize(
        ("style", "explode", "value", "path"),
        [
            ("simple", False, 3.0, "/p/3"),
            ("simple", False, True, "/p/true"),
            ("simple", False, ["a,b", "c"], "/p/a%2Cb,c"),
            ("simple", False, {"x": 1, "y": 2}, "/p/x,1,y,2"),
            ("simple", True, {"x": 1, "y": 2}, "/p/x=1,y=2"),
            ("label", False, ["a", "b"], "/p/.a,b"),
            ("label", True, ["a", "b"], "/p/.a.b"),
            ("matrix", False, "a", "/p/;id=a"),
            ("matrix", False, ["a", "b"], "/p/;id=a,b"),
            ("matrix", True, ["a", "b"], "/p/;id=a;id=b"),
            ("matrix", True, {"x": 1}, "/p/;x=1"),
        ],
    )
    def test_styles(self, style: str, explode: bool, value: object, path: str) -> None:
        action = http("/p/{id}", parameter("id", "path", style, explode))
        assert sent(action, {"id": value}, base="https://h").url == "https://h" + path

    def test_two_halves_of_a_segment_make_no_climb(self) -> None:
        action = http("/{a}{b}", parameter("a", "path", "simple"), parameter("b", "path", "simple"))
        assert sent(action, {"a": "x", "b": "y"}, base="https://h").url == "https://h/xy"
        with pytest.raises(InvalidInput):
            sent(http("/.{a}", parameter("a", "path", "label")), {"a": ""})
        with pytest.raises(InvalidInput, match="another path"):
            sent(http("/%2e%2e/{a}", parameter("a", "path", "simple")), {"a": "x"})

    def test_what_is_missing_is_named(self) -> None:
        with pytest.raises(InvalidInput, match="`id` is missing"):
            sent(self.ACTION, {"id": None})

    def test_the_base_keeps_its_path_and_its_query(self) -> None:
        assert sent(http("/"), {}, base="https://h:8443/api/?k=v").url == "https://h:8443/api/?k=v"

    def test_a_long_address_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="longer than 16 KiB"):
            sent(self.ACTION, {"id": "x" * 20_000})


class TestQueries:
    @given(st.dictionaries(st.sampled_from("abc"), st.text() | st.lists(st.text(), min_size=1)))
    def test_values_come_back(self, arguments: dict[str, Any]) -> None:
        action = http("/things", *(parameter(name) for name in "abc"))
        parts = urlsplit(sent(action, arguments).url)
        assert (parts.netloc, parts.path, parts.fragment) == ("api.example.com", "/v1/things", "")
        wanted = {name: value if isinstance(value, list) else [value] for name, value in arguments.items()}
        assert parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(arguments)) == wanted

    @pytest.mark.parametrize(
        ("style", "explode", "value", "query"),
        [
            ("form", True, [1, 2], "q=1&q=2"),
            ("form", False, ["a,b", "c"], "q=a%2Cb,c"),
            ("spaceDelimited", False, ["a", "b"], "q=a%20b"),
            ("pipeDelimited", False, ["a", "b"], "q=a%7Cb"),
            ("form", True, {"x": 1, "y": "&"}, "x=1&y=%26"),
            ("form", False, {"x": 1, "y": 2}, "q=x,1,y,2"),
            ("form", True, [], ""),
            ("form", False, [], ""),
            ("form", True, None, ""),
            ("form", True, False, "q=false"),
            ("form", True, 0.1, "q=0.1"),
            ("deepObject", True, {"a": {"b": 1}, "c": [1, 2]}, "q%5Ba%5D%5Bb%5D=1&q%5Bc%5D%5B%5D=1&q%5Bc%5D%5B%5D=2"),
            ("deepObject", True, [{"p": 1}], "q%5B0%5D%5Bp%5D=1"),
            ("json", True, {"b": [1], "a": None}, "q=%7B%22a%22%3Anull%2C%22b%22%3A%5B1%5D%7D"),
        ],
    )
    def test_styles(self, style: str, explode: bool, value: object, query: str) -> None:
        assert urlsplit(sent(http("/", parameter("q", "query", style, explode)), {"q": value}).url).query == query

    def test_nested_values_need_a_style_for_them(self) -> None:
        with pytest.raises(InvalidInput, match="nested"):
            sent(http("/", parameter("q")), {"q": [{"a": 1}]})

    def test_a_key_of_its_own_is_sent_by_its_name(self) -> None:
        one = Parameter(key="created_gte", name="created[gte]", place="query")
        assert urlsplit(sent(http("/", one), {"created_gte": 5}).url).query == "created%5Bgte%5D=5"


class TestHeaders:
    def test_parameters_and_what_is_always_sent(self) -> None:
        call = sent(http("/", parameter("X-Trace", "header", "simple")), {"X-Trace": ["a", "b"]}, Accept="text/csv")
        assert call.headers == (("accept", "text/csv"), ("x-trace", "a,b"))

    @pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nb", "a\0b", "é", " a", "\x1b[2J", ["ok", "a\r\n"]])
    def test_a_value_that_breaks_out_is_refused(self, value: object) -> None:
        with pytest.raises(InvalidInput, match="X-Trace"):
            sent(http("/", parameter("X-Trace", "header", "simple")), {"X-Trace": value})

    @pytest.mark.parametrize(
        "name",
        ["Host", "AUTHORIZATION", "Cookie", "Proxy-Foo", "Content-Length", "transfer-encoding", "Connection",
         "X-Forwarded-For", "X-HTTP-Method-Override", "bad name", "x-org"],
    )  # fmt: skip
    def test_a_header_of_the_host_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="cannot be set"):
            sent(http("/", parameter(name, "header", "simple")), {name: "x"}, **{"X-Org": "mine"})

    def test_cookies(self) -> None:
        action = http("/", parameter("a", "cookie"), parameter("b", "cookie"))
        assert header(sent(action, {"a": "1; x", "b": 2}), "cookie") == "a=1%3B%20x; b=2"


class TestBodies:
    def test_json_is_the_same_for_every_order_of_keys(self) -> None:
        action = http("/", method="POST", body=Body(media_type="application/json", encoding="json", fields=("b", "a")))
        call = sent(action, {"b": 1.0, "a": {"y": "é", "x": None}})
        assert call.body == '{"a":{"x":null,"y":"é"},"b":1}'.encode()
        assert header(call, "content-type") == "application/json"
        assert call == sent(action, {"a": {"x": None, "y": "é"}, "b": 1})

    def test_no_field_no_body(self) -> None:
        body = Body(media_type="application/json", encoding="json", fields=("a",))
        assert sent(http("/", method="POST", body=body), {}).body is None
        assert sent(http("/", method="POST", body=body.model_copy(update={"required": True})), {}).body == b"{}"

    def test_a_whole_body(self) -> None:
        body = Body(media_type="application/json", encoding="json", key="body", required=True)
        assert sent(http("/", method="PUT", body=body), {"body": "X"}).body == b'"X"'
        assert sent(http("/", method="PUT", body=body), {"body": None}).body == b"null"
        with pytest.raises(InvalidInput, match="`body` is missing"):
            sent(http("/", method="PUT", body=body), {})

    @given(st.dictionaries(st.sampled_from(["a", "b c", "d&"]), st.text() | st.lists(st.text(), min_size=1)))
    def test_form_values_come_back(self, arguments: dict[str, Any]) -> None:
        body = Body(media_type="application/x-www-form-urlencoded", encoding="form", fields=("a", "b c", "d&"))
        call = sent(http("/", method="POST", body=body), arguments)
        wanted = [(k, text) for k in body.fields if k in arguments for text in _listed(arguments[k])]
        assert parse_qsl((call.body or b"").decode(), keep_blank_values=True) == wanted

    def test_nested_form_values_are_json_or_brackets(self) -> None:
        body = Body(media_type="application/x-www-form-urlencoded", encoding="form", fields=("a", "d", "n"))
        action = http("/", method="POST", body=body, a={}, d={"x-style": "deepObject"}, n={})
        call = sent(action, {"a": {"x": 1}, "d": {"x": [{"y": True}]}, "n": None})
        assert parse_qsl((call.body or b"").decode()) == [("a", '{"x":1}'), ("d[x][0][y]", "true")]

    def test_multipart(self) -> None:
        body = Body(media_type="multipart/form-data", encoding="multipart", fields=("file", "note", "meta", 'q"\r\n'))
        action = http("/", method="POST", body=body, file={"type": "string", "format": "binary"})
        arguments = {
            "file": base64.b64encode(b"\0\r\n--x").decode(), "note": ["é", "b"], "meta": {"a": 1}, 'q"\r\n': "v"
        }  # fmt: skip
        call = sent(action, arguments)
        assert call == sent(action, arguments)
        head = f"content-type: {header(call, 'content-type')}\r\n\r\n".encode()
        message = email.message_from_bytes(head + (call.body or b""), policy=email.policy.HTTP)
        parts = [
            (part["content-disposition"].params["name"], part.get_payload(decode=True)) for part in message.iter_parts()
        ]
        assert parts == [
            ("file", b"\0\r\n--x"), ("note", "é".encode()), ("note", b"b"), ("meta", b'{"a":1}'), ("q%22%0D%0A", b"v")
        ]  # fmt: skip

    def test_text_and_bytes(self) -> None:
        text = http("/", method="POST", body=Body(media_type="text/plain", encoding="text", key="body"))
        assert header(sent(text, {"body": "é"}), "content-type") == "text/plain; charset=utf-8"
        assert sent(text, {"body": "é"}).body == "é".encode()
        raw = http("/", method="POST", body=Body(media_type="image/png", encoding="bytes", key="body"))
        assert sent(raw, {"body": "AP8="}).body == b"\x00\xff"
        for wrong in ("not base64", "AP8", 7):
            with pytest.raises(InvalidInput, match="not base64"):
                sent(raw, {"body": wrong})
        with pytest.raises(InvalidInput, match="is a text"):
            sent(text, {"body": 7})


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class TestOthers:
    def test_graphql(self) -> None:
        action = Action(
            name="query.user",
            title="user",
            risk=Risk.READ,
            input_schema={"type": "object"},
            operation=GraphqlOperation(document="query user($id: ID!) { user(id: $id) { id } }", operation_name="user"),
        )
        call = sent(action, {"id": '"}) { secrets }'}, base="https://h/graphql?v=2")
        assert (call.method, call.url) == ("POST", "https://h/graphql?v=2")
        assert json.loads(call.body or b"") == {
            "query": "query user($id: ID!) { user(id: $id) { id } }",
            "variables": {"id": '"}) { secrets }'},
            "operationName": "user",
        }

    def test_what_is_unavailable_is_refused(self) -> None:
        with pytest.raises(Refused, match="another server"):
            sent(http("/").model_copy(update={"unavailable": "It goes to another server."}), {})

    def test_a_tool_is_no_request(self) -> None:
        with pytest.raises(TypeError):
            sent(tool({}), {})
