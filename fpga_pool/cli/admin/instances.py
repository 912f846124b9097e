"""`fpga-pool-manage flavor` and `explain`: flavors of instances, and the hosts that could take an instance now."""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from cliff.lister import Lister
from cliff.show import ShowOne
from oslo_log import log as logging

from fpga_pool.cli.admin.base import ManageCommand, add_cloud_option, compute_service
from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.cli.client.columns import Row, Table
from fpga_pool.cli.command import FAILED
from fpga_pool.conf.catalogue import configured_catalogue
from fpga_pool.model.catalogue import Catalogue, extended
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.extra_specs import (
    Spread,
    consistent_extra_specs,
    inconsistencies,
    placement_traits,
    tier_extra_specs,
)
from fpga_pool.model.flavor import NAMESPACE, AcceleratorRequest, Tier, Topology, requested
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.links import wished_links
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.instance.explaining import explain_host, host_terms, larger_than_hosts, on_one_card
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.instance.observations import ALL_PROJECTS, ENDED_INSTANCES, observed
from fpga_pool.model.rules.shared.columns import Bools, PoolColumns, Providers
from fpga_pool.services.scheduler.planner import Calibrator
from fpga_pool.store.options import has_database

LOG = logging.getLogger(__name__)

#: Assumed run time in seconds if it is unknown, the default in nova.conf ([fpga_pool] expected_stay).
STAY_S = 3600.0


class FlavorCommand(ManageCommand):
    """A command that checks flavors against the catalogue, and against the hosts of the pool if it has a database."""

    def problems(self, flavors: Iterable[tuple[str, Mapping[str, str], int]]) -> Iterator[tuple[str, str]]:
        """Yield the flavor's name and a sentence for each problem; `flavors` are (name, extra specs, vCPUs)."""
        catalogue, pool = self._known
        for name, specs, vcpus in flavors:
            found = inconsistencies(specs, catalogue, vcpus)
            if not found and pool is not None and (too_large := larger_than_hosts(pool, catalogue, specs)):
                found = [too_large]
            yield from ((name, sentence) for sentence in found)

    @cached_property
    def _known(self) -> tuple[Catalogue, PoolColumns | None]:
        """The catalogue, with approved designs, and the hosts; without a database the bare catalogue and None."""
        catalogue = configured_catalogue(self.conf)
        if not has_database(self.conf):
            return catalogue, None
        try:
            with self.store() as store:
                with store.reading() as tx:
                    catalogue = extended(catalogue, tx.designs([DesignState.APPROVED]))
                return catalogue, store.pool_columns()
        except FpgaPoolError as error:
            LOG.warning("flavors are not compared with the designs and the hosts of the pool: %s", error)
            return catalogue, None


class Create(FlavorCommand, ShowOne):
    """Create a flavor whose virtual machines have accelerators, or share pCPUs in tiers, or both.

    Example: fpga-pool-manage flavor create fpga.sha256 --function sha256 --ram 2048 --disk 20 --vcpus 2
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="of the flavor")
        parser.add_argument(
            "--function", help="function that its slots compute, of the catalogue or a design; optional with --tier"
        )
        parser.add_argument("--count", type=int, default=1, metavar="N", help="slots (default: 1)")
        parser.add_argument(
            "--spread",
            choices=[spread.value for spread in Spread],
            default=Spread.CARD.value,
            help="where the slots come from: all from one card, from any cards of the host, or apart (no two from the "
            "same card and kind) (default: %(default)s)",
        )
        parser.add_argument("--topology", choices=[topology.value for topology in Topology], default=Topology.ANY.value)
        parser.add_argument(
            "--tier",
            choices=[tier.value for tier in Tier],
            help="priority of the machine on a pCPU that two machines share (default: no tier)",
        )
        parser.add_argument(
            "--migrate",
            action="store_true",
            help="with --tier auto: let the pool live-migrate machines to hosts where the foreground has room",
        )
        parser.add_argument("--runtime", type=positive_seconds, metavar="S", help="expected run time of a machine")
        parser.add_argument("--cpu-usage", type=float, metavar="PERCENT", help="expected CPU usage of a machine")
        parser.add_argument("--ram", type=int, required=True, metavar="MIB")
        parser.add_argument("--disk", type=int, required=True, metavar="GIB")
        parser.add_argument("--vcpus", type=int, required=True, metavar="N")
        parser.add_argument(
            "--private", action="store_true", help="create a private flavor; grant projects access to it separately"
        )
        add_cloud_option(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Create the flavor with all its extra specs, or not at all."""
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
                # Without its extra specs, machines of the flavor would boot and have no accelerator.
                compute.delete_flavor(flavor)
                raise
        return ("id", "name", *specs), (flavor.id, flavor.name, *specs.values())

    def _extra_specs(self, parsed_args: argparse.Namespace) -> dict[str, str]:
        tier = None if parsed_args.tier is None else Tier(parsed_args.tier)
        if parsed_args.function is None:
            if tier is None:
                raise InvalidInput("--function: missing; give --function, --tier or both")
            return tier_extra_specs(
                tier, parsed_args.vcpus, parsed_args.runtime, parsed_args.cpu_usage, parsed_args.migrate
            )
        if parsed_args.migrate:
            raise InvalidInput("--migrate: machines with accelerators are not migrated; remove --function")
        request = AcceleratorRequest(
            function=parsed_args.function,
            count=parsed_args.count,
            topology=Topology(parsed_args.topology),
            tier=tier,
            runtime_s=parsed_args.runtime,
            cpu_usage_percent=parsed_args.cpu_usage,
        )
        traits = placement_traits(self._known[0].function(request.function))
        specs = consistent_extra_specs(request, Spread(parsed_args.spread), parsed_args.vcpus, traits)
        for _, sentence in self.problems([(parsed_args.name, specs, parsed_args.vcpus)]):
            raise InvalidInput(sentence)
        return specs


class Check(FlavorCommand):
    """Find flavors with inconsistent extra specs; exit status 1 if there are any.

    Example: fpga-pool-manage flavor check fpga.sha256 --os-cloud admin
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("flavor", nargs="*", metavar="FLAVOR", help="name or id of a flavor (default: all)")
        add_cloud_option(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        with compute_service(parsed_args.os_cloud) as compute:
            flavors = _chosen(list(compute.flavors(get_extra_specs=True)), parsed_args.flavor)
        found = list(self.problems((flavor.name, flavor.extra_specs, flavor.vcpus) for flavor in flavors))
        for name, sentence in found:
            self.print_line(f"{name}: {sentence}")
        if not found:
            self.print_line("no problems found")
        return FAILED if found else 0


def _chosen(flavors: Sequence[Any], wanted: Sequence[str]) -> list[Any]:
    """Return the flavors with these names or ids, or all if none is given; NotFound if one does not exist."""
    for name in wanted:
        if not any(name in (flavor.name, flavor.id) for flavor in flavors):
            raise NotFound(f"flavor {name!r} does not exist")
    return [flavor for flavor in flavors if not wanted or flavor.name in wanted or flavor.id in wanted]


class Explain(ManageCommand, Lister):
    """Show for every host whether it could take an instance of this flavor now, and why or why not.

    Example: fpga-pool-manage explain UUID --os-cloud admin
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("instance", metavar="INSTANCE", help="uuid of the instance; its flavor is read from Nova")
        parser.add_argument("--function", help="function that its slots compute; Nova is not queried then")
        parser.add_argument(
            "--count", type=int, default=1, metavar="N", help="number of slots on one card, with --function"
        )
        parser.add_argument(
            "--topology",
            choices=[topology.value for topology in Topology],
            default=Topology.ANY.value,
            help="topology of the slots, with --function",
        )
        parser.add_argument(
            "--stay",
            type=positive_seconds,
            metavar="S",
            help="assumed run time if its flavor gives none (default: that of instances that have ended, with the "
            f"function and of the project if it is known, else {STAY_S:g})",
        )
        add_cloud_option(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Compare the request with the current state of the pool in its database."""
        specs, project = self._asked(parsed_args)
        wanted = requested(specs)
        if wanted is None:
            raise InvalidInput(f"instance {parsed_args.instance}: its flavor requests nothing from the pool")
        catalogue = configured_catalogue(self.conf)
        with self.store() as store:
            pool = store.pool_columns()
            slowdown = Calibrator(store, catalogue, time.time).learned()
            with store.reading() as tx:
                designs = tx.designs([DesignState.APPROVED])
                known = observed(tx.ended_instances(ENDED_INSTANCES), tx.time_models(), slowdown, designs)
        catalogue = known.applied_to(catalogue)
        catalogue.function(wanted.function)
        stay_s = wanted.runtime_s or parsed_args.stay or known.run_time_s(project, wanted.function) or STAY_S
        fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s, known.run_times_s())
        return explanation(fitting, parsed_args.instance, wanted, together=on_one_card(specs))

    def _asked(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, str], str]:
        """Return the extra specs of the instance, and its project."""
        if parsed_args.function is not None:
            specs: Mapping[str, str] = {
                f"{NAMESPACE}:function": parsed_args.function,
                f"{NAMESPACE}:count": str(parsed_args.count),
                f"{NAMESPACE}:topology": parsed_args.topology,
            }
            return specs, ALL_PROJECTS
        with compute_service(parsed_args.os_cloud) as compute:
            server = compute.get_server(parsed_args.instance)
        # Since microversion 2.47 a server includes the flavor that it was created with.
        return server.flavor.extra_specs or {}, server.project_id


def explanation(fitting: Fitting, instance: str, wanted: AcceleratorRequest, *, together: bool) -> Table:
    """Return whether each host could take an instance, and why; all slots must be on one card if `together`."""
    pool = fitting.providers.pool
    rows, links = [], wished_links(wanted)
    for number, host in enumerate(pool.words[word] for word in pool.hosts["name"].tolist()):
        passes, why = explain_host(fitting, host, wanted.count, together=together, links=links)
        terms = host_terms(fitting, host, wanted.count)
        weighed = ("", "", "", "", "")
        if passes and terms is not None:
            weighed = (
                f"{terms.benefit:.2f}", f"{terms.completion_s:.1f}", f"{terms.lateness:.3g}", f"{terms.scarcity:.2f}",
                f"{terms.ingress_s:.1f}",
            )  # fmt: skip
        held = _held_by(pool, number, instance)
        if lost := int(np.count_nonzero(held & (pool.slots["state"] == pool.numbers.get(SlotState.FAULTED, -1)))):
            why = f"{why}; held by the instance, but FAULTED: {lost}"
        rows.append((host, passes, int(np.count_nonzero(held)), *weighed, why))
    return (
        "host",
        "passes",
        "slots held",
        "benefit",
        "completes in s",
        "lateness",
        "scarcity",
        "planned ingress in s",
        "why",
    ), rows


def _held_by(pool: PoolColumns, host: int, instance: str) -> Bools:
    """Return a mask of the slots of a host that an instance holds, shape (S,)."""
    held: Bools = (pool.slots["holder"] == pool.numbers.get(instance, -1)) & (pool.slot_host == host)
    return held
