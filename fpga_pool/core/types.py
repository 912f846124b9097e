"""Values that planners read and return: immutable, with units in their names.

Index conventions: J jobs, A accelerators (slots that can hold a function), R requesters,
H responders, S slots, F functions.  Arrays are made read-only at construction, so a view can be shared between
threads and a policy cannot change what another one reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def floats(values: ArrayLike) -> Floats:
    """Return `values` as a read-only float64 array.

    An array that already is one, and not a view of another, is shared instead of copied: setting `write=False` on a
    large array before passing it avoids a copy.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.base is None:
        flags = values.flags
        if flags.c_contiguous and not flags.writeable:
            return values
    array = np.array(values, dtype=np.float64, order="C")
    array.setflags(write=False)
    return array


def ints(values: ArrayLike) -> Ints:
    """Return `values` as a read-only int64 array; raise ValueError for non-integers instead of truncating them."""
    array = np.array(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"expected integers, got {array.dtype}")
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


def freeze_arrays(values: object, *, real: Iterable[str] = (), whole: Iterable[str] = ()) -> None:
    """Replace fields of a frozen dataclass by read-only arrays, converted by `floats` and `ints`."""
    for convert, names in ((floats, real), (ints, whole)):
        for name in names:
            try:
                object.__setattr__(values, name, convert(getattr(values, name)))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def fill_empty(values: object, **defaults: Floats | Ints) -> None:
    """Replace the empty arrays of a frozen dataclass by their defaults."""
    for name, default in defaults.items():
        if len(getattr(values, name)) == 0:
            object.__setattr__(values, name, default)


def require_shapes(values: object, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for the first of the named arrays that does not have the expected shape."""
    for name, shape in expected.items():
        found = getattr(values, name).shape
        _require(found == shape, f"{name}: expected shape {shape}, found {found}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _refuse(mask: ArrayLike, message: str) -> None:
    """Raise ValueError if `mask` is true anywhere, naming the first such index: ``seconds[3, 1]: negative``."""
    wrong = np.asarray(mask)
    if wrong.any():
        name, what = message.split(":", 1)
        raise ValueError(f"{name}[{', '.join(str(i) for i in np.argwhere(wrong)[0])}]:{what}")


_LIMITS = ("egress_bps", "ingress_bps", "requester_ingress_bps", "responder_egress_bps")
_SIZES = ("input_bytes", "output_bytes")
_REAL = (*_LIMITS, "seconds", "ready_s", "release_s", "load_s")
#: Arrays whose first axis is J, the jobs.
_OF_JOBS = ("seconds", *_SIZES, "requester", "release_s", "group", "function")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchProblem:
    """One batch to plan: makespan paper, section 3, with every optional array of the problem format (doc/formats)."""

    #: (J, A) compute time of a job on an accelerator; inf = cannot run there, 0 = negligible.
    seconds: Floats
    #: (J,) bytes that must reach the responder before the job computes.
    input_bytes: Ints
    #: (J,) index of the requester that sends the input.
    requester: Ints
    #: (R,) NIC limit of each requester, bits per second; inf = no limit.
    egress_bps: Floats
    #: (A,) index of the responder that carries the accelerator.
    responder: Ints
    #: (H,) NIC limit of each responder, bits per second; inf = no limit.
    ingress_bps: Floats
    #: (A,) time at which each accelerator becomes free.
    ready_s: Floats = field(default_factory=lambda: floats([]))
    #: (J,) time from which the job's input may be transferred.
    release_s: Floats = field(default_factory=lambda: floats([]))
    #: (J,) fairness group; lower groups first (section 3.5).
    group: Ints = field(default_factory=lambda: ints([]))
    #: (R,) responder on the same host as the requester, to which no transfer is needed; -1 = none.
    local_host: Ints = field(default_factory=lambda: ints([]))
    #: (J,) function of each job.
    function: Ints = field(default_factory=lambda: ints([]))
    #: (A,) function that the accelerator holds at time 0, -1 = none.
    loaded: Ints = field(default_factory=lambda: ints([]))
    #: (A,) time to load another function.
    load_s: Floats = field(default_factory=lambda: floats([]))
    #: (A,) configuration port of each accelerator; accelerators that share a port load in turn.  By default none do.
    port: Ints = field(default_factory=lambda: ints([]))
    #: (J,) bytes of each result, which are transferred to the requester after the job has ended.
    output_bytes: Ints = field(default_factory=lambda: ints([]))
    #: (R,), (H,) NIC limits in the other direction, for results; by default equal to those for inputs (full duplex).
    requester_ingress_bps: Floats = field(default_factory=lambda: floats([]))
    responder_egress_bps: Floats = field(default_factory=lambda: floats([]))
    #: Seconds before time 0 from which free accelerators may load; lower bounds take it into account.
    head_start_s: float = 0.0
    #: Generation of the PoolView from which the problem was built; a plan is committed only against the same one.
    generation: int = 0

    def __post_init__(self) -> None:
        freeze_arrays(
            self,
            real=_REAL,
            whole=(*_SIZES, "requester", "responder", "group", "local_host", "function", "loaded", "port"),
        )
        _require(self.seconds.ndim == 2, f"seconds: expected a (J, A) array, got {self.seconds.ndim} dimensions")
        self._fill_optional()
        self._check_shapes()
        self._check_values()

    @property
    def jobs(self) -> int:
        """J, the number of jobs."""
        return int(self.seconds.shape[0])

    @property
    def accelerators(self) -> int:
        """A, the number of accelerators."""
        return int(self.seconds.shape[1])

    @property
    def free_s(self) -> Floats:
        """(A,) earliest time at which each accelerator may load; negative if it is free and has a head start."""
        free_s: Floats = np.where(self.ready_s > 0.0, self.ready_s, 0.0 - self.head_start_s)  # never -0.0
        return free_s

    @property
    def shares_ports(self) -> bool:
        """Whether some accelerators share a configuration port, so that their loads wait for each other."""
        return bool(self.load_s.any()) and len(np.unique(self.port)) < self.accelerators

    def only(self, jobs: Ints, **instead: Floats) -> "BatchProblem":
        """Return the problem of the jobs with these (N,) indices, in this order; `instead` replaces some arrays."""
        return replace(self, **{name: getattr(self, name)[jobs] for name in _OF_JOBS} | instead)

    def _fill_optional(self) -> None:
        jobs, accelerators, requesters = self.jobs, self.accelerators, len(self.egress_bps)
        switching = [len(self.function) > 0, len(self.loaded) > 0, len(self.load_s) > 0]
        _require(
            all(switching) or not any(switching) or jobs == 0 or accelerators == 0,
            "function, loaded and load_s: expected all three or none",
        )
        fill_empty(
            self,
            ready_s=floats(np.zeros(accelerators)),
            release_s=floats(np.zeros(jobs)),
            group=ints(np.zeros(jobs, np.int64)),
            local_host=ints(np.full(requesters, -1)),
            function=ints(np.zeros(jobs, np.int64)),
            loaded=ints(np.zeros(accelerators, np.int64)),
            load_s=floats(np.zeros(accelerators)),
            port=ints(np.arange(accelerators)),
            output_bytes=ints(np.zeros(jobs, np.int64)),
            requester_ingress_bps=self.egress_bps,
            responder_egress_bps=self.ingress_bps,
        )

    def _check_shapes(self) -> None:
        jobs, accelerators = self.jobs, self.accelerators
        expected = {
            "input_bytes": (jobs,), "requester": (jobs,), "release_s": (jobs,), "group": (jobs,), "function": (jobs,),
            "responder": (accelerators,), "ready_s": (accelerators,), "loaded": (accelerators,),
            "load_s": (accelerators,), "port": (accelerators,), "local_host": (len(self.egress_bps),),
            "egress_bps": (len(self.egress_bps),), "ingress_bps": (len(self.ingress_bps),), "output_bytes": (jobs,),
            "requester_ingress_bps": self.egress_bps.shape, "responder_egress_bps": self.ingress_bps.shape,
        }  # fmt: skip
        require_shapes(self, expected)

    def _check_values(self) -> None:
        _require(self.head_start_s >= 0, f"head_start_s: must not be negative, got {self.head_start_s}")
        for name in _REAL:
            array = getattr(self, name)
            _refuse(np.isnan(array), f"{name}: NaN")
            _refuse(array < 0, f"{name}: negative")
        for name in ("ready_s", "release_s", "load_s"):
            _refuse(np.isinf(getattr(self, name)), f"{name}: must be finite")
        for name in _LIMITS:
            _refuse(getattr(self, name) == 0, f"{name}: no bandwidth at all; nothing could ever be transferred")
        for name in _SIZES:
            _refuse(getattr(self, name) < 0, f"{name}: negative")
        self._check_range("requester", len(self.egress_bps), lowest=0)
        self._check_range("responder", len(self.ingress_bps), lowest=0)
        self._check_range("local_host", len(self.ingress_bps), lowest=-1)
        _refuse(~np.isfinite(self.seconds).any(axis=1), "seconds: this job cannot run on any accelerator")

    def _check_range(self, name: str, size: int, *, lowest: int) -> None:
        array = getattr(self, name)
        _refuse((array < lowest) | (array >= size), f"{name}: index out of range, expected {lowest}..{size - 1}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchPlan:
    """Accelerator, start time and transfers of each job: the plan format (doc/formats)."""

    #: (J,) accelerator that runs each job.
    accelerator: Ints
    #: (J,) start time of each computation.
    start_s: Floats
    #: (S,) job of each segment, a part of a transfer at a constant rate; sorted by job, then by begin.
    segment_job: Ints
    #: (S,) begin of each segment.
    segment_begin_s: Floats
    #: (S,) end of each segment.
    segment_end_s: Floats
    #: (S,) rate of each segment.
    segment_bps: Floats
    #: Predicted completion time of the last job.
    makespan_s: float
    #: Proven lower bound: no plan for the same problem is shorter.
    lower_bound_s: float
    #: (A,) prices y >= 0, sum 1, that prove the compute bound; empty if another bound is larger.
    bound_prices: Floats = field(default_factory=lambda: floats([]))
    #: As `segment_...`, for the transfers of results to requesters.
    result_job: Ints = field(default_factory=lambda: ints([]))
    result_begin_s: Floats = field(default_factory=lambda: floats([]))
    result_end_s: Floats = field(default_factory=lambda: floats([]))
    result_bps: Floats = field(default_factory=lambda: floats([]))
    #: Arrival of the last result, and a proven lower bound on it; without results, makespan and its bound.
    completion_s: float = 0.0
    completion_bound_s: float = 0.0
    #: Name of the policy that made the plan.
    policy: str = ""
    #: Generation of the problem that the plan solves.
    generation: int = 0

    def __post_init__(self) -> None:
        pieces = [f"{what}_{column}" for what in ("segment", "result") for column in ("begin_s", "end_s", "bps")]
        whole = ("accelerator", "segment_job", "result_job")
        freeze_arrays(self, real=("start_s", "bound_prices", *pieces), whole=whole)
        object.__setattr__(self, "completion_s", max(self.completion_s, self.makespan_s))
        object.__setattr__(self, "completion_bound_s", max(self.completion_bound_s, self.lower_bound_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlierTransfers:
    """Transfers already planned on the network, as (S,) constant-rate segments; time 0 is that of the problem."""

    #: The links that a segment uses: indices into `egress_bps` and `ingress_bps`.
    requester: Ints = field(default_factory=lambda: ints([]))
    responder: Ints = field(default_factory=lambda: ints([]))
    begin_s: Floats = field(default_factory=lambda: floats([]))
    end_s: Floats = field(default_factory=lambda: floats([]))
    bps: Floats = field(default_factory=lambda: floats([]))

    def __post_init__(self) -> None:
        freeze_arrays(self, real=("begin_s", "end_s", "bps"), whole=("requester", "responder"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolView:
    """An immutable picture of the pool that planners read; numpy columns with one row per host or slot.

    `generation` increases with every committed change.  A decision made on a view is committed only if the objects
    that it affects have not changed since.
    """

    generation: int
    #: Names, in the order of the indices used below.
    hosts: tuple[str, ...]
    functions: tuple[str, ...]
    slots: tuple[str, ...]
    #: (H,) bits per second.
    egress_bps: Floats
    ingress_bps: Floats
    #: (S,) index of the host and of the card (cards are numbered across hosts) that carry the slot.
    slot_host: Ints
    slot_card: Ints
    #: (S,) name of the region kind.
    slot_kind: tuple[str, ...]
    #: (S,) function loaded now, -1 = none.
    slot_function: Ints
    #: (S,) whether the slot may take new work: not faulted, not drained, host alive, lease held by the pool.
    slot_usable: NDArray[np.bool_]
    #: (S,) seconds from now until the work already planned on the slot is done.
    slot_ready_s: Floats
    #: (S,) seconds to load another function.
    slot_load_s: Floats
    #: (S, F) whether the function may be loaded there (region kind and board fit).
    can_run: NDArray[np.bool_]
    #: (S, F) time model a + b * bytes: a in seconds, b in seconds per byte.
    time_a_s: Floats
    time_b_s_per_byte: Floats

    #: Index of each host name and of each function name.
    host_index: Mapping[str, int] = field(init=False, repr=False)
    function_index: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for index, names in (("host_index", self.hosts), ("function_index", self.functions)):
            object.__setattr__(self, index, MappingProxyType({name: i for i, name in enumerate(names)}))

    def compute_s(self, slots: Ints, functions: Ints, input_bytes: Ints) -> Floats:
        """Return the (J, N) compute times of jobs (functions and inputs, (J,)) on (N,) slots; inf = cannot run."""
        columns = np.ix_(slots, functions)
        seconds = self.time_a_s[columns].T + self.time_b_s_per_byte[columns].T * input_bytes[:, None]
        return np.where(self.can_run[columns].T, seconds, np.inf)
