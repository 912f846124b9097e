"""The OpenAPI 3.1 document of the API, generated from its table of operations and their classes."""

import re
from functools import cache
from typing import Any

import msgspec
from oslo_middleware.request_id import HTTP_RESP_HEADER_REQUEST_ID

from fpga_pool.api import versions
from fpga_pool.api.operation import Operation
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.model.fields import ProjectId
from fpga_pool.model.rest import rest_type

_TEXT = {"type": "string"}
#: Header of requests with the caller's global request id.
_SENT_ID = "X-OpenStack-Request-ID"
#: Headers of responses.
_HEADERS = {
    HTTP_RESP_HEADER_REQUEST_ID: "Id of the request, which is also in the log of the pool.",
    versions.HEADER: "The microversion that was served.",
    "Vary": "Headers of the request on which the answer depends.",
    "ETag": "Current version of the object, for If-Match and If-None-Match.",
    "Location": "URL of the created object.",
    "Retry-After": "Number of seconds after which the request can be repeated.",
    "WWW-Authenticate": "URL of the Keystone service that issues tokens.",
}
_IN_EVERY = (HTTP_RESP_HEADER_REQUEST_ID, versions.HEADER, "Vary")
#: Descriptions of the responses that are common to all operations, by status.
_MEANINGS = {
    304: "Not modified: If-None-Match contains the current ETag.",
    400: "The request is invalid.",
    401: "There is no valid token.",
    403: "The policy, or the quota of the project, does not allow it.",
    404: "The object does not exist, or belongs to another project.",
    406: "The microversion is not supported.",
    409: "The object exists already, or its state does not allow it.",
    412: "The object has changed since the answer that If-Match names.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The project sends too many requests, or a dry run cannot be made now.",
    503: "The pool does not answer; the request can be repeated.",
    507: "The disk of the database is full; nothing was stored.",
}


class Error(msgspec.Struct):
    """An error; `detail` states what was wrong, where, and what was expected."""

    code: str
    status: int
    title: str
    detail: str
    request_id: str
    min_version: str | msgspec.UnsetType = msgspec.UNSET
    max_version: str | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """The body of every error response."""

    errors: list[Error]


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
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
                str(one.status): {
                    "description": one.summary,
                    "headers": _headers(one),
                    "content": _content(schema_of[answers[one.name]]),
                },
                **({"304": _reference("responses", 304)} if one.has_tag and one.method == "GET" else {}),
                **{str(status): _reference("responses", status) for status in _errors(one)},
            },
        }
        if one.name in bodies:
            described["requestBody"] = {"required": True, "content": _content(schema_of[bodies[one.name]])}
        path = re.sub(r"<(\w+)>", r"{\1}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = described
    document = {
        "openapi": "3.1.0",
        "info": {"title": "fpga_pool", "version": "v1.0"},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": components,
            "responses": _responses(_content(schema_of[ErrorAnswer])),
            "headers": {name: _header(text, required=name in _IN_EVERY) for name, text in _HEADERS.items()},
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Auth-Token",
                    "description": "Token of Keystone; an embedded pool needs none.",
                }
            },
        },
    }
    found: dict[str, Any] = _of_json_schema(document)
    return found


def answer_type(operation: Operation) -> Any:
    """Return the type of an operation's response."""
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
        schema = _TEXT | ({"format": "uuid"} if name == "uuid" else {})
        schema = msgspec.json.schema(ProjectId) if operation.noun == "project" else schema
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    condition = "If-Match" if operation.is_conditional else "If-None-Match" if operation.has_tag else ""
    in_headers = {versions.HEADER: {"type": "string", "enum": versions.names()}, _SENT_ID: _TEXT}
    in_headers |= {condition: _TEXT} if condition else {}
    found += [{"name": name, "in": "header", "required": False, "schema": one} for name, one in in_headers.items()]
    schemas, components = msgspec.json.schema_components([operation.query], ref_template="{name}")
    for name, schema in components[schemas[0]["$ref"]].get("properties", {}).items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found


def _errors(operation: Operation) -> list[int]:
    """Return the error statuses that an operation may respond with, except for internal errors of the pool."""
    found = {400, 401, 403, 406, 429, 503, *operation.errors}
    if operation.noun not in ("", "project"):  # projects unknown to the pool have the default quota
        found.add(404)
    if operation.body is not None:
        found |= {413, 415}
    if operation.method != "GET":
        found |= {409, 507}
    if operation.is_conditional:
        found.add(412)
    return sorted(found)


def _headers(operation: Operation) -> dict[str, Any]:
    """Return the headers of a response that is not an error."""
    names = [*_IN_EVERY, *(["ETag"] if operation.has_tag else []), *(["Location"] if operation.status == 201 else [])]
    return {name: _reference("headers", name) for name in names}


def _responses(content: dict[str, Any]) -> dict[str, Any]:
    """Return the responses that are common to all operations, by status."""
    found = {}
    for status, text in _MEANINGS.items():
        more = {401: ["WWW-Authenticate"], 304: ["ETag"], 429: ["Retry-After"]}.get(status, [])
        headers = {name: _reference("headers", name) for name in (*_IN_EVERY, *more)}
        found[str(status)] = {"description": text, "headers": headers} | ({} if status == 304 else {"content": content})
    return found


def _header(text: str, *, required: bool) -> dict[str, Any]:
    return {"description": text, "required": required, "schema": _TEXT}


def _reference(kind: str, name: object) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _of_json_schema(value: Any) -> Any:
    """Return a part of the document with patterns in JSON Schema syntax, without bounds that only exclude NaN."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not (key in ("minimum", "maximum") and abs(one) > 1e300)}
        return {key: _of_json_schema(one) for key, one in kept.items()}
    if isinstance(value, list):
        return [_of_json_schema(one) for one in value]
    return value.replace("\\Z", "$") if isinstance(value, str) else value
