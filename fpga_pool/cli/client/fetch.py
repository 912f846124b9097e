"""`fpga-pool batch attach`, `fetch`, `hold`, `release`, `retry` and `set`: what becomes of a batch that was left.

They work on any machine with the credentials.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpga_pool.cli.client.base import PoolLister, Table
from fpga_pool.cli.client.batch import Create, add_priority, header_of, listing, results_table
from fpga_pool.cli.client.progress import add_streams, following
from fpga_pool.cli.command import FAILED, Interrupted
from fpga_pool.client import BatchResult, JobSpec
from fpga_pool.client.attach import AttachedRunner
from fpga_pool.client.transfers import Goal


class _Continue(PoolLister):
    """A command that ends with the results of a batch which was created earlier."""

    def show(self, parsed_args: argparse.Namespace, runner: AttachedRunner) -> Table:
        """Run it; an interruption ends the command only."""
        try:
            result: BatchResult = runner.run()
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: batch {parsed_args.batch} continues") from None
        if not result.ok:
            self.status = FAILED
        return results_table("file", [outcome.name for outcome in result.jobs], result, show_paths=True)


class Attach(_Continue):
    """Continue a batch to its end: send what the pool does not hold yet, and fetch the results."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("batch", metavar="BATCH", help="uuid of the batch")
        parser.add_argument(
            "--files",
            nargs="+",
            default=[],
            metavar="FILE",
            help="the files that the batch was created with, in that order; not needed if the pool holds them all",
        )
        parser.add_argument("--header", type=Path, metavar="FILE", help="file whose bytes are sent before each file")
        parser.add_argument(
            "--output-dir",
            type=Path,
            metavar="DIR",
            default=Path(),
            help="directory of the results; those that it has already are kept (default: the current directory)",
        )
        add_streams(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Continue it and show what came of it."""
        header = header_of(parsed_args.header)
        jobs = [JobSpec("", file, "", header) for file in parsed_args.files]
        with following(self, parsed_args) as options:
            return self.show(
                parsed_args,
                self.client.attached_runner(parsed_args.batch, jobs, output_dir=parsed_args.output_dir, **options),
            )


class Fetch(_Continue):
    """Fetch the results that the pool holds now, without waiting for others.

    Exit status 1 if a result is missing: `batch attach` waits for all.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("batch", metavar="BATCH", help="uuid of the batch")
        parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the results")
        add_streams(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Fetch them and show which ones are here."""
        with following(self, parsed_args) as options:
            runner = self.client.attached_runner(
                parsed_args.batch, goal=Goal.HELD, output_dir=parsed_args.directory, **options
            )
            return self.show(parsed_args, runner)


class Hold(PoolLister):
    """Hold batches back: their jobs get no slots until `batch release`.

    Jobs whose files have not arrived lose theirs; jobs whose files the pool has go on.
    """

    HELD = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("batches", nargs="+", metavar="BATCH", help="uuid of the batch, or pipeline")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Change each."""
        return listing(self.for_each(parsed_args.batches, lambda uuid: self.client.change_batch(uuid, held=self.HELD)))


class Release(Hold):
    """Let the jobs of batches that were held back get slots."""

    HELD = False


class Set(PoolLister):
    """Change the priority of batches."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        add_priority(parser, required=True)
        parser.add_argument("batches", nargs="+", metavar="BATCH", help="uuid of the batch, or pipeline")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Change each."""
        return listing(
            self.for_each(
                parsed_args.batches, lambda uuid: self.client.change_batch(uuid, priority=parsed_args.priority)
            )
        )


class Retry(Create):
    """Run the failed jobs of a batch again, as another batch.

    The pool has not kept their files: they are sent again.
    """

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        """Describe what is to be computed."""
        parser.add_argument("batch", metavar="BATCH", help="uuid of the batch")
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="all files that the batch was created with, in that order"
        )
        parser.add_argument("--header", type=Path, metavar="FILE", help="file whose bytes are sent before each file")
        self.add_choices(parser)

    def specs(self, parsed_args: argparse.Namespace) -> Sequence[JobSpec]:
        """Return the jobs that have failed."""
        header = header_of(parsed_args.header)
        return self.client.failed_jobs(parsed_args.batch, [JobSpec("", file, "", header) for file in parsed_args.files])

    def rows(self, parsed_args: argparse.Namespace, result: BatchResult) -> Sequence[str]:
        """Return what each row of the results is called."""
        return [outcome.name for outcome in result.jobs]

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Run them as the batch was to run, and show what came of it."""
        batch = self.client.batch(parsed_args.batch)
        parsed_args.policy = parsed_args.policy or batch.policy
        parsed_args.name = parsed_args.name or batch.name
        return super().take_action(parsed_args)
