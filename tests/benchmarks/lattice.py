"""Shares of the bounds that `lattice_plus` reaches, seed by seed, on synthetic workloads of multi-FPGA tasks.

    python tests/benchmarks/lattice.py [--seeds 3] [--cases few many rtm large] [--exact PYTHON]

Prints one row per problem: seconds of CPU time, which other programs hardly affect; shares of the tight bound and of
the paper's bound in per cent; and the shares of the tight bound that the best policy of the paper and HEFT reach.
`--exact` names a Python with OR-Tools: CP-SAT then has 20 s for each problem of few tasks, and the row shows how far
our result is above its proven optimum.  CP-SAT considers only the number of FPGAs, not links, so its optimum is a
bound.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fpga_pool.core.lattice.paper import Heft
from fpga_pool.core.lattice.plus import BASELINES, LatticePlus
from fpga_pool.sim.lattice.workloads import Wanted, generate

EXACT_S = 20


def few(seed):
    """Ten to thirty workloads, of one task each and of several: where HEFT beats the paper's ranking."""
    for model in ("rtmw", "f11"):
        for workloads in (10, 20, 30):
            for enclosures in (2, 4, 8):
                yield model, Wanted(workloads=workloads, tasks=(1, 1), irregularity=0.6, enclosures=enclosures), 1.0
            yield model, Wanted(workloads=workloads, irregularity=0.6, enclosures=8), 1.0


def many(seed):
    """Thirty and more workloads on 4 to 8 rings."""
    for model in ("rtm", "rtmw", "f11"):
        for workloads in (30, 60, 150):
            for tasks in ((1, 1), (2, 20)):
                for enclosures in (4, 8):
                    wanted = Wanted(workloads=workloads, tasks=tasks, irregularity=0.6, enclosures=enclosures)
                    yield model, wanted, 1.0


def rtm(seed):
    """RTM workloads of several tasks, by irregularity (figure 3)."""
    for irregularity in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        yield "rtm", Wanted(workloads=30, irregularity=irregularity), 1.0


def large(seed):
    """Thousands of tasks."""
    for tasks, enclosures, limit_s in ((1000, 4, 1.0), (1000, 32, 2.0), (10_000, 128, 2.0), (100_000, 128, 5.0)):
        for model in ("rtmw", "f11"):
            wanted = Wanted(workloads=tasks // 10, tasks=(10, 10), irregularity=0.6, enclosures=enclosures)
            yield model, wanted, limit_s


CASES = {"few": few, "many": many, "rtm": rtm, "large": large}


def proven_optimum_s(python, problem, at_most_s):
    """Return the smallest end of all schedules if CP-SAT proves it, else None."""
    data = {
        "enclosures": problem.enclosure_fpgas.tolist(), "fpgas": problem.shape_fpgas.tolist(),
        "seconds": problem.shape_seconds.tolist(), "at_most_s": at_most_s, "limit_s": EXACT_S,
    }  # fmt: skip
    script = Path(__file__).with_name("cp_sat_tasks.py")
    done = subprocess.run([python, script], input=json.dumps(data), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["optimum_s"]


def row(model, wanted, limit_s, seed, exact):
    """Schedule one problem; return the row of the table."""
    problem = generate(model, wanted, np.random.default_rng(seed)).problem
    policy, rng = LatticePlus().searching(None, limit_s, time.process_time), np.random.default_rng(seed)
    begin_s = time.process_time()
    found = policy.decide(problem, None, 0.0, rng)
    took_s = time.process_time() - begin_s
    best_s = min(baseline().decide(problem, None, 0.0, rng).wct_s for baseline in BASELINES)
    heft_s = Heft().decide(problem, None, 0.0, rng).wct_s
    assert found.wct_s <= best_s
    bound_s = found.bound_tight_s
    shares = [bound_s / found.wct_s, found.bound_paper_s / found.wct_s, bound_s / best_s, bound_s / heft_s]
    beyond = ""
    if exact and problem.tasks <= 30 and found.wct_s > bound_s * (1 + 1e-9):
        optimum_s = proven_optimum_s(exact, problem, found.wct_s)
        beyond = "open" if optimum_s is None else f"{100 * (found.wct_s / optimum_s - 1):.3f} %"
    size = f"{model:5}{wanted.workloads:6}{problem.tasks:7}{wanted.enclosures:5}{wanted.irregularity:5.1f}{seed:5}"
    return size + f"{took_s:7.2f} " + "".join(f"{100 * share:9.3f}" for share in shares) + f"  {beyond}", shares


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="problems of each size (default: 3)")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what to do (default: all)")
    parser.add_argument("--exact", metavar="PYTHON", help="a Python with OR-Tools, for proofs")
    given = parser.parse_args(arguments)
    LatticePlus().prepare()
    for case in given.cases:
        print(f"{case}: {CASES[case].__doc__}")
        print("model  work-  tasks rings Irg seed seconds    tight    paper     best     HEFT  above the optimum")
        shares = []
        for seed in range(given.first, given.first + given.seeds):
            for model, wanted, limit_s in CASES[case](seed):
                line, found = row(model, wanted, limit_s, seed, given.exact)
                shares.append(found)
                print(line, flush=True)
        means, least = np.mean(shares, axis=0), np.min(shares, axis=0)
        for name, values in (("mean", means), ("least", least)):
            print(f"{name:41}" + "".join(f"{100 * share:9.3f}" for share in values))


if __name__ == "__main__":
    main(sys.argv[1:])
