"""Messages between the scheduler and the agents as plain data: commands to agents, and their reports and heartbeats.

A command is executed at most once per id, and refused if it is older than the last one of its slot (`Command.fence`).
Reports are delivered at least once, in the order of the agent's journal; a report about an attempt that is over is
void.  `model.codec` converts both for the network and the disk.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fpga_pool.model.codec import Message, Variant
from fpga_pool.model.fields import (
    ByteCount,
    Count,
    Duration,
    Id,
    MeasuredRate,
    Number,
    OptionalId,
    Port,
    ProjectId,
    Rate,
    Reason,
    ReportedMoment,
    RequestId,
    ResultBytes,
    Sha256,
    Share,
    Text,
    Uuid,
    require_address,
)
from fpga_pool.model.messages.counters import HostCounters
from fpga_pool.model.messages.gangs import GangAction, GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.objects.history import Cause
from fpga_pool.model.objects.pool import RateSegment, SlotState

# Commands ------------------------------------------------------------------------------------------------------


class InputSource(Message, frozen=True, kw_only=True):
    """A result, held by an agent, that is the input of another job or a part of it."""

    job: Id
    attempt: Count
    host: Text
    result_bytes: ByteCount
    result_sha256: Sha256


class AttemptMessage(Variant, frozen=True, kw_only=True):
    """Base of the messages about one attempt of a job."""

    job: Id
    attempt: Count


class AssignJob(AttemptMessage, frozen=True, kw_only=True):
    """Queue a job on a slot: accept its input, load its function when it is its turn, compute, hold the result."""

    project_id: Text
    function: Text
    input_bytes: ByteCount
    #: Rank in the slot's queue; the staged job of lowest rank runs first.
    order: Count
    #: Predicted compute time, by which the agent detects a hang.
    expected_s: Number
    #: Share of the work that an evicted attempt has done on this host and that is not repeated.
    done: Share = 0.0
    #: Planned transfer of the input, relative to `dispatched_at` (UTC seconds of the pool); empty if it takes no time.
    dispatched_at: Number = 0.0
    transfer: tuple[RateSegment, ...] = ()
    #: Planned transfer of the result, in seconds after the end of the computation; empty if its rate is not limited.
    result_transfer: tuple[RateSegment, ...] = ()
    #: Results that the agent fetches and concatenates as the input; empty = a client sends the input.
    sources: tuple[InputSource, ...] = ()
    #: The result is the input of other jobs: the agent keeps it until the pool releases the job.
    kept: bool = False


class RetimeJob(AttemptMessage, frozen=True, kw_only=True):
    """Change the planned times or rates of the input transfer of an attempt."""

    dispatched_at: Number
    transfer: tuple[RateSegment, ...]


class ReleaseJob(Variant, frozen=True, kw_only=True):
    """Forget a job: stop its computation, if any, and delete its input and result."""

    #: "" in a command without effect.
    job: OptionalId


#: A command that every agent understands and that does nothing.
NO_EFFECT = ReleaseJob(job="")


class EvictJob(AttemptMessage, frozen=True, kw_only=True):
    """Stop an attempt that computes or waits, and keep its input; no effect on an attempt that has ended."""

    #: Keep the progress of the computation as well.
    keep_progress: bool


class ShapeFlow(AttemptMessage, frozen=True, kw_only=True):
    """Limit the stream that sends a job's input to the rates of the plan; a command to the requester's agent.

    The limit applies to one attempt only, and ends with the last segment of the plan at the latest.  Another command
    for the same stream changes the rates during the transfer; a plan older than the one in force is refused.
    """

    source_address: Text
    source_port: Port
    destination_address: Text
    destination_port: Port
    #: Time 0 of the segments, UTC seconds of the pool.
    dispatched_at: Number
    transfer: tuple[RateSegment, ...]
    #: The virtual machine of the host that sends the stream; "" = the host itself, or any sender with the address.
    server: OptionalId = ""

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class ReleaseFlow(AttemptMessage, frozen=True, kw_only=True):
    """Remove the rate limit of a job's stream."""


class HoldSlot(Variant, frozen=True, kw_only=True):
    """Hold a slot for an instance: when the pool's jobs have left it, clear its memory and load the function."""

    instance: Id
    project_id: Text
    function: Text
    #: Epoch of the lease.
    lease_epoch: Count


class FreeSlot(Variant, frozen=True, kw_only=True):
    """Free a slot that an instance no longer holds: revoke the guest's access and clear the memory."""

    instance: Id
    lease_epoch: Count


class LoadFunction(Variant, frozen=True, kw_only=True):
    """Load a function that no job of the slot needs yet; no effect if the slot has something to do.

    It has no effect either if the slot no longer holds the function `replaces`, so that a repeated decision causes no
    second load.  It is valid only at the time when it is sent.
    """

    function: Text
    #: Function that the slot held at the time of the decision; "" = none.
    replaces: Text


JobAction = AssignJob | RetimeJob | ReleaseJob | EvictJob
Action = JobAction | ShapeFlow | ReleaseFlow | HoldSlot | FreeSlot | LoadFunction | GangAction


class Command(Message, frozen=True, kw_only=True):
    """An action for one host, with the data by which its agent refuses late or repeated commands.

    Actions on a slot, or on a processor of gangs, are fenced.  Actions on the host itself (flows) have no slot, and
    only repeated ones are refused.
    """

    id: Text
    shard: Text
    #: Epoch of the shard's owner when it decided.
    epoch: Count
    host: Text
    slot: Text
    #: Position among the slot's commands.
    sequence: Count
    #: Ids of the request that caused it (`history.Cause`), used only in log lines.
    request_id: RequestId = ""
    global_request_id: RequestId = ""
    action: Action

    @property
    def cause(self) -> Cause:
        """The request that caused it."""
        return Cause(self.request_id, self.global_request_id)

    @property
    def fence(self) -> tuple[int, int]:
        """Epoch and sequence, in whose increasing order the commands of a slot are accepted."""
        return self.epoch, self.sequence

    def without_effect(self) -> "Command":
        """Return a command with the same number that every agent understands and that has no effect on a slot.

        If the command were left out instead, the sequence of the slot would stay behind its last number, as if the
        command were still under way.
        """
        return msgspec.structs.replace(self, action=NO_EFFECT)


class Outcome(Message, frozen=True, kw_only=True):
    """Outcome of a command on an agent: "accepted", "repeated" (executed before) or "refused", and the reason."""

    command: Text
    outcome: Text
    reason: Reason = ""


# Reports -------------------------------------------------------------------------------------------------------


class JobReport(AttemptMessage, frozen=True, kw_only=True):
    """Base of the reports on one attempt of a job; `at` is the agent's UTC time."""

    at: ReportedMoment


class FlowSeen(JobReport, frozen=True, kw_only=True):
    """The input arrives, with a token of the attempt, from the source that the client had named to the scheduler."""

    source_address: Text
    source_port: Port

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class InputStaged(JobReport, frozen=True, kw_only=True):
    """The responder has received the whole input."""

    #: When its first byte arrived; None if it came at once, was there already, or began before the agent's start.
    transfer_began_at: ReportedMoment | None = None


class JobStarted(JobReport, frozen=True, kw_only=True):
    """The computation of the job has started."""


class JobFinished(JobReport, frozen=True, kw_only=True):
    """The job is complete and its result is held; for a short job the report includes the times of earlier steps."""

    compute_s: Duration
    result_bytes: ResultBytes
    result_sha256: Sha256
    transfer_began_at: ReportedMoment | None = None
    staged_at: ReportedMoment | None = None
    started_at: ReportedMoment | None = None


class JobFailed(JobReport, frozen=True, kw_only=True):
    """The attempt failed; it is `retryable` if the job itself may not be the cause."""

    code: Text
    message: Reason
    retryable: bool


class JobEvicted(JobReport, frozen=True, kw_only=True):
    """The attempt was evicted on command; the agent keeps the input, and this share of the work is done."""

    done: Share


class JobReleased(JobReport, frozen=True, kw_only=True):
    """The agent has released the job on command."""


class ResultDelivered(JobReport, frozen=True, kw_only=True):
    """The client has confirmed that it has received the result."""


class ResultExpired(JobReport, frozen=True, kw_only=True):
    """The retention time of the result has ended, and the result was deleted."""


class SlotChanged(Variant, frozen=True, kw_only=True):
    """The state of a slot has changed."""

    slot: Text
    at: ReportedMoment
    state: SlotState
    function: Text = ""
    job: OptionalId = ""
    reason: Reason = ""


Report = (
    FlowSeen
    | InputStaged
    | JobStarted
    | JobFinished
    | JobFailed
    | JobEvicted
    | JobReleased
    | ResultDelivered
    | ResultExpired
    | SlotChanged
    | GangReport
)


#: Maximum numbers that a host may report: virtual machines and flows; slots and processors; jobs and processes.
MOST_SERVERS = MOST_FLOWS = 1000
_MOST_PLACES, _MOST_WORK = 10_000, 100_000

# Heartbeats ----------------------------------------------------------------------------------------------------


class ObservedSlot(Message, frozen=True, kw_only=True):
    """A slot as its agent sees it now."""

    slot: Text
    card: Text
    region: Text
    board: Text
    kind: Text
    state: SlotState
    function: Text = ""
    job: OptionalId = ""
    reason: Reason = ""
    #: Sequence and epoch of the last command executed on the slot.  While the sequence is behind that in the database,
    #: nothing is concluded from what is missing in the heartbeat.
    sequence: Count = 0
    epoch: Count = 0
    #: Instance for which the agent holds the slot; "" = none.
    instance: OptionalId = ""
    #: Links to other slots, see `model.objects.links`.
    links: Text = ""


class ObservedJob(Message, frozen=True, kw_only=True):
    """A job as its agent knows it now."""

    job: Id
    attempt: Count
    slot: Text
    #: Received bytes of its input if it does not move as planned; else None, so that successive heartbeats are equal.
    moved_bytes: ByteCount | None = None


class ObservedFlow(Message, frozen=True):
    """Rate at which the input of a job arrived between two heartbeats."""

    job: Id
    attempt: Count
    bps: MeasuredRate


class ObservedServer(Message, frozen=True, kw_only=True):
    """A virtual machine on the host that has Neutron ports; its project may send inputs from it."""

    uuid: Uuid
    project_id: ProjectId
    #: Limit of its egress, which is lower than that of its host if a port has a limit.
    egress_bps: Rate
    #: Whether the agent limits its flows at its tap devices.
    held: bool


class Heartbeat(Message, frozen=True, kw_only=True):
    """The full observed state of one host."""

    host: Text
    #: Secret of the agent, number of its starts, and number of its heartbeats since the last start.
    agent_id: Text
    boot: Count
    beat: Count
    at: ReportedMoment
    egress_bps: Rate
    ingress_bps: Rate
    data_address: Text
    data_port: Annotated[int, Meta(ge=0, le=65535)]
    slots: Annotated[tuple[ObservedSlot, ...], Meta(max_length=_MOST_PLACES)]
    jobs: Annotated[tuple[ObservedJob, ...], Meta(max_length=_MOST_WORK)]
    #: Processors that it offers to gangs, and processes of gangs.
    processors: Annotated[tuple[ObservedProcessor, ...], Meta(max_length=_MOST_PLACES)] = ()
    processes: Annotated[tuple[ObservedProcess, ...], Meta(max_length=_MOST_WORK)] = ()
    #: Number of unacknowledged reports in the agent's journal; if not 0, states are not compared with the database.
    unreported: Count = 0
    #: Whether the data port accepts TLS only.
    data_tls: bool = False
    #: Number of streams and commands refused since its start; its log has the reasons.
    refused_streams: Count = 0
    refused_commands: Count = 0
    availability_zone: Text = ""
    #: Egress driver that limits the flows leaving this host; "" = none.
    egress_driver: Text = ""
    #: Name of the host's provider in Placement (Nova's hypervisor_hostname); "" = that of the host.
    node: Text = ""
    #: None = not known yet, for example before the hypervisor has answered.
    servers: Annotated[tuple[ObservedServer, ...], Meta(max_length=MOST_SERVERS)] | None = ()
    #: Rates of the inputs under way; a change of these alone causes no comparison of the heartbeat with the database.
    flows: Annotated[tuple[ObservedFlow, ...], Meta(max_length=MOST_FLOWS)] = ()
    #: A change of these causes no comparison, either; None = no measurement since that of an earlier heartbeat.
    counters: HostCounters | None = None
