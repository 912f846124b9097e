"""What waits for places, and what is before it: sums of what is stored, for the rules."""

from dataclasses import dataclass

from fpga_pool.model.fields import Moment
from fpga_pool.model.values import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """A batch with jobs that wait for a place."""

    created_at: Moment
    policy: str
    #: What these jobs ask for; how many there are, and how large the largest input is.
    functions: frozenset[str]
    jobs: int
    largest_input_bytes: int

    def joined(self, other: "PendingBatch") -> "PendingBatch":
        """Return the same batch with other jobs of it."""
        largest = max(self.largest_input_bytes, other.largest_input_bytes)
        functions, jobs = self.functions | other.functions, self.jobs + other.jobs
        return changed(self, functions=functions, jobs=jobs, largest_input_bytes=largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What the jobs that occupy a slot still ask of it."""

    slot: str
    #: Planned end of the last of them, UTC seconds.
    free_at: Moment
    #: Planned end of the last transfer that has not arrived, UTC seconds; 0 = all have.
    inputs_due_at: Moment
    #: Place of the last of them in the slot's queue.
    last_order: int
