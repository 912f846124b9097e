"""Base of the commands of `fpga-pool`."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from cliff.columns import FormattableColumn
from cliff.lister import Lister
from cliff.show import ShowOne

from fpga_pool.cli.arguments import moment, positive_count
from fpga_pool.cli.command import FAILED, CheckedCommand, one_line
from fpga_pool.client import Client
from fpga_pool.model.exceptions import FpgaPoolError

#: How points in time are written.
TIMES = "30m, 12h or 7d ago, or a date such as 2026-01-31T12:00:00Z"

T = TypeVar("T")
Row = tuple[Any, ...]
Table = tuple[Sequence[str], Sequence[Row]]


class PoolCommand(CheckedCommand):
    """A command that asks the pool."""

    @property
    def client(self) -> Client:
        """The client that the application made: `fpga-pool` itself, or `openstack` by our plug-in."""
        manager = getattr(self.app, "client_manager", None)
        return cast("Client", manager.fpga if manager else cast("Any", self.app).client)

    def for_each(self, names: Sequence[str], act: Callable[[str], T]) -> list[T]:
        """Return what `act` returns for each name; go on after an error, and count the errors at the end."""
        done: list[T] = []
        for name in names:
            try:
                done.append(act(name))
            except FpgaPoolError as error:
                if len(names) == 1:
                    raise
                self.complain(one_line(error))
                self.status = FAILED
        if failed := len(names) - len(done):
            self.complain(f"{failed} of {len(names)} failed")
        return done


class PoolLister(PoolCommand, Lister):
    """A command that ends with a table."""


class LongLister(PoolLister):
    """A list whose table has few columns, to fit a terminal, unless others are asked for; data has all columns."""

    #: Names of the columns of the table.
    SHORT: Sequence[str] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="show all columns, as -f json and -f csv do")
        return parser

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Choose the columns."""
        if parsed_args.formatter == self.formatter_default and not (parsed_args.long or parsed_args.columns):
            parsed_args.columns = list(self.SHORT)
        return super().produce_output(parsed_args, column_names, data)


class Rate(FormattableColumn[Any]):
    """A rate in bits per second, perhaps without a limit: with a unit for people."""

    def human_readable(self) -> str:
        """Show it in a table."""
        if self._value == float("inf"):
            return "unlimited"
        for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
            if self._value >= factor:
                return f"{self._value / factor:.4g} {unit}"
        return f"{self._value:.4g} bit/s"

    def machine_readable(self) -> float | None:
        """Leave it a number; JSON has no infinity."""
        return None if self._value == float("inf") else self._value


class Pages:
    """The options of a list: which objects, in which order, from which one on."""

    #: Options that take one or several values, and what they are called.
    FILTERS: Mapping[str, str] = {}
    #: Field by which the list is sorted, and how without `--sort`.
    SORT, ORDER = "name", "asc"

    def add_pages(self, parser: argparse.ArgumentParser, limit: int | None = None) -> None:
        """Describe the options."""
        for name, metavar in self.FILTERS.items():
            parser.add_argument(
                f"--{name}",
                action="append",
                default=[],
                metavar=metavar,
                help=f"only of this {name}; may be repeated",
            )
        parser.add_argument(
            "--sort",
            choices=[f"{self.SORT}:asc", f"{self.SORT}:desc"],
            default=f"{self.SORT}:{self.ORDER}",
            help="order of the rows (default: %(default)s)",
        )
        parser.add_argument(
            "--limit",
            type=positive_count,
            default=limit,
            metavar="N",
            help=f"maximum number of rows (default: {limit or 'all'})",
        )
        parser.add_argument("--marker", metavar="ID", help="begin after this one, the last row of an earlier list")

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what to ask the API for."""
        names = ("limit", "sort", "marker", *self.FILTERS)
        return {name: getattr(parsed_args, name) for name in names}


def add_projects(parser: argparse.ArgumentParser) -> None:
    """Describe the options that say whose objects are meant."""
    projects = parser.add_mutually_exclusive_group()
    projects.add_argument("--project-id", metavar="ID", help="objects of this project (admins only)")
    projects.add_argument(
        "--all-projects", action="store_const", const="all", dest="project_id", help="of all projects (admins only)"
    )


class NewestLister(Pages, PoolLister):
    """A table of the newest objects of the project."""

    FILTERS: Mapping[str, str] = {"state": "STATE"}
    SORT, ORDER = "created_at", "desc"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        self.add_pages(parser, 100)
        parser.add_argument(
            "--since",
            type=moment,
            metavar="TIME",
            help=f"only created then or later: {TIMES}",
        )
        add_projects(parser)
        return parser

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what to ask the API for."""
        return super().filters(parsed_args) | {"since": parsed_args.since, "project_id": parsed_args.project_id}

    def with_projects(self, parsed_args: argparse.Namespace, listed: Sequence[Any], table: Table) -> Table:
        """Return the table of what is listed, with their projects if these are several."""
        if parsed_args.project_id != "all":
            return table
        columns, rows = table
        return (*columns, "project_id"), [(*row, one.project_id) for row, one in zip(rows, listed, strict=True)]


class PoolShowOne(PoolCommand, ShowOne):
    """A command that ends with one object."""


class Seconds(FormattableColumn[Any]):
    """A duration: to the millisecond for people."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "" if self._value is None else f"{self._value:.3f}"

    def machine_readable(self) -> float | None:
        """Leave it a number."""
        return self._value


class Number(FormattableColumn[Any]):
    """A number: to four digits for people, perhaps without a limit."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "unlimited" if self._value == float("inf") else f"{self._value:.4g}"

    def machine_readable(self) -> float | None:
        """Leave it a number; JSON has no infinity."""
        return None if self._value == float("inf") else self._value


class Moment(FormattableColumn[Any]):
    """A point in time: ISO 8601 in UTC, in whole seconds for people."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "" if self._value is None else self._date().isoformat(sep=" ", timespec="seconds")

    def machine_readable(self) -> str | None:
        """Show it as the API does."""
        return None if self._value is None else self._date().isoformat(timespec="microseconds")

    def _date(self) -> datetime:
        return datetime.fromtimestamp(cast("float", self._value), UTC)


class Words(FormattableColumn[Any]):
    """A list of words."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return ", ".join(self._value)

    def machine_readable(self) -> list[str]:
        """Leave it a list."""
        return list(self._value)
