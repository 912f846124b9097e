"""`fpga-pool gang` and `processor`: parallel jobs, and the processors that hosts reserve for them."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.cli.arguments import number_that, positive_count
from fpga_pool.cli.client.base import (
    CancelWork,
    LongLister,
    NewestLister,
    OneObject,
    OneWork,
    Pages,
    PoolShowOne,
    uuid_of,
)
from fpga_pool.cli.client.columns import Columns, One, Shown, as_lines, join, single
from fpga_pool.cli.client.create import Wanted
from fpga_pool.cli.client.plans.shown import outlook
from fpga_pool.client import Client
from fpga_pool.model.messages.plans import PlannedGang
from fpga_pool.model.messages.requests import GangDetail
from fpga_pool.model.objects.gangs import Process

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


class OfGang(Wanted):
    """Arguments of the commands that create or plan a gang."""

    def add_work(self, parser: argparse.ArgumentParser) -> None:
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

    def given(self, parsed_args: argparse.Namespace) -> tuple[int, float, float]:
        """Return the number of processes, their run time in seconds and their CPU usage."""
        return parsed_args.processes, parsed_args.runtime, parsed_args.cpu_usage

    def options(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the other properties of the gang, as keyword arguments of the client."""
        return {"work_s": parsed_args.work, "image": parsed_args.image, "command": parsed_args.command}

    def dry_run(self, parsed_args: argparse.Namespace) -> PlannedGang:
        return self.client.dry_run_gang(*self.given(parsed_args), **self.options(parsed_args))


class Create(OfGang, PoolShowOne):
    """Queue a gang of N concurrent processes, one per CPU.

    Example: fpga-pool gang create --processes 4 --runtime 1h30m --name weather
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_work(parser)
        parser.add_argument("--name", default="", help="name of the gang")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only show what would become of it: processors, start and end; nothing is stored or started",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        if parsed_args.dry_run:
            return outlook(self.dry_run(parsed_args))
        options = self.options(parsed_args)
        return single(self.client.create_gang(*self.given(parsed_args), name=parsed_args.name, **options), _SUMMARY)


LISTED = ("name", "uuid", "state", "processes", "runtime_s", "migrations", "kills", "swaps", "created_at")
_SUMMARY = (
    "name", "uuid", "state", "cancel_requested", "processes", "runtime_s", "cpu_usage", "image", "command",
    "created_at",
)  # fmt: skip


class List(NewestLister):
    """List gangs, newest first.

    Example: fpga-pool gang list --state QUEUED --long
    """

    SHORT = ("name", "uuid", "state", "processes")
    ASK, COLUMNS = Client.gangs, LISTED


class Show(OneWork):
    """Show a gang: why it waits and until when, or where it runs, and what it has used.

    Example: fpga-pool gang show UUID
    """

    NOUN, ASK = "gang", Client.gang

    def details(self, found: GangDetail) -> One:
        return details(found)


class Cancel(CancelWork):
    """Cancel gangs; the work that they have done is lost.

    Example: fpga-pool gang cancel UUID
    """

    NOUN, ASK = "gang", Client.cancel_gang


def details(detail: GangDetail) -> One:
    """Return a gang with its current status, as names and values."""
    gang = detail.gang
    return single(
        gang,
        _SUMMARY,
        pending_reason=detail.pending_reason or gang.reason,
        expected_at=detail.expected_at,
        started_at=gang.started_at,
        ends_at=gang.ends_at,
        ended_at=gang.ended_at,
        response_s=None if gang.ended_at is None else gang.ended_at - gang.created_at,
        done_s=detail.done_s,
        attempt=gang.attempt,
        failures=gang.failures,
        migrations=gang.migrations,
        kills=gang.kills,
        swaps=gang.swaps,
        foreground_s=gang.foreground_s,
        background_s=gang.background_s,
        cpu_s=gang.cpu_s,
        process_list=_processes(detail.process_list),
    )


def _processes(processes: Sequence[Process]) -> Shown:
    columns = ("index", "state", "processor", "tier", "rate", "cpu_s", "reason")
    plain = [{name: getattr(process, name) for name in columns} for process in processes]
    return as_lines(plain, map(_line, processes))


def _line(process: Process) -> str:
    rate = f"{process.rate:.2f}" if process.rate else ""
    return join(str(process.index), process.state, process.processor, process.tier, rate, process.reason)


# ---- Processors


def _gang_and_index(process: Process | None) -> str:
    return "" if process is None else f"{process.gang_uuid}/{process.index}"


_PROCESSORS: Columns = (
    *("name", "host", "number", "offered"),
    ("foreground", lambda one: _gang_and_index(one.foreground)),
    ("background", lambda one: _gang_and_index(one.background)),
)


class ListProcessors(Pages, LongLister):
    """List the processors of gangs, with the process in the foreground and in the background of each (GANG/INDEX).

    Example: fpga-pool processor list --host node-1
    """

    SHORT = ("name", "foreground", "background")
    FILTERS: Mapping[str, str] = {"host": "HOST"}
    ASK, COLUMNS = Client.processors, _PROCESSORS


class ShowProcessor(OneObject):
    """Show a processor of gangs, with the process in each of its tiers (GANG/INDEX).

    Example: fpga-pool processor show node-1/pcpu/2
    """

    NOUN, NAMED = "processor", "name (host/pcpu/number) or "
    ASK, COLUMNS = Client.processor, (*_PROCESSORS, "uuid")

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        return super().ask(uuid_of(self.NOUN, self.client.processors(), arguments[0]))
