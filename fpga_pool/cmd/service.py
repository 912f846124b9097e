"""`fpga-pool-manage service`: who runs the pool."""

import argparse

from cliff.lister import Lister

from fpga_pool.cmd.base import Moment, Row, Table
from fpga_pool.cmd.manage_base import ManageCommand


class List(ManageCommand, Lister):
    """List the schedulers, and the shards with the scheduler that owns each."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read and show."""
        with self.store() as store:
            store.check_schema()
            with store.reading() as tx:
                schedulers, shards = tx.schedulers(), tx.shards()
        rows: list[Row] = [("scheduler", one.name, "", "", Moment(one.heard_at)) for one in schedulers]
        rows += [("shard", one.name, one.owner, one.epoch, Moment(one.renewed_at)) for one in shards]
        return ("kind", "name", "owner", "epoch", "heard_at"), rows
