"""Operations become actions: names, risks, arguments, bodies, servers, ways to authenticate."""

from __future__ import annotations

import base64
import json
import random
from typing import Any
from urllib.parse import parse_qsl

import pytest
from documents import document, many_operations, mapped, only

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.arguments import build, check_arguments
from kortix_tui.broker.connectors.model import Action, AuthHint, Body, HttpCall, HttpOperation

OK = {"responses": {"200": {"description": "ok"}}}


def http(action: Action) -> HttpOperation:
    assert isinstance(action.operation, HttpOperation)
    return action.operation


def body_of(schema: dict[str, Any], media_type: str = "application/json", **media: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {media_type: {"schema": schema, **media}}}}


def call(action: Action, **arguments: Any) -> HttpCall:
    check_arguments(action, arguments)
    return build(action, arguments, base_url="https://h", headers={})


class TestDocuments:
    @pytest.mark.parametrize(
        ("made", "words"),
        [
            ({}, "names no version"),
            ({"openapi": "4.0.0", "paths": {}}, r"OpenAPI 4\.0\.0"),
            ({"swagger": "1.2"}, r"OpenAPI 1\.2"),
            ({"openapi": "3.1.0", "paths": {}}, "no operation"),
            ({"openapi": "3.0.0", "paths": {"/a": {"$ref": "https://evil.example/a"}}}, "evil.example"),
            (document({"/a": {"get": {"parameters": [{"$ref": "b.yaml#/x"}]}}}), r"`b\.yaml#/x`"),
            (document({f"/a{n}": {"get": {}} for n in range(5001)}), "more than 5000"),
        ],
    )
    def test_what_is_refused(self, made: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            mapped(made)

    def test_title_and_version_are_plain_lines(self) -> None:
        made = document({"/a": {"get": OK}}, info={"title": "\x1b[31mRed\n team ", "version": 1.5})
        assert (mapped(made).title, mapped(made).version) == ("␛[31mRed team", "1.5")

    def test_no_order_changes_a_name(self) -> None:
        made = many_operations(40)
        made["paths"]["/other"] = {"get": {"operationId": "list_people_3"}, "put": {"operationId": "list-people-3"}}
        before = {(http(a).method, http(a).path): a.name for a in mapped(made).actions}
        paths = list(made["paths"].items())
        random.Random(3).shuffle(paths)
        after = {(http(a).method, http(a).path): a.name for a in mapped({**made, "paths": dict(paths)}).actions}
        assert before == after
        assert len(set(before.values())) == len(before)

    def test_risks(self) -> None:
        methods = ("get", "head", "options", "post", "put", "patch", "delete", "trace")
        actions = mapped(document({"/a": dict.fromkeys(methods, OK)})).actions
        assert {http(action).method: action.risk for action in actions} == {
            "GET": Risk.READ,
            "HEAD": Risk.READ,
            "OPTIONS": Risk.READ,
            "POST": Risk.WRITE,
            "PUT": Risk.WRITE,
            "PATCH": Risk.WRITE,
            "DELETE": Risk.DESTRUCTIVE,
        }

    def test_a_broken_operation_does_not_spoil_the_others(self) -> None:
        broken = {"parameters": [{"$ref": "#/components/parameters/Missing"}]}
        catalogue = mapped(document({"/a": {"get": OK, "post": broken}}))
        assert [action.unavailable is None for action in catalogue.actions] == [True, False]
        assert any("post_a cannot be called" in note and "Missing" in note for note in catalogue.notes)

    def test_a_schema_that_is_too_large_takes_its_action_only(self) -> None:
        bomb = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 9} for n in range(9)} | {"S9": {}}
        paths = {"/a": {"get": OK, "post": body_of({"$ref": "#/components/schemas/S0"})}}
        get, post = mapped(document(paths, components={"schemas": bomb})).actions
        assert get.unavailable is None
        assert "50000 values" in (post.unavailable or "")

    def test_circles_are_told(self) -> None:
        catalogue = mapped(many_operations(2))
        assert any("#/components/schemas/Person" in note for note in catalogue.notes)


class TestParameters:
    def test_those_of_the_operation_win_over_those_of_the_path(self) -> None:
        item = {
            "parameters": [{"name": "q", "in": "query", "required": True, "schema": {"type": "string"}}],
            "get": {"parameters": [{"name": "q", "in": "query", "description": "Q", "schema": {"type": "integer"}}]},
        }
        (action,) = mapped(document({"/a": item})).actions
        assert action.input_schema == {
            "type": "object",
            "properties": {"q": {"type": "integer", "description": "Q"}},
            "additionalProperties": False,
        }

    def test_one_name_in_two_places(self) -> None:
        action = only(
            {
                "parameters": [{"name": "id", "in": "query"}, {"name": "id", "in": "path", "required": True}],
                **body_of({"type": "object", "properties": {"id": {}, "other": {}}}),
            },
            "/a/{id}",
        )
        assert set(action.input_schema["properties"]) == {"id", "other", "query_id", "path_id"}
        made = call(action, id="b", query_id="q", path_id="p")
        assert (made.url, made.body) == ("https://h/a/p?id=q", b'{"id":"b"}')

    def test_names_that_models_do_not_take(self) -> None:
        names = ["filter[a]", "filter(a)", "at<", "→", "x" * 100]
        action = only({"parameters": [{"name": name, "in": "query"} for name in names]})
        keys = list(action.input_schema["properties"])
        assert len(set(keys)) == len(names)
        assert all(len(key) <= 64 and key.isascii() for key in keys)
        made = call(action, **dict.fromkeys(keys, "v"))
        assert [name for name, _ in parse_qsl(made.url.partition("?")[2])] == names

    def test_what_only_the_host_may_send_is_no_argument(self) -> None:
        names = ["Host", "Authorization", "Accept", "X-Forwarded-For", "X-Api-Key", "X-Own"]
        action = only(
            {"parameters": [{"name": name, "in": "header"} for name in names]},
            components={"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "x-api-key"}}},
        )
        assert list(action.input_schema["properties"]) == ["X-Own"]

    def test_a_path_declares_what_the_document_forgot(self) -> None:
        action = only({"parameters": [{"name": "ghost", "in": "path", "required": True}]}, "/a/{id}")
        assert action.input_schema["required"] == ["id"]
        assert call(action, id="7").url == "https://h/a/7"

    @pytest.mark.parametrize("path", ["/a?b=c", "/a#b", "/a b", "/a\\b", "/{+rest}", "/{}"])
    def test_a_path_that_is_none_cannot_be_called(self, path: str) -> None:
        assert only(OK, path).unavailable

    def test_styles_and_their_defaults(self) -> None:
        parameters = [
            {"name": "a", "in": "query", "schema": {"type": "array"}},
            {"name": "b", "in": "query", "style": "pipeDelimited", "explode": False},
            {"name": "c", "in": "query", "style": "deepObject", "explode": True},
            {"name": "d", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
            {"name": "e", "in": "header", "style": "form"},
            {"name": "f", "in": "path", "required": True, "style": "matrix"},
        ]
        made = call(only({"parameters": parameters}, "/x/{f}"), a=[1, 2], b=[3, 4], c={"k": 5}, d={"z": 6}, e="7", f=8)
        assert made.url == "https://h/x/;f=8?a=1&a=2&b=3%7C4&c%5Bk%5D=5&d=%7B%22z%22%3A6%7D"
        assert ("e", "7") in made.headers

    @pytest.mark.parametrize("one", [{"in": "query"}, {"name": "a", "in": "body"}, {"name": 7, "in": "query"}, "text"])
    def test_a_malformed_one_is_told(self, one: object) -> None:
        assert only({"parameters": [one]}).unavailable


class TestBodies:
    def test_an_object_becomes_arguments(self) -> None:
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string"}, "id": {"type": "string", "readOnly": True}},
            "required": ["name", "id"],
        }
        action = only(body_of(schema))
        assert action.input_schema["required"] == ["name"]
        assert http(action).body == Body(media_type="application/json", encoding="json", fields=("name",))

    def test_all_of_plain_objects_is_one_object(self) -> None:
        parts = [
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            {"allOf": [{"properties": {"b": {}}}]},
        ]
        action = only(body_of({"allOf": parts, "properties": {"c": {}}}))
        assert set(action.input_schema["properties"]) == {"a", "b", "c"}
        assert action.input_schema["required"] == ["a"]

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "array", "items": {"type": "string"}},
            {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            {"type": "object", "properties": {"a": {}}, "oneOf": [{"required": ["a"]}]},
            {"type": "object", "properties": {"a b": {}}},
            {"type": ["object", "null"], "properties": {"a": {}}},
            {"allOf": [{"oneOf": [{"properties": {"a": {}}}]}]},
            {"type": "string"},
            {},
        ],
    )
    def test_anything_else_is_one_argument(self, schema: dict[str, Any]) -> None:
        action = only({"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}})
        assert action.input_schema["properties"] == {"body": schema}
        assert action.input_schema["required"] == ["body"]

    def test_the_kind_that_says_most_is_taken(self) -> None:
        kinds = ["application/octet-stream", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded",
                 "application/vnd.api+json", "application/json"]  # fmt: skip
        while kinds:
            action = only({"requestBody": {"content": {kind: {} for kind in kinds}}})
            assert (http(action).body or Body(media_type="", encoding="json")).media_type == kinds.pop()
        assert only({"requestBody": {"content": {}}}).unavailable
        assert only({"requestBody": {"content": {"a/b\r\nx: y": {}}}}).unavailable

    def test_form_styles(self) -> None:
        schema = {"type": "object", "properties": {"expand": {"type": "array"}, "meta": {"type": "object"}, "tags": {}}}
        encoding = {"expand": {"style": "deepObject", "explode": True}, "meta": {"style": "deepObject"}}
        action = only(body_of(schema, "application/x-www-form-urlencoded", encoding=encoding))
        made = call(action, expand=["a", "b"], meta={"k": "v"}, tags=["x", "y"])
        assert parse_qsl((made.body or b"").decode()) == [
            ("expand[]", "a"), ("expand[]", "b"), ("meta[k]", "v"), ("tags", "x"), ("tags", "y")
        ]  # fmt: skip

    def test_files(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "old": {"type": "string", "format": "binary"},
                "new": {"type": "string", "contentMediaType": "image/png"},
            },
        }
        action = only(body_of(schema, "multipart/form-data"))
        made = call(action, old=base64.b64encode(b"\xff1").decode(), new=base64.b64encode(b"\xff2").decode())
        assert b"\xff1" in (made.body or b"")
        assert b"\xff2" in (made.body or b"")

    def test_a_reading_request_has_none(self) -> None:
        schema = body_of({"type": "object", "properties": {"a": {}}})
        assert only(schema, method="get").input_schema["properties"] == {}
        schema["requestBody"]["required"] = True
        assert only(schema, method="get").unavailable
        assert only(schema, method="delete").unavailable is None


class TestServers:
    PATHS = {"/a": {"get": OK}}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("servers", "source", "base"),
        [
            ([{"url": "http://a.example"}, {"url": "https://b.example/"}], None, "https://b.example"),
            ([{"url": "/api"}], "https://c.example/spec.json", "https://c.example/api"),
            ([{"url": "/api"}], None, None),
            ([{"url": "{s}://d.example/{v}", "variables": {"s": {"default": "https"}, "v": {"default": 2}}}], None,
             "https://d.example/2"),
            ([{"url": "https://{host}/"}], None, None),
            ([{"url": "https://user:pw@e.example"}, {"url": "ftp://e.example"}, {"url": "https://e.example/?q=1"},
              {"url": "https://e example"}, {"url": "https://e.example:99999"}, {"url": 7}, 7], None, None),
            ([], "https://f.example/x/spec.json", "https://f.example"),
        ],
    )  # fmt: skip
    def test_the_first_usable_one_is_taken(self, servers: list[Any], source: str | None, base: str | None) -> None:
        assert mapped(document(self.PATHS, servers=servers), source_url=source).base_url == base

    def test_what_goes_elsewhere_cannot_be_called(self) -> None:
        elsewhere = [{"url": "https://other.example.com"}]
        below = [{"url": "https://api.example.com/v1/admin"}]
        beside = [{"url": "https://api.example.com/v10"}]
        paths = {
            "/a": {"servers": elsewhere, "get": OK, "put": {**OK, "servers": below}},
            "/b": {"get": {**OK, "servers": beside}, "post": OK},
        }
        catalogue = mapped(document(paths))
        places = {action.name: (http(action).path, bool(action.unavailable)) for action in catalogue.actions}
        assert places == {
            "get_a": ("/a", True), "put_a": ("/admin/a", False), "get_b": ("/b", True), "post_b": ("/b", False)
        }  # fmt: skip
        assert any("get_a cannot be called" in note and "other.example.com" in note for note in catalogue.notes)
        own = mapped(document(paths), base_url="https://mine.example.com")
        assert [action.name for action in own.actions if not action.unavailable] == ["post_b"]

    def test_servers_on_the_paths_alone(self) -> None:
        made = document({"/a": {"servers": [{"url": "https://a.example"}], "get": OK}, "/b": {"get": OK}})
        del made["servers"]
        catalogue = mapped(made)
        assert catalogue.base_url == "https://a.example"
        assert not any(action.unavailable for action in catalogue.actions)

    def test_no_encryption_is_told(self) -> None:
        notes = mapped(document(self.PATHS, servers=[{"url": "http://a.example"}])).notes
        assert notes == ("The server http://a.example is not encrypted.",)


class TestSecurity:
    def test_what_the_document_asks_for_comes_first(self) -> None:
        schemes = {
            "first": {"type": "http", "scheme": "Basic"},
            "second": {"type": "http", "scheme": "bearer"},
            "third": {"$ref": "#/components/securitySchemes/key"},
            "key": {"type": "apiKey", "in": "cookie", "name": "sid"},
            "gone": {"$ref": "#/nothing"},
            "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://x"},
        }
        catalogue = mapped(
            document(
                {"/a": {"get": {**OK, "security": [{"third": []}]}}},
                security=[{"second": []}],
                components={"securitySchemes": schemes},
            )
        )
        assert catalogue.auth == (
            AuthHint(type="bearer"),
            AuthHint(type="api_key", place="cookie", name="sid"),
            AuthHint(type="basic"),
        )
        assert len([note for note in catalogue.notes if "security scheme" in note]) == 2

    def test_urls_of_a_provider_may_be_relative_and_must_be_plain(self) -> None:
        flows = {"authorizationCode": {"authorizationUrl": "/auth", "tokenUrl": "javascript:alert(1)", "scopes": {}}}
        made = document({"/a": {"get": OK}}, components={"securitySchemes": {"o": {"type": "oauth2", "flows": flows}}})
        (hint,) = mapped(made).auth
        assert (hint.authorization_url, hint.token_url) == ("https://api.example.com/auth", None)


class TestSwagger:
    def document(self, operation: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "swagger": "2.0",
            "info": {"title": "Old", "version": "1"},
            "host": "old.example",
            "basePath": "/v1",
            "schemes": ["http", "https"],
            "paths": {"/things/{id}": {"parameters": [{"$ref": "#/parameters/Id"}], "post": operation}},
            "parameters": {"Id": {"name": "id", "in": "path", "required": True, "type": "integer"}},
            "definitions": {
                "Thing": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
            },
        } | more

    def test_a_body(self) -> None:
        body = {"in": "body", "name": "thing", "required": True, "schema": {"$ref": "#/definitions/Thing"}}
        catalogue = mapped(self.document({"parameters": [body]}))
        assert catalogue.base_url == "https://old.example/v1"
        (action,) = catalogue.actions
        assert action.name == "post_things_id"
        made = call(action, id=7, name="x")
        assert (made.url, made.body) == ("https://h/things/7", b'{"name":"x"}')

    def test_lists_are_written_as_declared(self) -> None:
        formats = {"a": "csv", "b": "multi", "c": "ssv", "d": "pipes", "e": "tsv"}
        parameters = [
            {"name": name, "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": kind}
            for name, kind in formats.items()
        ]
        (action,) = mapped(self.document({"parameters": parameters})).actions
        made = call(action, id=1, **{name: ["1", "2"] for name in formats})
        assert made.url.partition("?")[2] == "a=1,2&b=1&b=2&c=1%202&d=1%7C2&e=1%092"

    def test_a_broken_operation_does_not_spoil_the_others(self) -> None:
        made = self.document({"parameters": [{"$ref": "#/parameters/Missing"}]})
        made["paths"]["/fine"] = {"get": {}}
        assert [bool(action.unavailable) for action in mapped(made).actions] == [True, False]
        made["paths"]["/fine"]["get"]["parameters"] = [{"$ref": "https://evil.example/p"}]
        with pytest.raises(InvalidInput, match=r"evil\.example"):
            mapped(made)

    def test_forms_and_files(self) -> None:
        fields = [
            {"name": "a", "in": "formData", "type": "string", "required": True},
            {"name": "l", "in": "formData", "type": "array", "items": {"type": "string"}},
        ]
        (action,) = mapped(self.document({"parameters": fields})).actions
        assert call(action, id=1, a="x y", l=["1", "2"]).body == b"a=x%20y&l=1,2"
        (action,) = mapped(
            self.document({"parameters": [*fields, {"name": "f", "in": "formData", "type": "file"}]})
        ).actions
        assert b"\xff" in (call(action, id=1, a="x", f="/w==").body or b"")

    def test_ways_to_authenticate(self) -> None:
        definitions = {
            "basic": {"type": "basic"},
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "oauth": {
                "type": "oauth2",
                "flow": "accessCode",
                "authorizationUrl": "https://o.example/a",
                "tokenUrl": "https://o.example/t",
                "scopes": {"read": "Read"},
            },
        }
        assert mapped(self.document({}, securityDefinitions=definitions)).auth == (
            AuthHint(type="basic"),
            AuthHint(type="api_key", place="header", name="X-Key"),
            AuthHint(
                type="oauth2",
                flows=("authorization_code",),
                token_url="https://o.example/t",
                authorization_url="https://o.example/a",
                scopes=("read",),
            ),
        )


def test_schemas_go_to_the_store_and_back() -> None:
    for action in mapped(many_operations(10)).actions:
        assert json.loads(json.dumps(action.input_schema)) == action.input_schema
