"""What goes wrong while gangs run: hosts are lost, gangs fail, tenants cancel them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Some processors are away from a moment to another one; gangs that have any of them begin again elsewhere."""

    begin_s: float
    end_s: float
    processors: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A process of a gang fails, if the gang runs; the gang begins again."""

    at_s: float
    gang: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """The tenant cancels a gang, if it is there."""

    at_s: float
    gang: int


Fault = Outage | Failure | Cancellation


class OutageEnd(NamedTuple):
    """The processors of an outage are back."""

    processors: Sequence[int]


def timeline(faults: Sequence[Fault]) -> list[tuple[float, Fault | OutageEnd]]:
    """Return what happens when, in order of time."""
    events: list[tuple[float, Fault | OutageEnd]] = []
    for fault in faults:
        if isinstance(fault, Outage):
            events += [(fault.begin_s, fault), (fault.end_s, OutageEnd(fault.processors))]
        else:
            events.append((fault.at_s, fault))
    return sorted(events, key=lambda event: event[0])
