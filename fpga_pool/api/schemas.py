"""Schemas of request bodies, and the one function that checks them."""

from collections.abc import Mapping
from typing import Any, cast

from flask import request
from jsonschema import Draft202012Validator, ValidationError
from werkzeug.exceptions import BadRequest, UnsupportedMediaType

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.gangs import LONGEST_COMMAND, LONGEST_IMAGE
from fpga_pool.model.rules.task.admission import MOST_SLOTS

_UUID = {
    "type": "string",
    "pattern": "^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\\Z",
    "description": "a uuid",
}


def _text(longest: int) -> dict[str, Any]:
    """Describe text that databases and terminals take: no control characters, no halves of surrogate pairs."""
    return {
        "type": "string",
        "maxLength": longest,
        "pattern": "^[^\u0000-\u001f\u007f\ud800-\udfff]*\\Z",
        "description": f"at most {longest} characters, no control characters",
    }


_SECONDS = {"type": "number", "exclusiveMinimum": 0, "description": "a number of seconds above 0"}

_JOB: dict[str, Any] = {
    "type": "object",
    "properties": {
        "uuid": _UUID,
        "name": _text(255),
        "function": _text(255),
        "requester": _text(255),
        "input_bytes": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "description": "a number of bytes"},
    },
    "required": ["function", "requester", "input_bytes"],
    "additionalProperties": False,
    "description": "an object",
}

BATCH = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "uuid": _UUID,
            "name": _text(255),
            "policy": _text(64),
            "jobs": {"type": "array", "items": _JOB, "description": "a list of jobs"},
        },
        "required": ["jobs"],
        "additionalProperties": False,
        "description": "an object",
    }
)

GANG = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "uuid": _UUID,
            "name": _text(255),
            "processes": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "a number of processes"},
            "runtime_s": _SECONDS,
            "cpu_usage": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 1,
                "description": "a share of a processor, above 0 and 1 at most",
            },
            "work_s": _SECONDS,
            "image": _text(LONGEST_IMAGE),
            "command": _text(LONGEST_COMMAND),
        },
        "required": ["processes", "runtime_s", "cpu_usage"],
        "additionalProperties": False,
        "description": "an object",
    }
)

_SHARE = {
    "type": "object",
    "properties": {name: _JOB["properties"][name] for name in ("uuid", "name", "requester", "input_bytes")},
    "required": ["requester", "input_bytes"],
    "additionalProperties": False,
    "description": "an object",
}

_SHAPE = {
    "type": "object",
    "properties": {
        "slots": {"type": "integer", "minimum": 1, "maximum": MOST_SLOTS, "description": f"1 to {MOST_SLOTS} slots"},
        "seconds": _SECONDS,
    },
    "required": ["slots"],
    "additionalProperties": False,
    "description": "an object",
}

TASK = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "uuid": _UUID,
            "name": _text(255),
            "function": _text(255),
            "topology": {"enum": list(Topology), "description": "any, line or ring"},
            "shares": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_SLOTS,
                "items": _SHARE,
                "description": f"a list of 1 to {MOST_SLOTS} shares",
            },
            "shapes": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_SLOTS,
                "items": _SHAPE,
                "description": "a list of shapes, at least one",
            },
        },
        "required": ["function", "shares"],
        "additionalProperties": False,
        "description": "an object",
    }
)

TICKETS = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "tickets": {
                "type": "array",
                "minItems": 1,
                "maxItems": 1000,
                "items": {
                    "type": "object",
                    "properties": {
                        "job": _UUID,
                        "purpose": {"enum": ["send", "fetch"], "description": "send or fetch"},
                        "source_address": {
                            "type": "string",
                            "pattern": r"^[0-9A-Fa-f:.]{2,45}(%[\w.-]{1,15})?\Z",
                            "description": "an IP address",
                        },
                        "source_port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "a port"},
                    },
                    "required": ["job", "purpose", "source_address", "source_port"],
                    "additionalProperties": False,
                    "description": "an object",
                },
                "description": "a list of 1 to 1000 requests",
            },
        },
        "required": ["tickets"],
        "additionalProperties": False,
        "description": "an object",
    }
)

SLOT_CHANGE = Draft202012Validator(
    {
        "type": "object",
        "properties": {"drain": {"type": "boolean", "description": "true or false"}, "reason": _text(255)},
        "required": ["drain"],
        "additionalProperties": False,
        "description": "an object",
    }
)


def body() -> Any:
    """Return the JSON body of the request; a body of another type is a 415, one that is no JSON an InvalidInput."""
    if not request.is_json:
        raise UnsupportedMediaType("the body must be JSON: Content-Type: application/json")
    try:
        return request.get_json()
    except BadRequest:
        raise InvalidInput("body: not valid JSON") from None
    except RecursionError:
        raise InvalidInput("body: nested too deeply") from None


def check(schema: Draft202012Validator, document: Any) -> dict[str, Any]:
    """Return the document if the schema allows it; else InvalidInput names the first place that it does not."""
    error = next(schema.iter_errors(document), None)
    if error is not None:
        raise InvalidInput(f"{error.json_path.removeprefix('$').removeprefix('.') or 'body'}: {_complaint(error)}")
    return cast("dict[str, Any]", document)


def _complaint(error: ValidationError) -> str:
    """Say what would be right, and quote only a little of what is there."""
    schema = cast("Mapping[str, Any]", error.schema)
    if error.validator == "required":
        missing = [name for name in schema["required"] if name not in cast("Mapping[str, Any]", error.instance)]
        return f"missing: {', '.join(missing)}"
    if error.validator == "additionalProperties":
        unknown = sorted(set(cast("Mapping[str, Any]", error.instance)) - set(schema["properties"]))
        return f"unknown: {_short(unknown)}; known: {', '.join(schema['properties'])}"
    if error.validator in ("minimum", "maximum") and "minimum" in schema:
        return f"expected {schema['minimum']} to {schema['maximum']}, found {_short(error.instance)}"
    return f"expected {schema['description']}, found {_short(error.instance)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
