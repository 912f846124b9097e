"""Figure 9, ours: share of the optimum, which is found on short traces and bounded closely on long ones.

A clairvoyant schedule loads functions before any job has requested them.  How much that gains at the start is shown by
the best schedule that loads no function before its first job arrives.  How much knowing the mix would gain is shown by
`FixedSet`, the best set of functions that stays loaded, chosen in hindsight.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import numpy as np

from fpga_pool.core.benefit.bound import windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.plus import start_ready
from fpga_pool.core.benefit.pool import Load, Move, OnlinePool
from fpga_pool.core.policy import PolicyState
from fpga_pool.experiments.figures.benefit.runs import (
    ALPHA,
    CATALOGUES,
    KEEPING,
    LOADS_S,
    OURS,
    REPLACING,
    benefit_vcpus,
    card_pool,
    curves,
    reference_catalogue,
    trace,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.sim.benefit.trace import Trace

# ---- The best fixed set


class FixedSet:
    """A policy that loads each slot once, with a given function, and starts the most useful job that can run."""

    name = "fixed"

    def __init__(self, functions: Sequence[int], order: Sequence[int]) -> None:
        self._functions = functions
        self._order = order

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next load while slots are empty and a port is free, otherwise the next start."""
        for slot in self._order:
            if view.holds[slot] == EMPTY and not view.port_busy[view.card[slot]]:
                return Load(slot, self._functions[slot])
        return start_ready(view, view.functions)


def best_fixed_vcpus(pool: OnlinePool, jobs: Trace) -> float:
    """Return the mean benefit of the best fixed set on a trace; slots of one kind on one card are equivalent.

    Sets are simulated in descending order of their upper bounds, until no other set can gain more.
    """
    best, horizon_s = 0.0, jobs.last_arrival_s
    for most, functions, order in sorted(_bounded_sets(pool, jobs), reverse=True):
        if most * (1 + 1e-9) < best * horizon_s:
            break
        best = max(best, benefit_vcpus(pool, jobs, FixedSet(functions, order)))
    return best


def _bounded_sets(pool: OnlinePool, jobs: Trace) -> Iterator[tuple[float, list[int], list[int]]]:
    """Yield each fixed set after an upper bound on its vCPU-seconds.

    A slot works at most from the end of its load to the last arrival, and a function at most as long as its jobs need.
    """
    left_s = jobs.last_arrival_s - jobs.arrival_s
    fit = jobs.function >= 0
    work_s = np.bincount(jobs.function[fit], np.minimum(jobs.work_s, left_s)[fit], minlength=len(pool.functions))
    slot_s = max(0.0, jobs.last_arrival_s - float(pool.load_s.min()))
    for functions, order in _fixed_sets(pool):
        slots = np.bincount(functions, minlength=len(pool.functions))
        yield float(pool.speedup @ np.minimum(slots * slot_s, work_s)), functions, order


def _fixed_sets(pool: OnlinePool) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the functions by slot, and the order in which the slots load: the most useful functions first."""
    groups: dict[tuple[int, int], list[int]] = {}
    for slot, place in enumerate(zip(pool.slot_card.tolist(), pool.slot_kind.tolist(), strict=True)):
        groups.setdefault(place, []).append(slot)
    choices = [
        combinations_with_replacement(np.flatnonzero(pool.fits[kind]).tolist(), len(slots))
        for (_, kind), slots in groups.items()
    ]
    for chosen in product(*choices):
        functions = [EMPTY] * pool.slots
        for slots, some in zip(groups.values(), chosen, strict=True):
            for slot, function in zip(slots, some, strict=True):
                functions[slot] = function
        yield functions, sorted(range(pool.slots), key=lambda slot: -pool.speedup[functions[slot]])


# ---- The figure

ALPHAS = (1.0, 2.0, 4.0)
SHORT, LONG = "short", "long"
#: Seconds during which jobs arrive, with a scale of 1; all slots are empty at time 0.
SECONDS = {SHORT: 12, LONG: 120}
#: Minimum step.  Times that are not multiples of the step are rounded down to it, and the optimum becomes a bound.
LEAST_STEP_S = 0.25
#: An optimum counts as found if no schedule is better by more than this share; seconds after which the search gives up.
GAP, TIME_LIMIT_S = 0.01, 60.0
#: Share of the traces whose optimum was found.
SOLVED = "solved"
#: Our policy on its worst catalogue, and relative to the best schedule that loads no function before it is requested.
LEAST, ASKED = f"{OURS}, least", f"{OURS}, of what is asked for"
#: The best policy that loads each slot once.
FIXED = "best fixed set"


def _measure(subject: tuple[str, float], alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate a trace per catalogue under each policy; a sample is the mean over catalogues with a known optimum."""
    length, load_s = subject
    panel = _panel(length, load_s)
    # All times are multiples of the step, unless that would be too short to find the optimum.
    step_s = max(LEAST_STEP_S, min(load_s, 1.0 / alpha) if length == SHORT else load_s / 4)
    names = curves((KEEPING, REPLACING), settings)
    shares: dict[str, list[float]] = {name: [] for name in (*names, ASKED, FIXED)}
    for catalogue in CATALOGUES:
        pool = card_pool(reference_catalogue(catalogue), load_s)
        jobs = trace(pool, alpha, seed, settings, seconds=SECONDS[length])
        window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
        limit_s = TIME_LIMIT_S if length == SHORT else 0.0
        best, asked = (
            optimum(pool, window, jobs.last_arrival_s, step_s=step_s, gap=GAP, time_limit_s=limit_s, asked_first=asked)
            for asked in (False, True)
        )
        if min(best.most_vcpus, asked.most_vcpus) <= 0 or (length == SHORT and best.gap > GAP):
            continue  # nothing can be gained, or the optimum is unknown
        for name in names:
            shares[name].append(100 * benefit_vcpus(pool, jobs, name) / best.most_vcpus)
        shares[FIXED].append(100 * best_fixed_vcpus(pool, jobs) / best.most_vcpus)
        shares[ASKED].append(shares[OURS][-1] * best.most_vcpus / asked.most_vcpus)
    if length == SHORT:
        yield Sample(panel, alpha, SOLVED, seed, 100 * len(shares[OURS]) / len(CATALOGUES))
    if shares[OURS]:
        for name, found in shares.items():
            yield Sample(panel, alpha, name, seed, float(np.mean(found)))
        yield Sample(panel, alpha, LEAST, seed, min(shares[OURS]))


def _claim(samples: Samples, length: str, load_s: float) -> Claim:
    """Return the mean share of the optimum that each policy reaches, for one duration of loads."""
    panel = _panel(length, load_s)
    ours = {name: samples.overall(panel, name) for name in samples.series(panel) if name != LEAST}
    places = samples.places(panel, LEAST)
    for name in (OURS, FIXED) if length == LONG else ():
        ours |= {f"{name}, alpha {float(x):g}": samples.mean(panel, name, x) for x in places}
    least = [min(samples.values(panel, LEAST, x).values()) for x in places]
    what = "the clairvoyant optimum" if length == SHORT else "a bound on the clairvoyant optimum, loads included"
    return Claim(
        key=f"{panel}-share-of-optimum",
        text=f"all catalogues, {length} traces from empty slots, loads of {load_s:g} s: mean share of {what}",
        ours=ours | ({LEAST: min(least)} if least else {}),
        why=""
        if load_s < 1
        else "Who knows what comes loads that in time; a slow load for a job that is there is late.",
    )


def _panel(length: str, load_s: float) -> str:
    return f"{length}-{load_s:g}"


_SUBJECTS = [(length, load_s) for length in SECONDS for load_s in LOADS_S]

EXPERIMENT = Experiment(
    number=9,
    title="share of the optimum over alpha, from empty slots",
    where="ours",
    panels=tuple(
        Panel(
            key=_panel(length, load_s),
            title=f"{length} traces, loads of {load_s:g} s",
            x_label=ALPHA,
            y_label="% of the optimum",
        )
        for length, load_s in _SUBJECTS
    ),
    places=dict.fromkeys(_SUBJECTS, ALPHAS),
    measure=_measure,
    claims=lambda samples: [_claim(samples, *subject) for subject in _SUBJECTS],
)
