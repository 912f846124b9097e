"""Jobs, the output of a model of a workload."""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.gangs.swf import FIELDS, Swf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Jobs:
    """Jobs in order of submission."""

    submit_s: Floats
    run_s: Floats
    width: Ints


def to_swf(jobs: Jobs, estimate_s: Floats, note: str, processors: int) -> Swf:
    """Return the jobs as lines, numbered from 1; `note` says where they come from."""
    table = np.full((len(jobs.width), len(FIELDS)), -1.0)
    columns = {
        "job": np.arange(1, len(jobs.width) + 1), "submit_s": jobs.submit_s, "run_s": jobs.run_s,
        "processors": jobs.width, "requested_processors": jobs.width, "requested_s": estimate_s, "status": 1.0,
    }  # fmt: skip
    for name, values in columns.items():
        table[:, FIELDS.index(name)] = values
    header = (
        ("Version", "2.2"), ("MaxJobs", str(len(table))), ("MaxRecords", str(len(table))),
        ("MaxNodes", str(processors)), ("MaxProcs", str(processors)), ("Note", note),
    )  # fmt: skip
    return Swf(table, header)
