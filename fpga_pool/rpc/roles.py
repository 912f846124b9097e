"""Which role may call which method: a method that is not listed here is refused."""

from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    """What the caller of a method is; an agent speaks for one host, a scheduler for the shards it owns."""

    SCHEDULER = "scheduler"
    AGENT = "agent"
    API = "api"
    NOVA = "nova"


_SCHEDULER, _AGENT, _API = frozenset({Role.SCHEDULER}), frozenset({Role.AGENT}), frozenset({Role.API})

#: By method of the scheduler.  A method of agents has an argument `host`, or a `heartbeat` with one: the caller's own.
SCHEDULER_METHODS: Mapping[str, frozenset[Role]] = {
    **dict.fromkeys(["wake"], _SCHEDULER),
    "describe": frozenset({Role.SCHEDULER, Role.API}),
    **dict.fromkeys(
        ["claim", "heartbeat", "report", "enroll", "claim_slots", "release_slots", "instance_slots"], _AGENT
    ),
    **dict.fromkeys(["source_tickets", "load_design"], _AGENT),
    **dict.fromkeys(
        [
            *("create_batch", "plan_batch", "batches", "batch_detail", "batch_jobs", "jobs", "job", "cancel_batch"),
            *("change_batch", "tickets", "confirm_results", "events", "pool_events"),
        ],
        _API,
    ),
    **dict.fromkeys(["create_gang", "gangs", "gang", "cancel_gang"], _API),
    **dict.fromkeys(["create_pipeline", "pipelines", "pipeline", "cancel_pipeline"], _API),
    **dict.fromkeys(["create_task", "tasks", "task", "cancel_task"], _API),
    **dict.fromkeys(["quota", "set_quota", "unset_quota", "usage"], _API),
    **dict.fromkeys(["slots", "slot", "drain_slot", "resume_slot", "hosts"], _API),
    **dict.fromkeys(["cards", "card", "drain_card", "resume_card", "remove_card"], _API),
    **dict.fromkeys(["bitstreams", "flows"], _API),
    **dict.fromkeys(["create_design", "designs", "design", "design_content", "change_design", "delete_design"], _API),
    **dict.fromkeys(["functions", "benefits", "calibration", "health", "services", "pool_counts", "work_counts"], _API),
    "snapshot": frozenset({Role.API, Role.NOVA}),
    "observations": frozenset({Role.NOVA}),
}

#: By method of an agent.
AGENT_METHODS: Mapping[str, frozenset[Role]] = dict.fromkeys(
    ["execute", "bitstreams", "tiers", "set_tiers"], _SCHEDULER
)

#: Methods that have no other effect when a call is repeated to another process: they need not name the run of a server.
REPEATABLE = frozenset({"describe", "enroll", "health", "observations", "snapshot", "wake"})

#: Called by an agent whose key is not known yet: the call is signed by the key that it offers.
INTRODUCING = "enroll"
