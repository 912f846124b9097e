"""`fpga-pool-manage flavor`: flavors of virtual machines with accelerators, or in tiers, in Nova."""

import argparse
from collections.abc import Sequence
from typing import Any

from cliff.show import ShowOne

from fpga_pool.cmd.arguments import positive_seconds
from fpga_pool.cmd.base import FAILED, Row
from fpga_pool.cmd.cloud import add_cloud_option, compute_service
from fpga_pool.cmd.manage_base import ManageCommand
from fpga_pool.conf.catalogue import configured_catalogue
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.extra_specs import Spread, consistent_extra_specs, inconsistencies, tier_extra_specs
from fpga_pool.model.flavor import AcceleratorRequest, Tier, Topology


class Create(ManageCommand, ShowOne):
    """Create a flavor whose virtual machines have accelerators, or share pCPUs in tiers, or both."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="of the flavor")
        parser.add_argument("--function", help="what its slots compute, from the catalogue; none needed with --tier")
        parser.add_argument("--count", type=int, default=1, metavar="N", help="slots (default: 1)")
        parser.add_argument(
            "--spread",
            choices=[spread.value for spread in Spread],
            default=Spread.CARD.value,
            help="slots all of one card, of any cards of the host, or apart: no two of the same card and kind "
            "(default: %(default)s)",
        )
        parser.add_argument("--topology", choices=[topology.value for topology in Topology], default=Topology.ANY.value)
        parser.add_argument(
            "--tier",
            choices=[tier.value for tier in Tier],
            help="who gets a pCPU first where two machines share it (default: no tier)",
        )
        parser.add_argument("--runtime", type=positive_seconds, metavar="S", help="how long a machine runs, if known")
        parser.add_argument("--cpu-usage", type=float, metavar="PERCENT", help="use of its processors, if known")
        parser.add_argument("--ram", type=int, required=True, metavar="MIB")
        parser.add_argument("--disk", type=int, required=True, metavar="GIB")
        parser.add_argument("--vcpus", type=int, required=True, metavar="N")
        parser.add_argument("--private", action="store_true", help="only for projects that are given access")
        add_cloud_option(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Create it with all its extra specs, or not at all."""
        specs = self._extra_specs(parsed_args)
        with compute_service(parsed_args.os_cloud) as compute:
            flavor = compute.create_flavor(
                name=parsed_args.name,
                ram=parsed_args.ram,
                disk=parsed_args.disk,
                vcpus=parsed_args.vcpus,
                is_public=not parsed_args.private,
            )
            try:
                compute.create_flavor_extra_specs(flavor, specs)
            except BaseException:
                # Machines of a flavor without them would boot, and have no accelerator.
                compute.delete_flavor(flavor)
                raise
        return ("id", "name", *specs), (flavor.id, flavor.name, *specs.values())

    def _extra_specs(self, parsed_args: argparse.Namespace) -> dict[str, str]:
        tier = None if parsed_args.tier is None else Tier(parsed_args.tier)
        if parsed_args.function is None:
            if tier is None:
                raise InvalidInput("--function: missing; without it there is --tier")
            return tier_extra_specs(tier, parsed_args.vcpus, parsed_args.runtime, parsed_args.cpu_usage)
        request = AcceleratorRequest(
            function=parsed_args.function,
            count=parsed_args.count,
            topology=Topology(parsed_args.topology),
            tier=tier,
            runtime_s=parsed_args.runtime,
            cpu_usage_percent=parsed_args.cpu_usage,
        )
        specs = consistent_extra_specs(request, Spread(parsed_args.spread), parsed_args.vcpus)
        wrong = inconsistencies(specs, configured_catalogue(self.conf), parsed_args.vcpus)
        if wrong:
            raise InvalidInput(wrong[0])
        return specs


class Check(ManageCommand):
    """Find flavors whose extra specs do not agree; exit status 1 if there are any."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("flavor", nargs="*", metavar="FLAVOR", help="name or id of one (default: all)")
        add_cloud_option(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look, and tell what was found."""
        catalogue = configured_catalogue(self.conf)
        with compute_service(parsed_args.os_cloud) as compute:
            flavors = _chosen(list(compute.flavors(get_extra_specs=True)), parsed_args.flavor)
        found = [
            (flavor.name, sentence)
            for flavor in flavors
            for sentence in inconsistencies(flavor.extra_specs, catalogue, flavor.vcpus)
        ]
        for name, sentence in found:
            self.tell(f"{name}: {sentence}")
        if not found:
            self.tell("nothing is wrong")
        return FAILED if found else 0


def _chosen(flavors: Sequence[Any], wanted: Sequence[str]) -> list[Any]:
    """Return the flavors of these names or ids; all where none is named."""
    for name in wanted:
        if not any(name in (flavor.name, flavor.id) for flavor in flavors):
            raise NotFound(f"flavor {name!r} does not exist")
    return [flavor for flavor in flavors if not wanted or flavor.name in wanted or flavor.id in wanted]
