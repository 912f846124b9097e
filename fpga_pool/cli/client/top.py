"""`fpga-pool pool top`: the pool in a terminal, refreshed until Ctrl-C."""

import argparse
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fpga_pool.cli.arguments import number_that
from fpga_pool.cli.client.base import PoolCommand, add_projects
from fpga_pool.cli.client.pool import BATCHES, GANGS, SLOTS, Counts, Overview, count_cards, in_words, overview
from fpga_pool.cli.command import one_line
from fpga_pool.model.exceptions import InvalidAnswer, ServiceUnavailable, TooManyRequests
from fpga_pool.model.messages.requests import BatchDetail, GangDetail
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import Batch, Slot, SlotState
from fpga_pool.model.values import counted

#: Interval in seconds between redraws: the time since the last answer is updated while the pool does not respond.
_DRAW_S = 0.5
#: Temporary errors, after which the request is repeated.
_PASSING = (ServiceUnavailable, InvalidAnswer, TooManyRequests)
_LETTERS = {state: state.value[0] for state in SlotState}


class Top(PoolCommand):
    """Show slots, work and batches, refreshed until Ctrl-C; only once if the output is not a terminal.

    Example: fpga-pool pool top --interval 10
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_projects(parser)
        parser.add_argument(
            "--interval",
            type=number_that(lambda value: 0.5 <= value <= 3600, "0.5 to 3600 seconds"),
            default=3.0,
            metavar="S",
            help="pause between two requests for what is shown, in seconds (default: %(default)g)",
        )
        parser.add_argument("--once", action="store_true", help="print it once")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the overview once, or show it and refresh it until Ctrl-C."""
        stream = self.app.stdout
        console = Console(file=stream)
        read = partial(overview, self.client, parsed_args.project_id)
        if parsed_args.once or not stream.isatty():
            console.print(drawn(read(), self.client.endpoint))
            return
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to end the command
            poller = _Poller(read, parsed_args.interval)
            with _until_ctrl_c() as ended:
                _follow(poller, self.client.endpoint, console, ended)


class _Poller(threading.Thread):
    """A thread that polls the pool, so that the display can tell when the pool does not respond."""

    def __init__(self, read: Callable[[], Overview], interval_s: float) -> None:
        super().__init__(name="poller", daemon=True)
        self._read = read
        self._interval_s = interval_s
        self._end = threading.Event()
        self.latest = read()
        self.answered_s = time.monotonic()
        #: Message of the last request's error if it was a temporary one; and the error that has ended the polling.
        self.silence = ""
        self.error: Exception | None = None

    def run(self) -> None:
        """Poll until `close` is called, or a permanent error occurs."""
        while not self._end.wait(self._interval_s):
            try:
                self.latest = self._read()
                self.answered_s, self.silence = time.monotonic(), ""
            except _PASSING as error:
                self.silence = one_line(error)
            except Exception as error:  # raised again in the main thread
                self.error = error
                return

    def close(self) -> None:
        """Stop polling; a request in progress is not interrupted."""
        self._end.set()

    def note(self) -> str:
        """Return a warning if the pool does not respond; "" if it does."""
        for_s = time.monotonic() - self.answered_s
        if not self.silence and for_s < 2 * self._interval_s + 2:
            return ""
        return f"no answer for {for_s:.0f} s, the data below are outdated{': ' if self.silence else ''}{self.silence}"


@contextlib.contextmanager
def _until_ctrl_c() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets: a KeyboardInterrupt could be lost, for example in a finalizer."""
    ended = threading.Event()

    def end(*_: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt  # the second time: immediately
        ended.set()

    before = signal.signal(signal.SIGINT, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(poller: _Poller, endpoint: str, console: Console, ended: threading.Event) -> None:
    poller.start()
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while poller.error is None:
                live.update(drawn(poller.latest, endpoint, poller.note()), refresh=True)
                if ended.wait(_DRAW_S):
                    return
        raise poller.error
    finally:
        poller.close()


def drawn(pool: Overview, endpoint: str, note: str = "") -> RenderableType:
    """Return the display of a pool, for terminals of 80 columns or more."""
    title = Text(f"{endpoint}  {_clock(pool.at)} UTC", style="bold")
    parts: list[RenderableType] = [title]
    if note:
        parts.append(Text(note, style="bold red"))
    return Group(*parts, _summary(pool.counts), *_batches(pool), *_gangs(pool), *_slots(pool.slots or ()))


def _summary(counts: Counts) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if counts.pool is None:
        table.add_row("slots", "your roles do not allow to see them")
    else:
        cards = count_cards(counts.pool, lambda card: card.state.replace("_", " "))
        hosts = in_words({"alive": counts.pool.alive_hosts, "lost": counts.pool.lost_hosts})
        table.add_row("hosts", f"{hosts}; cards: {in_words(cards) or 'none'}")
        states = counts.slots_by_state
        leased = f"; leased: {in_words(counts.leases)}" if any(counts.leases.values()) else ""
        table.add_row("slots", f"{states.total()}: {in_words(states)}{leased}")
        table.add_row("functions", ", ".join(_functions(counts)) or "none")
    for kind in ("job", "task", "gang"):
        waiting = f"; the oldest has waited {_duration(counts.oldest_wait_s)}" if counts.oldest_wait_s else ""
        words = in_words(counts.work.get(kind, {}))
        table.add_row(f"{kind}s", (words or "none") + (waiting if kind == "job" else ""))
    day = counts.usage
    moved = (
        f"{sum(one.input_bytes for one in day) / 1e6:.0f} MB in, {sum(one.result_bytes for one in day) / 1e6:.0f} out"
    )
    table.add_row(
        "last day",
        f"{counted(sum(one.jobs for one in day), 'job')}, {sum(one.slot_s for one in day):.0f} slot s, {moved}",
    )
    return table


def _functions(counts: Counts) -> Iterable[str]:
    for name, states in sorted(counts.slots_by_function.items()):
        if name:
            yield f"{states.total()} {name} ({states[SlotState.BUSY]} BUSY)"


def _batches(pool: Overview) -> Iterable[RenderableType]:
    if not pool.batches:
        return ()
    table = _table("batch", "state", "jobs", "end", "waits because")
    for batch, detail in pool.batches[:BATCHES]:
        ended = batch.jobs_completed + batch.jobs_failed + batch.jobs_cancelled
        done = f"{ended} of {batch.jobs}, {100 * ended // max(batch.jobs, 1)} %"
        reason = "cancel requested" if batch.cancel_requested else detail.pending_reason if detail else ""
        table.add_row(batch.name or batch.uuid[:8], str(batch.state), done, _end_of(batch, detail), reason)
    return _with_more(table, len(pool.batches) > BATCHES, "batches")


def _end_of(batch: Batch, detail: BatchDetail | None) -> str:
    """Return the time when a batch is planned to end, or else when it is expected to begin, as text."""
    takes_s = batch.planned_makespan_s if batch.planned_completion_s is None else batch.planned_completion_s
    if batch.dispatched_at is not None and takes_s is not None:
        return _clock(batch.dispatched_at + takes_s)
    return f"begins {_clock(detail.expected_at)}" if detail and detail.expected_at else ""


def _gangs(pool: Overview) -> Iterable[RenderableType]:
    if not pool.gangs:
        return ()
    table = _table("gang", "state", "done", "end", "waits because")
    for gang, detail in pool.gangs[:GANGS]:
        done = f"{gang.processes} x {_duration(detail.done_s if detail else 0.0)} of {_duration(gang.runtime_s)}"
        table.add_row(gang.name or gang.uuid[:8], str(gang.state), done, _end_of_gang(gang, detail), _why(gang, detail))
    return _with_more(table, len(pool.gangs) > GANGS, "gangs")


def _end_of_gang(gang: Gang, detail: GangDetail | None) -> str:
    if gang.ends_at is not None:
        return _clock(gang.ends_at)
    return f"front {_clock(detail.expected_at)}" if detail and detail.expected_at else ""


def _why(gang: Gang, detail: GangDetail | None) -> str:
    return "cancel requested" if gang.cancel_requested else (detail.pending_reason if detail else "") or gang.reason


def _slots(slots: Sequence[Slot]) -> Iterable[RenderableType]:
    if not slots:
        return ()
    table = _table("host", "slots", "functions")
    for host in dict.fromkeys(slot.host for slot in slots):
        mine = [slot for slot in slots if slot.host == host]
        loaded = Counter(slot.function for slot in mine if slot.function)
        table.add_row(host, "".join(_LETTERS[slot.state] for slot in mine), in_words(loaded))
    legend = ", ".join(f"{letter} {state.lower()}" for state, letter in _LETTERS.items())
    return *_with_more(table, len(slots) == SLOTS, "slots"), Text(legend, style="dim")


def _table(*columns: str) -> Table:
    """Return a table whose last column is wrapped if the terminal is narrow."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        last = name == columns[-1]
        table.add_column(name, no_wrap=not last, overflow="fold" if last else "ellipsis", ratio=1 if last else None)
    return table


def _with_more(table: Table, more: bool, what: str) -> Sequence[RenderableType]:
    return [Text(), table, *([Text(f"... and more {what}", style="dim")] if more else [])]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _duration(seconds: float) -> str:
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s"
