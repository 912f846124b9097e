"""The jobs of a simulation, in columns."""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.types import Floats, Ints, floats, ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """J jobs in order of arrival."""

    #: Names, as in the file.
    jobs: tuple[str, ...]
    #: (J,) index of the function in the pool; -1 = fits into no slot of it.
    function: Ints
    arrival_s: Floats
    #: (J,) time on its own accelerator, alone.
    work_s: Floats
    #: (J,) how long a job waits for a slot to be given to it before it runs on its CPU.
    patience_s: Floats
    #: Who sent each job; () = one project all.
    project: tuple[str, ...] = ()
    #: (J,) what each job really gains, in vCPUs; None = what the catalogue says.
    speedup: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", ints(self.function))
        object.__setattr__(self, "project", self.project or ("",) * len(self.jobs))
        if len(self.project) != len(self.jobs):
            raise ValueError(f"project: expected {len(self.jobs)} names, found {len(self.project)}")
        for name in ("arrival_s", "work_s", "patience_s", "speedup"):
            if getattr(self, name) is None:
                continue
            array = floats(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.shape != (len(self.jobs),):
                raise ValueError(f"{name}: expected shape ({len(self.jobs)},), found {array.shape}")
            if not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(f"{name}: expected finite numbers, 0 or more")
        if (np.diff(self.arrival_s) < 0).any():
            raise ValueError("arrival_s: expected jobs in order of arrival")

    @property
    def last_arrival_s(self) -> float:
        """When the last job arrives; 0 without jobs."""
        return float(self.arrival_s[-1]) if len(self.arrival_s) else 0.0
