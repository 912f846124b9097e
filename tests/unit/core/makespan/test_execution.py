import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.dispatch import Load, QueueEntry, Run, next_action
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.types import BatchProblem


def by_the_rule(problem, accelerator, order, arrived_s):
    """Return start times (J,) if each slot calls `next_action` whenever it is idle, entry by entry."""
    start_s = np.zeros(problem.jobs)
    left = [[job for job in order.tolist() if accelerator[job] == slot] for slot in range(problem.accelerators)]
    now_s = np.where(problem.ready_s > 0.0, problem.ready_s, -problem.head_start_s)
    loaded, port_free_s = problem.loaded.astype(str).tolist(), dict.fromkeys(problem.port.tolist(), -np.inf)
    while any(left):
        slot = min((slot for slot in range(problem.accelerators) if left[slot]), key=now_s.__getitem__)
        port, idle_s = int(problem.port[slot]), now_s[slot]
        queue = [
            QueueEntry(key=str(job), order=place, function=str(problem.function[job]), staged=arrived_s[job] <= idle_s)
            for place, job in enumerate(left[slot])
        ]
        action = next_action(queue, loaded[slot])
        if isinstance(action, Run):
            job = int(action.entry.key)
            start_s[job] = idle_s
            now_s[slot] = max(idle_s + problem.seconds[job, slot], np.nextafter(idle_s, np.inf))
            left[slot].remove(job)
        elif isinstance(action, Load):
            now_s[slot] = port_free_s[port] = max(idle_s, port_free_s[port]) + problem.load_s[slot]
            loaded[slot] = action.function
        else:
            now_s[slot] = min(arrived_s[job] for job in left[slot])
    return start_s


@given(seed=st.integers(0, 2**32))
def test_array_form_decides_as_the_rule_does(seed):
    rng = np.random.default_rng(seed)
    jobs, slots = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    problem = BatchProblem(
        seconds=rng.choice([0.0, 1.0, 2.5], (jobs, slots)), input_bytes=np.zeros(jobs, int),
        requester=np.zeros(jobs, int), egress_bps=[1.0], responder=np.zeros(slots, int), ingress_bps=[1.0],
        ready_s=rng.choice([0.0, 3.0], slots), function=rng.integers(0, 3, jobs), loaded=rng.integers(-1, 3, slots),
        load_s=rng.choice([0.0, 0.5], slots), port=rng.integers(0, 2, slots), head_start_s=rng.choice([0.0, 0.7]),
    )  # fmt: skip
    accelerator, order = rng.integers(0, slots, jobs), rng.permutation(jobs)
    arrived_s = rng.choice([0.0, 1.0, 2.0, 4.0, 8.0], jobs)
    expected_s = by_the_rule(problem, accelerator, order, arrived_s)
    assert execute(problem, accelerator, order, arrived_s) == pytest.approx(expected_s, rel=1e-12)


def test_jobs_that_take_no_time_keep_their_order_in_the_start_times(compute_problem):
    start_s = execute(compute_problem([[0.0], [1.0], [0.0]]), np.zeros(3, int), np.array([2, 0, 1]), np.zeros(3))
    assert np.argsort(start_s).tolist() == [2, 0, 1]
