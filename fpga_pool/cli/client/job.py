"""`fpga-pool job` and `fpga-pool event`: the jobs of all batches, and what happened to any object."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.cli.arguments import moment
from fpga_pool.cli.client.base import TIMES, LongLister, Moment, NewestLister, Pages, PoolShowOne, Row, Seconds, Table
from fpga_pool.cli.client.inventory import slot_uuid
from fpga_pool.model.objects.history import EVENTFUL
from fpga_pool.model.objects.pool import Job

_COLUMNS = (
    "uuid", "name", "state", "function", "slot", "batch_uuid", "attempt", "input_bytes", "compute_s", "reason",
    "created_at",
)  # fmt: skip


class List(NewestLister, LongLister):
    """List jobs of all batches, newest first."""

    SHORT = ("uuid", "name", "state", "function")
    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION", "host": "HOST"}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.project_jobs(**self.filters(parsed_args))
        return self.with_projects(parsed_args, found, (_COLUMNS, [_row(job) for job in found]))


class Show(PoolShowOne):
    """Show a job: where it is, why it waits or failed, and when it is planned to start."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("job", metavar="JOB", help="uuid of the job")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        job = self.client.job(parsed_args.job)
        columns = (*_COLUMNS, "requester", "expected_at", "started_at", "finished_at", "ended_at", "error_code")
        return columns, (
            *_row(job),
            job.requester,
            *map(Moment, (job.expected_at, job.started_at, job.finished_at, job.ended_at)),
            job.error_code,
        )


def _row(job: Job) -> Row:
    return (
        job.uuid,
        job.name,
        str(job.state),
        job.function,
        job.slot,
        job.batch_uuid,
        job.attempt,
        job.input_bytes,
        Seconds(job.compute_s),
        job.reason,
        Moment(job.created_at),
    )


class ListEvents(Pages, LongLister):
    """List what happened to an object, newest first, with the request that caused it."""

    SHORT = ("at", "event", "after", "reason", "request_id")
    FILTERS: Mapping[str, str] = {"event": "EVENT"}
    SORT, ORDER = "at", "desc"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("kind", choices=EVENTFUL, metavar="KIND", help=f"kind of the object: {', '.join(EVENTFUL)}")
        parser.add_argument("id", metavar="ID", help="uuid of the object; name of a host; name or uuid of a slot")
        self.add_pages(parser)
        parser.add_argument("--since", type=moment, metavar="TIME", help=f"only then or later: {TIMES}")
        parser.add_argument("--until", type=moment, metavar="TIME", help="only before that time")
        return parser

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what to ask the API for."""
        return super().filters(parsed_args) | {"since": parsed_args.since, "until": parsed_args.until}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        name = slot_uuid(self.client, parsed_args.id) if parsed_args.kind == "slot" else parsed_args.id
        events = self.client.events(EVENTFUL[parsed_args.kind], name, **self.filters(parsed_args))
        columns = ("number", "at", "event", "before", "after", "reason", "request_id")
        return columns, [
            (event.number, Moment(event.at), event.event, event.before, event.after, event.reason, event.request_id)
            for event in events
        ]
