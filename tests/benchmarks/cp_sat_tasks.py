"""CP-SAT of OR-Tools for rigid tasks that need several FPGAs of one enclosure, in a separate process.

Reads a JSON object from standard input: `enclosures` (FPGAs), `fpgas`, `seconds`, `at_most_s` (of a known schedule) and
`limit_s`.  Prints one: `optimum_s`, proven, or null.  Times are rounded down to integer units, and links are ignored,
so no schedule is shorter than the printed optimum.
"""

import json
import sys

from ortools.sat.python import cp_model

#: Length of the known schedule in integer units of time.
UNITS = 200_000


def main(data):
    per_second = UNITS / data["at_most_s"]
    model = cp_model.CpModel()
    horizon = UNITS + 1
    makespan = model.new_int_var(0, horizon, "")
    on = [[] for _ in data["enclosures"]]
    for fpgas, seconds in zip(data["fpgas"], data["seconds"], strict=True):
        begin, end, there = model.new_int_var(0, horizon, ""), model.new_int_var(0, horizon, ""), []
        for intervals, size in zip(on, data["enclosures"], strict=True):
            if fpgas <= size:
                chosen = model.new_bool_var("")
                there.append(chosen)
                units = int(seconds * per_second)
                intervals.append((model.new_optional_interval_var(begin, units, end, chosen, ""), fpgas))
        model.add_exactly_one(there)
        model.add(end <= makespan)
    for intervals, size in zip(on, data["enclosures"], strict=True):
        model.add_cumulative([interval for interval, _ in intervals], [fpgas for _, fpgas in intervals], size)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = data["limit_s"]
    status = solver.solve(model)
    optimum_s = solver.objective_value / per_second if status == cp_model.OPTIMAL else None
    print(json.dumps({"optimum_s": optimum_s}))


if __name__ == "__main__":
    main(json.load(sys.stdin))
