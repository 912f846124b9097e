import json

import numpy as np
import pytest

from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.lattice.files import read_problem, write_problem, write_schedule
from fpga_pool.sim.lattice.workloads import Wanted, generate

PROBLEM = {
    "format_version": 1,
    "enclosures": [{"fpgas": 8, "links": "ring"}, {"fpgas": 3, "links": "full"}],
    "load_s": 0.5,
    "tasks": [
        {"id": "t0", "workload": "w0", "seconds": 12.5, "fpgas": 3, "links": "line", "function": "aes"},
        {"id": "t1", "seconds": 4, "fpgas": 8, "links": "ring", "arrival_s": 2.5},
        {"id": "t2", "seconds": 6, "fpgas": 2, "shapes": [[4, 3.5], [2, 6.0], [1, 11]], "function": "sha"},
    ],
}


@pytest.fixture
def saved(tmp_path):
    def save(content):
        path = tmp_path / "problem.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return save


def with_task(**changes):
    task = {"id": "t0", "seconds": 1.0, "fpgas": 1} | changes
    task = {name: value for name, value in task.items() if value is not None}
    return PROBLEM | {"tasks": [PROBLEM["tasks"][0] | {"id": "first"}, task]}


def test_reads_all_that_the_format_has(saved):
    file = read_problem(saved(PROBLEM))
    problem = file.problem
    assert problem.enclosure_fpgas.tolist() == [8, 3]
    assert problem.enclosure_links.tolist() == [Topology.RING, Topology.FULL]
    assert file.ids == ("t0", "t1", "t2")
    assert file.workloads == ("w0", "t1", "t2")
    assert problem.links.tolist() == [Links.LINE, Links.RING, Links.ANY]
    # The task's own shape comes first; a listed shape with as many FPGAs is the same shape.
    assert problem.shape_begin.tolist() == [0, 1, 2, 5]
    assert problem.shape_fpgas.tolist() == [3, 8, 2, 4, 1]
    assert problem.shape_seconds.tolist() == [12.5, 4.0, 6.0, 3.5, 11.0]
    assert problem.arrival_s.tolist() == [0.0, 2.5, 0.0]
    assert [file.functions[f] if f >= 0 else None for f in problem.function] == ["aes", None, "sha"]
    assert problem.load_s == 0.5


def test_what_is_written_reads_back(saved, tmp_path):
    file = read_problem(saved(PROBLEM))
    write_problem(tmp_path / "again.json", file)
    again = read_problem(tmp_path / "again.json")
    for name in file.problem.__slots__:
        assert np.array_equal(getattr(file.problem, name), getattr(again.problem, name)), name
    assert (again.ids, again.workloads, again.functions) == (file.ids, file.workloads, file.functions)
    made = generate("rtm", Wanted(workloads=20, interval_s=1.0), np.random.default_rng(0))
    write_problem(tmp_path / "made.json", made)
    back = read_problem(tmp_path / "made.json")
    assert (back.problem.shape_seconds == made.problem.shape_seconds).all()
    assert (back.problem.arrival_s == made.problem.arrival_s).all()


def test_schedules_have_a_row_for_each_task(saved, tmp_path):
    file = read_problem(saved(PROBLEM))
    found = Fifo().decide(file.problem, None, 0.0, np.random.default_rng(0))
    write_schedule(tmp_path / "schedule.json", file.ids, found)
    rows = json.loads((tmp_path / "schedule.json").read_text())
    assert [row["task"] for row in rows] == ["t0", "t1", "t2"]
    assert rows[0] == {"task": "t0", "enclosure": 0, "fpgas": [0, 1, 2], "begin_s": 0.0, "end_s": 12.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "expected an object with enclosures and tasks, found []"),
        ('{"enclosures": NaN}', "expected finite numbers, found NaN"),
        ({"tasks": []}, "enclosures: missing"),
        ({"enclosures": [], "tasks": []}, "enclosures: expected a non-empty list of enclosures, found []"),
        (PROBLEM | {"format_version": 2}, "format_version: 2 is newer than 1, the latest supported version"),
        (PROBLEM | {"format_version": "1"}, "format_version: expected a whole number, 1 or more, found '1'"),
        (PROBLEM | {"load_s": -1}, "load_s: expected finite seconds, 0 or more, found -1"),
        (
            PROBLEM | {"enclosures": [{"fpgas": 8, "links": "star"}]},
            "enclosures[0].links: expected ring, line or full, found 'star'",
        ),
        (PROBLEM | {"enclosures": [{"links": "ring"}]}, "enclosures[0].fpgas: missing"),
        (PROBLEM | {"tasks": ["t0"]}, "tasks[0]: expected a task with id, seconds and fpgas, found 't0'"),
        (with_task(fpgas=0), "tasks[1].fpgas: expected a whole number, 1 or more, found 0"),
        (with_task(fpgas=1.5), "tasks[1].fpgas: expected a whole number, 1 or more, found 1.5"),
        (with_task(fpgas=True), "tasks[1].fpgas: expected a whole number, 1 or more, found True"),
        (with_task(seconds=None), "tasks[1].seconds: missing"),
        (with_task(seconds=-0.5), "tasks[1].seconds: expected finite seconds, 0 or more, found -0.5"),
        (with_task(links="tree"), "tasks[1].links: expected any, line or ring, found 'tree'"),
        (with_task(links=["any"]), "tasks[1].links: expected any, line or ring, found ['any']"),
        (with_task(arrival_s="soon"), "tasks[1].arrival_s: expected finite seconds, 0 or more, found 'soon'"),
        (with_task(shapes=[[4]]), "tasks[1].shapes[0]: expected a pair of FPGAs and seconds, found [4]"),
        (with_task(shapes=[[4, -1]]), "tasks[1].shapes[0][1]: expected finite seconds, 0 or more, found -1"),
        (with_task(id="first"), "tasks[1].id: 'first' occurs 2 times; expected unique ids"),
        (with_task(fpgas=9), "tasks[1]: requests 9 FPGAs in one enclosure, which no enclosure provides"),
        (with_task(fpgas=5, links="ring"), "tasks[1]: requests 5 FPGAs in a ring, which no enclosure provides"),
    ],
)  # fmt: skip
def test_bad_input_is_told_where_it_is_and_what_would_be_right(saved, content, message):
    path = saved(content)
    with pytest.raises(InvalidInput) as error:
        read_problem(path)
    assert str(error.value) == f"{path}: {message}"


def test_infinite_seconds_are_refused(saved):
    with pytest.raises(InvalidInput, match=r"tasks\[0\].seconds: expected finite seconds, 0 or more, found inf"):
        read_problem(saved('{"enclosures": [{"fpgas": 1, "links": "line"}],'
                           ' "tasks": [{"id": "a", "seconds": 1e999, "fpgas": 1}]}'))  # fmt: skip


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"nowhere\.json: No such file or directory"):
        read_problem(tmp_path / "nowhere.json")
