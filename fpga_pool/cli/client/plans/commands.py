"""`fpga-pool plan create`: show the plan that work would get if it were created now, without creating it."""

import argparse

from fpga_pool.cli.client.base import PoolShowOne
from fpga_pool.cli.client.columns import One
from fpga_pool.cli.client.create import OfBatch, Wanted
from fpga_pool.cli.client.gang import OfGang
from fpga_pool.cli.client.pipeline import OfPipeline
from fpga_pool.cli.client.plans.shown import outlook
from fpga_pool.cli.client.task import OfTask


class _Plan(Wanted, PoolShowOne):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_work(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        return outlook(self.dry_run(parsed_args))


class Batch(OfBatch, _Plan):
    """Show the plan that a batch would get, as `batch create --dry-run` does; nothing is stored, loaded or sent.

    Example: fpga-pool plan create --function sha256 --requester node-1 a.bin b.bin
    """


class Gang(OfGang, _Plan):
    """Show the plan that a gang would get, as `gang create --dry-run` does; nothing is stored or started.

    Example: fpga-pool plan create gang --processes 4 --runtime 1h30m
    """


class Pipeline(OfPipeline, _Plan):
    """Show the plan that a pipeline would get, as `pipeline create --dry-run` does; nothing is stored, loaded or sent.

    Example: fpga-pool plan create pipeline pipeline.toml
    """


class Task(OfTask, _Plan):
    """Show the plan that a task would get, as `task create --dry-run` does; nothing is stored, loaded or sent.

    Example: fpga-pool plan create task --function sha256 --requester node-1 --topology ring a.bin b.bin
    """
