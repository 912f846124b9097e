"""Base of the commands of `fpga-pool`."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from cliff.columns import FormattableColumn
from cliff.lister import Lister
from cliff.show import ShowOne

from fpga_pool.cli.arguments import positive_count
from fpga_pool.cli.command import FAILED, CheckedCommand, one_line
from fpga_pool.client import Client
from fpga_pool.model.exceptions import FpgaPoolError

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


class NewestLister(PoolLister):
    """A table of the newest things of the project."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--limit",
            type=positive_count,
            default=100,
            metavar="N",
            help="maximum number of rows (default: %(default)s)",
        )
        return parser


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
