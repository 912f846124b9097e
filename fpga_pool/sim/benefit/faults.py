"""Faults while online jobs run: slots fail, hosts are lost, computations fail, slots are drained, jobs cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass


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
