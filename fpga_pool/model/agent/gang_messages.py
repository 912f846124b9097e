"""Events and instructions of the processes of gangs on one host."""

from collections.abc import Mapping
from dataclasses import dataclass

from fpga_pool.model.agent.gang_process import HeldProcess, Key, ProcessSpec, Running
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.messages.gangs import GangReport

# Events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessesRestored:
    """The agent starts, with what its journal holds."""

    processes: tuple[HeldProcess, ...]


@dataclass(frozen=True, slots=True)
class CommandReceived:
    """The owner of the shard gives a command for a processor."""

    command: Command
    #: This very command was executed before.
    repeated: bool
    #: Epoch and sequence of the last command executed on the processor.
    fence: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GuestsSeen:
    """All guests of gangs on this host, at one moment."""

    guests: Mapping[Key, Running]


@dataclass(frozen=True, slots=True)
class GuestLaunched:
    """What `LaunchGuest` asked for is done."""

    key: Key


@dataclass(frozen=True, slots=True)
class GuestRefused:
    """A guest cannot be launched, now or later."""

    key: Key
    message: str


@dataclass(frozen=True, slots=True)
class GuestEnded:
    """What `EndGuest` asked for is done."""

    key: Key


ProcessesEvent = ProcessesRestored | CommandReceived | GuestsSeen | GuestLaunched | GuestRefused | GuestEnded


# Instructions: what is recorded is, before anything else of the same event is done; what fails is left to the next
# `GuestsSeen` ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Make durable, in one transaction, what the event has changed, and what is reported of it."""

    #: The command that was executed.
    command: Command | None = None
    keep: HeldProcess | None = None
    forget: Key | None = None
    reports: tuple[GangReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Notify the sender of a command of its outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LaunchGuest:
    """Launch a guest, and remove the memory that it has gone on from: GuestLaunched or GuestRefused."""

    spec: ProcessSpec
    processor: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class FinishLaunch:
    """Remove the memory that a guest has gone on from which is there already: GuestLaunched."""

    key: Key
    saved: str


@dataclass(frozen=True, slots=True)
class EndGuest:
    """End a guest, whatever it does, and remove the memory that it was to go on from, if any: GuestEnded."""

    key: Key
    saved: str = ""


@dataclass(frozen=True, slots=True)
class SaveGuest:
    """Begin to stop a guest so that it can go on elsewhere."""

    key: Key


@dataclass(frozen=True, slots=True)
class MoveGuest:
    """Put a guest into another tier of its processor."""

    key: Key
    tier: Tier


@dataclass(frozen=True, slots=True)
class LeaveGuest:
    """Forget a guest that is saved; its memory stays."""

    key: Key


@dataclass(frozen=True, slots=True)
class DiscardMemory:
    """Remove a saved memory that is not resumed from; if that fails, it is swept when it is old."""

    saved: str


GuestInstruction = LaunchGuest | FinishLaunch | EndGuest | SaveGuest | MoveGuest | LeaveGuest | DiscardMemory
ProcessesInstruction = Record | Answer | GuestInstruction
