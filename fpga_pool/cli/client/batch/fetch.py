"""`fpga-pool batch attach` and `fetch`: continue a batch that was left, on any machine with the credentials."""

import argparse
from pathlib import Path

from fpga_pool.cli.client.base import PoolLister, Table
from fpga_pool.cli.client.batch.create import header_of, results_table
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
