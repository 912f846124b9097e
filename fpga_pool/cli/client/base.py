"""Base of the commands of `fpga-pool`."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from fpga_pool.cli.arguments import positive_count
from fpga_pool.client import Client
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

OK, FAILED, WRONG_USAGE = 0, 1, 2

Row = tuple[Any, ...]
Table = tuple[Sequence[str], Sequence[Row]]


def status_of(error: BaseException) -> int:
    """Return the exit status for what ended a command."""
    return WRONG_USAGE if isinstance(error, InvalidInput) else FAILED


class PoolCommand(Command):
    """A command that asks the pool.  What the pool refuses is one line; the rest of it is for --debug."""

    #: Exit status where the command itself went through.
    status = OK

    @property
    def client(self) -> Client:
        """The client that the application made."""
        return cast("Client", cast("Any", self.app).client)

    def print_line(self, line: str) -> None:
        """Print a line for the user."""
        print(line, file=self.app.stderr)

    def run(self, parsed_args: Any) -> int:
        """Run the command; return its exit status."""
        try:
            return super().run(parsed_args) or self.status
        except FpgaPoolError as error:
            if self.app.options.debug:
                raise
            self.print_line(f"fpga-pool: {str(error).splitlines()[0] if str(error) else error.code}")
            return status_of(error)


class PoolLister(PoolCommand, Lister):
    """A command that ends with a table."""


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
