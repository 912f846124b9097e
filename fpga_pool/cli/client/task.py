"""`fpga-pool task`: one function on several linked slots at once."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.cli.client.base import Moment, NewestLister, PoolLister, PoolShowOne, Row, Seconds, Table
from fpga_pool.cli.client.batch.create import CreateWork, header_of
from fpga_pool.cli.client.outlook import Jobs
from fpga_pool.client.runner import BatchRunner
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.requests import TaskDetail
from fpga_pool.model.objects.tasks import Task, TaskShape


class Create(CreateWork):
    """Run a task, one slot for each file or as many as a shape says, all at once, to its end."""

    NOUN = "task"

    def add_choices(self, parser: argparse.ArgumentParser) -> None:
        """Describe what is a task's own."""
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

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        """Return what runs it."""
        files, topology = parsed_args.files, parsed_args.topology
        requester, header = parsed_args.requester, header_of(parsed_args.header)
        return self.client.task_runner(
            parsed_args.function,
            files,
            requester=requester,
            topology=topology,
            shapes=parsed_args.shapes,
            header=header,
            **options,
        )


def _shape(text: str) -> TaskShape:
    slots, colon, seconds = text.partition(":")
    try:
        return TaskShape(int(slots), float(seconds) if colon else None)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected SLOTS or SLOTS:SECONDS, found {text!r}") from None


class List(NewestLister):
    """List tasks, newest first."""

    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION"}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.tasks(**self.filters(parsed_args))
        return self.with_projects(parsed_args, found, listing(found))


class Show(PoolShowOne):
    """Show a task: why it waits and until when, or its slots, and its shares."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("task", metavar="TASK", help="uuid of the task")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return details(self.client.task(parsed_args.task))


class Cancel(PoolLister):
    """Cancel tasks; shares that are complete are kept."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("tasks", nargs="+", metavar="TASK", help="uuid of the task")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the end of each."""
        cancelled = self.for_each(parsed_args.tasks, self.client.cancel_task)
        columns = ("uuid", "name", "state", "cancel_requested")
        return columns, [(task.uuid, task.name, str(task.state), task.cancel_requested) for task in cancelled]


def listing(tasks: Sequence[Task]) -> Table:
    """Return tasks as a table."""
    columns = ("uuid", "name", "state", "function", "slots", "shapes", "topology", "attempt", "created_at")
    return columns, [
        (
            task.uuid,
            task.name,
            str(task.state),
            task.function,
            task.slots,
            ", ".join(map(_shown, task.shapes)),
            str(task.topology),
            task.attempt,
            Moment(task.created_at),
        )
        for task in tasks
    ]


def _shown(shape: TaskShape) -> str:
    return f"{shape.slots}" if shape.seconds is None else f"{shape.slots}:{shape.seconds:g}"


def _summary(task: Task) -> dict[str, Any]:
    return {
        "uuid": task.uuid,
        "name": task.name,
        "state": str(task.state),
        "cancel_requested": task.cancel_requested,
        "function": task.function,
        "slots": task.slots,
        "shapes": ", ".join(map(_shown, task.shapes)),
        "topology": str(task.topology),
        "created_at": Moment(task.created_at),
    }


def details(detail: TaskDetail) -> tuple[Sequence[str], Row]:
    """Return a task with what can be said of it now."""
    task = detail.task
    response_s = None if task.ended_at is None else task.ended_at - task.created_at
    shown = _summary(task) | {
        "pending_reason": detail.pending_reason or task.reason,
        "expected_at": Moment(detail.expected_at),
        "started_at": Moment(task.started_at),
        "ends_at": Moment(task.ends_at),
        "ended_at": Moment(task.ended_at),
        "response_s": Seconds(response_s),
        "attempt": task.attempt,
        "failures": task.failures,
        "slot_list": "\n".join(detail.slot_list),
        "share_list": Jobs(detail.share_list),
    }
    return tuple(shown), tuple(shown.values())
