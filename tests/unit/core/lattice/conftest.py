import contextlib
import functools
import importlib.util
import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fpga_pool.core.lattice.listing import possible_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.sim.lattice.files import TaskFile, write_problem, write_schedule

CHECKER = Path(__file__).parents[3] / "checkers" / "check_schedule.py"


def _rings(count, tasks, *, links=Links.LINE, **more):
    """Return a problem of `count` rings of 8 and rigid tasks (FPGAs, seconds)."""
    return TaskProblem(
        enclosure_fpgas=np.full(count, 8),
        enclosure_links=np.full(count, Topology.RING),
        shape_begin=np.arange(len(tasks) + 1),
        shape_fpgas=np.array([fpgas for fpgas, _ in tasks], np.int64),
        shape_seconds=np.array([seconds for _, seconds in tasks]),
        links=np.full(len(tasks), links),
        **more,
    )


_seconds = st.integers(0, 40).map(lambda quarters: quarters / 4)


#: Created once, since hypothesis examines a new strategy before its first draw, which takes longer than the draw.
_ENCLOSURES = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(list(Topology))), min_size=1, max_size=4)


@functools.cache
def _tasks(most, largest):
    shapes = st.lists(st.tuples(st.integers(1, largest), _seconds), min_size=1, max_size=3, unique_by=lambda s: s[0])
    return st.lists(st.tuples(shapes, st.sampled_from(list(Links)), _seconds, st.integers(-1, 2)), max_size=most)


@st.composite
def _problems(draw, *, most=12, arrivals=True):
    """Draw enclosures, and tasks that fit in one: malleable, late, with functions, on FPGAs that are busy at first."""
    enclosures = draw(_ENCLOSURES)
    fpgas = sum(size for size, _ in enclosures)
    tasks = draw(_tasks(most, max(size for size, _ in enclosures)))
    busy = draw(st.booleans())
    problem = TaskProblem(
        enclosure_fpgas=[size for size, _ in enclosures],
        enclosure_links=[int(topology) for _, topology in enclosures],
        shape_begin=np.cumsum([0] + [len(shapes) for shapes, *_ in tasks]),
        shape_fpgas=np.array([width for shapes, *_ in tasks for width, _ in shapes], np.int64),
        shape_seconds=np.array([seconds for shapes, *_ in tasks for _, seconds in shapes]),
        links=np.array([int(links) for _, links, *_ in tasks], np.int64),
        arrival_s=np.array([arrival_s if arrivals else 0.0 for *_, arrival_s, _ in tasks]),
        function=np.array([function for *_, function in tasks], np.int64),
        loaded=draw(st.lists(st.integers(-1, 2), min_size=fpgas, max_size=fpgas)) if busy else [],
        ready_s=draw(st.lists(_seconds, min_size=fpgas, max_size=fpgas)) if busy else [],
        load_s=draw(st.sampled_from([0.0, 0.0, 0.5])),
    )
    return _without_misfits(problem)


def _without_misfits(problem):
    possible, begin = possible_shapes(problem), problem.shape_begin
    keep = [task for task in range(problem.tasks) if possible[begin[task] : begin[task + 1]].any()]
    shapes = [np.arange(problem.shape_begin[task], problem.shape_begin[task + 1]) for task in keep]
    chosen = np.concatenate(shapes) if shapes else np.zeros(0, np.int64)
    return TaskProblem(
        enclosure_fpgas=problem.enclosure_fpgas,
        enclosure_links=problem.enclosure_links,
        shape_begin=np.cumsum([0] + [len(found) for found in shapes]),
        shape_fpgas=problem.shape_fpgas[chosen],
        shape_seconds=problem.shape_seconds[chosen],
        **{name: getattr(problem, name)[keep] for name in ("links", "arrival_s", "function")},
        **{name: getattr(problem, name) for name in ("loaded", "ready_s", "load_s")},
    )


def _fpgas_free_when_used(problem, schedule):
    """Check what the file checker does not: FPGAs that are busy at first, and loads between different functions."""
    base = np.concatenate(([0], np.cumsum(problem.enclosure_fpgas)))
    runs = {}
    for task in range(problem.tasks):
        for member in schedule.members[schedule.member_begin[task] : schedule.member_begin[task + 1]]:
            fpga = int(base[schedule.enclosure[task]] + member)
            runs.setdefault(fpga, []).append((schedule.begin_s[task], schedule.end_s[task], problem.function[task]))
    for fpga, spans in runs.items():
        # Of several tasks that take no time at one instant, one without a function may have been the last.
        spans.sort(key=lambda span: (span[0], span[1], -span[2]))
        loaded = problem.loaded[fpga]
        first = [(-np.inf, problem.ready_s[fpga], -1)]
        for (_, end_s, _), (begin_s, _, function) in pairwise([*first, *spans]):
            waits_s = problem.load_s if function >= 0 and loaded >= 0 and function != loaded else 0.0
            assert begin_s >= end_s + waits_s - 1e-9, f"FPGA {fpga} at {begin_s}"
            loaded = function if function >= 0 else loaded


@pytest.fixture(scope="session")
def check_schedule():
    """Return the independent checker as a module."""
    spec = importlib.util.spec_from_file_location("check_schedule", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def checked(check_schedule, tmp_path_factory):
    """Return a function that runs the independent checker on a schedule, and returns its result."""
    # The checker does not close its files before its process ends.
    check_schedule.open = lambda path: io.StringIO(Path(path).read_text())
    directory = tmp_path_factory.mktemp("schedules")

    def check(problem, schedule):
        ids = tuple(f"t{i}" for i in range(problem.tasks))
        functions = tuple(f"f{i}" for i in range(int(problem.function.max(initial=-1)) + 1))
        file = TaskFile(problem=problem, ids=ids, workloads=ids, functions=functions)
        write_problem(directory / "problem.json", file)
        write_schedule(directory / "schedule.json", ids, schedule)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            check_schedule.main(["", str(directory / "problem.json"), str(directory / "schedule.json")])
        result = json.loads(said.getvalue())
        assert result["faults"] == []
        _fpgas_free_when_used(problem, schedule)
        return result

    return check


@pytest.fixture(scope="session")
def rings():
    """Return the function that makes problems of rings of 8 and rigid tasks."""
    return _rings


@pytest.fixture(scope="session")
def problems():
    """Return the strategy of problems of all kinds."""
    return _problems
