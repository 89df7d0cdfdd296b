"""The OpenAPI document, made of the table: what is served cannot differ from it.

Requests and results become JSON Schema as msgspec reads them. Routes that are not operations are
handed in by whoever serves them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.admin.operation import Operation
from perdure.admin.problems import Code

PREFIX: Final = "/api/v1"
HEADERS: Final[Mapping[str, str]] = {
    "idempotency_key": "Idempotency-Key",
    "if_match": "If-Match",
}
"""Fields of requests that are headers over HTTP."""

IN_QUERY: Final = frozenset({"GET", "DELETE"})
"""Methods whose fields are in the query."""

_JSON: Final = "application/json"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PROBLEM: Final = "Problem"

Schema = dict[str, Any]


class Problem(msgspec.Struct, frozen=True):
    """An answer that is an error.

    Attributes:
        code: never changes; ``GET /error-codes`` lists them.
        message: one sentence.
        details: more, by name; ``hint`` is what to do.
        request_id: stands in the broker's log, and in the audit record.
    """

    code: str
    message: str
    details: dict[str, Any] = {}
    request_id: str = ""


def document(
    operations: Iterable[Operation],
    *,
    version: str,
    codes: Mapping[str, Code],
    others: Mapping[str, Schema] | None = None,
) -> Schema:
    """The whole document.

    Args:
        operations: of the table.
        version: release.
        codes: that a client may be told.
        others: paths that are not operations, as path items.
    """
    routed = [each for each in operations if each.http is not None]
    types = {kind for each in routed for kind in (each.request, each.result)}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(
        [*ordered, Problem], ref_template="#/components/schemas/{name}"
    )
    requests = {each.request.__name__ for each in routed}
    paths: dict[str, Schema] = {}
    for each in routed:
        assert each.http is not None
        item = paths.setdefault(PREFIX + each.http.path, {})
        item[each.http.method.lower()] = _operation(each, components[each.request.__name__])
    for path, found in (others or {}).items():
        paths.setdefault(PREFIX + path, {}).update(found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": version,
            "description": "Administration of a Perdure broker. Lists are paged: go on with "
            "`next_cursor` until it is null; a page may have fewer items than `limit`. Client ids "
            "and topics in a path are percent-encoded, `/` included.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                name: _clean(components[name])
                for name in sorted(components)
                if name not in requests
            },
        },
        "x-error-codes": {
            code: {"status": found.status, "meaning": found.meaning}
            for code, found in sorted(codes.items())
        },
    }


def _operation(operation: Operation, request: Schema) -> Schema:
    assert operation.http is not None
    http = operation.http
    named = _PARAMETER.findall(http.path)
    properties: Schema = request.get("properties", {})
    about = _attributes(operation.request)
    required = set(request.get("required", ()))
    parameters, body = [], {}
    for name, schema in properties.items():
        text = about.get(name.rstrip("~><"), "")
        if name in named:
            parameters.append(_parameter(name, "path", schema, text, required=True))
        elif name in HEADERS:
            parameters.append(_parameter(HEADERS[name], "header", schema, text))
        elif http.method in IN_QUERY:
            parameters.append(_parameter(name, "query", schema, text, required=name in required))
        else:
            body[name] = {**_clean(schema), "description": text} if text else _clean(schema)
    if http.method == "GET":
        parameters.append(
            _parameter(
                "fields",
                "query",
                {"type": "string"},
                "only these, joined by commas: the others are left out, required ones too",
            )
        )
    found: Schema = {
        "operationId": operation.name.replace(".", "_"),
        "summary": operation.summary,
        "description": f"Needs the role {operation.right}. "
        + inspect.cleandoc(operation.request.__doc__ or "").split("\n\n")[0],
        "tags": [operation.resource],
        "x-right": operation.right,
        "parameters": parameters,
        "responses": _responses(operation, http.status),
    }
    if body:
        needed = sorted(required & set(body))
        schema = {"type": "object", "properties": body, "additionalProperties": False}
        if needed:
            schema["required"] = needed
        found["requestBody"] = {
            "required": bool(needed),
            "content": {_JSON: {"schema": {"title": operation.request.__name__, **schema}}},
        }
    return found


def _responses(operation: Operation, status: int) -> Schema:
    result = {"$ref": f"#/components/schemas/{operation.result.__name__}"}
    problem = {"$ref": f"#/components/schemas/{_PROBLEM}"}
    return {
        str(status): {"description": "Done.", "content": {_JSON: {"schema": result}}},
        "default": {"description": "Refused.", "content": {_JSON: {"schema": problem}}},
    }


def _parameter(
    name: str, place: str, schema: Schema, about: str, *, required: bool = False
) -> Schema:
    found = {"name": name, "in": place, "required": required, "schema": _clean(schema)}
    about = about or schema.get("description", "")
    return {**found, "description": about} if about else found


def _clean(schema: Any) -> Any:
    """A schema whose descriptions are plain text."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "prefixItems" in schema:
        # Pairs of one type, which generators of clients know as short lists only.
        rest = {name: schema[name] for name in schema if name != "prefixItems"}
        schema = {**rest, "items": schema["prefixItems"][0]}
    cleaned = {name: _clean(value) for name, value in schema.items()}
    about = schema.get("description")
    if isinstance(about, str):
        cleaned["description"] = inspect.cleandoc(about).replace("``", "`")
    return cleaned


def _attributes(kind: type[Any]) -> dict[str, str]:
    """What the docstring of a record says of its fields."""
    _, _, text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=    \w)", f"\n{text}"):
        names, colon, about = part.strip().partition(":")
        if colon:
            for name in names.split(","):
                key = name.strip().rstrip("_").removesuffix("_like")
                found[key] = " ".join(about.split()).replace("``", "`")
    return found
