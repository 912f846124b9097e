"""Input and output of a simulation of online jobs: jobs, pools, faults, a record in columns for a million jobs."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import Floats, Ints, floats, ints
from fpga_pool.model.catalogue import Board, Catalogue


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


def uniform_pool(catalogue: Catalogue, board: Board, hosts: int, cards: int) -> OnlinePool:
    """Return the pool of `hosts` hosts with `cards` cards of one board each; cards are numbered across hosts."""
    functions = list(catalogue.functions.values())
    scarcity = catalogue.scarcity()
    kinds = sorted(dict.fromkeys(board.slots), key=lambda kind: scarcity[board.name, kind])
    count = hosts * cards
    return OnlinePool(
        functions=tuple(catalogue.functions),
        speedup=np.array([function.speedup for function in functions]),
        preemptible=np.array([function.preemptible for function in functions]),
        progress_kept=np.array([function.progress_kept for function in functions]),
        fits=np.array([[catalogue.fits(function.name, board.name, kind) for function in functions] for kind in kinds]),
        io_bps=np.array([[function.io_bps_on(board.name) for function in functions]] * len(kinds)),
        load_s=np.array([board.load_s(kind) for kind in kinds]),
        dma_bps=np.full(count, board.dma_bps),
        slot_card=np.repeat(np.arange(count), len(board.slots)),
        slot_kind=np.tile([kinds.index(kind) for kind in board.slots], count),
    )


#: Where a job ran.
CPU, FPGA, BOTH, FAILED, CANCELLED = range(5)
PLACES = ("cpu", "fpga", "fpga+cpu", "failed", "cancelled")


class Record:
    """One row per job, and one per stretch of constant rate on a slot."""

    def __init__(self, jobs: int, keep_stretches: bool) -> None:
        self.begin_s: Floats = np.zeros(jobs)
        self.end_s: Floats = np.zeros(jobs)
        self.where: Ints = np.zeros(jobs, np.int64)
        self.reconfigurations = 0
        self._keep = keep_stretches
        #: Per stretch: job (-1 - function for a load), slot, begin, end, rate.
        self.job, self.slot = array("q"), array("q")
        self.from_s, self.to_s, self.rate = array("d"), array("d"), array("d")

    def stretch(self, job: int, slot: int, from_s: float, to_s: float, rate: float) -> None:
        """Note a stretch on a slot."""
        if self._keep and to_s > from_s:
            self.job.append(job)
            self.slot.append(slot)
            self.from_s.append(from_s)
            self.to_s.append(to_s)
            self.rate.append(rate)

    def load(self, slot: int, function: int, from_s: float, to_s: float) -> None:
        """Note a reconfiguration."""
        self.reconfigurations += 1
        self.stretch(-1 - function, slot, from_s, to_s, 0.0)

    def lose(self, job: int, slot: int, begin_s: float) -> None:
        """Set the rate of the job's stretches on this slot to 0: what it did there is lost."""
        for i in range(len(self.job) - 1, -1, -1):
            if self.to_s[i] <= begin_s and self.slot[i] == slot:
                break
            if self.job[i] == job:
                self.rate[i] = 0.0


# ---- Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Some slots do not answer from a moment to another one: what they load or compute is lost, and what they hold."""

    begin_s: float
    end_s: float
    slots: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoss:
    """The slots of a host are away from a moment to another one; it comes back with a journal, but empty slots."""

    begin_s: float
    end_s: float
    slots: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What computes on a slot fails, if something does; the job is tried again."""

    at_s: float
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A slot gets no work from a moment to another one; what computes there goes on."""

    begin_s: float
    end_s: float
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """A job is cancelled, if it has not ended."""

    at_s: float
    job: int


Fault = Outage | HostLoss | Failure | Drain | Cancel


@dataclass(frozen=True, slots=True)
class End:
    """An outage or a drain is over."""

    of: Outage | HostLoss | Drain


def timeline(faults: Sequence[Fault]) -> list[tuple[float, Fault | End]]:
    """Return what happens when, in order of time."""
    events: list[tuple[float, Fault | End]] = []
    for fault in faults:
        if isinstance(fault, Failure | Cancel):
            events.append((fault.at_s, fault))
        else:
            events += [(fault.begin_s, fault), (fault.end_s, End(fault))]
    return sorted(events, key=lambda event: event[0])
