"""Progress of a batch as bars on standard error."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from fpga_pool.client import BatchProgress
from fpga_pool.model.objects import ENDED_JOBS, JobState

Tell = Callable[[BatchProgress], None]


def wanted(choice: bool | None, stream: TextIO) -> bool:
    """Say whether bars are shown: as asked, else where somebody looks."""
    return stream.isatty() if choice is None else choice


@contextlib.contextmanager
def bars(stream: TextIO, *, show: bool) -> Iterator[Tell]:
    """Show two bars, bytes sent and jobs ended, while the block runs; what it yields moves them."""
    if not show:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(file=stream)) as progress:
        sent = progress.add_task("input", total=None, amount="", detail="")
        jobs = progress.add_task("jobs ", total=None, amount="", detail="")

        def tell(now: BatchProgress) -> None:
            amount = DownloadColumn().render(progress.tasks[0]) if now.input_bytes else ""
            progress.update(sent, total=now.input_bytes, completed=now.sent_bytes, amount=amount)
            ended = sum(number for state, number in now.states.items() if state in ENDED_JOBS)
            progress.update(jobs, total=now.jobs, completed=ended, amount=f"{ended}/{now.jobs}", detail=_detail(now))

        yield tell


def _detail(now: BatchProgress) -> str:
    return ", ".join(f"{now.states[state]} {state}" for state in JobState if now.states.get(state))
