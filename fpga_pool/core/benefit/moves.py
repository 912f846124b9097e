"""What an online policy may decide."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Run the job that has waited longest for the slot's function; the slot is idle and holds it."""

    slot: int
    function: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load a function into a slot that is empty, idle, or runs a preemptible job, which then goes to its CPU."""

    slot: int
    function: int


Move = Start | Load
