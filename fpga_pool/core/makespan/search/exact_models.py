"""The batch problem as mixed integer programs: models (1), (3) and (6) of the makespan paper, combined.

Times are shares of a horizon, which the plans searched for do not exceed, and transfers are shares of the inputs, so
that all coefficients are near 1.  The models of the paper require a given placement (6) or cover only one resource
(1, 3).  These decide placement, order and times together, and support the whole problem format except groups and
results.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fpga_pool.core.integer import Limits, programme, solve
from fpga_pool.core.makespan.execution import Schedule, schedule
from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network, no_segments, seconds_per_bit
from fpga_pool.core.makespan.search.assignment import constant_rates
from fpga_pool.core.types import BatchProblem, Floats, Ints

if TYPE_CHECKING:
    from pulp import LpAffineExpression, LpProblem, LpVariable

#: Shares below this are rounding.
_NOISE = 1e-9
#: Relative increase of the makespan in a replay of a plan that is attributed to rounding.
_REPLAYED = 1e-6


@dataclass(frozen=True, slots=True)
class Best:
    """The best schedule found, None if there is none within the horizon, and a proven lower bound."""

    schedule: Schedule | None
    bound_s: float


def is_balance(problem: BatchProblem) -> bool:
    """Return whether only the loads of accelerators or of links matter, as no job waits for another one's input."""
    if problem.release_s.any():
        return False
    if not _moves(problem).any():
        return True
    return not (problem.seconds[np.isfinite(problem.seconds)].any() or problem.load_s.any())


def unknowns(problem: BatchProblem) -> int:
    """Return the number of integer variables."""
    pairs = int(np.isfinite(problem.seconds).sum())
    return pairs if is_balance(problem) else pairs * problem.jobs


def balance(problem: BatchProblem, horizon_s: float, limits: Limits, known_s: float) -> Best:
    """Place jobs so that the load of the busiest accelerator or link is minimal: models (1) and (3).

    By Theorem 2 all inputs can end together at constant rates without loss, so only the loads of links count.
    Each slot runs its jobs function by function, first those of the loaded function.
    """
    model, on, makespan = _placement("balance", problem, horizon_s, limits, known_s, 1)
    x = {pair: places[0] for pair, places in on.items()}
    _fill_accelerators(model, problem, horizon_s, x, makespan)
    bits = 8.0 * problem.input_bytes
    for link, limit_bps, own in _links(problem, x):
        load = [x[pair] * _scaled(bits[pair[0]], limit_bps * horizon_s) for pair in own]
        model.addConstraint(_sum(load) <= makespan, f"link_{link}")  # (3a) and (3b), with f = 1 / T
    solved = solve(model, limits, known_s / horizon_s)
    if not solved.found:
        return Best(None, solved.bound * horizon_s)
    accelerator = np.zeros(problem.jobs, np.int64)
    for (job, slot), variable in x.items():
        if variable.value() > 0.5:
            accelerator[job] = slot
    order = np.lexsort((problem.function, problem.function != problem.loaded[accelerator]))
    moves = moves_over_network(problem, accelerator).any()
    transfers = constant_rates(problem, accelerator) if moves else Transfers(problem.release_s, no_segments())
    return Best(schedule(problem, accelerator, order, transfers), solved.bound * horizon_s)


def sequence(problem: BatchProblem, horizon_s: float, limits: Limits, known_s: float) -> Best:
    """Place and order jobs, and plan the transfers: model (6) with a free placement.

    Between two starts of computation, and the releases between these, rates can be constant without loss.  So the
    unknowns are which job starts as the k-th, where and when, and how much of each input is sent in each interval.
    """
    return _Sequence(problem, horizon_s, limits, known_s).solve()


class _Sequence:
    """The program of `sequence`; k counts starts of computation, and windows lie between releases."""

    def __init__(self, problem: BatchProblem, horizon_s: float, limits: Limits, known_s: float) -> None:
        self._problem, self._horizon_s, self._limits, self._known_s = problem, horizon_s, limits, known_s
        self._places = range(problem.jobs)
        self._model, self._on, self._makespan = _placement(
            "sequence", problem, horizon_s, limits, known_s, problem.jobs
        )
        #: (job, accelerator): whether the job runs there.
        self._x = {pair: _sum(places) for pair, places in self._on.items()}
        moves = _moves(problem)
        self._moving = {pair for pair in self._on if moves[pair]}
        releases_s = {float(problem.release_s[job]) for job, _ in self._moving} | {0.0}
        edges_s = sorted(release_s for release_s in releases_s if release_s < horizon_s)
        #: The begin of each window, and the horizon.
        self._edges = [edge_s / horizon_s for edge_s in edges_s] + [1.0]
        self._start = [self._variable(f"start_{k}", 1.0) for k in self._places]
        self._length = self._lengths()
        self._sent = self._shares_sent()

    def solve(self) -> Best:
        """Return the best schedule."""
        self._start_in_turn()
        self._compute_one_by_one()
        self._send_before_start()
        self._keep_to_links()
        _fill_accelerators(self._model, self._problem, self._horizon_s, self._x, self._makespan)
        solved = solve(self._model, self._limits, self._known_s / self._horizon_s)
        return Best(self._schedule() if solved.found else None, solved.bound * self._horizon_s)

    def _variable(self, name: str, most: float) -> "LpVariable":
        return self._model.add_variable(name, 0.0, most)

    def _lengths(self) -> "list[list[LpVariable | LpAffineExpression]]":
        """Return, for each k, how much of each window lies between the (k - 1)-th and the k-th start."""
        if len(self._edges) == 2:
            return [[self._start[k] - (self._start[k - 1] if k else 0.0)] for k in self._places]
        windows = [end - begin for begin, end in pairwise(self._edges)]
        #: How much of each window lies before the k-th start; a window is full before the next one begins.
        filled = [
            [self._variable(f"filled_{k}_{number}", width) for number, width in enumerate(windows)]
            for k in self._places
        ]
        for k in self._places:
            self._model += _sum(filled[k]) == self._start[k]
            for number in range(len(windows) - 1):
                full = self._model.add_variable(f"full_{k}_{number}", cat="Binary")
                self._model += filled[k][number] >= windows[number] * full
                self._model += filled[k][number + 1] <= windows[number + 1] * full
        return [
            [filled[k][number] - (filled[k - 1][number] if k else 0.0) for number in range(len(windows))]
            for k in self._places
        ]

    def _shares_sent(self) -> "dict[tuple[int, int, int, int], LpVariable]":
        """Return the share of a job's input that is sent to a responder, by (job, responder, k, window)."""
        problem = self._problem
        pairs = {(job, int(problem.responder[slot])) for job, slot in self._moving}
        return {
            (job, host, k, number): self._variable(f"sent_{job}_{host}_{k}_{number}", 1.0)
            for job, host in sorted(pairs)
            for k in self._places
            for number, begin in enumerate(self._edges[:-1])
            if begin * self._horizon_s >= problem.release_s[job]
        }

    def _start_in_turn(self) -> None:
        """Require that one job starts at a time, none before it can, and all end by the makespan."""
        problem, model = self._problem, self._model
        earliest_s = _earliest_s(problem)
        for k in self._places:
            here = {pair: places[k] for pair, places in self._on.items()}
            model += _sum(here.values()) == 1
            model += self._start[k] >= _sum(
                _scaled(earliest_s[pair], self._horizon_s) * at for pair, at in here.items()
            )
            lasts = _sum(_scaled(problem.seconds[pair], self._horizon_s) * at for pair, at in here.items())
            model += self._start[k] + lasts <= self._makespan  # (6e)
            for length in self._length[k]:
                model += length >= 0

    def _compute_one_by_one(self) -> None:
        """Require that accelerators compute one job at a time, and only after loading its function: (6d)."""
        problem, model = self._problem, self._model
        for slot in sorted({slot for _, slot in self._on}):
            own = [job for job, where in self._on if where == slot]
            loads = float(problem.load_s[slot]) / self._horizon_s
            free: LpVariable | float = float(problem.ready_s[slot]) / self._horizon_s
            loaded: dict[int, LpVariable | float] = {int(problem.loaded[slot]): 1.0}
            for k in self._places:
                here = _sum(self._on[job, slot][k] for job in own)
                until = self._variable(f"free_{slot}_{k}", 1.0)
                lasts = _sum(
                    _scaled(problem.seconds[job, slot], self._horizon_s) * self._on[job, slot][k] for job in own
                )
                switches: LpVariable | float = 0.0
                if loads:
                    switches, loaded = self._switch(slot, k, own, loaded)
                model += self._start[k] >= free + loads * switches - (1.0 + loads) * (1 - here)
                model += until >= free
                model += until >= self._start[k] + lasts - (1 - here)
                free = until

    def _switch(
        self, slot: int, k: int, own: Sequence[int], loaded: "dict[int, LpVariable | float]"
    ) -> "tuple[LpVariable, dict[int, LpVariable | float]]":
        """Return whether a load precedes the k-th start if it is on `slot`, and which function is loaded then."""
        by_function: dict[int, list[LpVariable]] = defaultdict(list)
        for job in own:
            by_function[int(self._problem.function[job])].append(self._on[job, slot][k])
        switch = self._variable(f"switch_{slot}_{k}", 1.0)
        after: dict[int, LpVariable | float] = {}
        for function in sorted({*by_function, *loaded}):
            runs, had = _sum(by_function[function]), loaded.get(function, 0.0)
            has = after[function] = self._variable(f"loaded_{slot}_{k}_{function}", 1.0)
            self._model += switch >= runs - had
            self._model += has >= runs
            self._model += has <= had + runs
        self._model += _sum(after.values()) == 1
        return switch, after

    def _send_before_start(self) -> None:
        """Require that each input is sent to the responder of its job before the job starts: (6c)."""
        parts: dict[tuple[int, int], list[LpVariable]] = defaultdict(list)
        until: dict[tuple[int, int], list[LpVariable]] = defaultdict(list)
        for (job, host, k, _), share in self._sent.items():
            parts[job, host].append(share)
            until[job, k].append(share)
        for (job, host), shares in parts.items():
            there = [self._x[job, slot] for _, slot in self._hosted(job, host)]
            self._model += _sum(shares) == _sum(there)
        for (job, k), shares in until.items():
            later = [places[q] for (other, _), places in self._on.items() if other == job for q in self._places[k:]]
            self._model += _sum(shares) <= _sum(later)

    def _hosted(self, job: int, host: int) -> list[tuple[int, int]]:
        return [pair for pair in self._moving if pair[0] == job and self._problem.responder[pair[1]] == host]

    def _keep_to_links(self) -> None:
        """Require that no link carries more than its limit in any interval: (6a) and (6b)."""
        problem = self._problem
        sides = ((1, problem.ingress_bps, "in"), (0, problem.egress_bps, "out"))
        for side, limit_bps, name in sides:
            rows: dict[tuple[int, int, int], list[LpAffineExpression]] = defaultdict(list)
            for (job, host, k, number), share in self._sent.items():
                link = host if side else int(problem.requester[job])
                if np.isfinite(limit_bps[link]):
                    rows[link, k, number].append(
                        _scaled(8.0 * problem.input_bytes[job], limit_bps[link] * self._horizon_s) * share
                    )
            for (link, k, number), seconds in rows.items():
                self._model.addConstraint(_sum(seconds) <= self._length[k][number], f"{name}_{link}_{k}_{number}")

    def _schedule(self) -> Schedule:
        """Return the schedule given by the solution."""
        problem, jobs = self._problem, self._problem.jobs
        accelerator, start_s = np.zeros(jobs, np.int64), np.zeros(jobs)
        for (job, slot), places in self._on.items():
            for k in self._places:
                if places[k].value() > 0.5:
                    accelerator[job], start_s[job] = slot, max(0.0, self._start[k].value()) * self._horizon_s
        segments = self._segments(accelerator)
        arrived_s = np.array(problem.release_s)
        np.maximum.at(arrived_s, segments.flow, segments.end_s)
        order = np.argsort(start_s, kind="stable")
        replayed = schedule(problem, accelerator, order, Transfers(arrived_s, segments))
        ends_s = float((start_s + problem.seconds[np.arange(jobs), accelerator]).max())
        # If functions are loaded, slots that never wait while they have work can lose time, so the replay may be longer
        # than the solution.  The program does not model that loads of a port take turns: its optimum is then a bound.
        if problem.shares_ports or replayed.makespan_s <= ends_s * (1 + _REPLAYED):
            return replayed
        return Schedule(accelerator, start_s, segments, ends_s)

    def _segments(self, accelerator: Ints) -> Segments:
        """Return the pieces of all transfers, each at a constant rate, with all bits of each input."""
        problem = self._problem
        s_per_bit = seconds_per_bit(problem, np.arange(len(problem.ingress_bps)))
        begins = [[0.0] * (len(self._edges) - 1) for _ in self._places]
        ends = [[0.0] * (len(self._edges) - 1) for _ in self._places]
        for k in self._places:
            for number, (edge, next_edge) in enumerate(pairwise(self._edges)):
                last = self._start[k - 1].value() if k else 0.0
                begins[k][number] = min(max(edge, last), next_edge)
                ends[k][number] = max(begins[k][number], min(next_edge, self._start[k].value()))
        shares: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        for (job, host, k, number), share in self._sent.items():
            if problem.responder[accelerator[job]] == host and share.value() > _NOISE:
                shares[job].append((share.value(), k, number))
        rows: list[tuple[int, float, float, float]] = []
        for job, parts in sorted(shares.items()):
            total = sum(share for share, _, _ in parts)
            at_best = float(s_per_bit[problem.requester[job], problem.responder[accelerator[job]]])
            for share, k, number in sorted(parts, key=lambda part: part[1:]):
                bits = 8.0 * float(problem.input_bytes[job]) * share / total
                end_s = max(ends[k][number] * self._horizon_s, bits * at_best)
                # An interval may be shorter than the solver's tolerance: keep to the best rate.
                begin_s = min(begins[k][number] * self._horizon_s, end_s - bits * at_best)
                rows.append((job, begin_s, end_s, bits / (end_s - begin_s)))
        if not rows:
            return no_segments()
        job_, begin_s_, end_s_, bps = (np.array(column) for column in zip(*rows, strict=True))
        return Segments(job_.astype(np.int64), begin_s_, end_s_, bps)


Pair = tuple[int, int]


def _placement(
    name: str, problem: BatchProblem, horizon_s: float, limits: Limits, known_s: float, places: int
) -> "tuple[LpProblem, dict[Pair, list[LpVariable]], LpVariable]":
    """Return a program with a binary x_ij (1b) per position in the order of starts, exactly one of them 1 per job."""
    model = programme(name)
    makespan = model.add_variable("makespan", min(1.0, known_s / horizon_s), 1.0 - limits.gap)
    model += makespan
    ends_s = _earliest_s(problem) + problem.seconds
    on = {
        (job, slot): [model.add_variable(f"on_{job}_{slot}_{k}", cat="Binary") for k in range(places)]
        for job, slot in np.argwhere(ends_s <= horizon_s).tolist()
    }
    for job in range(problem.jobs):
        chosen = [variable for (other, _), variables in on.items() if other == job for variable in variables]
        model.addConstraint(_sum(chosen) == 1, f"job_{job}")
    return model, on, makespan


def _fill_accelerators(
    model: "LpProblem",
    problem: BatchProblem,
    horizon_s: float,
    x: "dict[Pair, LpVariable] | dict[Pair, LpAffineExpression]",
    makespan: "LpVariable",
) -> None:
    """Require that each accelerator ends by the makespan, including a load per function not yet loaded: (1a)."""
    for slot in sorted({slot for _, slot in x}):
        own = [job for job, where in x if where == slot]
        busy = [_scaled(problem.seconds[job, slot], horizon_s) * x[job, slot] for job in own]
        if problem.ready_s[slot] > 0:
            used = model.add_variable(f"used_{slot}", 0.0, 1.0)
            busy.append(_scaled(problem.ready_s[slot], horizon_s) * used)
            for job in own:
                model += x[job, slot] <= used
        if problem.load_s[slot] > 0:
            for function in sorted({int(problem.function[job]) for job in own} - {int(problem.loaded[slot])}):
                loads = model.add_variable(f"loads_{slot}_{function}", 0.0, 1.0)
                busy.append(_scaled(problem.load_s[slot], horizon_s) * loads)
                for job in own:
                    if problem.function[job] == function:
                        model += x[job, slot] <= loads
        model.addConstraint(_sum(busy) <= makespan, f"slot_{slot}")


def _links(problem: BatchProblem, x: "dict[Pair, LpVariable]") -> list[tuple[str, float, list[Pair]]]:
    """Return name, limit, and the job-accelerator pairs that use it, for each link with a limit."""
    moves = _moves(problem)
    found: dict[tuple[str, float], list[Pair]] = defaultdict(list)
    for job, slot in x:
        if moves[job, slot]:
            egress, ingress = int(problem.requester[job]), int(problem.responder[slot])
            found[f"out_{egress}", float(problem.egress_bps[egress])].append((job, slot))
            found[f"in_{ingress}", float(problem.ingress_bps[ingress])].append((job, slot))
    return [(name, limit_bps, own) for (name, limit_bps), own in found.items() if np.isfinite(limit_bps)]


def _moves(problem: BatchProblem) -> Floats:
    """Return (J, A) whether a job's input takes time to reach an accelerator that can run the job, as 0 or 1."""
    s_per_bit = seconds_per_bit(problem, problem.responder)[problem.requester]
    moves: Floats = ((s_per_bit > 0) & (problem.input_bytes[:, None] > 0) & np.isfinite(problem.seconds)).astype(float)
    return moves


def _earliest_s(problem: BatchProblem) -> Floats:
    """Return (J, A) the time when a job could start on an accelerator if there were no other jobs."""
    s_per_bit = seconds_per_bit(problem, problem.responder)[problem.requester]
    arrives_s = problem.release_s[:, None] + 8.0 * problem.input_bytes[:, None] * s_per_bit
    cold = problem.function[:, None] != problem.loaded
    earliest_s: Floats = np.maximum(arrives_s, problem.ready_s + np.where(cold, problem.load_s, 0.0))
    return earliest_s


def _scaled(value: float, by: float) -> float:
    return float(value / by)


def _sum(terms: object) -> "LpAffineExpression":
    import pulp

    return pulp.lpSum(terms)
