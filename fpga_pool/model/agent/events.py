"""Events of an agent.

An event carries the facts that only the surrounding shell can observe (whether an input is on the disk, how far a
computation is), so that the same events always lead to the same state and instructions.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.messages.agents import Command, HoldSlot


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events.

    The changes of an event are recorded in one transaction before they take effect.
    """

    #: Whether the record must survive a power loss, too, not only a kill of the process.  If False, a power loss may
    #: undo it, because a file, a repeated message or the next heartbeat contains the same information.
    durable: ClassVar[bool] = False


# From the pool -------------------------------------------------------------------------------------------------


class CommandsReceived(AgentEvent, frozen=True, kw_only=True):
    """The owner of a shard has sent commands."""

    durable = True

    shard: str
    epoch: int
    commands: tuple[Command, ...]
    #: The assigned jobs whose complete input is still on this host from an earlier attempt.
    inputs: frozenset[str] = frozenset()
    #: Share of the work that is done, for running jobs that are to be evicted.
    progress: Mapping[str, float] = {}


# From the data port --------------------------------------------------------------------------------------------


class StreamSeen(AgentEvent, frozen=True, kw_only=True):
    """The input of an attempt arrives with a valid token, from the source "address:port" that the token names."""

    job: str
    attempt: int
    source: str


class InputArrived(AgentEvent, frozen=True, kw_only=True):
    """The complete input of a job is in its file, verified and synced to the disk."""

    job: str
    #: Seconds since its first byte arrived; None if unknown, or if all of it arrived at once.
    took_s: float | None = None


class InputUnavailable(AgentEvent, frozen=True, kw_only=True):
    """The results that make up an attempt's input are not what, or not where, the pool expected them to be."""

    durable = True

    job: str
    attempt: int
    message: str


class SmallInputsArrived(AgentEvent, frozen=True, kw_only=True):
    """The complete small inputs of these jobs have arrived; they are recorded together with this event."""

    durable = True

    jobs: tuple[str, ...]


class ResultsDelivered(AgentEvent, frozen=True, kw_only=True):
    """Clients have received the results of these attempts, each a job and an attempt number."""

    attempts: tuple[tuple[str, int], ...]


# From a slot's executor ----------------------------------------------------------------------------------------


class SlotEvent(AgentEvent, frozen=True, kw_only=True):
    """Base of the events from the executor of a slot, which executes instructions one after the other."""

    slot: str


class SlotFree(SlotEvent, frozen=True, kw_only=True):
    """The executor has nothing to do and asks for its next instruction."""


class Loaded(SlotEvent, frozen=True, kw_only=True):
    """The function has been loaded."""


class LoadRefused(SlotEvent, frozen=True, kw_only=True):
    """There is no valid bitstream of the function; the slot is unchanged."""

    durable = True

    code: str
    message: str


class LoadFailed(SlotEvent, frozen=True, kw_only=True):
    """The slot failed during a load."""

    reason: str


class Scrubbed(SlotEvent, frozen=True, kw_only=True):
    """The memory of the slot has been cleared."""


class ScrubFailed(SlotEvent, frozen=True, kw_only=True):
    """The memory of the slot could not be cleared."""

    reason: str


class ComputationEnded(SlotEvent, frozen=True, kw_only=True):
    """An attempt has been computed; its result is on this host, but not durable yet."""

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
    #: The slot itself failed, or its memory could not be cleared as required.
    slot_failed: bool = False


class ComputationOverdue(SlotEvent, frozen=True, kw_only=True):
    """A computation has exceeded its time limit."""

    job: str
    attempt: int


class CardSeen(SlotEvent, frozen=True, kw_only=True):
    """The executor has checked an idle slot, on its own initiative or on command."""

    present: bool
    #: The loaded function; "" = none.
    function: str = ""
    reason: str = ""


# From the shell ------------------------------------------------------------------------------------------------


class EndsDue(AgentEvent, frozen=True, kw_only=True):
    """It is time to record the job ends that wait for it."""

    durable = True


class EndsRecorded(AgentEvent, frozen=True, kw_only=True):
    """The ends of these jobs, recorded because of `EndsDue`, are durable in the journal."""

    jobs: tuple[HeldJob, ...]


class EndsLost(AgentEvent, frozen=True, kw_only=True):
    """The ends of these jobs could not be recorded at `EndsDue`, for example because the disk is full."""

    jobs: tuple[HeldJob, ...]


class TimePassed(AgentEvent, frozen=True, kw_only=True):
    """Some time has passed: results whose retention has ended are to be deleted."""


class Restarted(AgentEvent, frozen=True, kw_only=True):
    """The agent starts, with the content of its journal."""

    durable = True

    jobs: tuple[HeldJob, ...] = ()
    #: By slot: the command that holds it for an instance, and whether it was ready.
    holds: Mapping[str, tuple[HoldSlot, bool]] = {}
    #: By slot: epoch and sequence of the last command.
    fences: Mapping[str, tuple[int, int]] = {}
    #: By shard: the latest epoch of commands.
    epochs: Mapping[str, int] = {}
    #: Ids of executed commands, oldest first.
    executed: tuple[str, ...] = ()
    #: Jobs whose complete input is on this host, and jobs whose result is.
    inputs: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
