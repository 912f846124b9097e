"""`fpga-pool-manage service` and `tier`: the pool's services, and the tiers of compute nodes."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from cliff.lister import Lister
from oslo_config import cfg

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.client.base import Moment, Row, Table
from fpga_pool.conf.catalogue import private_key
from fpga_pool.drivers.tiers.domain import TIERS
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.flavor import GuestTier, Tier
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.transport import MessagingError, transport


class ListServices(ManageCommand, Lister):
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


_COLUMNS = ("host", "instance", "name", "wanted", "tier", "pcpus", "usage")


class _TierCommand(ManageCommand, Lister):
    """A command that asks agents."""

    @contextmanager
    def agents(self, host: str) -> Iterator[AgentAPI]:
        """Reach the agents; ServiceUnavailable where that of a host does not answer."""
        files, places = (getattr(self.conf, name, None) or [] for name in ("config_file", "config_dir"))
        # oslo.messaging reads no other.
        cfg.CONF([], project="fpga_pool", default_config_files=files, default_config_dirs=places)
        messages = transport(cfg.CONF)
        try:
            key = private_key("[scheduler] token_key", self.conf.scheduler.token_key)
            yield AgentAPI(messages, Identity(Role.SCHEDULER, "fpga-pool-manage", key))
        except MessagingError as error:
            raise ServiceUnavailable(f"the agent of {host} does not answer, or has no tiers: {error}") from error
        finally:
            messages.cleanup()


class ListTiers(_TierCommand):
    """List the guests of a compute node that are in a tier, with their pCPUs and what they use of these."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="HOST", help="name of the compute node in the pool")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        with self.agents(parsed_args.host) as agents:
            return _COLUMNS, [_row(parsed_args.host, guest) for guest in agents.tiers(parsed_args.host)]


class Set(_TierCommand):
    """Change the tiers of guests of a compute node while they run: all that are named, or none; two may swap."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="HOST", help="name of the compute node in the pool")
        parser.add_argument(
            "tiers",
            nargs="+",
            type=_assignment,
            metavar="INSTANCE=TIER",
            help=f"uuid of an instance, and {' or '.join(TIERS)}",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for it, and show how it is now."""
        with self.agents(parsed_args.host) as agents:
            agents.set_tiers(parsed_args.host, dict(parsed_args.tiers))
            return _COLUMNS, [_row(parsed_args.host, guest) for guest in agents.tiers(parsed_args.host)]


def _assignment(text: str) -> tuple[str, Tier]:
    instance, _, tier = text.partition("=")
    if not instance or tier not in TIERS:
        raise argparse.ArgumentTypeError(f"expected INSTANCE=TIER with {' or '.join(TIERS)}, found {text!r}")
    return instance, Tier(tier)


def _row(host: str, guest: GuestTier) -> Row:
    pcpus = " ".join(map(str, guest.pcpus))
    usage = " ".join(f"{share:.0%}" for share in guest.usage)
    return host, guest.instance, guest.name, str(guest.wanted or ""), str(guest.tier), pcpus, usage
