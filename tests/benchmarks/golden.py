"""Digests of the decisions of every policy on seeded problems, written before and after a change, and compared.

    python tests/benchmarks/golden.py write before.json         # in the one checkout
    python tests/benchmarks/golden.py write after.json          # in the other
    python tests/benchmarks/golden.py compare before.json after.json

Only commands of `fpga-pool-sim` and their files are used, so that versions can be compared even if code has moved.
`compare` exits with 1 if a decision that both versions made differs, and reports whether its objective got better or
worse.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from fpga_pool.cli.sim.main import main as sim
from fpga_pool.conf.policies import policy_names

SEEDS = 20
EFFORT = 20
CATALOGUE = Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml"
#: The objective of each command, and whether larger values are better.
OBJECTIVES = {
    "plan": ("makespan_s", False),
    "online": ("mean_benefit_vcpus", True),
    "gangs": ("mean_response_s", False),
    "tasks": ("wct_s", False),
}
#: References for small problems, not policies: their results depend on the version of a solver.
REFERENCES = {"exact"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write")
    write.add_argument("file", type=Path)
    write.add_argument("--seeds", type=int, default=SEEDS)
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compared(json.loads(arguments.before.read_text()), json.loads(arguments.after.read_text()))
    with tempfile.TemporaryDirectory() as directory:
        arguments.file.write_text(json.dumps(results(Path(directory), arguments.seeds), indent=1))
    return 0


def results(directory, seeds):
    """Return a digest and an objective by family, case, policy and seed."""
    found = {}
    for seed in range(seeds):
        for command, case, policy, words, outputs in cases(directory, seed):
            printed = run(command, [*words, "--policy", policy, "--seed", str(seed)])
            objective, _ = OBJECTIVES[command]
            found[f"{command}/{case}/{policy}/{seed}"] = {"digest": digest(outputs), "objective": printed[objective]}
        print(f"seed {seed}: {len(found)} results", file=sys.stderr)
    return found


def cases(directory, seed):
    """Yield the runs of one seed: command, name of the case, policy, arguments, files written."""
    yield from batch_cases(directory, seed)
    yield from online_cases(directory, seed)
    yield from gang_cases(directory, seed)
    yield from task_cases(directory, seed)


def batch_cases(directory, seed):
    for case in ("compute", "network", "joint", "loads"):
        problem, plan = directory / f"{case}.npz", directory / "plan.npz"
        np.savez(problem, **batch(case, np.random.default_rng([seed, len(case)])))
        for policy in policies("batch"):
            yield "plan", case, policy, [str(problem), "--out", str(plan), "--effort", str(EFFORT)], [plan]


def online_cases(directory, seed):
    jobs, runs, stretches = directory / "jobs.csv", directory / "runs.csv", directory / "stretches.csv"
    jobs.write_text(online_jobs(np.random.default_rng([seed, 7])))
    for case, tenants in (("plain", []), ("tenants", ["--tenant-share", "0.5"])):
        words = [str(jobs), "--catalogue", str(CATALOGUE), "--hosts", "2", "--out", str(runs)]
        words += ["--intervals", str(stretches), *tenants, "--effort", str(EFFORT)]
        for policy in policies("online"):
            yield "online", case, policy, words, [runs, stretches]


def gang_cases(directory, seed):
    trace, rows, spans = directory / "trace.swf", directory / "gangs.csv", directory / "spans.csv"
    run("workload", ["lublin", "--jobs", "400", "--processors", "32", "--out", str(trace), "--seed", str(seed)])
    words = [str(trace), "--processors", "32", "--out", str(rows), "--intervals", str(spans)]
    for case, load in (("moderate", "0.7"), ("heavy", "0.95")):
        for policy in policies("gang"):
            yield "gangs", case, policy, [*words, "--load", load], [rows, spans]
    parameters = ["--parameter", "last_runs=2", "--parameter", "trial_s=30"]
    yield "gangs", "trials", "measy_plus", [*words, "--load", "0.9", *parameters], [rows, spans]


def task_cases(directory, seed):
    problem, schedule = directory / "tasks.json", directory / "schedule.json"
    for model in ("rtm", "f11"):
        words = [model, "--workloads", "8", "--interval", "30", "--out", str(problem), "--seed", str(seed)]
        run("task-workload", words)
        for case, online in (("offline", []), ("arriving", ["--online", "--patience", "120"])):
            words = [str(problem), "--out", str(schedule), *online, "--effort", str(EFFORT)]
            for policy in policies("task"):
                yield "tasks", f"{model}-{case}", policy, words, [schedule]


def policies(family):
    return [name for name in policy_names(family) if name not in REFERENCES]


def batch(case, rng):
    """Return the arrays of a batch problem with this bottleneck."""
    jobs, accelerators, requesters, responders = 60, 12, 4, 3
    input_bytes = rng.integers(1_000_000, 50_000_000, jobs)
    bytes_per_s = rng.uniform(10e6, 200e6, (1, accelerators)) * rng.uniform(0.7, 1.4, (jobs, accelerators))
    problem = {
        "format_version": np.int64(1),
        "seconds": input_bytes[:, None] / bytes_per_s,
        "input_bytes": input_bytes,
        "requester": rng.integers(0, requesters, jobs),
        "egress_bps": rng.uniform(2e8, 1e9, requesters),
        "responder": np.arange(accelerators) % responders,
        "ingress_bps": rng.uniform(2e8, 1e9, responders),
    }
    if case == "compute":
        problem["input_bytes"] = np.zeros(jobs, np.int64)
    elif case == "network":
        problem["seconds"] = np.zeros((jobs, accelerators))
    elif case == "loads":
        problem |= {
            "function": rng.integers(0, 3, jobs),
            "loaded": rng.integers(-1, 3, accelerators),
            "load_s": rng.uniform(0.05, 0.5, accelerators),
            "ready_s": rng.uniform(0, 2, accelerators),
            "release_s": rng.uniform(0, 1, jobs),
        }
    return problem


def online_jobs(rng):
    """Return the lines of a trace of arriving jobs."""
    functions = ["aes", "sha256", "stereo", "gmm", "optical_flow", "mvm"]
    arrival_s = np.cumsum(rng.exponential(0.3, 200))
    work_s = rng.uniform(0.5, 6, 200)
    rows = ["# format_version=1", "job,arrival_s,project,function,ideal_fpga_s,patience_s"]
    for job in range(200):
        function, project = functions[rng.integers(0, len(functions))], rng.integers(0, 3)
        patience_s = work_s[job] * rng.uniform(0.5, 4)
        rows.append(f"j{job},{arrival_s[job]:.6f},p{project},{function},{work_s[job]:.6f},{patience_s:.6f}")
    return "\n".join(rows) + "\n"


def run(command, words):
    """Return the JSON output of a command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = sim([command, *words, "--json"])
    if code:
        raise SystemExit(f"fpga-pool-sim {command} {' '.join(words)}: exit code {code}")
    return json.loads(printed.getvalue())


def digest(paths):
    """Return a digest of the contents of files; for arrays, independent of their compression."""
    sha256 = hashlib.sha256()
    for path in paths:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                for name in sorted(arrays.files):
                    sha256.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        else:
            sha256.update(path.read_bytes())
    return sha256.hexdigest()


def compared(before, after):
    """Print each difference; return the exit code."""
    differences = [key for key in before.keys() & after.keys() if before[key]["digest"] != after[key]["digest"]]
    for key in sorted(differences):
        old, new = before[key]["objective"], after[key]["objective"]
        more_is_better = OBJECTIVES[key.split("/")[0]][1]
        word = "the same" if old == new else "better" if (new > old) == more_is_better else "worse"
        print(f"{key}: {old:.6g} -> {new:.6g} ({word})")
    missing = before.keys() - after.keys()
    print(f"{len(before.keys() & after.keys())} compared, {len(differences)} differ, {len(missing)} no longer made")
    return 1 if differences or missing else 0


if __name__ == "__main__":
    sys.exit(main())
