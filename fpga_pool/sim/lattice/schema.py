"""The structure of a problem file, and messages that say what would be right."""

from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from fpga_pool.model.exceptions import InvalidInput

FORMAT_VERSION = 1

#: Doubles count FPGAs exactly up to here.
_MOST = 2**53
#: Sums of times stay finite.
_LONGEST_S = 1e300

_COUNT = {"type": "integer", "minimum": 1, "maximum": _MOST, "description": "a whole number, 1 or more"}
_SECONDS = {"type": "number", "minimum": 0, "maximum": _LONGEST_S, "description": "finite seconds, 0 or more"}
_NAME = {"type": ["string", "integer"], "description": "a name"}
_ENCLOSURE = {
    "type": "object",
    "properties": {
        "fpgas": {**_COUNT, "maximum": 10**6, "description": "a whole number, 1 to 1000000"},
        "links": {"enum": ["ring", "line", "full"], "description": "ring, line or full"},
    },
    "required": ["fpgas", "links"],
    "description": "an enclosure with fpgas and links",
}
_TASK = {
    "type": "object",
    "properties": {
        "id": _NAME,
        "workload": _NAME,
        "seconds": _SECONDS,
        "fpgas": _COUNT,
        "links": {"enum": ["any", "line", "ring"], "description": "any, line or ring"},
        "arrival_s": _SECONDS,
        "function": _NAME,
        "shapes": {
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [_COUNT, _SECONDS],
                "minItems": 2,
                "maxItems": 2,
                "description": "a pair of FPGAs and seconds",
            },
            "description": "a list of pairs of FPGAs and seconds",
        },
    },
    "required": ["id", "seconds", "fpgas"],
    "description": "a task with id, seconds and fpgas",
}
_VERSION = {"type": "integer", "minimum": 1, "description": "a whole number, 1 or more"}
_PROBLEM = {
    "type": "object",
    "properties": {
        "format_version": _VERSION,
        "enclosures": {
            "type": "array", "items": _ENCLOSURE, "minItems": 1, "description": "a list of enclosures, at least one",
        },
        "tasks": {"type": "array", "description": "a list of tasks"},
        "load_s": _SECONDS,
    },
    "required": ["enclosures", "tasks"],
    "description": "an object with enclosures and tasks",
}  # fmt: skip

_INDEX = {"type": "integer", "minimum": 0, "maximum": _MOST, "description": "a whole number, 0 or more"}
_OUTAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"enclosure": _INDEX, "fpga": _INDEX, "from_s": _SECONDS, "until_s": _SECONDS},
        "required": ["enclosure", "fpga", "from_s", "until_s"],
        "description": "an outage with enclosure, fpga, from_s and until_s",
    },
    "description": "a list of outages",
}


def check_structure(path: str | Path, content: Any) -> None:
    """Raise InvalidInput that names the first place that is wrong, and what would be right."""
    version = content.get("format_version", 1) if isinstance(content, dict) else 1
    if type(version) is int and version > FORMAT_VERSION:
        raise InvalidInput(f"{path}: format_version: {version} is newer than {FORMAT_VERSION}, which I can read")
    _check(path, "", content, Draft202012Validator(_PROBLEM))
    task_is = Draft202012Validator(_TASK)
    for i, task in enumerate(content["tasks"]):
        if not _plain(task):
            _check(path, f"tasks[{i}]", task, task_is)


def check_outages(path: str | Path, content: Any) -> None:
    """Raise InvalidInput that names the first place of a file of outages that is wrong, and what would be right."""
    _check(path, "", content, Draft202012Validator(_OUTAGES))


def _plain(task: Any) -> bool:
    """Say at once of what most tasks are that nothing is wrong with them: the schema takes 50 times as long."""
    return (
        type(task) is dict
        and task.keys() <= {"id", "workload", "seconds", "fpgas", "links"}
        and type(task.get("id")) is str
        and type(task.get("workload", "")) is str
        and type(task.get("seconds")) in {int, float}
        and 0 <= task["seconds"] <= _LONGEST_S
        and type(task.get("fpgas")) is int
        and 0 < task["fpgas"] <= _MOST
        and task.get("links", "any") in ("any", "line", "ring")
    )


def _check(path: str | Path, place: str, content: Any, validator: Draft202012Validator) -> None:
    error = best_match(validator.iter_errors(content))
    if error is None:
        return
    for step in error.absolute_path:
        place += f"[{step}]" if isinstance(step, int) else f"{'.' if place else ''}{step}"
    if error.validator == "required":
        name = next(name for name in error.validator_value if name not in error.instance)
        raise InvalidInput(f"{path}: {place}{'.' if place else ''}{name}: missing")
    expected = error.schema["description"]
    raise InvalidInput(f"{path}: {place}{': ' if place else ''}expected {expected}, found {_shown(error.instance)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
