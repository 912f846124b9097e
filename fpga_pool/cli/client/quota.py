"""`fpga-pool quota` and `usage`: the limits of a project, and its current and past use of the pool."""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fpga_pool.cli.arguments import moment, number_that, parameter, positive_count
from fpga_pool.cli.client.base import TIMES, LongLister, Pages, PoolCommand, PoolLister, add_projects
from fpga_pool.cli.client.columns import Columns, Shown, Table, as_bytes, table
from fpga_pool.client import Client
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.usage import Usage
from fpga_pool.model.objects.quotas import UNLIMITED, QuotaLimits, Resource, ResourceQuota

DAY_S = 86_400.0


def _amount_of(one: ResourceQuota, amount: int | None) -> Shown:
    if amount == UNLIMITED:
        return Shown(amount, "unlimited")
    if one.resource.endswith("_bytes"):
        return as_bytes(amount)
    return Shown(amount, "" if amount is None else str(amount))


_QUOTA: Columns = (
    "resource",
    ("limit", lambda one: _amount_of(one, one.limit)),
    "default",
    ("used", lambda one: _amount_of(one, one.used)),
)


class Show(PoolLister):
    """Show the limits of a project, and how much of them is used.

    Example: fpga-pool quota show PROJECT
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "project",
            nargs="?",
            metavar="PROJECT",
            help="id of a project (default: your own); operators may name any project",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        return table(self.client.quota(parsed_args.project).resources, _QUOTA)


class Set(PoolLister):
    """Change limits of a project; those that are not given stay as they are.

    Example: fpga-pool quota set PROJECT --jobs 500 --input-bytes -1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("project", metavar="PROJECT", help="id of the project")
        for resource, what in _WHAT.items():
            parser.add_argument(_option(resource), type=_limit, metavar="N", help=f"{what}; {UNLIMITED} = no limit")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        given = {resource: getattr(parsed_args, resource) for resource in Resource}
        if all(limit is None for limit in given.values()):
            raise InvalidInput(f"expected at least one of {', '.join(map(_option, Resource))}")
        return table(self.client.set_quota(parsed_args.project, QuotaLimits(**given)).resources, _QUOTA)


class Unset(PoolLister):
    """Reset a project to the default limits.

    Example: fpga-pool quota unset PROJECT
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("project", metavar="PROJECT", help="id of the project")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        return table(self.client.unset_quota(parsed_args.project).resources, _QUOTA)


class ShowUsage(Pages, LongLister):
    """Show what a project has used in a period, by function: jobs that have ended, loads, and slots of instances.

    Example: fpga-pool usage show --start 7d --long
    """

    SHORT: Sequence[str] = ("function", "jobs", "loads", "slot_s", "vcpu_s", "instance_slot_s")
    ASK, SORT, MARKER = Client.usage, "project_id", "PROJECT/FUNCTION"
    COLUMNS = (
        *("project_id", "function", "begin_at", "end_at", "jobs", "loads", "slot_s", "cpu_s", "vcpu_s"),
        *("instance_slot_s", "input_bytes", "result_bytes"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        _add_period(parser)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        if parsed_args.project_id is not None:
            self.SHORT = ("project_id", "function", "jobs", "loads", "slot_s")
        period = {name: getattr(parsed_args, name) for name in ("project_id", "start", "end")}
        return super().filters(parsed_args) | period


#: Metrics in CloudKitty by name, each with the field of the usage that it contains and its unit.
_METRICS = {
    "fpga.slot": ("slot_s", "s"),
    "fpga.cpu": ("cpu_s", "s"),
    "fpga.vcpu": ("vcpu_s", "s"),
    "fpga.instance_slot": ("instance_slot_s", "s"),
    "fpga.input": ("input_bytes", "B"),
    "fpga.result": ("result_bytes", "B"),
    "fpga.load": ("loads", "loads"),
}


class ExportUsage(PoolCommand):
    """Print usage as data frames of CloudKitty, one for each whole period: the body of POST /v2/dataframes.

    Example: fpga-pool usage export --start 24h --price fpga.slot=0.0001
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_period(parser)
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

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        now = time.time()
        end = now if parsed_args.end is None else min(parsed_args.end, now)
        start = end - DAY_S if parsed_args.start is None else parsed_args.start
        length, prices = parsed_args.period, dict(parsed_args.price)
        frames = [
            _frame(begin, begin + length, found, prices)
            for begin in range(math.ceil(start / length) * length, int(end) - length + 1, length)
            if (found := self.client.usage(project_id=parsed_args.project_id, start=begin, end=begin + length))
        ]
        print(json.dumps({"dataframes": frames}, indent=2), file=self.app.stdout)


def _frame(begin: int, end: int, found: Sequence[Usage], prices: Mapping[str, float]) -> dict[str, Any]:
    """Return a data frame with the used amount of each metric, by project and function."""
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


def _add_period(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the period and the project."""
    parser.add_argument("--start", type=moment, metavar="TIME", help=f"{TIMES} (default: a day before the end)")
    parser.add_argument(
        "--end",
        type=moment,
        metavar="TIME",
        help="end of the period, exclusive, in the same form as --start (default: now)",
    )
    add_projects(parser)


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
    try:
        limit = int(text)
    except ValueError:
        limit = UNLIMITED - 1
    if limit < UNLIMITED:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, or {UNLIMITED}, found {text!r}")
    return limit
