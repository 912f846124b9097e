"""Record of a simulated pool: every transition of every object, and what slots and processors did when."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fpga_pool.model.objects.gangs import Gang, Migration, Process, ProcessState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, Lease, LeaseState, Slot, SlotState
from fpga_pool.model.objects.tasks import Task

#: What an object is called in a record.
_NOUNS = {
    Batch: "batch", Job: "job", Task: "task", Gang: "gang", Process: "process", Migration: "migration", Slot: "slot",
    Lease: "lease",
}  # fmt: skip
#: Processes that are on their processor.
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
    """A time in which a row of the chart was in use: a slot, or a tier of a processor."""

    row: str
    begin_s: float
    end_s: float
    #: load, run, fault, instance or process; plan of a transfer, transfer or arrival of an input.  And the function,
    #: holder or gang.
    what: str
    name: str


class Recorder:
    """Notes every committed change of a store (`MemoryStore.watch`)."""

    def __init__(self) -> None:
        self.history: list[Happening] = []
        #: How inputs that arrived were planned to move, since when they did, and when each was complete.
        self.transfers: list[Span] = []
        self._spans: list[Span] = []
        #: What each row does now, and since when, by the key of what does it.
        self._open: dict[str, tuple[str, str, str, float]] = {}

    def note(self, before: Any, after: Any, now_s: float) -> None:
        """Note a change; `before` is None where the object is new."""
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
        """Return what every row did, what is not over until now."""
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
    """Yield what a change added to the object's history; it keeps the last ones only."""
    last = before.history[-1] if before is not None and before.history else None
    new = []
    for entry in reversed(after.history):
        if entry is last:
            break
        new.append(entry)
    yield from reversed(new)


def _moves(job: Job, staged_at: float) -> Iterator[Span]:
    """Yield the planned pieces of the transfer of an input, the transfer, and its end; none where nothing moved."""
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
    """Return which row of the chart an object is on, as what, and with which name; None where it is on none."""
    if isinstance(thing, Process):
        on = thing.state in _THERE
        return (f"{thing.processor} {thing.tier}", "process", thing.gang_uuid) if on else None
    if isinstance(thing, Lease):
        held = thing.of_instance and thing.state is LeaseState.HELD
        return (thing.slot, "instance", thing.holder) if held else None
    words = {SlotState.LOADING: "load", SlotState.BUSY: "run", SlotState.FAULTED: "fault"}
    if thing.state not in words:
        return None
    # A worker of a CPU holds no function: its job shows the function.
    return thing.name, words[thing.state], thing.function or thing.job
