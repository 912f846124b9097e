"""Requests of tenants for work, which schedulers admit (`model/rules/*/admission.py`), and messages on designs."""

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

#: Maximum number of batches for which a batch may wait, and of subtasks whose results a subtask may read.
MOST_DEPENDENCIES = 100


class WorkRequest(Message, frozen=True, kw_only=True):
    """A request of a tenant for work; the uuid is chosen by the client."""

    uuid: ChosenUuid
    project_id: Internal[str]
    user_id: Internal[str]
    name: Text = ""

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        raise NotImplementedError


class JobRequest(Message, frozen=True, kw_only=True):
    """A tenant's request for one job; the uuid is chosen by the client."""

    uuid: ChosenUuid
    name: Text = ""
    function: Text
    requester: Text
    input_bytes: ByteCount
    group: Group = 0


class BatchRequest(WorkRequest, frozen=True, kw_only=True):
    """A tenant's request for a batch; an empty policy means the operator's default."""

    policy: Annotated[str, text(64)] = ""
    #: Whether it is held: its jobs get no places until it is released.
    held: bool = False
    priority: Priority = 0
    deadline_at: Moment | None = None
    #: Batches of the project that have to complete before its jobs get places.
    after: Annotated[
        tuple[Uuid, ...], Meta(max_length=MOST_DEPENDENCIES, description=f"a list of at most {MOST_DEPENDENCIES} uuids")
    ] = ()
    jobs: tuple[JobRequest, ...]

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        return _amounts_of(self.jobs)


SubtaskName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z", description="1 to 64 letters, digits, or any of _.-")
]


class SubtaskRequest(Message, frozen=True, kw_only=True):
    """A tenant's request for a subtask, whose input comes from a requester or consists of results of other subtasks."""

    uuid: ChosenUuid
    #: Unique in the pipeline.
    name: SubtaskName
    function: Text
    #: Names of its predecessors, whose results, concatenated in this order, are its input.
    after: Annotated[
        tuple[SubtaskName, ...],
        Meta(max_length=MOST_DEPENDENCIES, description=f"a list of at most {MOST_DEPENDENCIES} names of subtasks"),
    ] = ()
    #: For a subtask without predecessors: the requester that sends its input, and the size of the input.
    requester: Text = ""
    input_bytes: ByteCount = 0


class PipelineRequest(WorkRequest, frozen=True, kw_only=True):
    """A tenant's request for a pipeline; the subtasks may be in any order."""

    subtasks: Annotated[tuple[SubtaskRequest, ...], Meta(min_length=1, description="a list of 1 subtask or more")]

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        return _amounts_of(self.subtasks)


class ShareRequest(Message, frozen=True, kw_only=True):
    """A tenant's request for one share of a task: an input, and its requester."""

    uuid: ChosenUuid
    name: Text = ""
    requester: Text
    input_bytes: ByteCount


class TaskRequest(WorkRequest, frozen=True, kw_only=True):
    """A tenant's request for a task; the uuids are chosen by the client."""

    function: Text
    topology: Annotated[Topology, Meta(description="any, line or ring")] = Topology.ANY
    #: Shares, in the order of their slots on a line or ring.
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
        """Number of slots of its widest shape."""
        return max((shape.slots for shape in self.shapes), default=len(self.shares))

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        return {**_amounts_of(self.shares), Resource.TASK_SLOTS: self.most_slots}


class GangRequest(WorkRequest, frozen=True, kw_only=True):
    """A tenant's request for a gang."""

    processes: Annotated[int, Meta(ge=1, le=100_000, description="a number of processes")]
    runtime_s: Seconds
    cpu_usage: Annotated[float, Meta(gt=0, le=1, description="a share of a processor, above 0 and 1 at most")]
    #: Computation time for runners that simulate, see `Gang`; None = the requested run time.
    work_s: Seconds | None = None
    #: See `Gang`.
    image: Annotated[str, text(LONGEST_IMAGE)] = ""
    command: Annotated[str, text(LONGEST_COMMAND)] = ""

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        return {Resource.GANG_PROCESSORS: self.processes}


def _amounts_of(requested: Sequence[JobRequest | SubtaskRequest | ShareRequest]) -> Amounts:
    """Return the amounts that jobs take of a project's quota."""
    return {Resource.JOBS: len(requested), Resource.INPUT_BYTES: sum(job.input_bytes for job in requested)}


class DesignRequest(DesignManifest, frozen=True, kw_only=True):
    """A tenant's submission of a design."""

    uuid: ChosenUuid
    project_id: Internal[str]
    user_id: Internal[str]
    #: In base64 in JSON, like the signature.
    bitstream: Annotated[
        bytes,
        Meta(
            min_length=1,
            max_length=MOST_DESIGN_BYTES,
            description=f"a bitstream of at most {MOST_DESIGN_BYTES} bytes, in base64",
        ),
    ]
    #: Ed25519 signature of the bytes that `signed` returns; empty = not signed.
    signature: Annotated[bytes, Meta(max_length=64, description="a signature in base64")] = b""

    @property
    def amounts(self) -> Amounts:
        """Amounts that it takes of its project's quota."""
        return {Resource.DESIGN_BYTES: len(self.bitstream)}


class DesignChange(Message, frozen=True, kw_only=True):
    """An operator's decision on a design; null = unchanged."""

    state: Literal["APPROVED", "REJECTED", "REVOKED"] | None = None
    #: Whether jobs of all projects may use it.
    public: bool | None = None
    reason: Text = ""


class DesignGrant(Message, frozen=True, kw_only=True):
    """A permission for one load of a design's function on one host; `nonce` is from the requesting agent."""

    nonce: Text
    host: Text
    function: Text
    manifest: DesignManifest
    sha256: Sha256

    def signed(self) -> bytes:
        """Return the bytes that the scheduler signs; their prefix is unique to this purpose."""
        return b"fpga_pool.design.1" + to_text(self).encode()


class DesignAnswer(Message, frozen=True, kw_only=True):
    """A grant with the scheduler's signature, and the bitstream unless the agent has it already."""

    grant: DesignGrant
    signature: bytes
    bitstream: bytes


class DesignContent(Message, frozen=True, kw_only=True):
    """The bitstream of a design, in base64 in JSON."""

    sha256: str
    bitstream: bytes
