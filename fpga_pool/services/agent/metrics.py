"""Metrics of an agent, read from its state at each scrape."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import Sample
from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.messages.counters import HostCounters
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.transfer.session import REASONS

if TYPE_CHECKING:
    from fpga_pool.services.agent.service import AgentService

#: Streams by event, as the data port counts them.
_EVENTS = ("staged", "delivered")


def agent_samples(agent: "AgentService") -> Iterator[Sample]:
    """Yield samples of slots, jobs, journal and data port of an agent."""
    states = Counter(slot.state for slot in agent.observed_slots())
    phases = Counter(job.phase for job in agent.jobs.all())
    streams = agent.counters()
    yield from (Sample(table.AGENT_SLOTS, states[state], (state.value,)) for state in SlotState)
    yield from (Sample(table.AGENT_JOBS, phases[phase], (phase.value,)) for phase in Phase)
    yield Sample(table.AGENT_HEARTBEAT_AGE, agent.heartbeats.age_s())
    yield Sample(table.UNSENT_REPORTS, agent.unreported())
    flows = agent.jobs.meter.rates()
    yield Sample(table.FLOWS, len(flows))
    yield Sample(table.FLOW_RATE, sum(flow.bps for flow in flows))
    yield Sample(table.CONNECTIONS, streams["connections"])
    yield Sample(table.RECEIVED, streams["received_bytes"])
    yield Sample(table.SENT, streams["sent_bytes"])
    yield from (Sample(table.STREAMS, streams[event], (event,)) for event in _EVENTS)
    yield from (Sample(table.REFUSED_STREAMS, streams[reason], (reason,)) for reason in sorted(REASONS))
    yield from _of_host(agent.meter.last)
    for code, count in agent.refusals.counts().items():
        yield Sample(table.REFUSED_COMMANDS, count, (code,))


def _of_host(found: HostCounters | None) -> Iterator[Sample]:
    """Yield the last measurements of the host, as far as they are available."""
    if found is None:
        return
    known = {
        table.HOST_CPUS: found.cpus,
        table.HOST_BUSY_CPUS: found.busy_cpus,
        table.HOST_MEMORY: found.memory_bytes,
        table.HOST_USED: found.used_bytes,
        table.HOST_RECEIVED: found.received_bps,
        table.HOST_SENT: found.sent_bps,
        table.GUEST_CPUS: sum(guest.cpus for guest in found.guests),
        table.DMA_RATE: sum(card.dma_bps for card in found.cards),
    }
    yield from (Sample(metric, value) for metric, value in known.items() if value is not None)
    for resource in ("cpu", "memory", "io"):
        if (share := getattr(found, f"{resource}_pressure")) is not None:
            yield Sample(table.PRESSURE, share, (resource,))
