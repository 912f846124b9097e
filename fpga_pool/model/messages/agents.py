"""Messages between the scheduler and the agents: commands down, reports up, as plain data.

Commands are executed at most once per id and refused when older than what the slot has seen (`Command.fence`).
Reports are delivered at least once, in the order of the agent's journal; a report about an attempt that is over is
void.  Both cross the wire and the disk by `model.codec`.
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
    """A result that an agent holds, and that is the input of another job, or a part of it."""

    job: Id
    attempt: Count
    host: Text
    result_bytes: ByteCount
    result_sha256: Sha256


class AttemptMessage(Variant, frozen=True, kw_only=True):
    """Base of what is said about one attempt of a job."""

    job: Id
    attempt: Count


class AssignJob(AttemptMessage, frozen=True, kw_only=True):
    """Queue a job on a slot: accept its input, load its function when due, compute, hold the result."""

    project_id: Text
    function: Text
    input_bytes: ByteCount
    #: Rank in the slot's queue; the staged job of lowest rank runs first.
    order: Count
    #: Predicted compute time, by which the agent detects a hang.
    expected_s: Number
    #: Share of the work that an evicted attempt has done on this host, and that need not be done again.
    done: Share = 0.0
    #: How the input is planned to move, from time 0 at UTC seconds of the pool; empty for one that moves in no time.
    dispatched_at: Number = 0.0
    transfer: tuple[RateSegment, ...] = ()
    #: How the result is planned to flow back, in seconds after the computation ends; empty for one without limits.
    result_transfer: tuple[RateSegment, ...] = ()
    #: The agent itself gets the input: these results, one after the other; empty = a client sends it.
    sources: tuple[InputSource, ...] = ()
    #: The result is the input of other jobs: it stays when a client has it, until the pool releases the job.
    kept: bool = False


class RetimeJob(AttemptMessage, frozen=True, kw_only=True):
    """The input of an attempt is planned to move at other times or rates than said before."""

    dispatched_at: Number
    transfer: tuple[RateSegment, ...]


class ReleaseJob(Variant, frozen=True, kw_only=True):
    """Forget a job: stop it if it computes, delete its input and result."""

    #: "" in a command without effect.
    job: OptionalId


#: Every agent knows it, and does nothing.
NO_EFFECT = ReleaseJob(job="")


class EvictJob(AttemptMessage, frozen=True, kw_only=True):
    """Stop an attempt that computes or waits, and keep its input; nothing is done about one that has ended."""

    #: What was computed so far is kept as well.
    keep_progress: bool


class ShapeFlow(AttemptMessage, frozen=True, kw_only=True):
    """Hold the stream that brings a job's input to the rates of the plan; a command to the requester's agent.

    It is about one attempt only, and what is left of it ends with the plan's last segment.  Said again of the same
    stream it changes the rates while bytes move; a plan made earlier than the one that is held to is refused.
    """

    source_address: Text
    source_port: Port
    destination_address: Text
    destination_port: Port
    #: Time 0 of the segments, UTC seconds of the pool.
    dispatched_at: Number
    transfer: tuple[RateSegment, ...]
    #: The virtual machine of the host that sends it; "" = the host itself, or whatever has the source address.
    server: OptionalId = ""

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class ReleaseFlow(AttemptMessage, frozen=True, kw_only=True):
    """Lift the limit of a job's stream."""


class HoldSlot(Variant, frozen=True, kw_only=True):
    """Keep a slot for an instance: when the pool's jobs have left it, clear its memory and load the function."""

    instance: Id
    project_id: Text
    function: Text
    #: Epoch of the lease.
    lease_epoch: Count


class FreeSlot(Variant, frozen=True, kw_only=True):
    """An instance holds the slot no more: take it from the guest, and clear its memory."""

    instance: Id
    lease_epoch: Count


class LoadFunction(Variant, frozen=True, kw_only=True):
    """Load a function that no job of the slot asks for yet; nothing is done about a slot that has something to do.

    Nor about one that holds another function by now than when this was decided, so that a repeated decision costs no
    second load.  It is for the moment at which it is sent, or for nothing.
    """

    function: Text
    #: What the slot held when this was decided; "" = nothing.
    replaces: Text


JobAction = AssignJob | RetimeJob | ReleaseJob | EvictJob
Action = JobAction | ShapeFlow | ReleaseFlow | HoldSlot | FreeSlot | LoadFunction | GangAction


class Command(Message, frozen=True, kw_only=True):
    """An action for one host, with what its agent needs to refuse a late or repeated one.

    Actions on a slot, or on a processor that gangs have, are fenced; those on the host itself (flows) have no slot, and
    only their repeats are refused.
    """

    id: Text
    shard: Text
    #: Epoch of the shard's owner when it decided.
    epoch: Count
    host: Text
    slot: Text
    #: Position among the slot's commands.
    sequence: Count
    #: Of the request that caused it (`history.Cause`); for log lines alone.
    request_id: RequestId = ""
    global_request_id: RequestId = ""
    action: Action

    @property
    def cause(self) -> Cause:
        """The request that caused it."""
        return Cause(self.request_id, self.global_request_id)

    @property
    def fence(self) -> tuple[int, int]:
        """Commands of a slot are accepted in growing order of this."""
        return self.epoch, self.sequence

    def without_effect(self) -> "Command":
        """Return the command that is numbered as this one and changes nothing on a slot; every agent knows it.

        A command that was merely left out would leave its slot behind the number of the last one, as if it were still
        under way.
        """
        return msgspec.structs.replace(self, action=NO_EFFECT)


class Outcome(Message, frozen=True, kw_only=True):
    """What an agent did with a command: "accepted", "repeated" (done before) or "refused", and why."""

    command: Text
    outcome: Text
    reason: Reason = ""


# Reports -------------------------------------------------------------------------------------------------------


class JobReport(AttemptMessage, frozen=True, kw_only=True):
    """Base of the reports on one attempt of a job; `at` is the agent's UTC time."""

    at: ReportedMoment


class FlowSeen(JobReport, frozen=True, kw_only=True):
    """The input comes, with a token of the attempt, from the source that the client had named to the scheduler."""

    source_address: Text
    source_port: Port

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class InputStaged(JobReport, frozen=True, kw_only=True):
    """The responder holds the whole input."""

    #: When its first byte came; None where all came at once, was here already, or began before the agent's start.
    transfer_began_at: ReportedMoment | None = None


class JobStarted(JobReport, frozen=True, kw_only=True):
    """The job computes."""


class JobFinished(JobReport, frozen=True, kw_only=True):
    """The job is complete and its result is held; for a short one this report includes the earlier steps."""

    compute_s: Duration
    result_bytes: ResultBytes
    result_sha256: Sha256
    transfer_began_at: ReportedMoment | None = None
    staged_at: ReportedMoment | None = None
    started_at: ReportedMoment | None = None


class JobFailed(JobReport, frozen=True, kw_only=True):
    """The attempt failed; `retryable` where the job itself may be sound."""

    code: Text
    message: Reason
    retryable: bool


class JobEvicted(JobReport, frozen=True, kw_only=True):
    """The attempt was stopped on command; the input stays, with this share of the work done."""

    done: Share


class JobReleased(JobReport, frozen=True, kw_only=True):
    """The agent has released the job on command."""


class ResultDelivered(JobReport, frozen=True, kw_only=True):
    """The client has the result and said so."""


class ResultExpired(JobReport, frozen=True, kw_only=True):
    """The retention time ended; the result is deleted."""


class SlotChanged(Variant, frozen=True, kw_only=True):
    """A slot is in another state than before."""

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


#: Virtual machines, and flows, that a host may report; slots and processors; jobs and processes of gangs.
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
    #: Sequence of the last command executed on the slot: while it is behind the slot's own, nothing is concluded
    #: from what the heartbeat lacks; and the epoch of that command.
    sequence: Count = 0
    epoch: Count = 0
    #: Instance that the agent keeps the slot for; "" = none.
    instance: OptionalId = ""
    #: How it is linked to other slots, see `model.objects.links`.
    links: Text = ""


class ObservedJob(Message, frozen=True, kw_only=True):
    """A job as its agent knows it now."""

    job: Id
    attempt: Count
    slot: Text
    #: How much of its input is here, where that is not as planned: what goes as planned says the same in every beat.
    moved_bytes: ByteCount | None = None


class ObservedFlow(Message, frozen=True):
    """How fast the input of a job arrived between two heartbeats."""

    job: Id
    attempt: Count
    bps: MeasuredRate


class ObservedServer(Message, frozen=True, kw_only=True):
    """A virtual machine that runs on the host, with ports of Neutron; its project may send from it."""

    uuid: Uuid
    project_id: ProjectId
    #: What it may send: less than its host where a port of it has a limit.
    egress_bps: Rate
    #: The agent holds its flows at its taps.
    held: bool


class Heartbeat(Message, frozen=True, kw_only=True):
    """The full observed state of one host."""

    host: Text
    #: Secret of the agent, how often it was started, and how many heartbeats it has sent since.
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
    #: What it gives to gangs, and their processes.
    processors: Annotated[tuple[ObservedProcessor, ...], Meta(max_length=_MOST_PLACES)] = ()
    processes: Annotated[tuple[ObservedProcess, ...], Meta(max_length=_MOST_WORK)] = ()
    #: Reports in the agent's journal that were not yet acknowledged: while there are any, nothing is concluded at all.
    unreported: Count = 0
    #: The data port speaks TLS only.
    data_tls: bool = False
    #: Number of streams and commands refused since its start; its log has the reasons.
    refused_streams: Count = 0
    refused_commands: Count = 0
    availability_zone: Text = ""
    #: Egress driver by which flows that leave this host are limited; "" = none.
    egress_driver: Text = ""
    #: Name of the host's provider in Placement (Nova's hypervisor_hostname); "" = that of the host.
    node: Text = ""
    #: None: not known yet, as before the hypervisor has answered.
    servers: Annotated[tuple[ObservedServer, ...], Meta(max_length=MOST_SERVERS)] | None = ()
    #: Of the inputs under way; these alone are no news for which a heartbeat is compared with the database.
    flows: Annotated[tuple[ObservedFlow, ...], Meta(max_length=MOST_FLOWS)] = ()
    #: No news either; None = nothing was measured since those of an earlier heartbeat.
    counters: HostCounters | None = None
