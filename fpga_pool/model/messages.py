"""What the scheduler and the agents say to each other: commands down, reports up, as plain data.

Commands are executed at most once per id and refused when older than what the slot has seen (`Command.fence`).
Reports are delivered at least once, in the order of the agent's journal; a report about an attempt that is over is
void.  Both are encoded by `rpc.codec`, so field types are JSON types, enums and tuples of such dataclasses.
"""

from dataclasses import dataclass, replace

from fpga_pool.model.gang_messages import GangAction, GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.objects import RateSegment, SlotState

# Commands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignJob:
    """Queue a job on a slot: accept its input, load its function when due, compute, hold the result."""

    job: str
    attempt: int
    project_id: str
    function: str
    input_bytes: int
    #: Rank in the slot's queue; the staged job of lowest rank runs first.
    order: int
    #: Predicted computing time, from which the agent tells a hang.
    expected_s: float
    #: Share of the work that an evicted attempt has done on this host, and that need not be done again.
    done: float = 0.0
    #: How the input is planned to move, from time 0 at UTC seconds of the pool; empty for one that moves in no time.
    dispatched_at: float = 0.0
    transfer: tuple[RateSegment, ...] = ()
    #: How the result is planned to flow back, in seconds after the computation ends; empty for one without limits.
    result_transfer: tuple[RateSegment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetimeJob:
    """The input of an attempt is planned to move at other times or rates than said before."""

    job: str
    attempt: int
    dispatched_at: float
    transfer: tuple[RateSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJob:
    """Forget a job: stop it if it computes, delete its input and result."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictJob:
    """Stop an attempt that computes or waits, and keep its input; nothing is done about one that has ended."""

    job: str
    attempt: int
    #: What was computed so far is kept as well.
    keep_progress: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFlow:
    """Hold the stream that brings a job's input to the rates of the plan; a command to the requester's agent.

    It is about one attempt only, and what is left of it ends with the plan's last segment.  Said again of the same
    stream it changes the rates while bytes move; a plan made earlier than the one that is held to is refused.
    """

    job: str
    attempt: int
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    #: Time 0 of the segments, UTC seconds of the pool.
    dispatched_at: float
    transfer: tuple[RateSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFlow:
    """Lift the limit of a job's stream."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSlot:
    """Keep a slot for an instance: when the pool's jobs have left it, clear its memory and load the function."""

    instance: str
    project_id: str
    function: str
    #: Epoch of the lease.
    lease_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSlot:
    """An instance holds the slot no more: take it from the guest, and clear its memory."""

    instance: str
    lease_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFunction:
    """Load a function that no job of the slot asks for yet; nothing is done about a slot that has something to do.

    Nor about one that holds another function by now than when this was decided, so that a repeated decision costs no
    second load.  It is for the moment at which it is sent, or for nothing.
    """

    function: str
    #: What the slot held when this was decided; "" = nothing.
    replaces: str


JobAction = AssignJob | RetimeJob | ReleaseJob | EvictJob
Action = JobAction | ShapeFlow | ReleaseFlow | HoldSlot | FreeSlot | LoadFunction | GangAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An action for one host, with what its agent needs to refuse a late or repeated one.

    Actions on a slot, or on a processor that gangs have, are fenced; those on the host itself (flows) have no slot, and
    only their repeats are refused.
    """

    id: str
    shard: str
    #: Epoch of the shard's owner when it decided.
    epoch: int
    host: str
    slot: str
    #: Position among the slot's commands.
    sequence: int
    action: Action

    @property
    def fence(self) -> tuple[int, int]:
        """Commands of a slot are accepted in growing order of this."""
        return self.epoch, self.sequence

    def without_effect(self) -> "Command":
        """Return the command that is numbered as this one and changes nothing on a slot; every agent knows it.

        A command that was merely left out would leave its slot behind the number of the last one, as if it were still
        under way.
        """
        return replace(self, action=ReleaseJob(job=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an agent did with a command: "accepted", "repeated" (done before) or "refused", and why."""

    command: str
    outcome: str
    reason: str = ""


# Reports -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Base of what is said about one attempt of a job; `at` is the agent's UTC time."""

    job: str
    attempt: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputStaged(JobReport):
    """The responder holds the whole input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobReport):
    """The job computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(JobReport):
    """The job is complete and its result is held; of a short one the earlier steps are told together with it."""

    compute_s: float
    result_bytes: int
    result_sha256: str
    staged_at: float | None = None
    started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobReport):
    """The attempt failed; `retryable` where the job itself may be sound."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvicted(JobReport):
    """The attempt was stopped, as its agent was told; the input stays, with this share of the work done."""

    done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobReport):
    """The agent has forgotten the job, as it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDelivered(JobReport):
    """The client has the result and said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultExpired(JobReport):
    """The retention time ended; the result is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotChanged:
    """A slot is in another state than before."""

    slot: str
    at: float
    state: SlotState
    function: str = ""
    job: str = ""
    reason: str = ""


Report = (
    InputStaged
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


# Heartbeats ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSlot:
    """A slot as its agent sees it now."""

    slot: str
    card: str
    region: str
    board: str
    kind: str
    state: SlotState
    function: str = ""
    job: str = ""
    reason: str = ""
    #: Sequence of the last command executed on the slot: while it is behind the slot's own, nothing is concluded
    #: from what the heartbeat lacks; and the epoch of that command.
    sequence: int = 0
    epoch: int = 0
    #: Instance that the agent keeps the slot for; "" = none.
    instance: str = ""
    #: How it is linked to other slots, see `model.links`.
    links: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """A job as its agent knows it now."""

    job: str
    attempt: int
    slot: str
    #: How much of its input is here, where that is not as planned: what goes as planned says the same in every beat.
    moved_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The full observed state of one host."""

    host: str
    #: Secret of the agent, how often it was started, and how many heartbeats it has sent since.
    agent_id: str
    boot: int
    beat: int
    at: float
    egress_bps: float
    ingress_bps: float
    data_address: str
    data_port: int
    slots: tuple[ObservedSlot, ...]
    jobs: tuple[ObservedJob, ...]
    #: What it gives to gangs, and their processes.
    processors: tuple[ObservedProcessor, ...] = ()
    processes: tuple[ObservedProcess, ...] = ()
    #: Reports in the agent's journal that were not yet acknowledged: while there are any, nothing is concluded at all.
    unreported: int = 0
    #: The data port speaks TLS only.
    data_tls: bool = False
    #: Streams and commands that were refused since its start; its log tells why each.
    refused_streams: int = 0
    refused_commands: int = 0
    availability_zone: str = ""
    #: Egress driver by which flows that leave this host are limited; "" = none.
    egress_driver: str = ""
    #: Name of the host's provider in Placement (Nova's hypervisor_hostname); "" = that of the host.
    node: str = ""
