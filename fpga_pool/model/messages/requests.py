"""Messages between the scheduler and its clients, tenants and operators, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass

from fpga_pool.model.codec import Message
from fpga_pool.model.objects.gangs import Gang, Migration, Process
from fpga_pool.model.objects.pool import Job, RateSegment
from fpga_pool.model.objects.tasks import Task

#: An input of at most this size moves in one burst: no flow of its own is limited for it.
SMALL_INPUT_BYTES = 64 * 1024
#: Results up to this size flow back in one burst, without their own rates.
SMALL_RESULT_BYTES = 64 * 1024


class TicketRequest(Message, frozen=True, kw_only=True):
    """A client's wish to move the bytes of one job; the source identifies its flow for rate control."""

    job: str
    #: "send" or "fetch".
    purpose: str
    source_address: str
    source_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Leave to move the bytes of one job: where to, with which token, how fast."""

    job: str
    #: The attempt that it is good for: another one than the client knows of if the job was planned again meanwhile.
    attempt: int
    purpose: str
    address: str
    port: int
    token: str
    input_bytes: int
    #: Rates relative to the plan's time 0, and what time it is there now.
    transfer: tuple[RateSegment, ...]
    elapsed_s: float
    #: The requester's host holds the stream to these rates: the client need not.
    shaped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """The jobs of a batch that changed after what the asker has seen, by index."""

    jobs: tuple[Job, ...]
    #: Generation of each shard at this moment: what the next question passes as seen.
    seen: Mapping[str, int]
    #: What time it is in the pool.
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInfo:
    """A catalogue entry as it is in force: time models refitted where runs were observed."""

    name: str
    version: str
    slot_kinds: tuple[str, ...]
    io_bps: float
    preemptible: bool
    speedup: float
    #: Slots of the pool that can hold it.
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How well a function's time model fits the observed runs on one board."""

    function: str
    board: str
    runs: int
    catalogue_a_s: float
    catalogue_b_s_per_byte: float
    fitted_a_s: float
    fitted_b_s_per_byte: float
    mean_relative_error: float
    worst_relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDetail:
    """A gang with its pending reason, expected start, progress and processes."""

    gang: Gang
    #: Why it is not in the foreground, and when it is expected there, UTC seconds; "" and None where nothing is to say.
    pending_reason: str
    expected_at: float | None
    #: What its slowest process has done, in seconds on a dedicated processor.
    done_s: float
    #: Those of its present, or last, attempt.
    processes: tuple[Process, ...]
    migrations: tuple[Migration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail:
    """A task with what can be said of it now."""

    task: Task
    #: Why it waits, and when it is expected to get its slots, UTC seconds; "" and None where nothing is to say.
    pending_reason: str
    expected_at: float | None
    #: Those that it has, by name.
    slots: tuple[str, ...]
    #: By index.
    shares: tuple[Job, ...]
