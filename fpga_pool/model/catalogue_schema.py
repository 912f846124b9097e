"""The schema of catalogues (format: doc/formats), and validation errors that name the place in the file."""

import math
from collections.abc import Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from fpga_pool.model.exceptions import InvalidCatalogue

FORMAT_VERSION = 1

#: Names end up in file names, entry points and URLs.
_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
_NOT_NEGATIVE = {"type": "number", "minimum": 0}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string", "minLength": 1}
_KINDS = {"type": "array", "items": {"type": "string", "pattern": _NAME}, "minItems": 1}
_RESOURCES = dict.fromkeys(("luts", "ffs", "brams", "urams", "dsps"), _COUNT)


def _table(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a table with required and optional keys and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _named(entry: Mapping[str, Any], least: int = 0) -> dict[str, Any]:
    """Return the schema of a table that maps names to entries, with at least `least` of them."""
    return {
        "type": "object",
        "propertyNames": {"pattern": _NAME},
        "additionalProperties": entry,
        "minProperties": least,
    }


_TIME = _table({"a_s": _NOT_NEGATIVE, "b_s_per_byte": _NOT_NEGATIVE}, {"source": _TEXT})
_SIZE = _table({"a_bytes": _NOT_NEGATIVE, "b_bytes_per_byte": _NOT_NEGATIVE})
_REGION = _table({"bitstream_bytes": {"type": "integer", "exclusiveMinimum": 0}}, _RESOURCES)
_FUNCTION = _table(
    {
        "version": {"type": ["string", "integer"]},
        "slot_kinds": {**_KINDS, "uniqueItems": True},
        "io_bps": _NOT_NEGATIVE,
        "preemptible": {"type": "boolean"},
        "source": _TEXT,
    },
    {
        "resources": _table({}, _RESOURCES),
        "progress_kept": {"type": "boolean"},
        "cpu_time": _TIME,
        "fpga_time": _named(_TIME, least=1),
        "speedup": _POSITIVE,
        "result_size": _SIZE,
    },
)
_BOARD = _table(
    {
        "slots": _KINDS,
        "regions": _named(_REGION, least=1),
        "configuration_bps": _POSITIVE,
        "dma_bps": _POSITIVE,
        "source": _TEXT,
    }
)
SCHEMA = _table(
    {"format_version": {"const": FORMAT_VERSION}, "functions": _named(_FUNCTION, least=1)},
    {"boards": _named(_BOARD)},
)


def check_structure(data: Mapping[str, Any]) -> None:
    """Raise InvalidCatalogue, which names the place, if `data` does not have the structure of a catalogue."""
    _check_finite(data, ())
    error = best_match(Draft202012Validator(SCHEMA).iter_errors(data))
    if error is not None:
        raise InvalidCatalogue(_explain(error))


def _check_finite(value: object, path: tuple[str, ...]) -> None:
    """Refuse nan and inf, which TOML can express and no schema comparison catches."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_finite(item, (*path, str(key)))
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidCatalogue(f"{_place(path[:-1])}{path[-1]} must be finite, found {value}")


def _explain(error: ValidationError) -> str:
    """Describe an error in the catalogue in one line: its place and the expected value."""
    path, rule = list(error.absolute_path), error.validator
    wanted: Any = error.validator_value
    found: Any = error.instance
    if rule == "additionalProperties":
        known = cast("Mapping[str, Any]", error.schema)["properties"]
        unknown = next(key for key in found if key not in known)
        return f"{_place(path)}unknown key {unknown!r}; keys are {', '.join(known)}"
    if rule == "required":
        missing = next(key for key in wanted if key not in found)
        return f"{_place(path)}{missing} is missing"
    where = f"{_place(path[:-1])}{path[-1]}" if path else "the catalogue"
    requirement = {
        "minimum": f">= {wanted}",
        "exclusiveMinimum": f"> {wanted}",
        "const": f"{wanted!r}",
        "minItems": "a non-empty list",
        "minProperties": "a non-empty table",
        "minLength": "a non-empty string",
        "uniqueItems": "a list without duplicates",
        "pattern": "a name of letters, digits, '_' and '-'",
        "type": f"of type {' or '.join(wanted) if isinstance(wanted, list) else wanted}",
    }.get(str(rule), str(error.message))
    return f"{where} must be {requirement}, found {found!r}"


def _place(path: list[Any] | tuple[str, ...]) -> str:
    """Return ``functions.aes.fpga_time.kintex7: ``, or nothing for the top of the file."""
    return ".".join(str(part) for part in path) + ": " if path else ""
