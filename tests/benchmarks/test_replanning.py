"""Times of re-planning around work in progress: 1000 jobs on 200 accelerators, one event each.

    pytest tests/benchmarks/test_replanning.py -s

A plan for the workload of the makespan paper, section 5.2, is interrupted after a quarter of its length; then a job or
a batch arrives, or an accelerator or a host is lost.  Prints one line per case: the median of 5 re-planning times
(memory to memory), without and with balancing; the number of jobs placed, and the ratio of the result to its lower
bound; and, as machines differ, the time of a reference loop.  Times are not asserted.
"""

import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.core.makespan import Makespan, MakespanParams, plan
from fpga_pool.core.makespan.replan import ReplanParams, replan
from fpga_pool.core.makespan.underway import underway_at

sys.path.insert(0, str(Path(__file__).parent))
from test_makespan import reference_loop_s, workload

EVENTS = {
    "one job arrives": {"arrived": [999]},
    "100 jobs arrive": {"arrived": range(900, 1000)},
    "a slot fails": {"lost": [7]},
    "a host leaves": {"lost": range(5, 10)},
}
RUNS = 5


def measure(form):
    problem = workload(form, 40, 1000, 1)
    found = plan(problem, MakespanParams(effort=20))
    for name, event in EVENTS.items():
        underway, left = underway_at(problem, found, 0.25 * found.makespan_s, **event)
        line = f"{form:8}{name:16}{len(left):4} left"
        for effort in (0, ReplanParams().effort):
            times_s = []
            for _ in range(RUNS):
                began_s = time.perf_counter()
                answer = replan(underway, ReplanParams(effort=effort))
                times_s.append(time.perf_counter() - began_s)
            ratio = answer.plan.makespan_s / answer.plan.lower_bound_s
            line += f" | {answer.method:8}{1e3 * statistics.median(times_s):6.1f} ms, {answer.placed.sum():4} placed, "
            line += f"{ratio:.3f} x bound"
        print(line)


@pytest.mark.parametrize("form", ["compute", "network", "joint"])
def test_replanning(form):
    Makespan().prepare()
    print(f"\ncompiled; reference {1e3 * reference_loop_s():.1f} ms")
    measure(form)


def test_replanning_without_numba():
    code = f"import sys; sys.modules['numba'] = None; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "from test_replanning import measure\nfor form in ('compute', 'network', 'joint'): measure(form)"
    print("\nwithout numba")
    print(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_a_plan_of_a_hundred_tiny_jobs():
    """A hundred jobs of two milliseconds on ten slots of two hosts, as the scheduler plans them."""
    rng = np.random.default_rng(0)
    problem = workload("joint", 2, 100, 0, requesters=4)
    policy = Makespan().sparing(0.02)
    tiny = replace(problem, seconds=0.01 * problem.seconds, input_bytes=np.full(100, 1000))
    times_s = []
    for _ in range(20):
        began_s = time.process_time()
        policy.decide(tiny, None, 0.0, rng)
        times_s.append(time.process_time() - began_s)
    print(f"\n100 x 10: {1e3 * statistics.median(times_s):.2f} ms; reference {1e3 * reference_loop_s():.1f} ms")
