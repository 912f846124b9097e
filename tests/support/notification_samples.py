"""Samples of the pool's notifications, one of each kind: ``python -m support.notification_samples`` writes them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fpga_pool.model.flavor import Topology
from fpga_pool.model.lifecycle.notifications import KINDS, Kind, notification
from fpga_pool.model.objects.bitstreams import Design, DesignManifest, DesignState
from fpga_pool.model.objects.gangs import Gang, GangState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import (
    PIPELINE_POLICY,
    Batch,
    BatchState,
    Host,
    Lease,
    LeaseKind,
    LeaseState,
    Slot,
    SlotState,
)
from fpga_pool.model.objects.tasks import Task, TaskState

DIRECTORY = Path(__file__).parents[2] / "doc" / "notification_samples"

#: 2026-11-26, 08:00 UTC.
_AT = 1_795_680_000.0
_OWNER: dict[str, Any] = {"project_id": "6f70656e737461636b4e6f7661496f54", "user_id": "fake"}
_ENDED: dict[str, Any] = {"created_at": _AT - 60.0, "ended_at": _AT}
_GONE = "its card has disappeared"

_SLOT = Slot(
    name="node-1/sim0/slot0", host="node-1", card="sim0", region="slot0", board="u250", kind="small",
    state=SlotState.FAULTED, reason=_GONE,
)  # fmt: skip
_HOST = Host(
    name="node-1", egress_bps=1e10, ingress_bps=1e10, data_address="192.0.2.1", data_port=7000, heard_at=_AT - 11.0,
    boot=3, alive=False,
)  # fmt: skip
_BATCH = Batch(
    uuid="0d8a1f6e-53b0-5c86-9f3c-2a77f1f3b0c4", **_OWNER, **_ENDED, name="digests", policy="makespan", jobs=4,
    state=BatchState.FAILED, jobs_completed=3, jobs_failed=1, dispatched_at=_AT - 59.5, planned_makespan_s=48.5,
    lower_bound_s=45.0,
)  # fmt: skip
_DESIGN = Design(
    uuid="3f0c6a51-0c4e-4a7e-9a44-5c1f3f7f9f10", **_OWNER, function="my_digest.3f0c6a51", size_bytes=1_000_000,
    sha256="5b" * 32, created_at=_AT,
    manifest=DesignManifest(
        name="my_digest", board="u250", kind="small", io_bps=3.2e9, b_s_per_byte=2.5e-9, simulates="sha256"
    ),
)  # fmt: skip
_LEASE = Lease(
    uuid="5b0c1b9e-6b0e-5f0c-9d0a-4f1f7c1f2a11", slot=_SLOT.name, kind=LeaseKind.INSTANCE,
    holder="8a1d2f0e-3f5c-4a52-8f6d-0c1b2a3d4e5f", project_id=_OWNER["project_id"], epoch=4, revocable=False,
    granted_at=_AT - 3600.0, function="sha256",
)  # fmt: skip

#: By kind, an object and its event: name, state before, state after, reason.
_EXAMPLES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "slot.faulted": (_SLOT, ("SlotChanged", "READY", "FAULTED", _GONE)),
    "slot.recovered": (
        replace(_SLOT, state=SlotState.EMPTY, reason=""), ("SlotChanged", "FAULTED", "EMPTY"),
    ),
    "host.lost": (_HOST, ("HostLost", "UP", "LOST", "no heartbeat for 10.3 s")),
    "host.returned": (replace(_HOST, alive=True, heard_at=_AT), ("HostReturned", "LOST", "UP")),
    "batch.ended": (_BATCH, ("JobEnded", "RUNNING", "FAILED")),
    "pipeline.ended": (
        replace(_BATCH, policy=PIPELINE_POLICY, name="etl", jobs_completed=4, jobs_failed=0,
                state=BatchState.COMPLETED, planned_makespan_s=None, lower_bound_s=None),
        ("JobEnded", "RUNNING", "COMPLETED"),
    ),
    "task.ended": (
        Task(
            uuid="2f9d8a44-0e0a-4a9c-9c41-6f0f3f1f7b10", **_OWNER, **_ENDED, name="large", function="mvm", slots=3,
            shares=3, topology=Topology.LINE, input_bytes=1 << 20, state=TaskState.COMPLETED, attempt=1,
            started_at=_AT - 30.0,
        ),
        ("TaskCompleted", "RUNNING", "COMPLETED"),
    ),
    "design.submitted": (_DESIGN, ("Created", "", "SUBMITTED")),
    "design.decided": (
        replace(_DESIGN, state=DesignState.APPROVED, reason="checked by the lab"),
        ("Approved", "SUBMITTED", "APPROVED", "checked by the lab"),
    ),
    "gang.ended": (
        Gang(
            uuid="c3f1a5c0-7d0e-4a7e-9a80-5b8a6a0f4d21", **_OWNER, **_ENDED, name="cfd", processes=4, runtime_s=60.0,
            cpu_usage=0.9, work_s=50.0, state=GangState.CANCELLED, attempt=2, started_at=_AT - 40.0, swaps=1,
            cpu_s=120.5,
        ),
        ("GangCancelled", "FOREGROUND", "CANCELLED"),
    ),
    "lease.begun": (replace(_LEASE, granted_at=_AT), ("Created", "", "HELD")),
    "lease.broken": (replace(_LEASE, broken=_GONE), ("LeaseBroken", "HELD", "HELD", _GONE)),
    "lease.restored": (_LEASE, ("LeaseRestored", "HELD", "HELD")),
    "lease.ended": (
        replace(_LEASE, state=LeaseState.RELEASED, released_at=_AT), ("LeaseReleased", "HELD", "RELEASED"),
    ),
}  # fmt: skip


def sample(kind: Kind) -> str:
    """Return the sample of a kind, as it is stored in its file."""
    thing, (event, before, after, *reason) = _EXAMPLES[kind.event_type]
    entry = HistoryEntry(_AT, event, before, after, 1, *reason)
    assert kind.is_sent(thing, entry), kind.event_type
    made = notification(kind, thing, entry)
    message = {
        "event_type": made.event_type,
        "priority": made.priority.upper(),
        "publisher_id": "fpga-pool-scheduler:controller-1",
        "payload": made.payload,
    }
    return json.dumps(message, indent=4) + "\n"


def file_of(kind: Kind) -> Path:
    """Return the file of a sample."""
    return DIRECTORY / f"{kind.event_type.replace('.', '-')}.json"


if __name__ == "__main__":
    for one in KINDS:
        file_of(one).write_text(sample(one))
