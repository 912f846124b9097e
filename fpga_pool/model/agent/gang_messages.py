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
    """The agent starts, with the processes in its journal."""

    processes: tuple[HeldProcess, ...]


@dataclass(frozen=True, slots=True)
class CommandReceived:
    """The owner of the shard has sent a command for a processor."""

    command: Command
    #: The same command was executed before.
    repeated: bool
    #: Epoch and sequence of the last command executed on the processor.
    fence: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GuestsSeen:
    """All guests of gangs on this host were observed at the same time."""

    guests: Mapping[Key, Running]


@dataclass(frozen=True, slots=True)
class GuestLaunched:
    """A `LaunchGuest` or `FinishLaunch` instruction has been carried out."""

    key: Key


@dataclass(frozen=True, slots=True)
class GuestRefused:
    """A guest cannot be launched, and a retry would not help."""

    key: Key
    message: str


@dataclass(frozen=True, slots=True)
class GuestEnded:
    """An `EndGuest` instruction has been carried out."""

    key: Key


ProcessesEvent = ProcessesRestored | CommandReceived | GuestsSeen | GuestLaunched | GuestRefused | GuestEnded


# Instructions: `Record` is carried out before the others of the same event; if an instruction fails, the next
# `GuestsSeen` leads to another attempt ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Make the changes of the event and the reports on them durable, in one transaction."""

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
    """Launch a guest, and remove the saved memory that it resumed from.  Answer: GuestLaunched or GuestRefused."""

    spec: ProcessSpec
    processor: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class FinishLaunch:
    """Remove the saved memory that a guest that exists already has resumed from.  Answer: GuestLaunched."""

    key: Key
    saved: str


@dataclass(frozen=True, slots=True)
class EndGuest:
    """End a guest in any state, and remove the saved memory that it was to resume from, if any.  Answer: GuestEnded."""

    key: Key
    saved: str = ""


@dataclass(frozen=True, slots=True)
class SaveGuest:
    """Begin to save a guest, so that it can resume on another processor."""

    key: Key


@dataclass(frozen=True, slots=True)
class MoveGuest:
    """Move a guest to another tier of its processor."""

    key: Key
    tier: Tier


@dataclass(frozen=True, slots=True)
class LeaveGuest:
    """Forget a saved guest; its saved memory stays."""

    key: Key


@dataclass(frozen=True, slots=True)
class DiscardMemory:
    """Remove a saved memory that no guest will resume from; if that fails, it is removed later because of its age."""

    saved: str


GuestInstruction = LaunchGuest | FinishLaunch | EndGuest | SaveGuest | MoveGuest | LeaveGuest | DiscardMemory
ProcessesInstruction = Record | Answer | GuestInstruction
