"""`fpga-pool task`: one function on several linked slots at once."""

import argparse
from collections.abc import Mapping
from typing import Any

from fpga_pool.cli.client.base import CancelWork, NewestLister, OneWork
from fpga_pool.cli.client.columns import One, as_jobs, single
from fpga_pool.cli.client.create import CreateWork, Wanted
from fpga_pool.cli.files import header_of
from fpga_pool.client import Client
from fpga_pool.client.runner import BatchRunner
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.plans import PlannedTask
from fpga_pool.model.messages.requests import TaskDetail
from fpga_pool.model.objects.tasks import Task, TaskShape


class OfTask(Wanted):
    """Arguments of the commands that create or plan a task."""

    def add_choices(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--topology",
            choices=list(Topology),
            default=Topology.ANY,
            type=Topology,
            help="topology in which its slots must be linked, in the order of the files (default: %(default)s)",
        )
        parser.add_argument(
            "--shape",
            action="append",
            default=[],
            dest="shapes",
            metavar="SLOTS[:SECONDS]",
            type=_shape,
            help="number of slots it can run on, and its compute time with them (default: from the function's time "
            "model); may be repeated, and the task gets one of these shapes (default: one slot per file)",
        )

    def options(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the options that were given."""
        given = {name: getattr(parsed_args, name) for name in ("requester", "topology", "shapes")}
        return given | {"header": header_of(parsed_args.header)}

    def dry_run(self, parsed_args: argparse.Namespace) -> PlannedTask:
        return self.client.dry_run_task(parsed_args.function, parsed_args.files, **self.options(parsed_args))


class Create(OfTask, CreateWork):
    """Run a task to its end, on one slot per file or as many as a shape has, all at the same time.

    Example: fpga-pool task create --function sha256 --requester node-1 --topology ring a.bin b.bin
    """

    NOUN = "task"

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        return self.client.task_runner(parsed_args.function, parsed_args.files, **self.options(parsed_args), **options)


def _shape(text: str) -> TaskShape:
    slots, colon, seconds = text.partition(":")
    try:
        return TaskShape(int(slots), float(seconds) if colon else None)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected SLOTS or SLOTS:SECONDS, found {text!r}") from None


def _shapes(task: Task) -> str:
    return ", ".join(f"{one.slots}" if one.seconds is None else f"{one.slots}:{one.seconds:g}" for one in task.shapes)


LISTED = ("name", "uuid", "state", "function", "slots", ("shapes", _shapes), "topology", "attempt", "created_at")
_SUMMARY = (
    "name", "uuid", "state", "cancel_requested", "function", "slots", ("shapes", _shapes), "topology", "created_at",
)  # fmt: skip


class List(NewestLister):
    """List tasks, newest first.

    Example: fpga-pool task list --function sha256 --long
    """

    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION"}
    SHORT = ("name", "uuid", "state", "slots")
    ASK, COLUMNS = Client.tasks, LISTED


class Show(OneWork):
    """Show a task: why it waits and until when, or its slots, and its shares.

    Example: fpga-pool task show UUID
    """

    NOUN, ASK = "task", Client.task

    def details(self, found: TaskDetail) -> One:
        return details(found)


class Cancel(CancelWork):
    """Cancel tasks; shares that are complete are kept.

    Example: fpga-pool task cancel UUID
    """

    NOUN, ASK = "task", Client.cancel_task


def details(detail: TaskDetail) -> One:
    """Return a task with its current status, as names and values."""
    task = detail.task
    return single(
        task,
        _SUMMARY,
        pending_reason=detail.pending_reason or task.reason,
        expected_at=detail.expected_at,
        started_at=task.started_at,
        ends_at=task.ends_at,
        ended_at=task.ended_at,
        response_s=None if task.ended_at is None else task.ended_at - task.created_at,
        attempt=task.attempt,
        failures=task.failures,
        slot_list="\n".join(detail.slot_list),
        share_list=as_jobs(detail.share_list),
    )
