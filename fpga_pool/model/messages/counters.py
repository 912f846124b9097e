"""Load of a host as measured by its agent; the types bound the values that a host can report."""

from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import ByteCount, Flat, ReportedMoment, Rest, Share, Text, Uuid

#: Maximum numbers of guests and cards that a host may report.
MOST_GUESTS, MOST_CARDS = 1000, 64

_Cpus = Annotated[float, Meta(ge=0, le=65536, description="a number of processors from 0 to 65536")]
_MeasuredRate = Annotated[float, Meta(ge=0, le=1e15, description="bits per second from 0 to 1e15")]


class GuestCounters(Message, frozen=True, kw_only=True):
    """Mean number of processors that a virtual machine has used."""

    uuid: Uuid
    cpus: _Cpus


class CardCounters(Message, frozen=True, kw_only=True):
    """Mean DMA rate of the runs that ended on a card."""

    card: Text
    dma_bps: _MeasuredRate


class HostCounters(Message, frozen=True, kw_only=True):
    """Mean values since the previous measurement; None = not measured on this host."""

    at: Annotated[ReportedMoment, Rest.MOMENT]
    #: Number of processors online, and of those in use.
    cpus: _Cpus | None = None
    busy_cpus: _Cpus | None = None
    #: Size of the memory, and the part of it that was not available to programs at the end.
    memory_bytes: ByteCount | None = None
    used_bytes: ByteCount | None = None
    #: Sums over its network interfaces.
    received_bps: _MeasuredRate | None = None
    sent_bps: _MeasuredRate | None = None
    #: Share of the time in which some process waited for a processor, memory or a disk.
    cpu_pressure: Share | None = None
    memory_pressure: Share | None = None
    io_pressure: Share | None = None
    guests: Annotated[tuple[GuestCounters, ...], Meta(max_length=MOST_GUESTS)] = ()
    cards: Annotated[tuple[CardCounters, ...], Meta(max_length=MOST_CARDS)] = ()


class HostLoad(Message, frozen=True, kw_only=True):
    """Last measurement of a living host."""

    host: Text
    counters: Flat[HostCounters]
