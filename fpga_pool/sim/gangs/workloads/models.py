"""The models of workloads, by name, and traces made by them with users' estimates."""

from collections.abc import Callable, Mapping

import numpy as np

from fpga_pool.core.types import Floats
from fpga_pool.sim.gangs.trace import Trace, trace_of
from fpga_pool.sim.gangs.workloads.calibrated import LONGEST_S, feitelson_calibrated, jann_calibrated
from fpga_pool.sim.gangs.workloads.job import Jobs, to_swf
from fpga_pool.sim.gangs.workloads.lublin import lublin
from fpga_pool.sim.gangs.workloads.tsafrir import tsafrir

Model = Callable[[int, int, np.random.Generator], Jobs]

#: Percent of the gangs that ask for the longest time, tried in turn: the model's own, then more if too many are long.
_LONGEST_PERCENT = (None, 40.0, 60.0, 80.0)


def _lublin_two_kinds(count: int, processors: int, rng: np.random.Generator) -> Jobs:
    return lublin(count, processors, rng, two_kinds=True)


#: Models by name.
MODELS: Mapping[str, Model] = {
    "feitelson_calibrated": feitelson_calibrated,
    "jann_calibrated": jann_calibrated,
    "lublin": lublin,
    "lublin_two_kinds": _lublin_two_kinds,
}


def synthetic(model: str, count: int, processors: int, seed: int) -> Trace:
    """Return a trace by a model, no run longer than 18 hours, with the estimates of Tsafrir 2005."""
    jobs = MODELS[model](count, processors, np.random.default_rng(seed))
    run_s = np.minimum(jobs.run_s, LONGEST_S)
    limited = Jobs(submit_s=jobs.submit_s, run_s=run_s, width=jobs.width)
    trace, _ = trace_of(to_swf(limited, _estimates(run_s, seed), model, processors), processors)
    return trace


def _estimates(run_s: Floats, seed: int) -> Floats:
    for longest_percent in _LONGEST_PERCENT[:-1]:
        try:
            return tsafrir(run_s, LONGEST_S, np.random.default_rng((seed, 1)), longest_percent=longest_percent)
        except ValueError:
            continue
    return tsafrir(run_s, LONGEST_S, np.random.default_rng((seed, 1)), longest_percent=_LONGEST_PERCENT[-1])
