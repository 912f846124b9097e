"""Base classes of the commands of `fpga-pool`: how they call the API of the pool, and print the answers."""

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

#: Forms of points in time, for help texts.
TIMES = "30m, 12h or 7d ago, or a date such as 2026-01-31T12:00:00Z"

#: Kinds of objects that tenants name, with their plurals, which are also the client methods that list them.
WORK = {"batch": "batches", "pipeline": "pipelines", "task": "tasks", "gang": "gangs", "design": "designs"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

T = TypeVar("T")


class PoolCommand(CheckedCommand):
    """A command that calls the API of the pool."""

    #: The client method that it calls.
    ASK: ClassVar[Callable[..., Any]]
    #: Columns that are shown for each object that the method returns.
    COLUMNS: Columns = ()

    @property
    def client(self) -> Client:
        """The client of the application: of `fpga-pool` itself, or of `openstack` with our plug-in."""
        manager = getattr(self.app, "client_manager", None)
        return cast("Client", manager.fpga if manager else cast("Any", self.app).client)

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        """Call the client method of the command, and return its result."""
        return getattr(self.client, type(self).ASK.__name__)(*arguments, **filters)

    def uuid_of_work(self, noun: str, text: str, project_id: str | None = None) -> str:
        """Return the uuid of an object of a project, given its uuid or a name that is unique in the project."""
        if noun not in WORK or _UUID.fullmatch(text):
            return text
        found = getattr(self.client, WORK[noun])(limit=2, name=[text], project_id=project_id)
        if len(found) > 1:
            raise InvalidInput(f"several {WORK[noun]} are called {text!r}: expected a uuid")
        return str(found[0].uuid) if found else text  # the API reports that it does not exist

    def for_each(self, names: Sequence[str], act: Callable[[str], T]) -> list[T]:
        """Return the result of `act` for each name; continue after errors, and report their number at the end."""
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
    """Return whether the output is a table without --long, which shows few columns."""
    return parsed_args.formatter == "table" and not getattr(parsed_args, "long", False)


def require_columns(parsed_args: argparse.Namespace, known: Iterable[str]) -> None:
    """Raise InvalidInput if columns are requested, and none of them exists."""
    asked = [name.lower().strip().replace(" ", "_") for name in parsed_args.columns]
    if asked and not {*asked} & {*known}:
        raise InvalidInput(f"-c {', '.join(parsed_args.columns)}: no such column; there are {', '.join(known)}")


def fitting(parsed_args: argparse.Namespace, known: Iterable[str], formatter: T) -> T | FittedTable:
    """Return the output formatter; a table is fitted to a terminal, unless a width or all columns are requested.

    Raises InvalidInput if columns are requested, and none of them exists.
    """
    require_columns(parsed_args, known)
    fits = is_short(parsed_args) and parsed_args.max_width <= 0 and not parsed_args.fit_width
    return FittedTable() if fits else formatter


class Shows(PoolCommand, DisplayCommandBase):
    """A command that prints its output in a format that the user selects."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Print the output with the fitting formatter."""
        self.formatter = fitting(parsed_args, column_names, self.formatter)
        return super().produce_output(parsed_args, column_names, data)  # type: ignore[safe-super]  # cliff's, of a kind


class PoolLister(Shows, Lister):
    """A command that prints a table."""

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        return table(self.ask(**self.filters(parsed_args)), self.COLUMNS)


class LongLister(PoolLister):
    """A list whose table has few columns by default, to fit a terminal; data formats have all columns."""

    #: Names of the columns of the table by default.
    SHORT: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--long", action="store_true", help="show all columns, as -f json and -f csv do")

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Select the columns, and print the output."""
        if is_short(parsed_args) and not parsed_args.columns:
            parsed_args.columns = [name for name in column_names if name in self.SHORT]
        return super().produce_output(parsed_args, column_names, data)


class Pages(PoolLister):
    """A list with options for filters, order and paging."""

    #: Filter options, which may be repeated, with their metavars.
    FILTERS: Mapping[str, str] = {}
    #: What happened to an object at the time that `--since` compares, for the help; "" = there is no such option.
    SINCE = ""
    #: Field by which the list is sorted; defaults of the direction (`--sort`) and of the number of rows (`--limit`).
    SORT, ORDER = "name", "asc"
    LIMIT: int | None = None
    #: Metavar of `--marker`, the row after which the list begins.
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
    """Add the options that select one project or all projects."""
    projects = parser.add_mutually_exclusive_group()
    projects.add_argument("--project-id", metavar="ID", help="objects of this project (admins only)")
    projects.add_argument(
        "--all-projects", action="store_const", const="all", dest="project_id", help="of all projects (admins only)"
    )


class NewestLister(Pages, LongLister):
    """A table of the newest objects of a project, or of all projects with a column for the project."""

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
    """A command that prints one object."""


class OneObject(PoolShowOne):
    """A command on one object."""

    #: Kind of the object, what may be given instead of its uuid (for the help), and the number of objects (nargs).
    NOUN: str
    NAMED = ""
    NARGS: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        named = self.NAMED or named_as(self.NOUN)
        text = f"{named}uuid of the {self.NOUN}"
        parser.add_argument(self.NOUN, nargs=self.NARGS, metavar=self.NOUN.upper(), help=text)

    def details(self, found: Any) -> One:
        """Return the names and values that are shown for the object."""
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
        """Change the objects; continue after an error."""
        wanted = getattr(parsed_args, self.NOUN)
        if len(wanted) == 1:
            return self.details(self.change(wanted[0], parsed_args))
        if not isinstance(self.formatter, ListFormatter):
            raise InvalidInput(f"-f {parsed_args.formatter}: expected one {self.NOUN.upper()}")
        self._several = True
        found = [self.details(one) for one in self.for_each(wanted, lambda name: self.change(name, parsed_args))]
        return found[0][0] if found else names(self.COLUMNS), [values for _, values in found]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Print the object, or the table."""
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

    #: Kind of the objects, and further kinds that may be given by uuid (for the help).
    NOUN: str
    ALSO = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        what = f"{named_as(self.NOUN)}uuid of the {self.NOUN}{self.ALSO}"
        parser.add_argument("uuids", nargs="+", metavar=self.NOUN.upper(), help=what)

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the changes, as keyword arguments of the client method."""
        return {}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        changes = self.changes(parsed_args)

        def act(text: str) -> Any:
            return self.ask(self.uuid_of_work(self.NOUN, text, changes.get("project_id")), **changes)

        return table(self.for_each(parsed_args.uuids, act), self.COLUMNS)


class CancelWork(Several):
    """Request the cancellation of batches, tasks, gangs or pipelines."""

    COLUMNS = ("name", "uuid", "state", "cancel_requested")
    SHORT = ("name", "uuid", "state")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_projects(parser)

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"project_id": parsed_args.project_id}


def project_of(found: Any) -> Any:
    """Return the project of a listed object, which may be a job within its detail."""
    return (found.job if isinstance(found, JobDetail) else found).project_id


def named_as(noun: str) -> str:
    """Return what may be given instead of the uuid of an object, for help texts."""
    return "name (if unique) or " if noun in WORK else ""


def uuid_of(noun: str, found: Iterable[Any], wanted: str) -> str:
    """Return the uuid of the object with this name or uuid; NotFound if there is none."""
    for one in found:
        if wanted in (one.name, one.uuid):
            return str(one.uuid)
    raise NotFound(f"no {noun} {wanted!r}; `fpga-pool {noun} list` shows all")
