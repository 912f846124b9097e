"""`fpga-pool gang`: parallel jobs on the processors that hosts give to gangs."""

import argparse
import re
from collections.abc import Sequence
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.cli.arguments import number_that, positive_count
from fpga_pool.cli.client.base import Moment, NewestLister, PoolLister, PoolShowOne, Row, Seconds, Table
from fpga_pool.model.messages.requests import GangDetail
from fpga_pool.model.objects.gangs import Gang, Process

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def duration_s(text: str) -> float:
    """Return a duration in seconds: a number, or hours, minutes and seconds as in 1h30m."""
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total_s = 3600 * hours + 60 * minutes + seconds
    if total_s <= 0:
        raise argparse.ArgumentTypeError(f"expected a duration above 0 (90, 1h, 1h30m), found {text!r}")
    return total_s


_usage = number_that(lambda value: 0 < value <= 1, "a share of a processor, above 0 and 1 at most")


class Create(PoolShowOne):
    """Queue a gang of N concurrent processes, one per CPU."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--processes", type=positive_count, required=True, metavar="N", help="number of processes")
        parser.add_argument(
            "--runtime",
            type=duration_s,
            required=True,
            metavar="T",
            help="estimated run time on dedicated processors (90, 1h, 1h30m): used to plan other gangs; a gang that "
            "exceeds it is not killed",
        )
        parser.add_argument(
            "--cpu-usage",
            type=_usage,
            default=1.0,
            metavar="U",
            help="share of a dedicated processor that each process uses (default: 1)",
        )
        parser.add_argument("--name", default="", help="name of the gang")
        parser.add_argument(
            "--image",
            default="",
            metavar="NAME",
            help="image of the machines (default: the default image of their hosts)",
        )
        parser.add_argument(
            "--command", default="", metavar="TEXT", help="command line passed to the image in each machine"
        )
        parser.add_argument(
            "--work",
            type=duration_s,
            metavar="T",
            help="actual run time of simulated processes (default: --runtime)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Queue it and show it."""
        gang = self.client.create_gang(
            parsed_args.processes,
            parsed_args.runtime,
            parsed_args.cpu_usage,
            name=parsed_args.name,
            work_s=parsed_args.work,
            image=parsed_args.image,
            command=parsed_args.command,
        )
        return _shown(_summary(gang))


class List(NewestLister):
    """List gangs, newest first."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.gangs(**self.filters(parsed_args))
        return self.with_projects(parsed_args, found, listing(found))


class Show(PoolShowOne):
    """Show a gang: why it waits and until when, or where it runs, and what it has used."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("gang", metavar="GANG", help="uuid of the gang")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return details(self.client.gang(parsed_args.gang))


class Cancel(PoolLister):
    """Cancel gangs; what they have done is lost."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("gangs", nargs="+", metavar="GANG", help="uuid of the gang")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the end of each."""
        cancelled = self.for_each(parsed_args.gangs, self.client.cancel_gang)
        columns = ("uuid", "name", "state", "cancel_requested")
        return columns, [(gang.uuid, gang.name, str(gang.state), gang.cancel_requested) for gang in cancelled]


class _Processes(FormattableColumn[Any]):
    """The processes of a gang: a line for each, or a list of objects."""

    _COLUMNS = ("index", "state", "processor", "tier", "rate", "cpu_s", "reason")

    def human_readable(self) -> str:
        """Show it in a table."""
        return "\n".join(self._line(process) for process in self._value)

    def machine_readable(self) -> list[dict[str, Any]]:
        """Leave it a list."""
        return [{name: getattr(process, name) for name in self._COLUMNS} for process in self._value]

    @staticmethod
    def _line(process: Process) -> str:
        rate = f"{process.rate:.2f}" if process.rate else ""
        parts = (str(process.index), str(process.state), process.processor, str(process.tier), rate, process.reason)
        return "  ".join(part for part in parts if part)


def _shown(columns: dict[str, Any]) -> tuple[Sequence[str], Row]:
    return tuple(columns), tuple(columns.values())


def listing(gangs: Sequence[Gang]) -> Table:
    """Return gangs as a table."""
    columns = ("uuid", "name", "state", "processes", "runtime_s", "migrations", "kills", "swaps", "created_at")
    return columns, [
        (
            gang.uuid,
            gang.name,
            str(gang.state),
            gang.processes,
            Seconds(gang.runtime_s),
            gang.migrations,
            gang.kills,
            gang.swaps,
            Moment(gang.created_at),
        )
        for gang in gangs
    ]


def _summary(gang: Gang) -> dict[str, Any]:
    return {
        "uuid": gang.uuid,
        "name": gang.name,
        "state": str(gang.state),
        "cancel_requested": gang.cancel_requested,
        "processes": gang.processes,
        "runtime_s": Seconds(gang.runtime_s),
        "cpu_usage": gang.cpu_usage,
        "image": gang.image,
        "command": gang.command,
        "created_at": Moment(gang.created_at),
    }


def details(detail: GangDetail) -> tuple[Sequence[str], Row]:
    """Return a gang with what can be said of it now."""
    gang = detail.gang
    response_s = None if gang.ended_at is None else gang.ended_at - gang.created_at
    shown = _summary(gang) | {
        "pending_reason": detail.pending_reason or gang.reason,
        "expected_at": Moment(detail.expected_at),
        "started_at": Moment(gang.started_at),
        "ends_at": Moment(gang.ends_at),
        "ended_at": Moment(gang.ended_at),
        "response_s": Seconds(response_s),
        "done_s": Seconds(detail.done_s),
        "attempt": gang.attempt,
        "failures": gang.failures,
        "migrations": gang.migrations,
        "kills": gang.kills,
        "swaps": gang.swaps,
        "foreground_s": Seconds(gang.front_s),
        "background_s": Seconds(gang.behind_s),
        "cpu_s": Seconds(gang.cpu_s),
        "process_list": _Processes(detail.process_list),
    }
    return _shown(shown)
