"""The measurements of a batch in the demonstration, and their output."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fpga_pool.client import BatchProgress, BatchResult
from fpga_pool.model.objects.pool import JobState, Slot
from fpga_pool.sim.pool import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One batch under one policy: predicted and measured."""

    policy: str
    simulated: Outcome
    result: BatchResult
    right: int
    slots: list[Slot]

    @property
    def makespan_s(self) -> float:
        """Seconds from the plan's time 0 to the completion of the last job."""
        jobs = tuple(job.job for job in self.result.jobs)
        return Outcome(batch=self.result.batch, jobs=jobs, slots=tuple(self.slots)).makespan_s

    @property
    def error(self) -> float:
        """Relative error of the simulator's makespan."""
        return self.simulated.makespan_s / self.makespan_s - 1

    def numbers(self) -> dict[str, Any]:
        """Return the numbers to compare; times in seconds."""
        batch = self.result.batch
        bound_s = batch.lower_bound_s or 0.0
        return {
            "policy": self.policy,
            "bound_s": bound_s,
            "planned_s": batch.planned_makespan_s or 0.0,
            "simulated_s": self.simulated.makespan_s,
            "measured_s": self.makespan_s,
            "error": self.error,
            "ratio": self.makespan_s / bound_s if bound_s else None,
            "loads": sum(slot.reconfigurations for slot in self.slots),
            "jobs": len(self.result.jobs),
            "right": self.right,
        }

    def busy_s(self, slot: str) -> float:
        """Return how long a slot computed, in seconds."""
        return sum(job.job.compute_s or 0.0 for job in self.result.jobs if job.job.slot == slot)


class ProgressBars:
    """Progress bars of bytes sent and jobs completed while the batch runs."""

    def __init__(self, console: Console, policy: str, jobs: int) -> None:
        columns = (TextColumn("{task.description:>22}"), BarColumn(40), TextColumn("{task.fields[shown]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console)
        self._sent = self._progress.add_task(f"{policy}: input sent", shown="")
        self._done = self._progress.add_task("jobs complete", total=jobs, shown="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, now: BatchProgress) -> None:
        done = now.states[JobState.COMPLETED] + now.states[JobState.RESULT_HELD]
        sent = f"{decimal(now.sent_bytes, precision=0)} of {decimal(now.input_bytes, precision=0)}"
        self._progress.update(self._sent, completed=now.sent_bytes, total=now.input_bytes, shown=sent)
        running = now.states[JobState.RUNNING]
        self._progress.update(self._done, completed=done, shown=f"{done} of {now.jobs}, {running} running")


def print_policies(measured: Sequence[Measured], console: Console) -> None:
    """Print a row per policy: means over its rounds, the range of the measured makespan, and the greatest error."""
    jobs, input_bytes = measured[0].result.jobs, sum(job.job.input_bytes for job in measured[0].result.jobs)
    functions = dict.fromkeys(job.job.function for job in jobs)
    policies = dict.fromkeys(one.policy for one in measured)
    table = Table(
        title=f"{len(jobs)} jobs ({', '.join(functions)}), {decimal(input_bytes, precision=0)}: makespan in seconds",
        caption="error: of the simulated makespan; ratio: of the measured makespan to the bound\n"
        f"rounds of each policy: {len(measured) // len(policies)}, every one in a fresh pool",
    )
    table.add_column("policy")
    for column in ("bound", "planned", "simulated", "measured", "error", "ratio", "loads"):
        table.add_column(column, justify="right")
    for policy in policies:
        rows = [one.numbers() for one in measured if one.policy == policy]
        bound, planned, simulated, mean = (
            statistics.mean(row[name] for row in rows) for name in ("bound_s", "planned_s", "simulated_s", "measured_s")
        )
        spread = dict.fromkeys(_seconds(find(row["measured_s"] for row in rows)) for find in (min, max))
        table.add_row(
            policy,
            *map(_seconds, (bound, planned, simulated)),
            "-".join(spread),
            f"{100 * max((row['error'] for row in rows), key=abs):+.1f} %",
            f"{mean / bound:.2f}" if bound else "",
            f"{statistics.mean(row['loads'] for row in rows):.0f}",
        )
    console.print(table)


def _seconds(seconds: float) -> str:
    """Format seconds with three digits or more."""
    return f"{seconds:.{2 if seconds < 10 else 1 if seconds < 100 else 0}f}"


def print_results(measured: Measured, console: Console) -> None:
    """Print each result for a user's file, or the path of a result that is not text."""
    for job in measured.result.jobs:
        if job.result is None:
            continue
        text = str(job.result) if job.job.function == "aes" else job.result.read_text(encoding="ascii").strip()
        console.print(f"{job.job.function} of {job.name}:", markup=False, highlight=False)
        console.print(f"    {text}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"    on {job.job.slot}", style="dim", highlight=False)


def print_slots(measured: Measured, console: Console) -> None:
    """Print how busy each slot was under one policy."""
    table = Table(title=f"Slots under {measured.policy}: busy share of the measured makespan")
    for column in ("slot", "kind"):
        table.add_column(column)
    for column in ("jobs", "busy s", "utilisation", "loads"):
        table.add_column(column, justify="right")
    for slot in measured.slots:
        jobs = sum(job.job.slot == slot.name for job in measured.result.jobs)
        busy_s = measured.busy_s(slot.name)
        share = f"{100 * busy_s / measured.makespan_s:.0f} %"
        table.add_row(slot.name, slot.kind, str(jobs), f"{busy_s:.2f}", share, str(slot.reconfigurations))
    console.print(table)
