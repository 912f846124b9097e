"""Requests of tenants for work: what a client sends and a scheduler admits (`model/rules/*/admission.py`); designs."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from fpga_pool.model.codec import Message, to_text
from fpga_pool.model.fields import (
    ByteCount,
    ChosenUuid,
    Group,
    Internal,
    Moment,
    Priority,
    Seconds,
    Sha256,
    Text,
    Uuid,
    text,
)
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.bitstreams import MOST_DESIGN_BYTES, DesignManifest
from fpga_pool.model.objects.gangs import LONGEST_COMMAND, LONGEST_IMAGE
from fpga_pool.model.objects.quotas import Amounts, Resource
from fpga_pool.model.objects.tasks import MOST_SLOTS, TaskShape

#: Batches that one may wait for, and results of others that a subtask may read.
MOST_DEPENDENCIES = 100


class WorkRequest(Message, frozen=True, kw_only=True):
    """A request of a tenant for work; the uuid is chosen by the client."""

    uuid: ChosenUuid
    project_id: Internal[str]
    user_id: Internal[str]
    name: Text = ""

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        raise NotImplementedError


class JobRequest(Message, frozen=True, kw_only=True):
    """One job as a tenant asks for it; the uuid is chosen by the client."""

    uuid: ChosenUuid
    name: Text = ""
    function: Text
    requester: Text
    input_bytes: ByteCount
    group: Group = 0


class BatchRequest(WorkRequest, frozen=True, kw_only=True):
    """A batch as a tenant asks for it; an empty policy is the operator's default."""

    policy: Annotated[str, text(64)] = ""
    #: Its jobs get no places before it is released.
    held: bool = False
    priority: Priority = 0
    deadline_at: Moment | None = None
    #: Batches of the project that have to be complete before.
    after: Annotated[
        tuple[Uuid, ...], Meta(max_length=MOST_DEPENDENCIES, description=f"a list of at most {MOST_DEPENDENCIES} uuids")
    ] = ()
    jobs: tuple[JobRequest, ...]

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        return _amounts_of(self.jobs)


SubtaskName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z", description="1 to 64 letters, digits, or any of _.-")
]


class SubtaskRequest(Message, frozen=True, kw_only=True):
    """One subtask; its input comes from a requester, or is the results of other subtasks."""

    uuid: ChosenUuid
    #: Unique in the pipeline.
    name: SubtaskName
    function: Text
    #: Names of its predecessors; their results, one after the other in this order, are its input.
    after: Annotated[
        tuple[SubtaskName, ...],
        Meta(max_length=MOST_DEPENDENCIES, description=f"a list of at most {MOST_DEPENDENCIES} names of subtasks"),
    ] = ()
    #: Of a subtask without predecessors: the host that sends its input, and the size of that.
    requester: Text = ""
    input_bytes: ByteCount = 0


class PipelineRequest(WorkRequest, frozen=True, kw_only=True):
    """A pipeline as a tenant asks for it; the subtasks in any order."""

    subtasks: Annotated[tuple[SubtaskRequest, ...], Meta(min_length=1, description="a list of 1 subtask or more")]

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        return _amounts_of(self.subtasks)


class ShareRequest(Message, frozen=True, kw_only=True):
    """One share of a task: the input of one of its slots, and its requester."""

    uuid: ChosenUuid
    name: Text = ""
    requester: Text
    input_bytes: ByteCount


class TaskRequest(WorkRequest, frozen=True, kw_only=True):
    """A task as a tenant asks for it; the uuids are chosen by the client."""

    function: Text
    topology: Annotated[Topology, Meta(description="any, line or ring")] = Topology.ANY
    #: In the order in which their slots follow each other on a line or ring.
    shares: Annotated[
        tuple[ShareRequest, ...],
        Meta(min_length=1, max_length=MOST_SLOTS, description=f"a list of 1 to {MOST_SLOTS} shares"),
    ]
    #: The shapes of a malleable task; () = one slot for each share.
    shapes: Annotated[
        tuple[TaskShape, ...], Meta(max_length=MOST_SLOTS, description=f"a list of at most {MOST_SLOTS} shapes")
    ] = ()

    @property
    def most_slots(self) -> int:
        """The slots of its widest shape."""
        return max((shape.slots for shape in self.shapes), default=len(self.shares))

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        return {**_amounts_of(self.shares), Resource.TASK_SLOTS: self.most_slots}


class GangRequest(WorkRequest, frozen=True, kw_only=True):
    """A gang as a tenant asks for it."""

    processes: Annotated[int, Meta(ge=1, le=100_000, description="a number of processes")]
    runtime_s: Seconds
    cpu_usage: Annotated[float, Meta(gt=0, le=1, description="a share of a processor, above 0 and 1 at most")]
    #: None = as long as was requested.
    work_s: Seconds | None = None
    #: See `Gang`.
    image: Annotated[str, text(LONGEST_IMAGE)] = ""
    command: Annotated[str, text(LONGEST_COMMAND)] = ""

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        return {Resource.GANG_PROCESSORS: self.processes}


def _amounts_of(requested: Sequence[JobRequest | SubtaskRequest | ShareRequest]) -> Amounts:
    """Return what jobs add to the use of a project's quota."""
    return {Resource.JOBS: len(requested), Resource.INPUT_BYTES: sum(job.input_bytes for job in requested)}


class DesignRequest(DesignManifest, frozen=True, kw_only=True):
    """A design as a tenant submits it."""

    uuid: ChosenUuid
    project_id: Internal[str]
    user_id: Internal[str]
    #: In JSON in base64, as the signature is.
    bitstream: Annotated[
        bytes,
        Meta(
            min_length=1,
            max_length=MOST_DESIGN_BYTES,
            description=f"a bitstream of at most {MOST_DESIGN_BYTES} bytes, in base64",
        ),
    ]
    #: Ed25519, of `signed`; empty = nobody has signed it.
    signature: Annotated[bytes, Meta(max_length=64, description="a signature in base64")] = b""

    @property
    def amounts(self) -> Amounts:
        """What it adds to the use of its project's quota."""
        return {Resource.DESIGN_BYTES: len(self.bitstream)}


class DesignChange(Message, frozen=True, kw_only=True):
    """What an operator decides on a design; null = as before."""

    state: Literal["APPROVED", "REJECTED", "REVOKED"] | None = None
    #: Whether jobs of all projects may name it.
    public: bool | None = None
    reason: Text = ""


class DesignGrant(Message, frozen=True, kw_only=True):
    """Leave to load the function of a design, for one load on one host: `nonce` is from the agent that asks."""

    nonce: Text
    host: Text
    function: Text
    manifest: DesignManifest
    sha256: Sha256

    def signed(self) -> bytes:
        """Return what the scheduler signs; no signature for another purpose begins so."""
        return b"fpga_pool.design.1" + to_text(self).encode()


class DesignAnswer(Message, frozen=True, kw_only=True):
    """A grant with the scheduler's signature, and the bitstream, unless the agent has it already."""

    grant: DesignGrant
    signature: bytes
    bitstream: bytes


class DesignContent(Message, frozen=True, kw_only=True):
    """The bitstream of a design, in JSON in base64."""

    sha256: str
    bitstream: bytes
