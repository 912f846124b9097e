"""What holds of gangs at every moment, and what more when nobody has work for the pool; see `model.pool.audit`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fpga_pool.model.flavor import Tier
from fpga_pool.model.gangs import PLACED_GANGS, Gang, GangState, Process, Processor, ProcessState

_TO_END = frozenset({ProcessState.STOPPING, ProcessState.STOPPED})


def audit_gangs(processors: Sequence[Processor], gangs: Sequence[Gang], processes: Sequence[Process]) -> Iterator[str]:
    """Compare gangs that have not ended, processes that have a place, and processors with each other."""
    known = {processor.name: processor for processor in processors}
    for process in processes:
        there = known.get(process.processor)
        if there is None or (there.host, there.shard) != (process.host, process.shard):
            yield f"process {process.uuid}: is {process.state} on {process.processor}, which is not there"
    for place, count in Counter(process.held_place for process in processes).items():
        if count > 1:
            yield f"{place}: {count} processes have it"
    yield from _audit_priorities(processes)
    of_gang: dict[str, list[Process]] = {}
    for process in processes:
        of_gang.setdefault(process.gang_uuid, []).append(process)
    for gang in gangs:
        present = [process for process in of_gang.pop(gang.uuid, []) if process.attempt == gang.attempt]
        yield from _audit_gang(gang, present)
    for uuid, left in of_gang.items():
        if any(process.state not in _TO_END for process in left):
            yield f"gang {uuid}: has ended, and a process of it was not told to"


def _audit_priorities(processes: Sequence[Process]) -> Iterator[str]:
    """Who gives way to a trial does so to one that is there, and the other way round."""
    in_front = {process.processor: process for process in processes if process.tier is Tier.FOREGROUND}
    behind = {process.processor: process for process in processes if process.tier is Tier.BACKGROUND}
    for name, front in in_front.items():
        tried = name in behind and behind[name].exchanged
        if front.exchanged is not tried:
            yield f"process {front.uuid}: {'gives' if front.exchanged else 'does not give'} way on {name}"


def _audit_gang(gang: Gang, present: Sequence[Process]) -> Iterator[str]:
    going_on = [process for process in present if process.state not in _TO_END]
    if gang.state not in PLACED_GANGS or gang.cancel_requested:
        if going_on:
            yield f"gang {gang.uuid}: is to have no processes, and has {len(going_on)}"
        return
    if sorted(process.index for process in going_on) != list(range(gang.processes)):
        yield f"gang {gang.uuid}: is {gang.state}, and has {len(going_on)} of its {gang.processes} processes"
    tier = Tier.BACKGROUND if gang.state is GangState.BACKGROUND else Tier.FOREGROUND
    astray = [process for process in going_on if process.tier is not tier]
    if astray:
        yield f"gang {gang.uuid}: is {gang.state}, and {len(astray)} of its processes are in another tier"
    tried = gang.trial_ends_at is not None
    if tier is Tier.BACKGROUND and any(process.exchanged is not tried for process in going_on):
        yield f"gang {gang.uuid}: is {'' if tried else 'not '}in a trial, its processes say otherwise"


def audit_gangs_at_rest(gangs: Sequence[Gang], processes: Sequence[Process]) -> Iterator[str]:
    """Look for what an idle pool does not have."""
    for gang in gangs:
        yield f"gang {gang.uuid}: is {gang.state}"
    for process in processes:
        yield f"process {process.uuid}: is {process.state} on {process.processor}"
