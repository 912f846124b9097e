"""`fpga-pool batch create`, `retry`, `attach` and `fetch`: run jobs to their end, and get their results."""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from cliff.formatters.base import SingleFormatter
from cliff.show import ShowOne

from fpga_pool.cli.arguments import deadline, positive_count
from fpga_pool.cli.client.base import LongLister, PoolCommand, fitting, named_as, require_columns
from fpga_pool.cli.client.batch import BATCHES, SHORT_BATCHES, add_priority
from fpga_pool.cli.client.columns import Table, inline, names, results_table, table
from fpga_pool.cli.client.plans.shown import AnyPlan, outlook, part_table
from fpga_pool.cli.client.progress import add_streams, following
from fpga_pool.cli.command import FAILED, Interrupted, one_line
from fpga_pool.cli.files import header_of, read_batch
from fpga_pool.client import BatchResult, JobSpec
from fpga_pool.client.attach import AttachedRunner
from fpga_pool.client.filters import BatchOptions
from fpga_pool.client.inputs import grouped_by_size
from fpga_pool.client.runner import BatchRunner
from fpga_pool.client.transfers import Goal
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.messages.plans import PlannedBatch
from fpga_pool.model.objects.pool import Batch, JobState
from fpga_pool.model.values import counted

T = TypeVar("T")

#: Columns of results, besides the column with the name of each row.
_RESULTS = ("state", "slot", "compute_s", "result", "path", "error")
#: Columns that make the state redundant.
_OUTCOME_COLUMNS = ("result", "error")


class _Results(LongLister):
    """A command that prints the results of jobs."""

    SHORT: tuple[str, ...] = ("file", "subtask", "state", "result", "error")

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Print the results; if all jobs have a result or an error, a table omits the state and empty columns."""
        rows = list(data)
        values = {name: [row[place] for row in rows] for place, name in enumerate(column_names)}
        outcomes = [values[name] for name in _OUTCOME_COLUMNS if name in values]
        if "result" in values and all(any(texts) for texts in zip(*outcomes, strict=True)):
            self.SHORT = tuple(name for name in self.SHORT if name != "state" and any(values.get(name, ())))
        return super().produce_output(parsed_args, column_names, rows)


class Wanted(PoolCommand):
    """A command that creates or plans work."""

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        _add_function(parser, required=True)
        self.add_choices(parser)
        add_header(parser)
        parser.add_argument("files", nargs="+", metavar="FILE", help="input file of one job")

    def add_choices(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that are specific to the kind of work."""

    def dry_run(self, parsed_args: argparse.Namespace) -> AnyPlan:
        """Return the plan that the work would get if it were created now."""
        raise NotImplementedError


class CreateWork(Wanted, _Results):
    """Run jobs, one for each file, to their end."""

    #: Kind of the work, column with the name of each row of the results, and default of `--name` for its help.
    NOUN, ROW, UNNAMED = "batch", "file", ""
    SHORT = (*SHORT_BATCHES, *_Results.SHORT)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        self.add_work(parser)
        parser.add_argument("--name", default="", help=f"name of the {self.NOUN}{self.UNNAMED}")
        self.add_ends(parser.add_mutually_exclusive_group())
        add_streams(parser)

    def add_ends(self, ends: Any) -> None:
        """Add the mutually exclusive options that say how the command ends."""
        ends.add_argument("--output-dir", type=Path, metavar="DIR", help="directory of the results")
        ends.add_argument(
            "--no-wait",
            action="store_true",
            help="end as soon as the pool holds all files; `batch fetch` gets the results, from any machine",
        )
        ends.add_argument(
            "--dry-run",
            action="store_true",
            help="only show what would be planned, when it would end, and its lower bound; nothing is stored or sent",
        )

    def rows(self, parsed_args: argparse.Namespace, result: BatchResult) -> Sequence[str]:
        """Return the name of each row of the results."""
        return parsed_args.files or [outcome.name for outcome in result.jobs]

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Run the work and return its results, or return its plan (--dry-run), or what was submitted (--no-wait)."""
        if parsed_args.dry_run:
            plan = self.dry_run(parsed_args)
            return outlook(plan) if self._shows_one(parsed_args) else part_table(plan)
        require_columns(parsed_args, (*names(BATCHES), self.ROW, *_RESULTS))  # before the results are fetched
        if parsed_args.no_wait:
            return table([self._submit(parsed_args)], BATCHES)
        directory = parsed_args.output_dir or Path(tempfile.mkdtemp(prefix="fpga-pool-"))
        try:
            result = self._run_batch(parsed_args, directory, lambda runner: runner.run())
            if not result.ok:
                self.status = FAILED
            if held := sum(
                one.result is None and not one.complete and one.state is JobState.RESULT_HELD for one in result.jobs
            ):
                text = f"batch {result.batch.uuid}: the pool holds {counted(held, 'result')}"
                self.complain(f"{text}; `batch fetch` gets what could not be stored")
            rows = self.rows(parsed_args, result)
            return results_table(self.ROW, rows, result, show_paths=parsed_args.output_dir is not None)
        finally:
            if parsed_args.output_dir is None and not _has_large_results(directory):
                shutil.rmtree(directory)

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> int:
        """Print the output; a plan is printed as one object if the format supports that."""
        if self._shows_one(parsed_args):
            self.formatter = fitting(parsed_args, column_names, self.formatter)
            return ShowOne.produce_output(cast("ShowOne", self), parsed_args, column_names, data)
        return super().produce_output(parsed_args, column_names, data)

    def _shows_one(self, parsed_args: argparse.Namespace) -> bool:
        return parsed_args.dry_run and isinstance(self.formatter, SingleFormatter)

    def _submit(self, parsed_args: argparse.Namespace) -> Batch:
        """Create the work, and return it once the pool holds all files."""
        with tempfile.TemporaryDirectory(prefix="fpga-pool-") as directory:  # nothing is written to it
            return self._run_batch(parsed_args, Path(directory), lambda runner: runner.submit())

    def _run_batch(self, parsed_args: argparse.Namespace, directory: Path, act: Callable[[BatchRunner], T]) -> T:
        with following(self, parsed_args) as options:
            runner = self.runner(parsed_args, output_dir=directory, name=parsed_args.name, **options)
            try:
                return act(runner)
            except KeyboardInterrupt:
                raise self._interrupted(runner.batch_uuid) from None

    def _interrupted(self, uuid: str) -> FpgaPoolError:
        """Cancel the work, because the command no longer waits for it; return the error to raise."""
        try:
            self.client.cancel(uuid)
        except NotFound:
            return Interrupted(f"interrupted before the {self.NOUN} was created")
        except FpgaPoolError as error:
            return Interrupted(f"interrupted: {self.NOUN} {uuid} was not cancelled: {one_line(error)}")
        return Interrupted(f"interrupted: {self.NOUN} {uuid} is being cancelled")


class OfBatch(Wanted):
    """Arguments of the commands that create or plan a batch."""

    def add_choices(self, parser: argparse.ArgumentParser, policy: str = "chosen by the operator") -> None:
        parser.add_argument("--policy", default="", help=f"batch policy (default: {policy})")
        add_priority(parser)
        parser.add_argument(
            "--deadline",
            type=deadline,
            metavar="TIME",
            help="when it is to be complete: in how many seconds from now, or a date such as 2026-01-31T12:00:00Z; of "
            "equal priorities the earliest is planned first",
        )
        parser.add_argument(
            "--after",
            action="append",
            default=[],
            metavar="BATCH",
            help="plan it when this batch is complete, and cancel it when that has failed; may be repeated",
        )

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        _add_function(parser, required=False)
        self.add_choices(parser)
        add_header(parser)
        _add_jobs(parser)
        parser.add_argument(
            "--groups",
            type=positive_count,
            metavar="N",
            help="divide the jobs into N equal groups by the size of their inputs; the smallest are computed first",
        )
        _add_files(parser, "input file of one job")

    def work(self, parsed_args: argparse.Namespace) -> tuple[str, Sequence[JobSpec]]:
        """Return the default name of the batch, and its jobs."""
        function, requester = parsed_args.function, parsed_args.requester
        name, given = _given(parsed_args)
        specs = [replace(one, function=one.function or function, requester=one.requester or requester) for one in given]
        for index, spec in enumerate(specs):
            for key in ("function", "requester"):
                if not getattr(spec, key):
                    raise InvalidInput(f"jobs[{index}]: expected a {key}, by --{key} or in the batch file")
        if parsed_args.groups is None:
            return name, specs
        if any(spec.group for spec in specs):
            raise InvalidInput("--groups is for jobs without a group; the batch file names groups of its own")
        return name, grouped_by_size(specs, parsed_args.groups)

    def options(self, parsed_args: argparse.Namespace) -> BatchOptions:
        """Return the options that were given."""
        after = [self.uuid_of_work("batch", one) for one in parsed_args.after]
        options: BatchOptions = {"policy": parsed_args.policy, "after": after}
        if parsed_args.priority is not None:
            options["priority"] = parsed_args.priority
        if parsed_args.deadline is not None:
            options["deadline_at"] = parsed_args.deadline
        return options

    def dry_run(self, parsed_args: argparse.Namespace) -> PlannedBatch:
        return self.client.dry_run(self.work(parsed_args)[1], **self.options(parsed_args))


class Create(OfBatch, CreateWork):
    """Run a batch to its end, with one job for each file, or with the jobs that a batch file describes.

    Example: fpga-pool batch create --function sha256 --requester node-1 --output-dir results a.bin b.bin
    """

    def add_ends(self, ends: Any) -> None:
        super().add_ends(ends)
        ends.add_argument(
            "--hold",
            action="store_true",
            help="end as soon as the batch is stored, which gets no slots until `batch release`; `batch attach` sends "
            "the files",
        )

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        return self.client.runner(parsed_args.specs, **parsed_args.options, **options)

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Run the batch and return its results, or return its plan (--dry-run), or the batch that is held (--hold)."""
        if parsed_args.dry_run:
            return super().take_action(parsed_args)
        name, parsed_args.specs = self.work(parsed_args)
        parsed_args.options = self.options(parsed_args)
        parsed_args.name = parsed_args.name or name
        if parsed_args.hold:
            held = self.client.create(parsed_args.specs, name=parsed_args.name, held=True, **parsed_args.options)
            return table([held], BATCHES)
        return super().take_action(parsed_args)


class Retry(Create):
    """Run the failed jobs of a batch again, as a new batch.

    The pool has not kept their files, so they are sent again.

    Example: fpga-pool batch retry UUID --output-dir results a.bin b.bin
    """

    UNNAMED = " (default: that of the batch)"

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("batch", metavar="BATCH", help=f"{named_as('batch')}uuid of the batch")
        _add_files(parser, "all files that the batch was created with, in that order")
        add_header(parser)
        _add_jobs(parser)
        self.add_choices(parser, "that of the batch")

    def work(self, parsed_args: argparse.Namespace) -> tuple[str, Sequence[JobSpec]]:
        """Return the name of the batch, and its failed jobs; the policy defaults to that of the batch."""
        batch = self.client.batch(self.uuid_of_work("batch", parsed_args.batch))
        parsed_args.policy = parsed_args.policy or batch.policy
        return batch.name, self.client.failed_jobs(batch.uuid, _given(parsed_args)[1])

    def rows(self, parsed_args: argparse.Namespace, result: BatchResult) -> Sequence[str]:
        return [outcome.called for outcome in result.jobs]


class _Continue(_Results):
    """A command that prints the results of a batch that was created earlier."""

    def show(self, parsed_args: argparse.Namespace, runner: AttachedRunner) -> Table:
        """Continue the batch, and return its results; an interruption ends only the command."""
        try:
            result: BatchResult = runner.run()
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: batch {parsed_args.batch} continues") from None
        if not result.ok:
            self.status = FAILED
        return results_table("file", [outcome.called for outcome in result.jobs], result, show_paths=True)


class Attach(_Continue):
    """Continue a batch to its end: send what the pool does not hold yet, and fetch the results.

    Example: fpga-pool batch attach UUID --output-dir results --files a.bin b.bin
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("batch", metavar="BATCH", help=f"{named_as('batch')}uuid of the batch")
        given = parser.add_mutually_exclusive_group()
        given.add_argument(
            "--files",
            nargs="+",
            default=[],
            metavar="FILE",
            help="the files that the batch was created with, in that order; not needed if the pool holds them all",
        )
        _add_jobs(given)
        add_header(parser)
        parser.add_argument(
            "--output-dir",
            type=Path,
            metavar="DIR",
            default=Path(),
            help="directory of the results; those that it has already are kept (default: the current directory)",
        )
        add_streams(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        jobs = _given(parsed_args)[1] if parsed_args.files or parsed_args.jobs else []
        uuid = self.uuid_of_work("batch", parsed_args.batch)
        with following(self, parsed_args) as options:
            runner = self.client.attached_runner(uuid, jobs, output_dir=parsed_args.output_dir, **options)
            return self.show(parsed_args, runner)


class Fetch(_Continue):
    """Fetch the results that the pool holds now, without waiting for others.

    Exit status 1 if a result is missing: `batch attach` waits for all.

    Example: fpga-pool batch fetch UUID results
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("batch", metavar="BATCH", help=f"{named_as('batch')}uuid of the batch")
        parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the results")
        add_streams(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        uuid = self.uuid_of_work("batch", parsed_args.batch)
        with following(self, parsed_args) as options:
            runner = self.client.attached_runner(uuid, goal=Goal.HELD, output_dir=parsed_args.directory, **options)
            return self.show(parsed_args, runner)


# ---- Details


def _has_large_results(directory: Path) -> bool:
    return any(inline(path) is None for path in directory.iterdir())


def _add_function(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--function", required=required, help="function to compute; `function list` shows all")
    parser.add_argument(
        "--requester",
        required=required,
        metavar="HOST",
        help="host of the pool from which the files are sent, or server:UUID of a server of your project",
    )


def _add_files(parser: argparse.ArgumentParser, text: str) -> None:
    files = parser.add_argument("files", nargs="+", default=[], metavar="FILE", help=text)
    files.required = False  # --jobs may replace them; with nargs="*" argparse accepts no files after an option


def _add_jobs(parser: Any) -> None:
    parser.add_argument(
        "--jobs", type=Path, metavar="TOML", help="batch file that describes the jobs, in place of FILEs"
    )


def _given(parsed_args: argparse.Namespace) -> tuple[str, list[JobSpec]]:
    """Return the name that the batch file gives ("" without a batch file), and the given jobs."""
    if bool(parsed_args.files) is (parsed_args.jobs is not None):
        raise InvalidInput("expected input files or --jobs, and not both")
    if parsed_args.jobs is None:
        header = header_of(parsed_args.header)
        return "", [JobSpec("", file, "", header) for file in parsed_args.files]
    if parsed_args.header is not None:
        raise InvalidInput("--header is for input files; a batch file names its own")
    return read_batch(parsed_args.jobs)


def add_header(parser: argparse.ArgumentParser) -> None:
    """Add the option for the header file."""
    parser.add_argument("--header", type=Path, metavar="FILE", help="file whose bytes are sent before each file")
