"""`fpga-pool quota` and `usage`: how much of the pool a project may ask for, uses and has used."""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.cli.arguments import moment, number_that, parameter, positive_count
from fpga_pool.cli.client.base import TIMES, LongLister, Moment, PoolCommand, PoolLister, Seconds, Table, add_projects
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import Usage
from fpga_pool.model.objects.quotas import UNLIMITED, Quota, QuotaLimits, Resource

DAY_S = 86_400.0


class Limit(FormattableColumn[Any]):
    """A limit, perhaps none."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "unlimited" if self._value == UNLIMITED else str(self._value)

    def machine_readable(self) -> int:
        """Leave it a number, as in the API."""
        limit: int = self._value
        return limit


class Used(FormattableColumn[Any]):
    """An amount in use, perhaps one that is not known."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "" if self._value is None else str(self._value)

    def machine_readable(self) -> int | None:
        """Leave it a number, as in the API."""
        used: int | None = self._value
        return used


class Show(PoolLister):
    """Show the limits of a project, and how much of them is used."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "project", nargs="?", metavar="PROJECT", help="id of a project; other ones than the own are for operators"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return _table(self.client.quota(parsed_args.project))


class Set(PoolLister):
    """Change limits of a project; those that are not given stay as they are."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("project", metavar="PROJECT", help="id of the project")
        for resource, what in _WHAT.items():
            parser.add_argument(_option(resource), type=_limit, metavar="N", help=f"{what}; {UNLIMITED} = no limit")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        given = {resource: getattr(parsed_args, resource) for resource in Resource}
        if all(limit is None for limit in given.values()):
            raise InvalidInput(f"expected at least one of {', '.join(map(_option, Resource))}")
        return _table(self.client.set_quota(parsed_args.project, QuotaLimits(**given)))


class Unset(PoolLister):
    """Return a project to the default limits."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("project", metavar="PROJECT", help="id of the project")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return _table(self.client.unset_quota(parsed_args.project))


class ShowUsage(LongLister):
    """Show what a project has used in a period, by function: jobs that have ended, and slots of instances."""

    SHORT: Sequence[str] = ("function", "jobs", "slot_s", "vcpu_s", "instance_slot_s")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        return _with_period(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.usage(parsed_args.project_id, start=parsed_args.start, end=parsed_args.end)
        if parsed_args.project_id is not None:
            self.SHORT = ("project_id", "function", "jobs", "slot_s")
        columns = (
            *("project_id", "function", "begin_at", "end_at", "jobs", "slot_s", "cpu_s", "vcpu_s", "instance_slot_s"),
            *("input_bytes", "result_bytes"),
        )
        return columns, [
            (
                *(one.project_id, one.function, Moment(one.begin_at), Moment(one.end_at), one.jobs),
                *(Seconds(one.slot_s), Seconds(one.cpu_s), Seconds(one.vcpu_s), Seconds(one.instance_slot_s)),
                *(one.input_bytes, one.result_bytes),
            )
            for one in found
        ]


#: By the name of a metric in CloudKitty, what it is the amount of, and its unit.
_METRICS = {
    "fpga.slot": ("slot_s", "s"),
    "fpga.cpu": ("cpu_s", "s"),
    "fpga.instance_slot": ("instance_slot_s", "s"),
    "fpga.input": ("input_bytes", "B"),
    "fpga.result": ("result_bytes", "B"),
}


class ExportUsage(PoolCommand):
    """Print usage as data frames of CloudKitty, one for each whole period: the body of POST /v2/dataframes."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = _with_period(super().get_parser(prog_name))
        parser.add_argument(
            "--period", type=positive_count, default=3600, metavar="S", help="length in seconds (default: %(default)s)"
        )
        parser.add_argument(
            "--price",
            type=_price,
            action="append",
            default=[],
            metavar="METRIC=PRICE",
            help=f"of one unit; may be repeated (default: 0); metrics: {', '.join(_METRICS)}",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Ask for each period, and print."""
        now = time.time()
        end = now if parsed_args.end is None else min(parsed_args.end, now)
        start = end - DAY_S if parsed_args.start is None else parsed_args.start
        length, prices = parsed_args.period, dict(parsed_args.price)
        frames = [
            _frame(begin, begin + length, found, prices)
            for begin in range(math.ceil(start / length) * length, int(end) - length + 1, length)
            if (found := self.client.usage(parsed_args.project_id, start=begin, end=begin + length))
        ]
        print(json.dumps({"dataframes": frames}, indent=2), file=self.app.stdout)


def _frame(begin: int, end: int, found: Sequence[Usage], prices: Mapping[str, float]) -> dict[str, Any]:
    """Return a data frame: what was used of each metric, by project and function."""
    points = {
        metric: [
            {
                "vol": {"unit": unit, "qty": getattr(one, name)},
                "rating": {"price": getattr(one, name) * prices.get(metric, 0.0)},
                "groupby": {"project_id": one.project_id},
                "metadata": {"function": one.function},
            }
            for one in found
            if getattr(one, name)
        ]
        for metric, (name, unit) in _METRICS.items()
    }
    begin_at, end_at = (datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ") for at in (begin, end))
    return {
        "period": {"begin": begin_at, "end": end_at},
        "usage": {metric: some for metric, some in points.items() if some},
    }


def _price(text: str) -> tuple[str, float]:
    metric, price = parameter(text)
    if metric not in _METRICS:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(_METRICS)}, found {metric!r}")
    return metric, _amount(price)


_amount = number_that(lambda value: value >= 0, "a price of at least 0")


def _with_period(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return a parser that also reads of which period and project usage is wanted."""
    parser.add_argument("--start", type=moment, metavar="TIME", help=f"{TIMES} (default: a day before the end)")
    parser.add_argument("--end", type=moment, metavar="TIME", help="as --start, itself left out (default: now)")
    add_projects(parser)
    return parser


_WHAT = {
    Resource.JOBS: "most jobs that have not ended",
    Resource.INPUT_BYTES: "most bytes of input of batches, tasks and pipelines that have not ended",
    Resource.TASK_SLOTS: "most slots requested by tasks that have not ended",
    Resource.GANG_PROCESSORS: "most processes of gangs that have not ended",
    Resource.TICKETS: "most transfer tickets that have not expired, for each scheduler",
    Resource.REQUESTS_PER_S: "most requests per second, for each process of the API",
    Resource.DESIGN_BYTES: "most bytes of bitstreams of designs",
}


def _option(resource: Resource) -> str:
    return f"--{resource.replace('_', '-')}"


def _limit(text: str) -> int:
    limit = int(text)
    if limit < UNLIMITED:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, or {UNLIMITED}, found {text}")
    return limit


def _table(quota: Quota) -> Table:
    return ("resource", "limit", "default", "used"), [
        (one.resource, Limit(one.limit), one.default, Used(one.used)) for one in quota.resources
    ]
