"""One experiment after the other, with a bar that shows how far they are."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fpga_pool.experiments.figures.figure import Experiment, Figure, Sample, Samples, Settings

#: Called once for each measurement that is done.
Tick = Callable[[], None]


def make(experiment: Experiment, settings: Settings, tick: Tick = lambda: None) -> Figure:
    """Measure every case of an experiment with every seed."""
    rows: list[Sample] = []
    for case in experiment.cases(settings):
        for seed in settings.seeds:
            rows += experiment.measure(case, seed, settings)
            tick()
    samples = Samples(rows)
    return Figure(experiment=experiment, samples=samples, claims=tuple(experiment.claims(samples)))


@contextlib.contextmanager
def bars(experiments: Sequence[Experiment], settings: Settings, stream: TextIO) -> Iterator[Callable[[int], Tick]]:
    """Show a bar per figure on a terminal; what it yields returns the tick of a figure by its number."""
    columns = (
        TextColumn("figure {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=stream), disable=not stream.isatty()) as progress:
        tasks = {
            experiment.number: progress.add_task(
                f"{experiment.number}", total=len(experiment.cases(settings)) * len(settings.seeds), start=False
            )
            for experiment in experiments
        }

        def ticks(number: int) -> Tick:
            progress.start_task(tasks[number])
            return lambda: progress.advance(tasks[number])

        yield ticks
