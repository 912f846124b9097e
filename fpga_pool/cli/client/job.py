"""`fpga-pool job` and `fpga-pool event`: the jobs of all batches, and what happened to any object."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.cli.arguments import moment
from fpga_pool.cli.client.base import (
    TIMES,
    LongLister,
    Moment,
    NewestLister,
    Pages,
    PoolShowOne,
    Row,
    Seconds,
    Table,
    add_projects,
)
from fpga_pool.cli.client.inventory import slot_uuid
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.history import EVENTFUL, HistoryEntry
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


_OF_EVENTS = ("number", "at", "event", "before", "after", "reason", "request_id")


class ListEvents(Pages, LongLister):
    """List what happened to an object, or to all of the project, newest first, with the request that caused it.

    Of all objects, those of a KIND if it is given, the newest 100 are listed unless --limit says otherwise.
    Examples: fpga-pool event list batch UUID; fpga-pool event list slot --host node-1 --since 1h --all-projects
    """

    SHORT = ("at", "event", "after", "reason", "request_id")
    FILTERS: Mapping[str, str] = {"event": "EVENT", "name": "NAME", "host": "HOST"}
    SORT, ORDER = "at", "desc"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        kinds = f"kind of the object, or objects: {', '.join(EVENTFUL)}"
        parser.add_argument("kind", nargs="?", choices=EVENTFUL, metavar="KIND", help=kinds)
        parser.add_argument(
            "id", nargs="?", metavar="ID", help="uuid of the object; name of a host; name or uuid of a slot"
        )
        self.add_pages(parser)
        parser.add_argument("--since", type=moment, metavar="TIME", help=f"only then or later: {TIMES}")
        parser.add_argument("--until", type=moment, metavar="TIME", help="only before that time")
        add_projects(parser)
        return parser

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what to ask the API for."""
        return super().filters(parsed_args) | {"since": parsed_args.since, "until": parsed_args.until}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        filters = self.filters(parsed_args)
        if parsed_args.id is None:
            return self._all(parsed_args, filters)
        if filters.pop("name") or filters.pop("host") or parsed_args.project_id:
            raise InvalidInput("--name, --host and projects are for the events of all objects, not of one")
        name = slot_uuid(self.client, parsed_args.id) if parsed_args.kind == "slot" else parsed_args.id
        events = self.client.events(EVENTFUL[parsed_args.kind], name, **filters)
        return _OF_EVENTS, [_event(event) for event in events]

    def _all(self, parsed_args: argparse.Namespace, filters: dict[str, Any]) -> Table:
        if filters.pop("sort") != "at:desc":
            raise InvalidInput("--sort: events of all objects are listed newest first; name one object for others")
        self.SHORT = ("at", "kind", "name", "event", "after")
        events = self.client.pool_events(
            filters.pop("limit") or 100,
            kind=[parsed_args.kind] if parsed_args.kind else [],
            project_id=parsed_args.project_id,
            **filters,
        )
        return ("kind", "name", "uuid", "project_id", "host", *_OF_EVENTS), [
            (one.kind, one.name, one.uuid, one.project_id, one.host, *_event(one.entry)) for one in events
        ]


def _event(event: HistoryEntry) -> Row:
    return (event.number, Moment(event.at), event.event, event.before, event.after, event.reason, event.request_id)
