"""Events of an agent.

An event carries facts that only its shell can see (is an input on the disk? how far is a computation?), so that the
same events always lead to the same state and instructions.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.messages.agents import Command, HoldSlot


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events.

    What an event changes is recorded in one transaction before it takes effect.
    """

    #: Neither a kill nor a power loss may undo it.  Without: a power loss may, because a file, a repeat or the next
    #: heartbeat says the same.
    durable: ClassVar[bool] = False


# From the pool -------------------------------------------------------------------------------------------------


class CommandsReceived(AgentEvent, frozen=True, kw_only=True):
    """The owner of a shard gives commands."""

    durable = True

    shard: str
    epoch: int
    commands: tuple[Command, ...]
    #: Those of the assigned jobs whose complete input an earlier attempt has left here.
    inputs: frozenset[str] = frozenset()
    #: Of running jobs that are to be evicted, the share of the work that is done.
    progress: Mapping[str, float] = {}


# From the data port --------------------------------------------------------------------------------------------


class StreamSeen(AgentEvent, frozen=True, kw_only=True):
    """The input of an attempt is coming, with a token of it, from the source "address:port" that the token names."""

    job: str
    attempt: int
    source: str


class InputArrived(AgentEvent, frozen=True, kw_only=True):
    """The complete input of a job is in its file, checked and synced."""

    job: str
    #: Since its first byte came; None where that is not known, or all of it came at once.
    took_s: float | None = None


class InputUnavailable(AgentEvent, frozen=True, kw_only=True):
    """The results that an attempt's input is made of are not what, or where, the pool said."""

    durable = True

    job: str
    attempt: int
    message: str


class SmallInputsArrived(AgentEvent, frozen=True, kw_only=True):
    """Complete inputs are here that are recorded together with this event."""

    durable = True

    jobs: tuple[str, ...]


class ResultsDelivered(AgentEvent, frozen=True, kw_only=True):
    """Clients have the results of these attempts of jobs."""

    attempts: tuple[tuple[str, int], ...]


# From a slot's executor ----------------------------------------------------------------------------------------


class SlotEvent(AgentEvent, frozen=True, kw_only=True):
    """Base of the events from the executor of a slot, which executes one instruction after the other."""

    slot: str


class SlotFree(SlotEvent, frozen=True, kw_only=True):
    """The executor has nothing to do, and asks what comes next."""


class Loaded(SlotEvent, frozen=True, kw_only=True):
    """A function is loaded."""


class LoadRefused(SlotEvent, frozen=True, kw_only=True):
    """There is no sound bitstream of the function; the slot is as it was before."""

    durable = True

    code: str
    message: str


class LoadFailed(SlotEvent, frozen=True, kw_only=True):
    """The slot failed while it was loaded."""

    reason: str


class Scrubbed(SlotEvent, frozen=True, kw_only=True):
    """The memory is clear."""


class ScrubFailed(SlotEvent, frozen=True, kw_only=True):
    """The memory could not be cleared."""

    reason: str


class ComputationEnded(SlotEvent, frozen=True, kw_only=True):
    """An attempt is computed; its result is on this host, not durable yet."""

    job: str
    attempt: int
    compute_s: float
    result_bytes: int
    result_sha256: str


class ComputationFailed(SlotEvent, frozen=True, kw_only=True):
    """An attempt failed, or was stopped."""

    durable = True

    job: str
    attempt: int
    code: str
    message: str
    retryable: bool
    #: The slot itself failed, or its memory was to be cleared and could not be.
    slot_failed: bool = False


class ComputationOverdue(SlotEvent, frozen=True, kw_only=True):
    """A computation takes longer than its limit."""

    job: str
    attempt: int


class CardSeen(SlotEvent, frozen=True, kw_only=True):
    """The executor has checked an idle slot, by itself or on command."""

    present: bool
    #: What is loaded; "" = nothing.
    function: str = ""
    reason: str = ""


# From the shell ------------------------------------------------------------------------------------------------


class EndsDue(AgentEvent, frozen=True, kw_only=True):
    """The ends of jobs that have come are to be recorded now."""

    durable = True


class EndsRecorded(AgentEvent, frozen=True, kw_only=True):
    """What `EndsDue` said is durable."""

    jobs: tuple[HeldJob, ...]


class EndsLost(AgentEvent, frozen=True, kw_only=True):
    """What `EndsDue` said could not be made durable, as when the disk is full."""

    jobs: tuple[HeldJob, ...]


class TimePassed(AgentEvent, frozen=True, kw_only=True):
    """It is time to look at what lasts for a limited time only."""


class Restarted(AgentEvent, frozen=True, kw_only=True):
    """The agent starts, with what its journal holds."""

    durable = True

    jobs: tuple[HeldJob, ...] = ()
    #: By slot, for whom it is kept, and whether it was ready.
    holds: Mapping[str, tuple[HoldSlot, bool]] = {}
    #: By slot, epoch and sequence of the last command.
    fences: Mapping[str, tuple[int, int]] = {}
    #: By shard.
    epochs: Mapping[str, int] = {}
    #: Identities of executed commands, the oldest first.
    executed: tuple[str, ...] = ()
    #: Jobs whose complete input is here, and jobs whose result is.
    inputs: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
