"""`fpga-pool-manage explain`: which hosts could take a virtual machine now, and why or why not."""

import argparse
from collections.abc import Mapping

import numpy as np
from cliff.lister import Lister

from fpga_pool.cmd.arguments import positive_seconds
from fpga_pool.cmd.base import Table
from fpga_pool.cmd.cloud import add_cloud_option, compute_service
from fpga_pool.cmd.manage_base import ManageCommand
from fpga_pool.conf.catalogue import configured_catalogue
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import NAMESPACE, AcceleratorRequest, Topology, requested
from fpga_pool.model.links import wished_links
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.model.pool.explaining import explain_host, on_one_card
from fpga_pool.model.pool.fitting import Fitting
from fpga_pool.model.pool.providers import Providers


class Explain(ManageCommand, Lister):
    """Say of every host whether it could take an instance of this flavor now, and why."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("instance", metavar="INSTANCE", help="uuid; Nova is asked for its flavor")
        parser.add_argument("--function", help="what its slots compute; Nova is not asked then")
        parser.add_argument("--count", type=int, default=1, metavar="N", help="slots on one card, with --function")
        parser.add_argument(
            "--topology",
            choices=[topology.value for topology in Topology],
            default=Topology.ANY.value,
            help="how they are linked, with --function",
        )
        parser.add_argument(
            "--stay",
            type=positive_seconds,
            default=3600.0,
            metavar="S",
            help="how long it is taken to stay where its flavor does not say (default: %(default)s)",
        )
        add_cloud_option(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Compare what is asked for with the pool as its database has it now."""
        specs = self._extra_specs(parsed_args)
        wanted = requested(specs)
        if wanted is None:
            raise InvalidInput(f"instance {parsed_args.instance}: its flavor asks nothing of the pool")
        catalogue = configured_catalogue(self.conf)
        catalogue.function(wanted.function)
        with self.store() as store:
            pool = store.pool_columns()
        stay_s = wanted.runtime_s or parsed_args.stay
        return explanation(pool, catalogue, parsed_args.instance, wanted, stay_s, together=on_one_card(specs))

    def _extra_specs(self, parsed_args: argparse.Namespace) -> Mapping[str, str]:
        if parsed_args.function is not None:
            return {
                f"{NAMESPACE}:function": parsed_args.function,
                f"{NAMESPACE}:count": str(parsed_args.count),
                f"{NAMESPACE}:topology": parsed_args.topology,
            }
        with compute_service(parsed_args.os_cloud) as compute:
            # Since microversion 2.47 a server tells the flavor that it was made with.
            specs: Mapping[str, str] = compute.get_server(parsed_args.instance).flavor.extra_specs or {}
        return specs


def explanation(
    pool: PoolColumns, catalogue: Catalogue, instance: str, wanted: AcceleratorRequest, stay_s: float, *, together: bool
) -> Table:
    """Return for each host whether it could take an instance, with all slots on one card where `together`, and why."""
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s)
    rows, links = [], wished_links(wanted)
    for number, host in enumerate(pool.words[word] for word in pool.hosts["name"].tolist()):
        passes, why = explain_host(fitting, host, wanted.count, together=together, links=links)
        rows.append((host, passes, _held(pool, number, instance), why))
    return ("host", "passes", "slots held", "why"), rows


def _held(pool: PoolColumns, host: int, instance: str) -> int:
    """Return how many slots of a host an instance holds."""
    holder = pool.slots["holder"] == pool.numbers.get(instance, -1)
    return int(np.count_nonzero(holder & (pool.slot_host == host)))
