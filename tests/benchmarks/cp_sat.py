"""CP-SAT of OR-Tools for jobs on unrelated machines, in a separate process: `cp_sat.py problem.npz seconds`.

Each job may use only its fastest accelerators, few enough for the solver; with all of them it finds worse solutions.
Prints one JSON object with the makespan in seconds.
"""

import json
import os
import sys

import numpy as np
from ortools.sat.python import cp_model

#: Number of accelerators to choose from, per job, and integer units of time per second.
CANDIDATES, UNITS = 6, 10_000


def main(path, limit_s):
    with np.load(path) as arrays:
        seconds = arrays["seconds"]
    jobs, accelerators = seconds.shape
    duration = np.ceil(seconds * UNITS).astype(int)
    model = cp_model.CpModel()
    chosen = {
        (job, slot): model.new_bool_var("")
        for job in range(jobs)
        for slot in np.argsort(seconds[job])[:CANDIDATES].tolist()
    }
    work = [[] for _ in range(accelerators)]
    choices = [[] for _ in range(jobs)]
    for (job, slot), variable in chosen.items():
        choices[job].append(variable)
        work[slot].append(int(duration[job, slot]) * variable)
    makespan = model.new_int_var(0, int(duration.max(axis=1).sum()), "")
    for variables in choices:
        model.add_exactly_one(variables)
    for terms in work:
        model.add(sum(terms) <= makespan)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = os.cpu_count() or 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise SystemExit(f"no plan in {limit_s} s: {solver.status_name(status)}")
    load_s = np.zeros(accelerators)
    for (job, slot), variable in chosen.items():
        if solver.value(variable):
            load_s[slot] += seconds[job, slot]
    print(json.dumps({"makespan_s": float(load_s.max())}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
