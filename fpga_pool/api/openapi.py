"""The OpenAPI 3.1 document of the API, made of its table of operations and of the classes that it names."""

import re
from functools import cache
from typing import Any

import msgspec

from fpga_pool.api.operation import Operation
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.model.rest import rest_type


class Error(msgspec.Struct):
    """What was wrong, where, and what would be right."""

    code: str
    status: int
    title: str
    detail: str
    request_id: str
    min_version: str | msgspec.UnsetType = msgspec.UNSET
    max_version: str | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """The body of every error."""

    errors: list[Error]


@cache
def openapi() -> dict[str, Any]:
    """Return the document."""
    bodies = {one.name: rest_type(one.body, request=True) for one in OPERATIONS if one.body is not None}
    answers = {one.name: answer_type(one) for one in OPERATIONS}
    types = [ErrorAnswer, *dict.fromkeys(bodies.values()), *answers.values()]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        described: dict[str, Any] = {
            "operationId": one.name,
            "summary": one.summary,
            "parameters": _parameters(one),
            "responses": {
                str(one.status): {"description": one.summary, "content": _content(schema_of[answers[one.name]])},
                "default": {"description": "An error.", "content": _content(schema_of[ErrorAnswer])},
            },
        }
        if one.has_tag:
            described["responses"]["200"]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        if one.has_tag and one.method == "GET":
            described["responses"]["304"] = {"description": "The client has this answer: If-None-Match names it."}
        if one.is_conditional:
            changed = "The object has changed since the answer that If-Match names."
            described["responses"]["412"] = {"description": changed, "content": _content(schema_of[ErrorAnswer])}
        if one.name in bodies:
            described["requestBody"] = {"required": True, "content": _content(schema_of[bodies[one.name]])}
        path = re.sub(r"<(\w+)>", r"{\1}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = described
    document = {
        "openapi": "3.1.0",
        "info": {"title": "fpga_pool", "version": "v1.0"},
        "paths": paths,
        "components": {"schemas": components},
    }
    found: dict[str, Any] = _of_json_schema(document)
    return found


def answer_type(operation: Operation) -> Any:
    """Return the type of an operation's answer."""
    if not isinstance(operation.answer, dict):
        return rest_type(operation.answer)
    fields = [
        (key, list[_shown(shown[0])] if isinstance(shown, list) else _shown(shown))  # type: ignore[misc]  # made here
        for key, shown in operation.answer.items()
    ]
    name = "".join(word.title() for word in operation.name.split("_"))
    return msgspec.defstruct(f"{name}Answer", fields)


def _shown(cls: Any) -> Any:
    return rest_type(cls) if isinstance(cls, type) else cls


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name in re.findall(r"<(\w+)>", operation.path):
        schema = {"type": "string"} | ({"format": "uuid"} if name == "uuid" else {})
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    condition = "If-Match" if operation.is_conditional else "If-None-Match" if operation.has_tag else ""
    if condition:
        found.append({"name": condition, "in": "header", "required": False, "schema": {"type": "string"}})
    schemas, components = msgspec.json.schema_components([operation.query], ref_template="{name}")
    for name, schema in components[schemas[0]["$ref"]].get("properties", {}).items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _of_json_schema(value: Any) -> Any:
    """Return a part of the document, with patterns as JSON Schema has them, without bounds that only refuse NaN."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not (key in ("minimum", "maximum") and abs(one) > 1e300)}
        return {key: _of_json_schema(one) for key, one in kept.items()}
    if isinstance(value, list):
        return [_of_json_schema(one) for one in value]
    return value.replace("\\Z", "$") if isinstance(value, str) else value
