"""`fpga-pool batch` and `job`: inspect, change and cancel existing batches, and inspect their jobs."""

import argparse
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.cli.client.base import CancelWork, NewestLister, OneObject, OneWork, Several
from fpga_pool.cli.client.columns import Columns, One, Shown, as_jobs, duration, single
from fpga_pool.cli.client.progress import add_progress, bars, seen_progress, wanted
from fpga_pool.cli.command import FAILED, Interrupted
from fpga_pool.client import Client
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.messages.requests import BatchDetail, JobDetail, PipelineDetail
from fpga_pool.model.objects.pool import ENDED_BATCHES, Batch, BatchState, Job

_WATCH_INTERVAL_S = 0.5

#: Numbers of jobs of a batch that are completed, failed and cancelled.
_ENDED: Columns = tuple((name, attrgetter(f"jobs_{name}")) for name in ("completed", "failed", "cancelled"))
#: Columns of lists of batches: all, and those that fit a terminal.
BATCHES: Columns = (
    *("name", "uuid", "state", "jobs"),
    *_ENDED,
    "created_at",
    ("pending_reason", attrgetter("withheld")),
)
SHORT_BATCHES = ("name", "uuid", "state", "jobs")
#: Filter options of lists of batches and pipelines.
BATCH_FILTERS = {"state": "STATE", "function": "FUNCTION", "host": "HOST"}


def _took_s(batch: Batch) -> float | None:
    began, ended = batch.dispatched_at, batch.ended_at
    return None if began is None or ended is None else ended - began


_SUMMARY = (
    *("name", "uuid", "state", "policy", "cancel_requested", "priority", "deadline_at", "jobs"),
    *_ENDED,
    ("makespan_s", _took_s),
    *("planned_makespan_s", "lower_bound_s", "planned_completion_s", "completion_bound_s"),
    *("created_at", "dispatched_at", "ended_at"),
)


def details(batch: Batch, jobs: Sequence[Job], **more: Any) -> One:
    """Return a batch with its jobs and additional fields, as names and values."""
    return single(batch, _SUMMARY, job_list=as_jobs(jobs), **more)


def prospects(detail: BatchDetail | PipelineDetail) -> Mapping[str, Any]:
    """Return why a batch or pipeline waits, when it is expected to begin and end, and how late that is."""
    return {
        "pending_reason": detail.pending_reason,
        "expected_at": detail.expected_at,
        "ends_at": detail.ends_at,
        "late_s": as_late(detail.late_s),
    }


def as_late(late_s: float | None) -> Shown:
    """Return the time by which a deadline is missed as the value of a column; None = it is not missed."""
    return Shown(late_s, "" if late_s is None else f"late by {duration(late_s)}")


class List(NewestLister):
    """List batches, newest first.

    Example: fpga-pool batch list --state RUNNING --since 12h
    """

    SHORT = SHORT_BATCHES
    FILTERS: Mapping[str, str] = BATCH_FILTERS
    ASK, COLUMNS = Client.batches, BATCHES


class Show(OneWork):
    """Show a batch and its jobs.

    Example: fpga-pool batch show UUID
    """

    NOUN = "batch"

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        project_id = parsed_args.project_id
        uuid = self.uuid_of_work("batch", parsed_args.batch, project_id)
        detail = self.client.batch_detail(uuid, project_id)
        jobs = self.client.jobs(detail.batch.uuid, project_id=project_id)
        return details(detail.batch, jobs, **prospects(detail))


class Watch(OneObject):
    """Follow a batch to its end.

    Example: fpga-pool batch watch UUID --timeout 3600
    """

    NOUN = "batch"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--timeout", type=positive_seconds, default=86_400.0, metavar="S", help="maximum time to wait, in seconds"
        )
        add_progress(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        """Poll the batch until it has ended; an interruption does not stop the batch."""
        uuid = self.uuid_of_work(self.NOUN, getattr(parsed_args, self.NOUN))
        try:
            batch = self._watch(uuid, parsed_args)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: {self.NOUN} {uuid} continues") from None
        if batch.state is not BatchState.COMPLETED:
            self.status = FAILED
        return single(batch, _SUMMARY)

    def _watch(self, uuid: str, parsed_args: argparse.Namespace) -> Batch:
        """Return the batch when it has ended; ServiceUnavailable after the timeout."""
        stream = self.app.stderr
        deadline_s = time.monotonic() + parsed_args.timeout
        with bars(stream, show=wanted(parsed_args.progress, stream)) as show_progress:
            while True:
                batch = self.client.batch(uuid)
                show_progress(seen_progress(batch, self.client.jobs(batch.uuid)))
                if batch.state in ENDED_BATCHES:
                    return batch
                if time.monotonic() > deadline_s:
                    raise ServiceUnavailable(
                        f"{self.NOUN} {batch.uuid} did not end within {parsed_args.timeout:g} s; it continues"
                    )
                time.sleep(_WATCH_INTERVAL_S)


class Cancel(CancelWork):
    """Cancel batches; jobs that are complete are kept.

    Example: fpga-pool batch cancel UUID
    """

    NOUN, ASK = "batch", Client.cancel


class _Change(Several):
    """Change batches, and show their new state."""

    NOUN, ALSO, ASK, COLUMNS = "batch", ", or pipeline", Client.change_batch, BATCHES
    SHORT = SHORT_BATCHES


class Set(_Change):
    """Change the priority of batches.

    Example: fpga-pool batch set --priority 5 UUID
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_priority(parser, required=True)

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"priority": parsed_args.priority}


class Hold(_Change):
    """Hold batches back: their jobs get no slots until `batch release`.

    Jobs whose files have not arrived lose their slots; jobs whose files the pool has received continue.

    Example: fpga-pool batch hold UUID
    """

    HELD = True

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"held": self.HELD}


class Release(Hold):
    """Release batches that were held back, so that their jobs get slots.

    Example: fpga-pool batch release UUID
    """

    HELD = False


def add_priority(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option for the priority of a batch."""
    parser.add_argument(
        "--priority",
        type=int,
        required=required,
        metavar="N",
        help="-100 to 100: of batches that wait, the highest is planned first (default: 0; above 0 managers only)",
    )


# ---- Jobs

_JOBS = (
    *("name", "uuid", "state", "function", "slot", "batch_uuid", "attempt", "input_bytes", "compute_s", "reason"),
    "created_at",
)


class ListJobs(NewestLister):
    """List jobs of all batches, newest first.

    Example: fpga-pool job list --state FAILED --host node-1
    """

    SHORT = ("name", "uuid", "state", "function")
    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION", "host": "HOST"}
    ASK = Client.job_details
    COLUMNS = (*((name, attrgetter(f"job.{name}")) for name in _JOBS), "pending_reason", "expected_at")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--batch", action="append", default=[], metavar="BATCH", help="only of this batch; may be repeated"
        )

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        batches = [self.uuid_of_work("batch", one, parsed_args.project_id) for one in parsed_args.batch]
        return super().filters(parsed_args) | {"batch_uuid": batches}


class ShowJob(OneWork):
    """Show a job: where it is, why it waits or failed, and when it is planned to start.

    Example: fpga-pool job show UUID
    """

    NOUN, ASK = "job", Client.job_detail
    COLUMNS = (
        *(*_JOBS, "requester", "group", "transfer_began_at", "staged_at", "started_at", "finished_at"),
        *("ended_at", "error_code"),
    )

    def details(self, found: JobDetail) -> One:
        return single(found.job, self.COLUMNS, pending_reason=found.pending_reason, expected_at=found.expected_at)
