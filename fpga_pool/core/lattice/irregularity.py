"""How irregular workloads are (lattice paper, section V)."""

import numpy as np

from fpga_pool.core.types import Floats, Ints


def irregularity(seconds: Floats, workload: Ints) -> Floats:
    """Return (W,) Irg of each workload: the squared relative deviation of its tasks from their mean, weighted by time.

    A workload without any time has irregularity 0.

    Parameters
    ----------
    seconds:
        (T,) the time of each task.
    workload:
        (T,) the workload that it belongs to, 0 to W - 1.


    """
    count = np.bincount(workload)
    total = np.bincount(workload, weights=seconds).astype(np.float64)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    share = np.divide(seconds, total[workload], out=np.zeros_like(seconds), where=total[workload] > 0)
    deviation = np.divide(seconds, mean[workload], out=np.ones_like(seconds), where=mean[workload] > 0) - 1.0
    found: Floats = np.bincount(workload, weights=share * deviation**2).astype(np.float64)
    return found


def variation_of(irregularity_wanted: float) -> float:
    """Return the squared coefficient of variation of gamma-distributed times whose expected Irg is the given one.

    With mean 1 and squared variation c, Irg is the expectation of t (t - 1)^2, which is c + 2 c^2 for gamma.

    Raises
    ------
    ValueError
        Unless it is 0 or more and finite.

    """
    if not 0 <= irregularity_wanted < np.inf:
        raise ValueError(f"irregularity: expected 0 or more, got {irregularity_wanted!r}")
    return float((np.sqrt(1.0 + 8.0 * irregularity_wanted) - 1.0) / 4.0)
