"""Progress of a batch on standard error, and the options of commands that move its inputs and results."""

import argparse
import contextlib
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from fpga_pool.cli.client.base import PoolCommand
from fpga_pool.client import BatchProgress
from fpga_pool.client.transfers import AT_CLIENT
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import ENDED_JOBS, Batch, Job, JobState

ShowProgress = Callable[[BatchProgress], None]


def wanted(choice: bool | None, stream: TextIO) -> bool:
    """Return whether to show progress bars: as requested, by default if the stream is a terminal."""
    return stream.isatty() if choice is None else choice


@contextlib.contextmanager
def bars(stream: TextIO, *, show: bool) -> Iterator[ShowProgress]:
    """Show two bars, bytes sent and jobs ended, while the block runs; yield the callback that updates them."""
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

        def show_progress(now: BatchProgress) -> None:
            amount = DownloadColumn().render(progress.tasks[0]) if now.input_bytes else ""
            progress.update(sent, total=now.input_bytes, completed=now.sent_bytes, amount=amount)
            ended = sum(number for state, number in now.states.items() if state in ENDED_JOBS)
            progress.update(jobs, total=now.jobs, completed=ended, amount=f"{ended}/{now.jobs}", detail=_detail(now))

        yield show_progress


def _detail(now: BatchProgress) -> str:
    return ", ".join(f"{now.states[state]} {state}" for state in JobState if now.states.get(state))


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that show progress."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress bars (default: if standard error is a terminal)",
    )


@contextlib.contextmanager
def following(command: PoolCommand, parsed_args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Show the progress of a run while the block runs; yield the run's options that result from `add_streams`."""
    stream = command.app.stderr
    with bars(stream, show=wanted(parsed_args.progress, stream)) as show_progress:
        yield {"on_progress": show_progress, "ssl_context": _trust(parsed_args.ca)}


def add_streams(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that transfer inputs and results."""
    parser.add_argument("--ca", type=Path, metavar="FILE", help="CA certificate (PEM) to trust for data ports with TLS")
    add_progress(parser)


def _trust(path: Path | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidInput(f"--ca {path}: {error.strerror or error}") from error


def seen_progress(batch: Batch, jobs: Sequence[Job]) -> BatchProgress:
    """Return the progress of a batch, derived from its jobs."""
    return BatchProgress(
        batch_uuid=batch.uuid,
        jobs=batch.jobs,
        states=Counter(job.state for job in jobs),
        results=batch.jobs_completed,
        input_bytes=sum(job.input_bytes for job in jobs),
        sent_bytes=sum(job.input_bytes for job in jobs if job.state not in AT_CLIENT),
    )
