"""What others ask of the scheduler."""

from collections.abc import Sequence
from typing import Any

import oslo_messaging as messaging

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.exchange import Calibration, FunctionInfo, Ticket, TicketRequest
from fpga_pool.model.messages import Heartbeat, Report
from fpga_pool.model.objects import Batch, Host, Job, Slot
from fpga_pool.model.pool.admission import BatchRequest
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, read, read_all


class SchedulerAPI:
    """Client side of the scheduler's RPC interface.

    Version history
    ---------------
    1.0
        Batches, tickets, slots, hosts, functions; reports and heartbeats of agents.
    """

    def __init__(self, transport: Any, timeout_s: float = 30.0) -> None:
        target = messaging.Target(topic=SCHEDULER_TOPIC, version="1.0")
        self._client = messaging.get_rpc_client(transport, target, timeout=timeout_s, version_cap="1.0")

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._client.call({}, method, **arguments)

    # Tenants

    def create_batch(self, request: BatchRequest) -> Batch:
        """Store a batch; it is committed when this returns."""
        return read(Batch, self._call("create_batch", request=to_plain(request)))

    def batches(self, project_id: str, limit: int, marker: str | None = None) -> list[Batch]:
        """Return a project's batches, newest first."""
        return read_all(Batch, self._call("batches", project_id=project_id, limit=limit, marker=marker))

    def batch(self, project_id: str, uuid: str) -> Batch:
        """Return one batch."""
        return read(Batch, self._call("batch", project_id=project_id, uuid=uuid))

    def batch_jobs(self, project_id: str, uuid: str) -> list[Job]:
        """Return the jobs of a batch, by index."""
        return read_all(Job, self._call("batch_jobs", project_id=project_id, uuid=uuid))

    def cancel_batch(self, project_id: str, uuid: str) -> Batch:
        """Ask for the end of a batch."""
        return read(Batch, self._call("cancel_batch", project_id=project_id, uuid=uuid))

    def tickets(self, project_id: str, batch_uuid: str, requests: Sequence[TicketRequest]) -> list[Ticket]:
        """Return a ticket for each request; all or none."""
        plain = self._call(
            "tickets", project_id=project_id, batch_uuid=batch_uuid, requests=[to_plain(item) for item in requests]
        )
        return read_all(Ticket, plain)

    # Operators

    def slots(self) -> list[Slot]:
        """Return all slots."""
        return read_all(Slot, self._call("slots"))

    def slot(self, uuid: str) -> Slot:
        """Return one slot."""
        return read(Slot, self._call("slot", uuid=uuid))

    def drain_slot(self, uuid: str, reason: str) -> Slot:
        """Take a slot out of service."""
        return read(Slot, self._call("drain_slot", uuid=uuid, reason=reason))

    def resume_slot(self, uuid: str) -> Slot:
        """Give a slot back to the pool."""
        return read(Slot, self._call("resume_slot", uuid=uuid))

    def hosts(self) -> list[Host]:
        """Return all hosts."""
        return read_all(Host, self._call("hosts"))

    def functions(self) -> list[FunctionInfo]:
        """Return the catalogue as it is in force."""
        return read_all(FunctionInfo, self._call("functions"))

    def calibration(self, function: str | None = None) -> list[Calibration]:
        """Return the fit of the time models (of one function)."""
        return read_all(Calibration, self._call("calibration", function=function))

    # Agents

    def heartbeat(self, heartbeat: Heartbeat) -> None:
        """Tell the full observed state of a host."""
        self._call("heartbeat", heartbeat=to_plain(heartbeat))

    def report(self, host: str, reports: Sequence[Report]) -> None:
        """Tell what happened, in order; it is committed when this returns."""
        self._call("report", host=host, reports=[to_plain(item) for item in reports])
