import numpy as np
import pytest

from fpga_pool.core.types import BatchPlan, BatchProblem
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim import files

REQUIRED = {
    "seconds": np.array([[1.0, np.inf], [0.0, 2.0]]),
    "input_bytes": np.array([0, 10**12]),
    "requester": np.array([0, 0]),
    "egress_bps": np.array([1e9]),
    "responder": np.array([0, 1]),
    "ingress_bps": np.array([1e9, np.inf]),
}
OPTIONAL = {
    "ready_s": np.array([0.0, 1.5]),
    "release_s": np.array([2.0, 0.0]),
    "group": np.array([1, 0]),
    "local_host": np.array([1]),
    "function": np.array([3, 4]),
    "loaded": np.array([-1, 3]),
    "load_s": np.array([0.5, 0.5]),
    "port": np.array([7, 7]),
}
PLAN = {
    "accelerator": np.array([0, 1]),
    "start_s": np.array([0.0, 8.0]),
    "segment_job": np.array([1]),
    "segment_begin_s": np.array([0.0]),
    "segment_end_s": np.array([8.0]),
    "segment_bps": np.array([1e12]),
    "makespan_s": np.array(10.0),
    "lower_bound_s": np.array(9.0),
}


@pytest.fixture
def saved(tmp_path):
    def save(arrays):
        np.savez(tmp_path / "file.npz", **arrays)
        return tmp_path / "file.npz"

    return save


def test_problem_comes_back_as_it_was_written(tmp_path):
    problem = BatchProblem(**REQUIRED, **OPTIONAL)
    files.write_problem(tmp_path / "problem.npz", problem)
    found = files.read_problem(tmp_path / "problem.npz")
    for name in REQUIRED | OPTIONAL:
        assert np.array_equal(getattr(found, name), getattr(problem, name)), name


def read_plan(path):
    with np.load(path) as arrays:
        assert int(arrays["format_version"]) == 1
        return dict(arrays)


def test_plan_is_written_as_it_is(tmp_path):
    plan = BatchPlan(**(PLAN | {"makespan_s": 10.0, "lower_bound_s": 9.0}), bound_prices=np.array([0.25, 0.75]))
    files.write_plan(tmp_path / "plan.npz", plan)
    found = read_plan(tmp_path / "plan.npz")
    for name in [*PLAN, "bound_prices"]:
        assert np.array_equal(found[name], getattr(plan, name)), name


def test_file_name_is_taken_as_it_is_and_nothing_else_stays(tmp_path):
    files.write_problem(tmp_path / "problem", BatchProblem(**REQUIRED))
    assert [path.name for path in tmp_path.iterdir()] == ["problem"]


def test_version_1_is_written_and_unknown_arrays_are_let_be(saved, tmp_path):
    files.write_problem(tmp_path / "problem.npz", BatchProblem(**REQUIRED))
    assert int(np.load(tmp_path / "problem.npz")["format_version"]) == 1
    assert files.read_problem(saved(REQUIRED | {"comment": np.array(["seed 3"])})).jobs == 2


def test_missing_version_is_version_1_and_optional_arrays_may_be_missing(saved):
    assert files.read_problem(saved(REQUIRED)).ready_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format_version: 2 is newer than 1"),
        ({"format_version": 0}, "format_version: expected"),
        ({"format_version": [1, 1]}, "format_version: expected"),
        ({"format_version": "1"}, "format_version: expected"),
        ({"requester": None}, "requester: missing"),
        ({"seconds": [1.0, 2.0]}, "seconds: expected 2 dimensions, found 1"),
        ({"seconds": 1.0}, "seconds: expected 2 dimensions, found 0"),
        ({"seconds": [["a", "b"], ["c", "d"]]}, "seconds: expected numbers, found <U1"),
        ({"seconds": [[1.0, np.nan], [0.0, 2.0]]}, r"seconds\[0, 1\]: NaN"),
        ({"input_bytes": [1.0, 2.0]}, "input_bytes: expected whole numbers, found float64"),
        ({"input_bytes": [0, -1]}, r"input_bytes\[1\]: negative"),
        ({"input_bytes": np.array([0, 2**63], np.uint64)}, "input_bytes: out of range"),
        ({"input_bytes": np.array([None, 1])}, "input_bytes: cannot be read"),
        ({"requester": [0, 1]}, r"requester\[1\]: index out of range"),
        ({"responder": [0]}, "responder: expected shape"),
        ({"ready_s": []}, "ready_s: expected shape"),
        ({"release_s": [0.0, np.nan]}, r"release_s\[1\]: NaN"),
        ({"local_host": 0}, "local_host: expected 1 dimensions, found 0"),
        ({"loaded": [0, 0]}, "expected all three or none"),
    ],
)
def test_wrong_problem_is_refused_with_file_and_array(saved, changes, message):
    arrays = {name: array for name, array in (REQUIRED | changes).items() if array is not None}
    path = saved(arrays)
    with pytest.raises(InvalidInput, match=message) as caught:
        files.read_problem(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "content", [b"", b"seconds = 3\n", b"PK\x03\x04 and no more", b"\x93NUMPY", b"\x93NUMPY\1\0\2\0(\n"]
)
def test_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "problem.npz").write_bytes(content)
    with pytest.raises(InvalidInput, match="not an npz file"):
        files.read_problem(tmp_path / "problem.npz")


def test_bare_array_is_refused(tmp_path):
    np.save(tmp_path / "problem.npy", np.zeros(3))
    with pytest.raises(InvalidInput, match="one bare array"):
        files.read_problem(tmp_path / "problem.npy")


def test_damaged_array_is_refused(tmp_path, saved):
    path = saved(REQUIRED)
    content = bytearray(path.read_bytes())
    place = content.index(b"NUMPY")
    content[place + 60 : place + 140] = b"x" * 80
    path.write_bytes(bytes(content))
    with pytest.raises(InvalidInput, match="seconds: cannot be read"):
        files.read_problem(path)


@pytest.mark.parametrize("name", ["nowhere.npz", "."])
def test_file_that_cannot_be_opened_is_refused(tmp_path, name):
    with pytest.raises(InvalidInput, match=r"No such file|Is a directory"):
        files.read_problem(tmp_path / name)


def test_what_flows_back_is_written_and_read(tmp_path):
    results = {
        "output_bytes": [5, 0], "requester_ingress_bps": [3e9], "responder_egress_bps": [np.inf, 2e9],
    }  # fmt: skip
    files.write_problem(tmp_path / "problem.npz", BatchProblem(**REQUIRED, **results))
    read = files.read_problem(tmp_path / "problem.npz")
    for name, values in results.items():
        assert getattr(read, name).tolist() == values
    moved = {"result_job": [1], "result_begin_s": [10.0], "result_end_s": [11.0], "result_bps": [4.0]}
    arrays = {name: float(values) if values.ndim == 0 else values for name, values in PLAN.items()}
    files.write_plan(tmp_path / "plan.npz", BatchPlan(**arrays, **moved, completion_s=11.0, completion_bound_s=10.5))
    plan = read_plan(tmp_path / "plan.npz")
    assert (plan["completion_s"], plan["completion_bound_s"]) == (11.0, 10.5)
    for name, values in moved.items():
        assert plan[name].tolist() == values


def test_what_does_not_flow_back_is_not_written(tmp_path):
    files.write_problem(tmp_path / "problem.npz", BatchProblem(**REQUIRED))
    with np.load(tmp_path / "problem.npz") as written:
        assert "output_bytes" not in written
