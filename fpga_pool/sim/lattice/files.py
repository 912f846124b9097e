"""Problem, outage and schedule files of tasks (JSON; doc/formats), with their schemas."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from fpga_pool.core.lattice.listing import misfit
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.files import replacing
from fpga_pool.sim.lattice.simulator import Outage

# ---- Schema

FORMAT_VERSION = 1

#: Largest number of FPGAs; up to it doubles represent integers exactly.
_MOST = 2**53
#: Limit of times, so that their sums stay finite.
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
            "type": "array", "items": _ENCLOSURE, "minItems": 1, "description": "a non-empty list of enclosures",
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
    """Raise InvalidInput, which names the place of the first error and the expected value, for an invalid problem."""
    version = content.get("format_version", 1) if isinstance(content, dict) else 1
    if type(version) is int and version > FORMAT_VERSION:
        raise InvalidInput(
            f"{path}: format_version: {version} is newer than {FORMAT_VERSION}, the latest supported version"
        )
    _check(path, "", content, Draft202012Validator(_PROBLEM))
    task_is = Draft202012Validator(_TASK)
    for i, task in enumerate(content["tasks"]):
        if not _plain(task):
            _check(path, f"tasks[{i}]", task, task_is)


def check_outages(path: str | Path, content: Any) -> None:
    """Raise InvalidInput, which names the place of the first error and the expected value, for invalid outages."""
    _check(path, "", content, Draft202012Validator(_OUTAGES))


def _plain(task: Any) -> bool:
    """Return whether a task is valid and of the common form; the schema takes 50 times as long to check it."""
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


# ---- Reading and writing


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """A problem, and the names of its parts in the file."""

    problem: TaskProblem
    #: Names of the tasks, and of the workload of each task, T each.
    ids: tuple[str, ...]
    workloads: tuple[str, ...]
    functions: tuple[str, ...] = ()


def read_problem(path: str | Path) -> TaskFile:
    """Return the problem in the file; raises InvalidInput, which names the file, the place and the expected value."""
    content = _json(path)
    check_structure(path, content)
    tasks: list[dict[str, Any]] = content["tasks"]
    ids = tuple(str(task["id"]) for task in tasks)
    _refuse_repeated(path, ids)
    shapes = [_shapes(task) for task in tasks]
    functions = tuple(dict.fromkeys(str(task["function"]) for task in tasks if "function" in task))
    number = {name: i for i, name in enumerate(functions)}
    problem = TaskProblem(
        enclosure_fpgas=np.array([enclosure["fpgas"] for enclosure in content["enclosures"]], np.int64),
        enclosure_links=np.array(
            [Topology[enclosure["links"].upper()] for enclosure in content["enclosures"]], np.int64
        ),
        shape_begin=np.concatenate(([0], np.cumsum([len(found) for found in shapes]))).astype(np.int64),
        shape_fpgas=np.array([fpgas for found in shapes for fpgas, _ in found], np.int64),
        shape_seconds=np.array([seconds for found in shapes for _, seconds in found]),
        links=np.array([Links[task.get("links", "any").upper()] for task in tasks], np.int64),
        arrival_s=np.array([task.get("arrival_s", 0.0) for task in tasks], np.float64),
        function=np.array([number[str(task["function"])] if "function" in task else -1 for task in tasks], np.int64),
        load_s=float(content.get("load_s", 0.0)),
    )
    lost = misfit(problem)
    if lost is not None:
        raise InvalidInput(f"{path}: tasks[{lost}]: {_asked(problem, lost)}, which no enclosure provides")
    workloads = tuple(str(task.get("workload", task["id"])) for task in tasks)
    return TaskFile(problem=problem, ids=ids, workloads=workloads, functions=functions)


def read_outages(path: str | Path, problem: TaskProblem) -> tuple[Outage, ...]:
    """Return the outages in the file; raises InvalidInput, which names the file, the place and the expected value."""
    content = _json(path)
    check_outages(path, content)
    outages = tuple(Outage(**{name: row[name] for name in Outage.__slots__}) for row in content)
    for i, outage in enumerate(outages):
        try:
            outage.check(problem)
        except ValueError as error:
            raise InvalidInput(f"{path}: [{i}]: {error}") from None
    return outages


def write_problem(path: str | Path, file: TaskFile) -> None:
    """Write a problem; optional fields only if they differ from their defaults."""
    problem = file.problem
    enclosures = [
        {"fpgas": fpgas, "links": Topology(links).name.lower()}
        for fpgas, links in zip(problem.enclosure_fpgas.tolist(), problem.enclosure_links.tolist(), strict=True)
    ]
    head: dict[str, Any] = {"format_version": FORMAT_VERSION, "enclosures": enclosures}
    if problem.load_s:
        head["load_s"] = problem.load_s
    with replacing(path) as place, place.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "tasks": [')
        stream.writelines(_separated(_tasks(file)))
        stream.write("]}\n")


def write_schedule(path: str | Path, ids: Sequence[str], schedule: TaskSchedule) -> None:
    """Write the FPGAs and times of each task, in order of submission."""
    begin = schedule.member_begin.tolist()
    members = schedule.members.tolist()
    columns = zip(
        ids, schedule.enclosure.tolist(), begin[:-1], begin[1:], schedule.begin_s.tolist(), schedule.end_s.tolist(),
        strict=True,
    )  # fmt: skip
    rows = (
        {"task": task, "enclosure": enclosure, "fpgas": members[first:last], "begin_s": begin_s, "end_s": end_s}
        for task, enclosure, first, last, begin_s, end_s in columns
    )
    with replacing(path) as place, place.open("w", encoding="utf-8") as stream:
        stream.write("[")
        stream.writelines(_separated(rows))
        stream.write("]\n")


def _separated(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield JSON text of the rows, one row per line."""
    for i, row in enumerate(rows):
        yield f"{',' if i else ''}\n{json.dumps(row)}"


def _tasks(file: TaskFile) -> Iterator[dict[str, Any]]:
    problem = file.problem
    shapes = list(zip(problem.shape_fpgas.tolist(), problem.shape_seconds.tolist(), strict=True))
    begin = problem.shape_begin.tolist()
    for i, (task, workload) in enumerate(zip(file.ids, file.workloads, strict=True)):
        fpgas, seconds = shapes[begin[i]]
        row: dict[str, Any] = {"id": task, "workload": workload, "seconds": seconds, "fpgas": fpgas}
        row["links"] = Links(problem.links[i]).name.lower()
        if problem.arrival_s[i]:
            row["arrival_s"] = float(problem.arrival_s[i])
        if problem.function[i] >= 0:
            row["function"] = file.functions[problem.function[i]]
        if begin[i + 1] > begin[i] + 1:
            row["shapes"] = [list(shape) for shape in shapes[begin[i] : begin[i + 1]]]
        yield row


def _json(path: str | Path) -> Any:
    def refuse(text: str) -> NoReturn:
        raise InvalidInput(f"{path}: expected finite numbers, found {text}")

    try:
        return json.loads(Path(path).read_bytes(), parse_constant=refuse)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: not JSON: {error}") from None


def _shapes(task: dict[str, Any]) -> list[tuple[int, float]]:
    """Return the task's own shape, then its others; of others with equal FPGAs the last one counts."""
    others = {int(fpgas): float(seconds) for fpgas, seconds in task.get("shapes", ())}
    own = int(task["fpgas"])
    others.pop(own, None)
    return [(own, float(task["seconds"])), *others.items()]


def _refuse_repeated(path: str | Path, ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        name, count = Counter(ids).most_common(1)[0]
        last = max(i for i, found in enumerate(ids) if found == name)
        raise InvalidInput(f"{path}: tasks[{last}].id: {name!r} occurs {count} times; expected unique ids")


def _asked(problem: TaskProblem, task: int) -> str:
    """Return the request of a task as text for a message."""
    fpgas = problem.shape_fpgas[problem.shape_begin[task] : problem.shape_begin[task + 1]].tolist()
    linked = {Links.ANY: "in one enclosure", Links.LINE: "in a line", Links.RING: "in a ring"}
    return f"requests {' or '.join(map(str, sorted(fpgas)))} FPGAs {linked[Links(problem.links[task])]}"
