"""Record of a simulated pool: every transition of every object, and the use of slots and processors over time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fpga_pool.model.objects.gangs import Gang, Migration, Process, ProcessState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, Lease, LeaseState, Slot, SlotState
from fpga_pool.model.objects.tasks import Task

#: The noun for each kind of object in a record.
_NOUNS = {
    Batch: "batch", Job: "job", Task: "task", Gang: "gang", Process: "process", Migration: "migration", Slot: "slot",
    Lease: "lease",
}  # fmt: skip
#: States in which a process occupies its processor.
_THERE = frozenset({ProcessState.STARTING, ProcessState.RUNNING, ProcessState.SAVING, ProcessState.STOPPING})


@dataclass(frozen=True, slots=True)
class Happening:
    """One transition."""

    at_s: float
    noun: str
    name: str
    event: str
    before: str
    after: str
    #: Slot of a job or lease, function of a slot, processor and tier of a process, holder of a lease.
    where: str


@dataclass(frozen=True, slots=True)
class Span:
    """An interval in which a row of the chart, a slot or a tier of a processor, was in use."""

    row: str
    begin_s: float
    end_s: float
    #: load, run, fault, instance or process; or plan (of a transfer), transfer or arrival of an input.
    what: str
    #: The function, holder or gang.
    name: str


class Recorder:
    """Records every committed change of a store (see `MemoryStore.watch`)."""

    def __init__(self) -> None:
        self.history: list[Happening] = []
        #: Planned and actual transfers of the inputs that have arrived, and their arrivals.
        self.transfers: list[Span] = []
        self._spans: list[Span] = []
        #: Current uses of rows as (row, what, name, begin), by the key of the object.
        self._open: dict[str, tuple[str, str, str, float]] = {}

    def note(self, before: Any, after: Any, now_s: float) -> None:
        """Record a change; `before` is None if the object is new."""
        noun = _NOUNS.get(type(after))
        if noun is None:
            return
        name = after.name if isinstance(after, Slot) else after.uuid
        for entry in _new_entries(before, after):
            happened = Happening(entry.at, noun, name, entry.event, entry.before, entry.after, _where(after))
            self.history.append(happened)
        if isinstance(after, Slot | Process | Lease):
            self._follow(f"{noun} {name}", _use(after), now_s)
        elif isinstance(after, Job) and after.staged_at is not None and (before is None or before.staged_at is None):
            self.transfers += _moves(after, after.staged_at)

    def spans(self, now_s: float) -> list[Span]:
        """Return the uses of all rows by time; those that have not ended extend to `now_s`."""
        ongoing = [Span(row, begin_s, now_s, what, name) for row, what, name, begin_s in self._open.values()]
        return sorted(self._spans + ongoing, key=lambda span: (span.row, span.begin_s))

    def _follow(self, key: str, use: tuple[str, str, str] | None, now_s: float) -> None:
        current = self._open.get(key)
        if current is not None and current[:3] == use:
            return
        if current is not None:
            row, what, name, begin_s = self._open.pop(key)
            if begin_s < now_s:
                self._spans.append(Span(row, begin_s, now_s, what, name))
        if use is not None:
            self._open[key] = (*use, now_s)


def _new_entries(before: Any, after: Any) -> Iterator[HistoryEntry]:
    """Yield the entries that a change added to the object's history, which keeps only the latest entries."""
    last = before.history[-1] if before is not None and before.history else None
    new = []
    for entry in reversed(after.history):
        if entry is last:
            break
        new.append(entry)
    yield from reversed(new)


def _moves(job: Job, staged_at: float) -> Iterator[Span]:
    """Yield the planned segments of the transfer of an input, the actual transfer and the arrival, if it was moved."""
    for piece in job.transfer:
        begin_s, end_s = ((job.dispatched_at or 0.0) + at_s for at_s in (piece.begin_s, piece.end_s))
        yield Span(job.slot, begin_s, end_s, "plan", job.function)
    if job.transfer_began_at is not None:
        yield Span(job.slot, job.transfer_began_at, staged_at, "transfer", job.function)
    if job.transfer or job.transfer_began_at is not None:
        yield Span(job.slot, staged_at, staged_at, "arrival", job.function)


def _where(thing: Any) -> str:
    if isinstance(thing, Job):
        return thing.slot
    if isinstance(thing, Slot):
        return thing.function
    if isinstance(thing, Process):
        return f"{thing.processor} {thing.tier}"
    return thing.holder if isinstance(thing, Lease) else ""


def _use(thing: Slot | Process | Lease) -> tuple[str, str, str] | None:
    """Return the row of the chart that an object uses, the kind of use and a name; None if it uses no row."""
    if isinstance(thing, Process):
        on = thing.state in _THERE
        return (f"{thing.processor} {thing.tier}", "process", thing.gang_uuid) if on else None
    if isinstance(thing, Lease):
        held = thing.of_instance and thing.state is LeaseState.HELD
        return (thing.slot, "instance", thing.holder) if held else None
    words = {SlotState.LOADING: "load", SlotState.BUSY: "run", SlotState.FAULTED: "fault"}
    if thing.state not in words:
        return None
    # No function is loaded on a CPU worker; the job identifies the use.
    return thing.name, words[thing.state], thing.function or thing.job
