"""`fpga-pool batch cancel`, `hold`, `release` and `set`."""

import argparse

from fpga_pool.cli.client.base import PoolLister, Table
from fpga_pool.cli.client.batch.create import add_priority
from fpga_pool.cli.client.batch.show import listing


class Cancel(PoolLister):
    """Cancel batches; what is complete is kept."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("batches", nargs="+", metavar="BATCH", help="uuid of the batch")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the end of each."""
        cancelled = self.for_each(parsed_args.batches, self.client.cancel)
        columns = ("uuid", "name", "state", "cancel_requested")
        return columns, [(batch.uuid, batch.name, str(batch.state), batch.cancel_requested) for batch in cancelled]


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
