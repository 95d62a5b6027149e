"""A GraphQL schema becomes actions: one for each field of `Query` and `Mutation`, with a fixed document.

What an action selects is decided here, once: the scalars of what the field gives, and of the objects one level below.
Arguments become variables and never text of the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import Action, Catalogue, GraphqlOperation, HttpCall
from kortix_tui.broker.connectors.openapi.naming import Wanted, action_name, settle
from kortix_tui.broker.network.exchange import send

if TYPE_CHECKING:
    import httpx
    from graphql import GraphQLField, GraphQLInputType, GraphQLNamedType, GraphQLOutputType, GraphQLSchema

    from kortix_tui.broker.connectors.credentials import Attached

MOST_FIELDS: Final = 200
"""Fields that one action selects at most."""
DEEPEST: Final = 2
MOST_TOKENS: Final = 500_000
_SCALARS: Final[dict[str, dict[str, Any]]] = {
    "String": {"type": "string"},
    "ID": {"type": ["string", "integer"]},
    "Int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "Float": {"type": "number"},
    "Boolean": {"type": "boolean"},
}


async def discover(client: httpx.AsyncClient, endpoint: str, attached: Attached) -> Catalogue:
    """Ask a server for its schema.

    Args:
        client: From `open_client`, pinned to the endpoint's server.
        endpoint: Where its queries go.
        attached: The connector's credential.

    Raises:
        NotSent: It cannot be reached.
        InvalidInput: It does not tell its schema.
    """
    from graphql import get_introspection_query

    body = json.dumps({"query": get_introspection_query(input_value_deprecation=False)}).encode()
    headers = (("accept", "application/json"), ("content-type", "application/json"))
    reply = await send(
        client, HttpCall(method="POST", url=endpoint, headers=headers, body=body), credential_headers=attached.headers,
        credential_query=attached.query, credential_cookies=attached.cookies,
    )  # fmt: skip
    if reply.status != 200 or reply.truncated:
        why = "its answer is too long" if reply.truncated else f"it answered with status {reply.status}"
        raise InvalidInput(
            f"{visible_line(endpoint)} does not tell its schema: {why}.",
            hint="Many servers switch introspection off: put the schema into the repository and name it under `spec`.",
        )
    return catalogue(reply.body, endpoint=endpoint)


def catalogue(data: bytes, *, endpoint: str) -> Catalogue:
    """Read a schema, in the schema language or as the answer to an introspection query. Takes a while: use a thread.

    Raises:
        InvalidInput: It is neither, or is not valid.
    """
    schema = _schema(data)
    notes: list[str] = []
    fields = [
        (kind, name, field)
        for kind, root in (("query", schema.query_type), ("mutation", schema.mutation_type))
        if root is not None
        for name, field in sorted(root.fields.items())
    ]
    if schema.subscription_type is not None:
        notes.append("Subscriptions cannot be called.")
    names = settle([Wanted(f"{kind}.{action_name(name)}", f"{kind} {name}") for kind, name, _ in fields])
    actions = tuple(
        _action(name, kind, field_name, field) for name, (kind, field_name, field) in zip(names, fields, strict=True)
    )
    return Catalogue(
        title=visible_line(endpoint), document_hash=hashlib.sha256(_canonical(schema)).hexdigest(), base_url=endpoint,
        actions=actions, notes=tuple(notes),
    )  # fmt: skip


def _canonical(schema: GraphQLSchema) -> bytes:
    """The schema in one spelling: servers list types in any order."""
    from graphql import lexicographic_sort_schema, print_schema

    return print_schema(lexicographic_sort_schema(schema)).encode()


def _schema(data: bytes) -> GraphQLSchema:
    from graphql import GraphQLError, build_ast_schema, build_client_schema, parse

    try:
        text = data.decode("utf-8-sig")
        if text.lstrip().startswith("{"):
            found = json.loads(text)
            found = found.get("data", found) if isinstance(found, dict) else found
            if not isinstance(found, dict) or "__schema" not in found:
                raise InvalidInput("This JSON is no answer to an introspection query.", hint="It has no `__schema`.")
            return build_client_schema(found)  # type: ignore[arg-type]
        return build_ast_schema(parse(text, no_location=True, max_tokens=MOST_TOKENS))
    except (GraphQLError, UnicodeDecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
        words = shorten(visible_line(str(error)), 300) or type(error).__name__
        raise InvalidInput(f"The GraphQL schema cannot be read: {words}") from None


def _action(name: str, kind: str, field_name: str, field: GraphQLField) -> Action:
    from graphql import is_required_argument

    definitions: dict[str, Any] = {}
    properties = {
        key: {**_input(argument.type, definitions), **_described(argument.description)}
        for key, argument in field.args.items()
    }
    schema: dict[str, Any] = {
        "type": "object", "properties": properties,
        "required": [key for key, argument in field.args.items() if is_required_argument(argument)],
        "additionalProperties": False,
    }  # fmt: skip
    if definitions:
        schema["$defs"] = definitions
    words = field.description or ""
    if field.deprecation_reason is not None:
        words = f"{words}\nDeprecated: {field.deprecation_reason}".strip()
    return Action(
        name=name, title=field_name, description=shorten(words, 4000), input_schema=schema,
        risk=Risk.READ if kind == "query" else Risk.WRITE,
        operation=GraphqlOperation(document=_document(kind, field_name, field), operation_name=field_name),
    )  # fmt: skip


def _document(kind: str, name: str, field: GraphQLField) -> str:
    variables = ", ".join(f"${key}: {argument.type}" for key, argument in field.args.items())
    given = ", ".join(f"{key}: ${key}" for key in field.args)
    budget = [MOST_FIELDS]
    selected = _selection(field.type, DEEPEST, budget)
    head = f"{kind} {name}" + (f"({variables})" if variables else "")
    return f"{head} {{ {name}{f'({given})' if given else ''}{selected} }}"


def _selection(type_: GraphQLOutputType, depth: int, budget: list[int]) -> str:
    """The braces after a field: scalars, and objects one level below; empty for a scalar itself."""
    from graphql import get_named_type, is_leaf_type

    named = get_named_type(type_)
    if is_leaf_type(named):
        return ""
    parts = ["__typename", *_fields(named, depth, budget)]
    return " { " + " ".join(parts) + " }"


def _fields(named: GraphQLNamedType, depth: int, budget: list[int]) -> Iterator[str]:
    from graphql import (
        GraphQLInterfaceType,
        GraphQLObjectType,
        get_named_type,
        is_leaf_type,
        is_required_argument,
    )

    if not isinstance(named, GraphQLObjectType | GraphQLInterfaceType):
        return  # a union tells only which of its types it is
    leaves_first = sorted(named.fields.items(), key=lambda item: not is_leaf_type(get_named_type(item[1].type)))
    for key, field in leaves_first:
        if any(is_required_argument(argument) for argument in field.args.values()):
            continue
        leaf = is_leaf_type(get_named_type(field.type))
        if budget[0] <= 0 or (not leaf and depth <= 1):
            continue
        budget[0] -= 1
        yield key if leaf else f"{key}{_selection(field.type, depth - 1, budget)}"


def _input(type_: GraphQLInputType, definitions: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a variable; input objects stand once, under `$defs`."""
    from graphql import GraphQLEnumType, GraphQLInputObjectType, GraphQLList, GraphQLNonNull

    if isinstance(type_, GraphQLNonNull):
        return _input(type_.of_type, definitions)
    if isinstance(type_, GraphQLList):
        return {"type": "array", "items": _input(type_.of_type, definitions)}
    if isinstance(type_, GraphQLEnumType):
        return {"enum": sorted(type_.values)}
    if isinstance(type_, GraphQLInputObjectType):
        if type_.name not in definitions:
            definitions[type_.name] = {}  # before its fields: they may hold it again
            definitions[type_.name] = _object(type_, definitions)
        return {"$ref": f"#/$defs/{type_.name}"}
    return dict(_SCALARS.get(type_.name, {}))


def _object(type_: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    from graphql import is_required_input_field

    return {
        "type": "object",
        "properties": {
            key: {**_input(field.type, definitions), **_described(field.description)}
            for key, field in type_.fields.items()
        },
        "required": [key for key, field in type_.fields.items() if is_required_input_field(field)],
        "additionalProperties": False,
    }


def _described(text: str | None) -> dict[str, Any]:
    return {"description": shorten(text, 500)} if text else {}
