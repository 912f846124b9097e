"""What empty slots load: at the start, a card's configuration port is what is scarce, not its slots."""

from collections.abc import Iterator

from fpga_pool.core.benefit.moves import Load
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy

#: Waiting jobs of a function that count: more than one slot can do while it is waited for.
_JOBS_AHEAD = 8
#: Probability that a slot is used below which nothing is loaded into it that nobody waits for.
_LEAST_USE = 0.01


def fill(view: Occupancy, now_s: float) -> Load | None:
    """Return the load into an empty slot that gains most, whether a job waits for the function or is only likely to.

    A load now rather than after the next one gains what its function would do in that time, and the jobs that wait for
    it.  A function that would have none of the card's empty slots in the long run makes all those wait that would.
    """
    best, most = None, 0.0
    # Functions that fit anywhere leave the slots to those that do not.
    for kind in sorted(view.kinds, key=lambda kind: sum(view.fits[kind])):
        slots = view.idle[kind][EMPTY]
        if view.put_off:
            slots = {slot: None for slot in slots if slot not in view.put_off}
        if not slots or (slot := view.roomiest(slots, port=True)) is None:
            continue
        for function, gain in _gains(view, kind, slot, now_s):
            if gain > most:
                best, most = Load(slot, function), gain
    return best


def _gains(view: Occupancy, kind: int, slot: int, now_s: float) -> Iterator[tuple[int, float]]:
    """Yield what a load of each function into the slot gains, in vCPU-seconds."""
    demand, load_s = view.demand, view.load_s[kind]
    fitting = [f for f in view.functions if view.fits[kind][f]]
    if not fitting:
        return
    chosen = dict.fromkeys(fitting, 0)
    # What each function would add per second, with the slots that it has and those that it is to have.
    adds = {f: demand.speedup[f] * demand.likely_more_than(view.held[f], f, now_s, view.slots) for f in fitting}
    first = dict(adds)
    delayed = 0.0
    for _ in range(view.empty_on(view.card[slot])):
        function = max(fitting, key=adds.__getitem__)
        delayed += adds[function]
        chosen[function] += 1
        others = view.held[function] + chosen[function]
        adds[function] = demand.speedup[function] * demand.likely_more_than(others, function, now_s, view.slots)
    for function in fitting:
        waiting = view.uncovered(function, _JOBS_AHEAD) if view.waiting[function] else 0
        gain = demand.speedup[function] * min(1, waiting) * demand.work_s[function]
        gain += load_s * (first[function] if chosen[function] else -delayed)
        if waiting or first[function] > _LEAST_USE * demand.speedup[function]:
            yield function, gain * view.rate(function, slot)
