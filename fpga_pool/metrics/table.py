"""The table of all metrics: name, unit, help and labels of each.

Names follow the conventions of Prometheus: base units, and `_total` at the end of counters.  No metric names a host or
a process, as Prometheus adds `instance` to everything that it scrapes.  If one process has several agents, as in the
embedded pool, their values are summed, or the largest is exported.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: Value of a label that replaces all values beyond its limit.
OTHER = "other"


class Kind(StrEnum):
    """Kind of a metric, as Prometheus knows it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    #: Sum and count of the observations, without quantiles.
    SUMMARY = "summary"


class Exporter(StrEnum):
    """Kind of process that exports a metric; the embedded pool exports all."""

    SCHEDULER = "scheduler"
    AGENT = "agent"
    API = "API"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and its labels."""

    name: str
    kind: Kind
    exporter: Exporter
    help: str
    #: "seconds", "bytes", "ratio", or empty for other numbers; it is also part of the name.
    unit: str = ""
    labels: tuple[str, ...] = ()
    #: Upper bounds of the buckets of a histogram.
    buckets: tuple[float, ...] = ()
    #: Combines several values with the same labels.
    merged: Callable[[Iterable[float]], float] = sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The meaning of a label, and how many values of it a process exports; further values count as `other`."""

    meaning: str
    limit: int


#: The limit of `project` is an option, `[metrics] max_projects`.
LABELS = {
    "board": Label(meaning="board type of the card, from the catalogue", limit=50),
    "code": Label(meaning="stable code of the error, or reason of the refusal", limit=100),
    "event": Label(meaning="an input was staged, or a result delivered", limit=10),
    "family": Label(meaning="family of work: batch, online, gang, pipeline or task", limit=10),
    "function": Label(meaning="function of the catalogue; empty where none is loaded", limit=200),
    "kind": Label(meaning="holder of the lease: instance, pool, task or gang", limit=10),
    "operation": Label(meaning="operation of the REST API, as in its OpenAPI document", limit=150),
    "outcome": Label(
        meaning="of a load: loaded, failed, or refused because of the bitstream; of a notification: sent, failed, or "
        "dropped because too many wait",
        limit=10,
    ),
    "phase": Label(meaning="phase of a job on its agent", limit=20),
    "policy": Label(meaning="scheduling policy", limit=50),
    "project": Label(meaning="id of the project", limit=200),
    "resource": Label(meaning="cpu, memory or io", limit=10),
    "shard": Label(meaning="part of the pool with one owner among the schedulers", limit=100),
    "state": Label(meaning="state of the object, as in the REST API", limit=20),
    "status": Label(meaning="status code of the HTTP response", limit=40),
    "step": Label(meaning="step of the planning cycle: snapshot, decide, commit or dispatch", limit=10),
}

#: From 1 ms to about two minutes, by factors of 2 to 2.5.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
#: Ratios around 1, which means as planned.
_RATIO = (0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def _metric(kind: Kind, exporter: Exporter, name: str, text: str, labels: tuple[str, ...], **more: Any) -> Metric:
    return Metric(name=f"fpga_pool_{name}", kind=kind, exporter=exporter, help=text, labels=labels, **more)


def _gauge(exporter: Exporter, name: str, text: str, *labels: str, unit: str = "", largest: bool = False) -> Metric:
    return _metric(Kind.GAUGE, exporter, name, text, labels, unit=unit, merged=max if largest else sum)


def _counter(exporter: Exporter, name: str, text: str, *labels: str, unit: str = "") -> Metric:
    return _metric(Kind.COUNTER, exporter, name, text, labels, unit=unit)


def _histogram(exporter: Exporter, name: str, text: str, *labels: str, unit: str = "seconds") -> Metric:
    buckets = _SECONDS if unit == "seconds" else _RATIO
    return _metric(Kind.HISTOGRAM, exporter, name, text, labels, unit=unit, buckets=buckets)


_S, _A, _API = Exporter.SCHEDULER, Exporter.AGENT, Exporter.API

# ---- Schedulers: the shards that each owns, so that a sum over all schedulers is the whole pool

SLOTS = _gauge(_S, "slots", "Slots by board, observed state and loaded function.", "board", "state", "function")
LEASED_SLOTS = _gauge(_S, "leased_slots", "Slots with a lease in force, by kind of holder.", "kind")
CARDS = _gauge(
    _S,
    "cards",
    "Cards: in_service has a slot that takes work, out_of_service has none, unreachable is on a lost host.",
    "board",
    "state",
)
HOSTS = _gauge(_S, "hosts", "Hosts: alive, or lost because their heartbeats have ended.", "state")
HEARTBEAT_AGE = _gauge(
    _S,
    "heartbeat_age_seconds",
    "Longest time since a heartbeat among the living hosts of a shard.",
    "shard",
    unit="seconds",
    largest=True,
)
SHARD_OWNED = _gauge(_S, "shard_owned", "1 if this scheduler owns the shard, else 0.", "shard")
LEASE_AGE = _gauge(
    _S,
    "shard_lease_age_seconds",
    "Time since the owner of a shard renewed it last, as this scheduler has observed it; of all shards.",
    "shard",
    unit="seconds",
    largest=True,
)
JOBS = _gauge(_S, "jobs", "Jobs that have not ended, by project and state; PENDING is the queue.", "project", "state")
OLDEST_WAIT = _gauge(
    _S,
    "job_oldest_wait_seconds",
    "Age of the oldest job in state PENDING.",
    "project",
    unit="seconds",
    largest=True,
)
TASKS = _gauge(_S, "tasks", "Tasks that have not ended, by project and state.", "project", "state")
GANGS = _gauge(_S, "gangs", "Gangs that have not ended, by project and state.", "project", "state")
UNDELIVERED = _gauge(_S, "undelivered_commands", "Commands that no agent has acknowledged yet.", "shard")
REFUSED_MESSAGES = _counter(_S, "refused_messages_total", "Messages that the scheduler has refused.", "code")
PLANNING = _histogram(
    _S, "planning_seconds", "Duration of each step of the planning cycles that decided something.", "family", "step"
)
POLICY_FAILURES = _counter(_S, "policy_failures_total", "Errors raised by scheduling policies.", "family")
JOB_WAIT = _metric(
    Kind.SUMMARY,
    _S,
    "job_wait_seconds",
    "Time from the creation of a job to the start of its computation; each attempt counts.",
    ("project",),
    unit="seconds",
)
JOBS_ENDED = _counter(_S, "jobs_ended_total", "Jobs that have ended, by final state.", "state", "function")
JOB_ERRORS = _counter(_S, "job_errors_total", "Jobs that have failed for good, by code of the error.", "code")
MAKESPAN_RATIO = _histogram(
    _S,
    "batch_makespan_ratio",
    "Makespan of a completed batch, divided by the makespan that was planned for it first.",
    "policy",
    unit="ratio",
)

NOTIFICATIONS = _counter(_S, "notifications_total", "Versioned notifications of committed events.", "outcome")

# ---- Agents

AGENT_SLOTS = _gauge(_A, "agent_slots", "Slots of the host by state, as its agent observes them.", "state")
AGENT_JOBS = _gauge(_A, "agent_jobs", "Jobs that the agent holds, by phase.", "phase")
AGENT_HEARTBEAT_AGE = _gauge(
    _A,
    "agent_heartbeat_age_seconds",
    "Time since a scheduler accepted a heartbeat of this agent, or since its start.",
    unit="seconds",
    largest=True,
)
UNSENT_REPORTS = _gauge(_A, "agent_unsent_reports", "Reports in the journal that no scheduler has taken yet.")
FLOWS = _gauge(_A, "agent_flows", "Inputs under way to this host, as it has measured them last.")
FLOW_RATE = _gauge(
    _A,
    "agent_flow_bits_per_second",
    "Rate of all inputs in transfer to this host, measured since the previous heartbeat.",
)
CONNECTIONS = _gauge(_A, "agent_connections", "Open connections of the data port.")
RECEIVED = _counter(_A, "agent_received_bytes_total", "Bytes of inputs that the data port has received.", unit="bytes")
SENT = _counter(_A, "agent_sent_bytes_total", "Bytes of results that the data port has sent.", unit="bytes")
STREAMS = _counter(_A, "agent_streams_total", "Inputs staged and results delivered by the data port.", "event")
REFUSED_STREAMS = _counter(
    _A, "agent_refused_streams_total", "Streams that the data port has refused, or that broke, by reason.", "code"
)
REFUSED_COMMANDS = _counter(_A, "agent_refused_commands_total", "Commands and calls refused by the agent.", "code")
HOST_CPUS = _gauge(_A, "agent_host_cpus", "Processors of the host.", largest=True)
HOST_BUSY_CPUS = _gauge(_A, "agent_host_busy_cpus", "Processors in use, averaged over about 10 s.", largest=True)
GUEST_CPUS = _gauge(
    _A, "agent_guest_cpus", "Processors in use by libvirt's guests, averaged over the same period.", largest=True
)
HOST_MEMORY = _gauge(_A, "agent_host_memory_bytes", "Memory of the host.", unit="bytes", largest=True)
HOST_USED = _gauge(
    _A,
    "agent_host_used_memory_bytes",
    "Memory of the host that is not available to programs.",
    unit="bytes",
    largest=True,
)
HOST_RECEIVED = _gauge(
    _A, "agent_host_received_bits_per_second", "Rate at which the network cards receive.", largest=True
)
HOST_SENT = _gauge(_A, "agent_host_sent_bits_per_second", "Rate at which the network cards send.", largest=True)
PRESSURE = _gauge(
    _A,
    "agent_host_pressure_ratio",
    "Share of the time in which something waited for a processor, memory or a disk.",
    "resource",
    unit="ratio",
    largest=True,
)
DMA_RATE = _gauge(_A, "agent_dma_bits_per_second", "DMA rate of the cards, by the runs that ended within about 10 s.")
LOADS = _counter(_A, "agent_loads_total", "Loads of a function into a slot.", "function", "outcome")
LOAD_TIME = _histogram(_A, "agent_load_seconds", "Duration of the loads that succeeded.", "function")

# ---- API

REQUESTS = _counter(_API, "api_requests_total", "Requests by operation and status.", "operation", "status")
REQUEST_TIME = _histogram(_API, "api_request_seconds", "Time to answer a request.", "operation")
API_ERRORS = _counter(_API, "api_errors_total", "Responses with an error, by its code.", "code")

# ---- All processes

SCRAPE_ERRORS = _counter(Exporter.ALL, "scrape_errors_total", "Groups of values that could not be read for a scrape.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
