"""Problems to plan, and the independent checker, for the tests of all planners."""

import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fpga_pool.core.types import BatchPlan, BatchProblem
from fpga_pool.sim import files

CHECKER = Path(__file__).parents[3] / "checkers" / "check_plan.py"


@pytest.fixture(scope="session")
def verdict(tmp_path_factory, request) -> Callable[[BatchProblem, BatchPlan], dict]:
    """Return a function that runs the independent checker on a plan, both written to files as the command does."""
    spec = importlib.util.spec_from_file_location("check_plan", CHECKER)
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    folder = tmp_path_factory.mktemp("plans")

    def check(problem: BatchProblem, plan: BatchPlan) -> dict:
        said: list[str] = []
        checker.print = said.append
        files.write_problem(folder / "problem.npz", problem)
        files.write_plan(folder / "plan.npz", plan)
        checker.main(["check_plan", str(folder / "problem.npz"), str(folder / "plan.npz")])
        return json.loads(said[0])

    return check


#: Created once, since hypothesis examines a new strategy before its first draw, which takes longer than the draw.
_SOME_S = st.one_of(st.just(0.0), st.floats(1e-3, 10.0), st.sampled_from([1.0, 2.0]))
_FAR_S = st.one_of(_SOME_S, st.sampled_from([1e3, 1e6]))
_MAYBE_S = st.one_of(_SOME_S, _SOME_S, st.just(np.inf))
_SIZE = st.one_of(st.just(0), st.integers(1, 10**9), st.sampled_from([1, 10**6, 10**8, 10**12]))
_BPS = st.one_of(st.just(np.inf), st.floats(1e6, 1e11), st.sampled_from([1e9, 2e9]))
_integers = functools.cache(st.integers)


@functools.cache
def _lists(values: st.SearchStrategy, size: int) -> st.SearchStrategy:
    return st.lists(values, min_size=size, max_size=size)


def _array(draw, size: int, values) -> np.ndarray:
    return np.array(draw(_lists(values, size)))


@st.composite
def _problems(draw, max_jobs: int = 8, max_accelerators: int = 4, *, optional: bool = True) -> BatchProblem:
    """Draw small problems with every extreme: no work, no transfers, no limits, times far apart, huge inputs."""
    jobs = draw(_integers(1, max_jobs))
    accelerators = draw(_integers(1, max_accelerators))
    requesters, responders = draw(_integers(1, 3)), draw(_integers(1, 3))
    seconds = _array(draw, jobs * accelerators, _MAYBE_S).reshape(jobs, -1)
    able = _array(draw, jobs, _integers(0, accelerators - 1))
    stuck = ~np.isfinite(seconds).any(axis=1)
    seconds[stuck, able[stuck]] = 1.0
    arrays = {
        "seconds": seconds,
        "input_bytes": _array(draw, jobs, _SIZE),
        "requester": _array(draw, jobs, _integers(0, requesters - 1)),
        "egress_bps": _array(draw, requesters, _BPS),
        "responder": _array(draw, accelerators, _integers(0, responders - 1)),
        "ingress_bps": _array(draw, responders, _BPS),
    }
    if optional and draw(st.booleans()):
        arrays["ready_s"] = _array(draw, accelerators, _FAR_S)
    if optional and draw(st.booleans()):
        arrays["release_s"] = _array(draw, jobs, _FAR_S)
    if optional and draw(st.booleans()):
        arrays["group"] = _array(draw, jobs, _integers(-1, 2))
    if optional and draw(st.booleans()):
        arrays["local_host"] = _array(draw, requesters, _integers(-1, responders - 1))
    if optional and draw(st.booleans()):
        arrays["function"] = _array(draw, jobs, _integers(0, 2))
        arrays["loaded"] = _array(draw, accelerators, _integers(-1, 2))
        arrays["load_s"] = _array(draw, accelerators, _SOME_S)
    if optional and draw(st.booleans()):
        arrays["output_bytes"] = _array(draw, jobs, _SIZE)
        arrays["requester_ingress_bps"] = _array(draw, requesters, _BPS)
        arrays["responder_egress_bps"] = _array(draw, responders, _BPS)
    return BatchProblem(**arrays)


@pytest.fixture(scope="session")
def problems():
    """Return the strategy of small problems, to be drawn from with `data.draw`."""
    return _problems


@pytest.fixture(scope="session")
def network_problem() -> Callable[..., BatchProblem]:
    """Return a function that makes a batch without computation; sizes in megabits, limits in megabits per second."""

    def build(megabits, requester, egress_mbps, responder, ingress_mbps, **optional) -> BatchProblem:
        return BatchProblem(
            seconds=np.zeros((len(megabits), len(responder))),
            input_bytes=[round(mb * 1e6 / 8) for mb in megabits],
            requester=requester,
            egress_bps=[1e6 * mbps for mbps in egress_mbps],
            responder=responder,
            ingress_bps=[1e6 * mbps for mbps in ingress_mbps],
            **optional,
        )

    return build


@pytest.fixture(scope="session")
def compute_problem() -> Callable[..., BatchProblem]:
    """Return a function that makes a batch without transfers."""

    def build(seconds, **optional) -> BatchProblem:
        jobs, accelerators = np.shape(seconds)
        return BatchProblem(
            seconds=seconds,
            input_bytes=[0] * jobs,
            requester=[0] * jobs,
            egress_bps=[np.inf],
            responder=[0] * accelerators,
            ingress_bps=[np.inf],
            **optional,
        )

    return build
