# mypy: disable-error-code="empty-body"
"""Calls to the scheduler."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.agents import Heartbeat, Report
from fpga_pool.model.messages.requests import (
    BatchChange,
    BatchDetail,
    Calibration,
    EventPage,
    FunctionInfo,
    GangDetail,
    HeartbeatAnswer,
    JobChanges,
    JobDetail,
    Page,
    PipelineDetail,
    PoolCounts,
    Receipt,
    SourceTicket,
    TaskDetail,
    Ticket,
    TicketRequest,
    WorkCount,
)
from fpga_pool.model.messages.usage import Usage, UsagePage
from fpga_pool.model.messages.work import BatchRequest, DesignAnswer, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.history import HistoryEntry, PoolEvents
from fpga_pool.model.objects.hosts import enrolment_proof
from fpga_pool.model.objects.pool import Batch, JobState, Lease, Slot
from fpga_pool.model.objects.progress import Flow
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.preconditions import Seen
from fpga_pool.model.rules.instance.observations import Observations
from fpga_pool.rpc.bounded import Caller, signed_again
from fpga_pool.rpc.calls.dry_runs import DryRunCalls
from fpga_pool.rpc.calls.hardware import HardwareCalls
from fpga_pool.rpc.gathering import Gatherer, SignedClient
from fpga_pool.rpc.identity import INTRODUCING, Identity, Role
from fpga_pool.rpc.tracing import current_ids
from fpga_pool.rpc.transport import LIFE_SIGNS_TOPIC, NO_ANSWER, SCHEDULER_TOPIC, calls

#: Timeout and number of the attempts to find a scheduler.
FIND_S, FIND_ATTEMPTS = 2.0, 5
#: Timeout for storing a batch of the largest size. Meanwhile its scheduler sends signs of life, so that its failure is
#: noticed as soon as in any other call.
CREATE_S, SIGN_OF_LIFE_S = 60.0, 6
#: Timeout of a heartbeat: one to a scheduler that stalls is sent again before the host is considered lost.
BEAT_S = 4.0
#: Longest time for which a call waits for changes.
LONGEST_WAIT_S = 5.0
#: Timeout of health checks, whose callers do not wait long.
HEALTH_S = 3.0
#: Calls with a timeout that differs from the client's: for the largest batches, for bitstreams, for purges.
_TIMEOUTS_S = {
    **dict.fromkeys(("create_batch", "create_pipeline"), CREATE_S),
    **dict.fromkeys(("plan_batch", "plan_gang", "plan_pipeline", "plan_task"), CREATE_S),
    **dict.fromkeys(("create_design", "design_content", "load_design", "purge"), CREATE_S),
    "heartbeat": BEAT_S,
    "health": HEALTH_S,
}


@calls
class SchedulerCalls(DryRunCalls, HardwareCalls):
    """Calls of tenants, operators and agents, which any scheduler answers."""

    def health(self) -> str:
        """Return the name of a scheduler that has just read the database."""

    # Tenants

    def create_batch(self, request: BatchRequest, wait_s: float = 0.0) -> JobChanges:
        """Store a batch; it is committed when this returns.

        The answer waits up to `wait_s` for places. It contains the jobs that have one, and tickets for small inputs.
        """

    def batches(self, page: Page) -> list[Batch]:
        """Return a page of the batches."""

    def jobs(self, page: Page) -> list[JobDetail]:
        """Return a page of the jobs of all batches, each with its pending reason and expected start."""

    def job(self, project_id: str | None, uuid: str) -> JobDetail:
        """Return one job, with its pending reason and expected start."""

    def batch_detail(self, project_id: str | None, uuid: str) -> BatchDetail:
        """Return one batch, with its pending reason and expected start."""

    def batch_jobs(
        self,
        project_id: str | None,
        uuid: str,
        states: Sequence[JobState] = (),
        changed_after: Mapping[str, int] | None = None,
        wait_s: float = 0.0,
        *,
        with_batch: bool = False,
    ) -> JobChanges:
        """Return the jobs of a batch, in these `states` (none = any), and changed after these generations of shards.

        If none has changed, the answer comes when one does, or after `wait_s`.  `with_batch` adds the batch.
        """

    # `seen`: PreconditionFailed if the object is in none of these versions (`model.preconditions`).

    def cancel_batch(self, project_id: str | None, uuid: str, seen: Seen = None) -> Batch:
        """Request the cancellation of a batch."""

    def change_batch(self, project_id: str, uuid: str, change: BatchChange, seen: Seen = None) -> Batch:
        """Hold a batch back, or release it; change its priority."""

    def tickets(self, project_id: str, batch_uuid: str, requests: Sequence[TicketRequest]) -> list[Ticket]:
        """Return a ticket for each request, either all or none."""

    def confirm_results(self, project_id: str, batch_uuid: str, receipts: Sequence[Receipt]) -> Batch:
        """Complete the jobs whose results the client has received, if the pool still holds them; return the batch."""

    def create_gang(self, request: GangRequest) -> Gang:
        """Store a gang, which waits to be placed; it is committed when this returns."""

    def gangs(self, page: Page) -> list[Gang]:
        """Return a page of the gangs."""

    def gang(self, project_id: str | None, uuid: str) -> GangDetail:
        """Return one gang, with its pending reason and expected start."""

    def cancel_gang(self, project_id: str | None, uuid: str, seen: Seen = None) -> Gang:
        """Request the cancellation of a gang."""

    def create_task(self, request: TaskRequest) -> Task:
        """Store a task, which waits to be placed; it is committed when this returns."""

    def tasks(self, page: Page) -> list[Task]:
        """Return a page of the tasks."""

    def task(self, project_id: str | None, uuid: str) -> TaskDetail:
        """Return one task, with its pending reason and expected start."""

    def cancel_task(self, project_id: str | None, uuid: str, seen: Seen = None) -> Task:
        """Request the cancellation of a task."""

    def create_pipeline(self, request: PipelineRequest) -> Batch:
        """Store a pipeline; it is committed when this returns."""

    def pipelines(self, page: Page) -> list[Batch]:
        """Return a page of the pipelines."""

    def pipeline(self, project_id: str | None, uuid: str) -> PipelineDetail:
        """Return one pipeline, with its subtasks."""

    def cancel_pipeline(self, project_id: str | None, uuid: str, seen: Seen = None) -> Batch:
        """Request the cancellation of a pipeline."""

    # Events

    def events(self, noun: str, project_id: str | None, name: str) -> list[HistoryEntry]:
        """Return the events of an object, oldest first; `name` is its uuid, or the name of a host."""

    def pool_events(self, page: EventPage) -> PoolEvents:
        """Return a page of the events of all objects, newest first."""

    # Quotas

    def quota(self, project_id: str) -> Quota:
        """Return the limits of a project, and its usage."""

    def set_quota(self, project_id: str, limits: QuotaLimits, seen: Seen = None) -> Quota:
        """Change limits of a project; those that are None stay as they are."""

    def unset_quota(self, project_id: str, seen: Seen = None) -> Quota:
        """Return a project to the default limits."""

    def usage(self, page: UsagePage) -> list[Usage]:
        """Return a page of the usage of projects."""

    # Operators

    def functions(self, project_id: str = "") -> list[FunctionInfo]:
        """Return the current catalogue, with the designs that jobs of a project ("" = of any) may name."""

    def pool_counts(self) -> PoolCounts:
        """Return the numbers of hosts, cards and slots."""

    def work_counts(self, project_id: str | None) -> list[WorkCount]:
        """Return the counts of work of a project, or (None) of all, that has not ended."""

    def flows(self, project_id: str | None) -> list[Flow]:
        """Return the inputs of a project, or (None) of all, that are in transfer."""

    def benefits(self) -> dict[str, float]:
        """Return the speedup of each slot's current computation, in vCPU equivalents; 0 if it does not compute."""

    def calibration(self, function: str | None = None) -> list[Calibration]:
        """Return the fit of the time models (of one function)."""

    def snapshot(self, seen: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return all hosts and slots, or those that changed after the generations of shards in `seen`.

        They are encoded by `PoolColumns.to_plain`.
        """

    def observations(self) -> Observations:
        """Return the run times of instances and the time models that the pool has observed."""

    # Agents

    def claim(self, host: str, agent_id: str) -> None:
        """Ask to represent a host; raise HostTaken if another agent does."""

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Report the full observed state of a host."""

    def report(self, host: str, agent_id: str, reports: Sequence[tuple[int, Report]]) -> None:
        """Send reports in order, each with its number; they are committed when this returns."""

    def source_tickets(self, host: str, agent_id: str, job: str, attempt: int) -> list[SourceTicket]:
        """Return tickets to read the results that are the input of a job on a host, in their order.

        Raises Conflict or NotFound if this attempt waits for no input, or one of the results is no longer held.
        """

    def load_design(self, host: str, agent_id: str, function: str, nonce: str, cached: str = "") -> DesignAnswer:
        """Return the permission to load a design on a host now, and its bitstream unless `cached` is its digest.

        Raises BitstreamRefused if the design is not, or no longer, approved.
        """

    # Agents of hosts with virtual machines

    def claim_slots(
        self, host: str, agent_id: str, instance: str, project_id: str, wanted: AcceleratorRequest
    ) -> list[Slot]:
        """Claim slots for a virtual machine that starts on a host; repeated calls return the same slots.

        Raises
        ------
        Conflict
            If the host cannot give what is wanted, or Placement has not allocated it.
        ServiceUnavailable
            If Placement does not answer and the virtual machine does not hold its slots yet.

        """

    def release_slots(self, host: str, agent_id: str, leases: Mapping[str, int]) -> None:
        """Release slots that virtual machines hold on a host; `leases` maps uuids to the generations that were read.

        A lease that was claimed again since then is not released, however late the call is executed.
        """

    def instance_leases(self, host: str) -> dict[str, list[Lease]]:
        """Return the leases of virtual machines on a host, by instance, each list by slot."""


class SchedulerAPI(SchedulerCalls):
    """Client side of the scheduler's RPC interface."""

    def __init__(
        self, transport: Any, identity: Identity, timeout_s: float = 10.0, *, any_server: bool = False
    ) -> None:
        self._client = SignedClient(transport, SCHEDULER_TOPIC, identity, timeout_s)
        self._caller = Caller()
        self._timeout_s = timeout_s
        #: Calls go to any scheduler, without a message that finds one first. This is for callers that cannot wait for
        #: that, and make only calls that may be repeated to another scheduler (`identity.REPEATABLE`).
        self._any_server = any_server
        #: Name and run of the scheduler to which calls go until it does not respond. Messages to the topic could reach
        #: a scheduler that stalls, which gets its share of them for a while.
        self._server: tuple[str, str] | None = None
        self._heard_s = 0.0
        #: If the scheduler has not answered for this long, it is greeted before the next call.  Users wait for calls of
        #: an API; agents repeat their calls anyway, and their heartbeats would cost twice as much.
        self._silence_s = FIND_S if identity.role is Role.API else math.inf
        self._gatherer = Gatherer(partial(self._asked, timeout_s), timeout_s) if identity.role is Role.API else None

    def _call(self, answer_type: Any, method: str, **arguments: Any) -> Any:
        """Call a scheduler; return its answer, of the type `answer_type`."""
        plain, ids = to_plain(arguments), current_ids()  # those of this thread; the call is made in another
        if self._gatherer is not None and self._gatherer.takes(method, plain):
            answer = self._gatherer.call(method, plain, ids)
        else:
            answer = self._asked(_TIMEOUTS_S.get(method, self._timeout_s), method, plain, ids)
        return read(answer_type, answer, method)

    def _asked(self, timeout_s: float, method: str, plain: dict[str, Any], ids: Mapping[str, str]) -> Any:
        try:
            return signed_again(lambda: self._ask_known(timeout_s, method, plain, ids), self._forget)
        except NO_ANSWER:
            self._forget()
            raise

    def _forget(self) -> None:
        self._server = None

    def _ask_known(self, timeout_s: float, method: str, plain: dict[str, Any], ids: Mapping[str, str]) -> Any:
        if self._any_server or method == "health":
            return self._ask(timeout_s, method, plain, ids)
        answer = self._ask(timeout_s, method, plain, ids, *self._known())
        self._heard_s = time.monotonic()
        return answer

    def _ask(
        self,
        timeout_s: float,
        method: str,
        plain: dict[str, Any],
        ids: Mapping[str, str],
        server: str | None = None,
        run: str = "",
    ) -> Any:
        sign_of_life_s = SIGN_OF_LIFE_S if timeout_s > self._timeout_s else None
        options = {"timeout": timeout_s, "call_monitor_timeout": sign_of_life_s}
        return self._caller.run(lambda: self._client.call(server, run, method, plain, ids, **options), timeout_s)

    def _known(self) -> tuple[str, str]:
        """Return name and run of the current scheduler or, if it was silent for long, of one that answers now."""
        server = self._server
        if server is None:
            return self._find(None)
        if time.monotonic() - self._heard_s <= self._silence_s:
            return server
        # Otherwise its failure would be noticed only after this call, and others until then, have timed out.
        return self._find(server[0], None)

    def _find(self, *first: str | None) -> tuple[str, str]:
        """Return name and run of the first of these schedulers (None = any) that answers now."""
        for attempt in range(FIND_ATTEMPTS):
            server = first[min(attempt, len(first) - 1)]
            try:
                found = self._caller.run(partial(self._client.greet, server, FIND_S), FIND_S)
            except NO_ANSWER:
                if attempt + 1 == FIND_ATTEMPTS:
                    raise
            else:
                break
        self._server, self._heard_s = found, time.monotonic()
        return found

    # Schedulers

    def describe(self, server: str) -> dict[str, Any]:
        """Return the name of a scheduler, its shards, and the numbers of messages that it has refused, by code."""
        description: dict[str, Any] = self._ask(FIND_S, "describe", {}, current_ids(), server)
        return description

    def wake(self) -> None:
        """Notify all schedulers that there may be work; a lost message does no harm."""
        self._caller.run(lambda: self._client.cast_to_all("wake"), FIND_S)

    def enroll(self, host: str, code: str = "") -> bool:
        """Offer the key of this agent as that of its host; return whether it is accepted.

        With the one-time code of the host it is accepted immediately; otherwise an operator has to approve it.
        """
        key = self._client.identity.public_text
        proof = enrolment_proof(code, host, key) if code else ""
        offer = {"host": host, "key": key, "proof": proof}
        return bool(self._ask(self._timeout_s, INTRODUCING, offer, current_ids()))

    def alive(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat without news as a life sign; it may get lost, and no scheduler answers it."""
        sign = {name: getattr(heartbeat, name) for name in ("host", "agent_id", "boot", "beat", "counters")}
        self._caller.run(lambda: self._client.cast(LIFE_SIGNS_TOPIC, "alive", to_plain(sign)), FIND_S)
