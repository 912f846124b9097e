"""`fpga-pool host`: the hosts of the pool."""

import argparse
from collections.abc import Sequence

from fpga_pool.cmd.base import Moment, Number, PoolLister, Table
from fpga_pool.model.objects import Host


class List(PoolLister):
    """List all hosts."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return listing(self.client.hosts())


def listing(hosts: Sequence[Host]) -> Table:
    """Return hosts as a table."""
    columns = (
        "name", "alive", "egress_bps", "ingress_bps", "data_address", "data_port", "data_tls", "refused_streams",
        "refused_commands", "refused_messages", "heard_at",
    )  # fmt: skip
    return columns, [
        (
            host.name,
            host.alive,
            Number(host.egress_bps),
            Number(host.ingress_bps),
            host.data_address,
            host.data_port,
            host.data_tls,
            host.refused_streams,
            host.refused_commands,
            host.refused_messages,
            Moment(host.heard_at),
        )
        for host in hosts
    ]
