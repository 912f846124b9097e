import numpy as np
import pytest

from fpga_pool.core.types import BatchProblem

VALID = {
    "seconds": [[1.0, np.inf], [0.0, 2.0]],
    "input_bytes": [0, 10**12],
    "requester": [0, 2],
    "egress_bps": [1e9, np.inf, 1e9],
    "responder": [0, 1],
    "ingress_bps": [1e9, np.inf],
}


def test_missing_optional_arrays_mean_nothing_special():
    problem = BatchProblem(**VALID)
    assert (problem.jobs, problem.accelerators) == (2, 2)
    assert problem.ready_s.tolist() == problem.release_s.tolist() == problem.load_s.tolist() == [0.0, 0.0]
    assert problem.group.tolist() == problem.function.tolist() == problem.loaded.tolist() == [0, 0]
    assert problem.local_host.tolist() == [-1, -1, -1]


def test_arrays_are_copies_that_cannot_be_changed():
    ready_s = np.zeros(2)
    problem = BatchProblem(**VALID, ready_s=ready_s)
    ready_s[0] = 7.0
    assert problem.ready_s[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        problem.ready_s[0] = 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": [1.0, 2.0]}, r"seconds: expected a \(J, A\) array"),
        ({"seconds": [[1.0, np.nan], [0.0, 2.0]]}, r"seconds\[0, 1\]: NaN"),
        ({"seconds": [[1.0, 1.0], [-1.0, 2.0]]}, r"seconds\[1, 0\]: negative"),
        ({"seconds": [[np.inf, np.inf], [0.0, 2.0]]}, r"seconds\[0\]: this job cannot run on any accelerator"),
        ({"input_bytes": [0, -1]}, r"input_bytes\[1\]: negative"),
        ({"input_bytes": [0, 1, 2]}, r"input_bytes: expected shape \(2,\), found \(3,\)"),
        ({"input_bytes": [0.5, 1.0]}, "input_bytes: expected integers"),
        ({"requester": [0, 3]}, r"requester\[1\]: index out of range, expected 0..2"),
        ({"requester": [-1, 0]}, r"requester\[0\]: index out of range"),
        ({"responder": [0, 2]}, r"responder\[1\]: index out of range, expected 0..1"),
        ({"egress_bps": [1e9, 0.0, 1e9]}, r"egress_bps\[1\]: no bandwidth"),
        ({"ingress_bps": [1e9, -1.0]}, r"ingress_bps\[1\]: negative"),
        ({"ready_s": [0.0, np.inf]}, r"ready_s\[1\]: must be finite"),
        ({"release_s": [0.0, -1.0]}, r"release_s\[1\]: negative"),
        ({"release_s": [0.0]}, r"release_s: expected shape \(2,\), found \(1,\)"),
        ({"group": [[0, 1]]}, r"group: expected shape \(2,\), found \(1, 2\)"),
        ({"local_host": [0, 1, 2]}, r"local_host\[2\]: index out of range, expected -1..1"),
        ({"function": [0, 1]}, "function, loaded and load_s: expected all three or none"),
    ],
)
def test_refuses_what_cannot_be_and_names_the_place(changes, message):
    with pytest.raises(ValueError, match=message):
        BatchProblem(**(VALID | changes))


def test_empty_batch_is_a_problem():
    problem = BatchProblem(**(VALID | {"seconds": np.zeros((0, 2)), "input_bytes": [], "requester": []}))
    assert problem.jobs == 0
