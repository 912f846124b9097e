"""`fpga-pool batch list`, `show` and `watch`."""

import argparse
import time
from collections.abc import Sequence

from fpga_pool.cli.client.base import Moment, NewestLister, PoolShowOne, Row, Seconds, Table
from fpga_pool.cli.client.outlook import Jobs, Late
from fpga_pool.cli.client.progress import add_progress, bars, seen_progress, wanted
from fpga_pool.cli.command import FAILED, Interrupted
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.objects.pool import ENDED_BATCHES, Batch, BatchState, Job

_WATCH_INTERVAL_S = 0.5


class List(NewestLister):
    """List batches, newest first."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.batches(**self.filters(parsed_args))
        return self.with_projects(parsed_args, found, listing(found))


class Show(PoolShowOne):
    """Show a batch and its jobs."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        return _with_batch(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        detail = self.client.batch_detail(parsed_args.batch)
        columns, values = details(detail.batch, self.client.jobs(detail.batch.uuid))
        more = {
            "pending_reason": detail.pending_reason,
            "expected_at": Moment(detail.expected_at),
            "ends_at": Moment(detail.ends_at),
            "late_s": Late(detail.late_s),
        }
        return (*columns, *more), (*values, *more.values())


class Watch(PoolShowOne):
    """Follow a batch to its end."""

    NOUN = "batch"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = _with_batch(super().get_parser(prog_name), self.NOUN)
        parser.add_argument(
            "--timeout", type=float, default=86_400.0, metavar="S", help="maximum time to wait, in seconds"
        )
        add_progress(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Look again and again; an interruption does not stop the batch."""
        try:
            batch = self._watch(parsed_args)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: {self.NOUN} {parsed_args.batch} continues") from None
        if batch.state is not BatchState.COMPLETED:
            self.status = FAILED
        return _summary(batch)

    def _watch(self, parsed_args: argparse.Namespace) -> Batch:
        """Return the batch when it has ended."""
        stream = self.app.stderr
        deadline_s = time.monotonic() + parsed_args.timeout
        with bars(stream, show=wanted(parsed_args.progress, stream)) as show_progress:
            while True:
                batch = self.client.batch(parsed_args.batch)
                show_progress(seen_progress(batch, self.client.jobs(batch.uuid)))
                if batch.state in ENDED_BATCHES:
                    return batch
                if time.monotonic() > deadline_s:
                    raise ServiceUnavailable(
                        f"{self.NOUN} {batch.uuid} did not end within {parsed_args.timeout:g} s; it continues"
                    )
                time.sleep(_WATCH_INTERVAL_S)


# ---- Output


def listing(batches: Sequence[Batch]) -> Table:
    """Return batches as a table."""
    columns = ("uuid", "name", "state", "jobs", "completed", "failed", "cancelled", "created_at", "pending_reason")
    return columns, [
        (
            batch.uuid,
            batch.name,
            str(batch.state),
            batch.jobs,
            batch.jobs_completed,
            batch.jobs_failed,
            batch.jobs_cancelled,
            Moment(batch.created_at),
            batch.withheld,
        )
        for batch in batches
    ]


def details(batch: Batch, jobs: Sequence[Job]) -> tuple[Sequence[str], Row]:
    """Return a batch and its jobs."""
    columns, values = _summary(batch)
    return (*columns, "job_list"), (*values, Jobs(jobs))


def _summary(batch: Batch) -> tuple[Sequence[str], Row]:
    took_s = None
    if batch.dispatched_at is not None and batch.ended_at is not None:
        took_s = batch.ended_at - batch.dispatched_at
    shown = {
        "uuid": batch.uuid,
        "name": batch.name,
        "state": str(batch.state),
        "policy": batch.policy,
        "cancel_requested": batch.cancel_requested,
        "priority": batch.priority,
        "deadline_at": Moment(batch.deadline_at),
        "jobs": batch.jobs,
        "completed": batch.jobs_completed,
        "failed": batch.jobs_failed,
        "cancelled": batch.jobs_cancelled,
        "makespan_s": Seconds(took_s),
        "planned_makespan_s": Seconds(batch.planned_makespan_s),
        "lower_bound_s": Seconds(batch.lower_bound_s),
        "planned_completion_s": Seconds(batch.planned_completion_s),
        "completion_bound_s": Seconds(batch.completion_bound_s),
        "created_at": Moment(batch.created_at),
        "dispatched_at": Moment(batch.dispatched_at),
        "ended_at": Moment(batch.ended_at),
    }
    return tuple(shown), tuple(shown.values())


def _with_batch(parser: argparse.ArgumentParser, noun: str = "batch") -> argparse.ArgumentParser:
    parser.add_argument("batch", metavar=noun.upper(), help=f"uuid of the {noun}")
    return parser
