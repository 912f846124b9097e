"""`makespan` compared with its targets, for each case of the workload of the makespan paper, section 5.2.

    pytest tests/benchmarks/test_makespan.py -s
    JOINT_SEEDS=101,202 pytest tests/benchmarks/test_makespan.py -s -k few_responders

Prints one line per case: ratio to the plan's own bound (mean and maximum over the seeds), planning time (median over
the seeds, memory to memory, without compilation) and, as machines differ, the time of a reference loop.  Times and
limits are CPU times, which other load on the machine hardly affects.  Times are not asserted.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan import Makespan, MakespanParams, plan
from fpga_pool.core.types import BatchProblem

SEEDS = range(5)
CLOCK = time.process_time

#: Form, responders (of 5 accelerators), jobs, time limit in seconds (0 = limited by effort, until no gain is possible).
CASES = [
    *[("compute", responders, 1000, 0.0) for responders in (40, 60, 80, 100)],
    *[("compute", responders, 1000, limit) for limit in (0.1, 1.0) for responders in (10, 15, 20, 25)],
    ("compute", 300, 10_000, 0.0),
    *[("network", responders, 1000, 0.0) for responders in (5, 8, 10, 12, 15, 20, 30, 60, 100)],
    *[("joint", responders, 1000, 0.0) for responders in (20, 30, 60, 100)],
    *[("joint", responders, 1000, 1.0) for responders in (5, 8, 9, 10, 11, 12, 15)],
]

#: Both phases on few responders in other sizes, with separate seeds: jobs, requesters, responders.
SHAPES = [(500, 200, 10), (2000, 200, 10), (1000, 60, 10), (1000, 350, 10), (1000, 200, 13)]
SHAPE_SEEDS, SHAPE_LIMIT_S = range(100, 103), 1.0

#: Both phases for each of several small numbers of responders: the seeds, and the time limit in seconds.
JOINT_SEEDS = [int(seed) for seed in os.environ.get("JOINT_SEEDS", "100,101,102,103,104,105").split(",")]
FEW, FEW_LIMIT_S = range(5, 16), 1.0
#: Many jobs on few responders, to check whether the time limit is met.
MANY_JOBS, MANY_RESPONDERS = 10_000, (5, 8, 10)

#: Comparison with CP-SAT: responders, and the time limits of both in seconds.
RIVAL_RESPONDERS, OUR_SECONDS, ITS_SECONDS = (10, 15, 20, 25), 1.0, 40.0


def workload(form, responders, jobs, seed, requesters=200):
    """Exponential sizes (mean 200 Mb), 0.001 s/Mb, 1 and 5 Gbps, all deviations +-20 %."""
    rng = np.random.default_rng(seed)
    accelerators = 5 * responders
    megabits = rng.exponential(200, jobs)
    seconds = rng.uniform(0.8, 1.2, (jobs, accelerators))
    seconds *= 0.001 * megabits[:, None]
    if form == "network":
        seconds[:] = 0.0
    seconds.setflags(write=False)  # shared instead of copied
    unlimited = form == "compute"
    return BatchProblem(
        seconds=seconds,
        input_bytes=(megabits * 1e6 / 8).astype(np.int64),
        requester=rng.integers(0, requesters, jobs),
        egress_bps=np.full(requesters, np.inf) if unlimited else 1e9 * rng.uniform(0.8, 1.2, requesters),
        responder=np.repeat(np.arange(responders), 5),
        ingress_bps=np.full(responders, np.inf) if unlimited else 5e9 * rng.uniform(0.8, 1.2, responders),
    )


def reference_loop_s():
    """Return the time in seconds of a fixed numpy computation: 20 passes over 1000 x 200 numbers."""
    numbers = np.linspace(0, 1, 200_000).reshape(1000, 200)
    began_s = CLOCK()
    for _ in range(20):
        numbers.argmin(axis=1)
    return CLOCK() - began_s


@pytest.fixture(scope="module", autouse=True)
def compiled():
    began_s = time.perf_counter()
    Makespan().prepare()
    print(f"\ncompiled or loaded in {time.perf_counter() - began_s:.2f} s")


def planned(seeds, params, *shape, **more):
    """Plan a batch of each seed, one in memory at a time; return times in seconds, and ratios to the bounds."""
    times_s, ratios = [], []
    for seed in seeds:
        problem = workload(*shape, seed=seed, **more)
        began_s = CLOCK()
        found = plan(problem, params, np.random.default_rng(seed), CLOCK)
        times_s.append(CLOCK() - began_s)
        ratios.append(found.makespan_s / found.lower_bound_s)
        del problem
    return times_s, ratios


@pytest.mark.parametrize(("form", "responders", "jobs", "limit_s"), CASES)
def test_near_the_bound(form, responders, jobs, limit_s):
    times_s, ratios = planned(SEEDS, MakespanParams(time_limit_s=limit_s), form, responders, jobs)
    print(
        f"\n{form:8}{jobs:7} x {5 * responders:4}  {statistics.mean(ratios):.5f} (worst {max(ratios):.5f})"
        f"  {1e3 * statistics.median(times_s):8.1f} ms  reference {1e3 * reference_loop_s():.1f} ms"
    )


@pytest.mark.parametrize(("jobs", "requesters", "responders"), SHAPES)
def test_other_shapes_of_joint_batches(jobs, requesters, responders):
    params = MakespanParams(time_limit_s=SHAPE_LIMIT_S)
    _, ratios = planned(SHAPE_SEEDS, params, "joint", responders, jobs, requesters=requesters)
    print(
        f"\njoint   {jobs:7} x {5 * responders:4}  {statistics.mean(ratios):.5f} (worst {max(ratios):.5f})"
        f"  {requesters} requesters"
    )


@pytest.mark.parametrize("responders", FEW)
def test_joint_batches_on_few_responders(responders):
    times_s, ratios = planned(JOINT_SEEDS, MakespanParams(time_limit_s=FEW_LIMIT_S), "joint", responders, 1000)
    print(
        f"\n{responders:4} responders  {statistics.mean(ratios):.4f} (worst {max(ratios):.4f})"
        f"  longest {max(times_s):.2f} s  {' '.join(f'{ratio:.3f}' for ratio in ratios)}"
    )


@pytest.mark.parametrize("responders", MANY_RESPONDERS)
def test_joint_batches_of_many_jobs(responders):
    params = MakespanParams(time_limit_s=FEW_LIMIT_S)
    [took_s], [ratio] = planned([1], params, "joint", responders, MANY_JOBS)
    print(f"\njoint   {MANY_JOBS:7} x {5 * responders:4}  {ratio:.5f}  {took_s:.2f} s of {FEW_LIMIT_S:.0f}")


def test_a_hundred_thousand_jobs():
    """Run in a separate process, to measure its memory."""
    here = str(Path(__file__).parent)
    script = f"import sys; sys.path.insert(0, {here!r}); import test_makespan; test_makespan.hundred_thousand_jobs()"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def hundred_thousand_jobs():
    """Print ratio, time and memory of 100,000 jobs."""
    Makespan().prepare()
    times_s, ratios = planned(SEEDS, MakespanParams(time_limit_s=3.0), "compute", 300, 100_000)
    most_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"\ncompute 100,000 x 1500: {statistics.mean(ratios):.5f} (worst {max(ratios):.5f}),"
        f" median {statistics.median(times_s):.2f} s (worst {max(times_s):.2f}), {most_gb:.2f} GB at most with the"
        f" input  reference {1e3 * reference_loop_s():.1f} ms",
        flush=True,
    )


@pytest.mark.parametrize("responders", RIVAL_RESPONDERS)
@pytest.mark.skipif(find_spec("ortools") is None, reason="ortools is not installed")
def test_cp_sat_with_forty_times_the_seconds_is_not_better(tmp_path, responders):
    problem = workload("compute", responders, 1000, 1)
    params = MakespanParams(time_limit_s=OUR_SECONDS)
    ours = plan(problem, params, np.random.default_rng(1), time.perf_counter)
    np.savez(tmp_path / "problem.npz", seconds=problem.seconds)
    run = subprocess.run(
        [sys.executable, Path(__file__).parent / "cp_sat.py", tmp_path / "problem.npz", str(ITS_SECONDS)],
        capture_output=True, text=True, check=True, timeout=10 * ITS_SECONDS,
    )  # fmt: skip
    theirs = json.loads(run.stdout)
    bound_s = ours.lower_bound_s
    print(
        f"\n1000 x {5 * responders}: ours {ours.makespan_s / bound_s:.5f} in {OUR_SECONDS:.0f} s,"
        f" CP-SAT {theirs['makespan_s'] / bound_s:.5f} in {ITS_SECONDS:.0f} s on {os.cpu_count()} cores"
    )
    assert ours.makespan_s <= theirs["makespan_s"]


@pytest.mark.parametrize("form", ["compute", "network", "joint"])
@pytest.mark.parametrize("responders", [10, 30, 60])
def test_no_policy_is_better(form, responders):
    problem = workload(form, responders, 1000, 11)
    lengths = {}
    for name in sorted(set(policy_names("batch")) - {"exact"}):
        lengths[name] = load_policy("batch", name).decide(problem, None, 0.0, np.random.default_rng(0)).makespan_s
    print(f"\n{form} {responders}: " + ", ".join(f"{name} {lengths[name]:.4f} s" for name in sorted(lengths)))
    assert lengths["makespan"] <= min(lengths.values()) * (1 + MakespanParams().gap)
