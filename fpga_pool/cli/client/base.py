"""Base of the commands of `fpga-pool`: what they ask the pool, and how they show what it answers."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar, TypeVar, cast

from cliff.display import DisplayCommandBase
from cliff.formatters.base import ListFormatter
from cliff.lister import Lister
from cliff.show import ShowOne

from fpga_pool.cli.arguments import moment, positive_count
from fpga_pool.cli.client.columns import Columns, FittedTable, One, Table, names, single, table
from fpga_pool.cli.command import FAILED, OK, CheckedCommand, Interrupted, one_line
from fpga_pool.client import Client
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.messages.requests import JobDetail

#: How points in time are written.
TIMES = "30m, 12h or 7d ago, or a date such as 2026-01-31T12:00:00Z"

#: What tenants give names to, and how lists of it are called.
WORK = {"batch": "batches", "pipeline": "pipelines", "task": "tasks", "gang": "gangs", "design": "designs"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

T = TypeVar("T")


class PoolCommand(CheckedCommand):
    """A command that asks the pool."""

    #: The method of the client that asks.
    ASK: ClassVar[Callable[..., Any]]
    #: What is shown of each object that it returns.
    COLUMNS: Columns = ()

    @property
    def client(self) -> Client:
        """The client that the application made: `fpga-pool` itself, or `openstack` by our plug-in."""
        manager = getattr(self.app, "client_manager", None)
        return cast("Client", manager.fpga if manager else cast("Any", self.app).client)

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        """Return what the pool answers."""
        return getattr(self.client, type(self).ASK.__name__)(*arguments, **filters)

    def uuid_of_work(self, noun: str, text: str, project_id: str | None = None) -> str:
        """Return the uuid of an object of a project, named by that or by a name that no other one there has."""
        if noun not in WORK or _UUID.fullmatch(text):
            return text
        found = getattr(self.client, WORK[noun])(limit=2, name=[text], project_id=project_id)
        if len(found) > 1:
            raise InvalidInput(f"several {WORK[noun]} are called {text!r}: expected a uuid")
        return str(found[0].uuid) if found else text  # the API says that there is none

    def for_each(self, names: Sequence[str], act: Callable[[str], T]) -> list[T]:
        """Return what `act` returns for each name; go on after an error, and count the errors at the end."""
        done: list[T] = []
        for name in names:
            try:
                done.append(act(name))
            except Interrupted:
                raise
            except FpgaPoolError as error:
                if len(names) == 1:
                    raise
                self.complain(one_line(error))
                self.status = FAILED
        if failed := len(names) - len(done):
            self.complain(f"{failed} of {len(names)} failed")
        return done


def is_short(parsed_args: argparse.Namespace) -> bool:
    """Return whether the output is a table, for people who did not ask for all columns."""
    return parsed_args.formatter == "table" and not getattr(parsed_args, "long", False)


def require_columns(parsed_args: argparse.Namespace, known: Iterable[str]) -> None:
    """Raise InvalidInput where columns are asked for, and none of them is known."""
    asked = [name.lower().strip().replace(" ", "_") for name in parsed_args.columns]
    if asked and not {*asked} & {*known}:
        raise InvalidInput(f"-c {', '.join(parsed_args.columns)}: no such column; there are {', '.join(known)}")


def fitting(parsed_args: argparse.Namespace, known: Iterable[str], formatter: T) -> T | FittedTable:
    """Return what draws the output; a table fits a terminal, unless a width or all columns are asked for.

    InvalidInput where columns are asked for, and none of them is known.
    """
    require_columns(parsed_args, known)
    fits = is_short(parsed_args) and parsed_args.max_width <= 0 and not parsed_args.fit_width
    return FittedTable() if fits else formatter


class Shows(PoolCommand, DisplayCommandBase):
    """A command that ends with output, in a format that its user chooses."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Show the columns."""
        self.formatter = fitting(parsed_args, column_names, self.formatter)
        return super().produce_output(parsed_args, column_names, data)  # type: ignore[safe-super]  # cliff's, of a kind


class PoolLister(Shows, Lister):
    """A command that ends with a table."""

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        return table(self.ask(**self.filters(parsed_args)), self.COLUMNS)


class LongLister(PoolLister):
    """A list whose table has few columns, to fit a terminal, unless others are asked for; data has all columns."""

    #: Names of the columns of the table.
    SHORT: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--long", action="store_true", help="show all columns, as -f json and -f csv do")

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Choose the columns."""
        if is_short(parsed_args) and not parsed_args.columns:
            parsed_args.columns = [name for name in column_names if name in self.SHORT]
        return super().produce_output(parsed_args, column_names, data)


class Pages(PoolLister):
    """A list with options: which objects, in which order, from which one on."""

    #: Options that take one or several values, and what they are called.
    FILTERS: Mapping[str, str] = {}
    #: What of an object `--since` looks at; "" = there is no such option.
    SINCE = ""
    #: Field by which the list is sorted, how without `--sort`, and how many rows there are without `--limit`.
    SORT, ORDER = "name", "asc"
    LIMIT: int | None = None
    #: What names a row to begin after.
    MARKER = "NAME"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        for name, metavar in self.FILTERS.items():
            parser.add_argument(
                f"--{name}",
                action="append",
                default=[],
                metavar=metavar,
                help=f"only of this {name}; may be repeated",
            )
        if self.SINCE:
            text = f"only {self.SINCE} then or later: {TIMES}"
            parser.add_argument("--since", type=moment, metavar="TIME", help=text)
        parser.add_argument(
            "--sort",
            choices=[f"{self.SORT}:asc", f"{self.SORT}:desc"],
            default=f"{self.SORT}:{self.ORDER}",
            help="order of the rows (default: %(default)s)",
        )
        parser.add_argument(
            "--limit",
            type=positive_count,
            default=self.LIMIT,
            metavar="N",
            help=f"maximum number of rows (default: {self.LIMIT or 'all'})",
        )
        text = "begin after this one, the last row of an earlier list"
        parser.add_argument("--marker", metavar=self.MARKER, help=text)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        since = ["since"] if self.SINCE else []
        return {name: getattr(parsed_args, name) for name in ("limit", "sort", "marker", *self.FILTERS, *since)}


def add_projects(parser: argparse.ArgumentParser) -> None:
    """Describe the options that say whose objects are meant."""
    projects = parser.add_mutually_exclusive_group()
    projects.add_argument("--project-id", metavar="ID", help="objects of this project (admins only)")
    projects.add_argument(
        "--all-projects", action="store_const", const="all", dest="project_id", help="of all projects (admins only)"
    )


class NewestLister(Pages, LongLister):
    """A table of the newest objects of the project; with their projects if these are several."""

    FILTERS: Mapping[str, str] = {"state": "STATE"}
    SORT, ORDER, LIMIT, SINCE = "created_at", "desc", 100, "created"
    MARKER = "UUID"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_projects(parser)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"project_id": parsed_args.project_id}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        columns = self.COLUMNS
        if parsed_args.project_id == "all":
            columns, self.SHORT = [*columns, ("project_id", project_of)], (*self.SHORT, "project_id")
        return table(self.ask(**self.filters(parsed_args)), columns)


class PoolShowOne(Shows, ShowOne):
    """A command that ends with one object."""


class OneObject(PoolShowOne):
    """A command on one object."""

    #: What the object is called, by what it may be named besides its uuid, and how many there may be (nargs).
    NOUN: str
    NAMED = ""
    NARGS: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        named = self.NAMED or named_as(self.NOUN)
        text = f"{named}uuid of the {self.NOUN}"
        parser.add_argument(self.NOUN, nargs=self.NARGS, metavar=self.NOUN.upper(), help=text)

    def details(self, found: Any) -> One:
        """Return what is shown of the object."""
        return single(found, self.COLUMNS)

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        return self.details(self.ask(getattr(parsed_args, self.NOUN)))


class OneOrSeveral(OneObject):
    """A command on one object, which is shown as such, or on several, which are shown in a table."""

    #: Names of the columns of the table, to fit a terminal.
    TABLE: Sequence[str] = ()
    NARGS = "+"
    _several = False

    def change(self, name: str, parsed_args: argparse.Namespace) -> Any:
        """Change an object, and return it."""
        return self.ask(name)

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Change the objects; go on after an error."""
        wanted = getattr(parsed_args, self.NOUN)
        if len(wanted) == 1:
            return self.details(self.change(wanted[0], parsed_args))
        if not isinstance(self.formatter, ListFormatter):
            raise InvalidInput(f"-f {parsed_args.formatter}: expected one {self.NOUN.upper()}")
        self._several = True
        found = [self.details(one) for one in self.for_each(wanted, lambda name: self.change(name, parsed_args))]
        return found[0][0] if found else names(self.COLUMNS), [values for _, values in found]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Show the object, or the table."""
        if not self._several:
            return super().produce_output(parsed_args, column_names, data)
        if is_short(parsed_args) and not parsed_args.columns:
            parsed_args.columns = list(self.TABLE)
        formatter = fitting(parsed_args, column_names, cast("ListFormatter", self.formatter))
        columns, selector = self._generate_columns_and_selector(parsed_args, column_names)
        rows = [tuple(compress(values, selector)) for values in data] if selector else data
        formatter.emit_list(columns, rows, self.app.stdout, parsed_args)
        return OK


class OneWork(OneObject):
    """A command that shows a batch, job, task, gang or pipeline."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_projects(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        project_id = parsed_args.project_id
        uuid = self.uuid_of_work(self.NOUN, getattr(parsed_args, self.NOUN), project_id)
        return self.details(self.ask(uuid, project_id=project_id))


class Several(LongLister):
    """A command on several objects."""

    #: What an object is called, and what else may be named by its uuid.
    NOUN: str
    ALSO = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        what = f"{named_as(self.NOUN)}uuid of the {self.NOUN}{self.ALSO}"
        parser.add_argument("uuids", nargs="+", metavar=self.NOUN.upper(), help=what)

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what is to be changed."""
        return {}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        changes = self.changes(parsed_args)

        def act(text: str) -> Any:
            return self.ask(self.uuid_of_work(self.NOUN, text, changes.get("project_id")), **changes)

        return table(self.for_each(parsed_args.uuids, act), self.COLUMNS)


class CancelWork(Several):
    """Ask for the end of batches, tasks, gangs or pipelines."""

    COLUMNS = ("name", "uuid", "state", "cancel_requested")
    SHORT = ("name", "uuid", "state")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_projects(parser)

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"project_id": parsed_args.project_id}


def project_of(found: Any) -> Any:
    """Return the project of what is listed: of a job, or of a job with why it waits."""
    return (found.job if isinstance(found, JobDetail) else found).project_id


def named_as(noun: str) -> str:
    """Return what may be given instead of the uuid of an object, for helps."""
    return "name (if unique) or " if noun in WORK else ""


def uuid_of(noun: str, found: Iterable[Any], wanted: str) -> str:
    """Return the uuid of the object with this name or uuid."""
    for one in found:
        if wanted in (one.name, one.uuid):
            return str(one.uuid)
    raise NotFound(f"no {noun} {wanted!r}; `fpga-pool {noun} list` shows all")
