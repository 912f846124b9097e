"""How busy a host is, as its agent measures it; what a host can say is bounded here, for all readers."""

from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import ByteCount, Flat, ReportedMoment, Rest, Share, Text, Uuid

#: Guests, and cards, that a host may report.
MOST_GUESTS, MOST_CARDS = 1000, 64

_Cpus = Annotated[float, Meta(ge=0, le=65536, description="a number of processors from 0 to 65536")]
_MeasuredRate = Annotated[float, Meta(ge=0, le=1e15, description="bits per second from 0 to 1e15")]


class GuestCounters(Message, frozen=True, kw_only=True):
    """How many processors a virtual machine has used, in the mean."""

    uuid: Uuid
    cpus: _Cpus


class CardCounters(Message, frozen=True, kw_only=True):
    """What the runs that ended on a card have moved over its DMA."""

    card: Text
    dma_bps: _MeasuredRate


class HostCounters(Message, frozen=True, kw_only=True):
    """Means since the measurement before; None = this host does not say so."""

    at: Annotated[ReportedMoment, Rest.MOMENT]
    #: Processors online, and how many of them were in use.
    cpus: _Cpus | None = None
    busy_cpus: _Cpus | None = None
    #: Memory, and what programs could not get of it at the end.
    memory_bytes: ByteCount | None = None
    used_bytes: ByteCount | None = None
    #: Of its network cards together.
    received_bps: _MeasuredRate | None = None
    sent_bps: _MeasuredRate | None = None
    #: Share of the time in which something waited for a processor, memory or a disk.
    cpu_pressure: Share | None = None
    memory_pressure: Share | None = None
    io_pressure: Share | None = None
    guests: Annotated[tuple[GuestCounters, ...], Meta(max_length=MOST_GUESTS)] = ()
    cards: Annotated[tuple[CardCounters, ...], Meta(max_length=MOST_CARDS)] = ()


class HostLoad(Message, frozen=True, kw_only=True):
    """What a host that lives has measured last."""

    host: Text
    counters: Flat[HostCounters]
