"""Events of an agent.

An event carries facts that only its shell can see (is an input on the disk? how far is a computation?), so that the
same events always lead to the same state and instructions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.messages.agents import Command, HoldSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Base of all events.

    What an event changes is recorded in one transaction before it takes effect.
    """

    #: Neither a kill nor a power loss may undo it.  Without: a power loss may, because a file, a repeat or the next
    #: heartbeat says the same.
    durable: ClassVar[bool] = False


# From the pool -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsReceived(AgentEvent):
    """The owner of a shard gives commands."""

    durable = True

    shard: str
    epoch: int
    commands: tuple[Command, ...]
    #: Those of the assigned jobs whose complete input an earlier attempt has left here.
    inputs: frozenset[str] = frozenset()
    #: Of running jobs that are to be evicted, the share of the work that is done.
    progress: Mapping[str, float] = field(default_factory=dict)


# From the data port --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSeen(AgentEvent):
    """The input of an attempt is coming, with a token of it, from the source "address:port" that the token names."""

    job: str
    attempt: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputArrived(AgentEvent):
    """The complete input of a job is in its file, checked and synced."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUnavailable(AgentEvent):
    """The results that an attempt's input is made of are not what, or where, the pool said."""

    durable = True

    job: str
    attempt: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallInputsArrived(AgentEvent):
    """Complete inputs are here that are recorded together with this event."""

    durable = True

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsDelivered(AgentEvent):
    """Clients have the results of these attempts of jobs."""

    attempts: tuple[tuple[str, int], ...]


# From a slot's executor ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEvent(AgentEvent):
    """Base of the events from the executor of a slot, which executes one instruction after the other."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFree(SlotEvent):
    """The executor has nothing to do, and asks what comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(SlotEvent):
    """A function is loaded."""

    durable = True  # a hold may be ready by it


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRefused(SlotEvent):
    """There is no sound bitstream of the function; the slot is as it was before."""

    durable = True

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed(SlotEvent):
    """The slot failed while it was loaded."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed(SlotEvent):
    """The memory is clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubFailed(SlotEvent):
    """The memory could not be cleared."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationEnded(SlotEvent):
    """An attempt is computed; its result is on this host, not durable yet."""

    job: str
    attempt: int
    compute_s: float
    result_bytes: int
    result_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationFailed(SlotEvent):
    """An attempt failed, or was stopped."""

    durable = True

    job: str
    attempt: int
    code: str
    message: str
    retryable: bool
    #: The slot itself failed, or its memory was to be cleared and could not be.
    slot_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationOverdue(SlotEvent):
    """A computation takes longer than its limit."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSeen(SlotEvent):
    """The executor has checked an idle slot, by itself or on command."""

    present: bool
    #: What is loaded; "" = nothing.
    function: str = ""
    reason: str = ""


# From the shell ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsDue(AgentEvent):
    """The ends of jobs that have come are to be recorded now."""

    durable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsRecorded(AgentEvent):
    """What `EndsDue` said is durable."""

    jobs: tuple[HeldJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsLost(AgentEvent):
    """What `EndsDue` said could not be made durable, as when the disk is full."""

    jobs: tuple[HeldJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed(AgentEvent):
    """It is time to look at what lasts for a limited time only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(AgentEvent):
    """The agent starts, with what its journal holds."""

    durable = True

    jobs: tuple[HeldJob, ...] = ()
    #: By slot, for whom it is kept, and whether it was ready.
    holds: Mapping[str, tuple[HoldSlot, bool]] = field(default_factory=dict)
    #: By slot, epoch and sequence of the last command.
    fences: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: By shard.
    epochs: Mapping[str, int] = field(default_factory=dict)
    #: Identities of executed commands, the oldest first.
    executed: tuple[str, ...] = ()
    #: Jobs whose complete input is here, and jobs whose result is.
    inputs: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
