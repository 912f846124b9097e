"""`fpga-pool-manage host`, `service` and `tier`: hosts with the keys of their agents, services, and tiers of guests."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cliff.lister import Lister
from oslo_config import cfg

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.client.columns import Row, Table, as_moment
from fpga_pool.conf.catalogue import private_key
from fpga_pool.drivers.tiers.domain import TIERS
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable
from fpga_pool.model.flavor import GuestTier, Tier
from fpga_pool.model.objects.hosts import Enrolment
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.transport import MessagingError, transport
from fpga_pool.services.scheduler.enrolment import approve, invite, revoke


class Enroll(ManageCommand, Lister):
    """Create a one-time code for each host: an agent with this [agent] enrolment_code is accepted at once.

    The code is valid for 24 hours. An existing key of the host stays valid until the code is used.

    Example: fpga-pool-manage host enroll node-1 node-2
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("hosts", nargs="+", metavar="HOST", help="name of a host in the pool ([agent] host)")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        with self.store() as store:
            return ("host", "enrolment_code"), [(host, invite(store, host, time.time())) for host in parsed_args.hosts]


class Approve(ManageCommand):
    """Accept the key of a host, in place of any other one, and the data address that its agent reports next.

    Approve the key again after [agent] data_address or node of the host has changed. Compare KEY with the log of the
    host's agent, which shows it at each start: every process that reaches RabbitMQ can offer a key. --all accepts the
    keys that hosts without a key have offered, for pools whose RabbitMQ is reached by no other process.

    Example: fpga-pool-manage host approve node-1 KEY
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", nargs="?", help="name of the host in the pool ([agent] host)")
        parser.add_argument("key", metavar="KEY", nargs="?", help="public key of the host's agent, 43 characters")
        parser.add_argument("--all", action="store_true", help="accept all hosts that wait and have no key yet")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if (parsed_args.key is None) != parsed_args.all:
            raise InvalidInput("expected HOST and KEY, or --all")
        with self.store() as store:
            wanted = [(parsed_args.host, parsed_args.key)]
            if parsed_args.all:
                wanted = [(one.host, one.offered) for one in store.enrolments() if one.offered and not one.key]
            for host, key in wanted:
                approve(store, host, key, time.time())
                self.print_line(f"{host}: approved {key}")


class Revoke(ManageCommand):
    """Remove the key of a host: within seconds the host counts as lost, and its messages are refused.

    Example: fpga-pool-manage host revoke node-1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", help="name of the host in the pool ([agent] host)")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.store() as store:
            revoke(store, parsed_args.host)
        self.print_line(f"{parsed_args.host}: revoked")


class List(ManageCommand, Lister):
    """List the hosts with their accepted keys, and the keys that wait for approval.

    Example: fpga-pool-manage host list -f json
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        with self.store() as store:
            rows: list[Row] = [_enrolment(one) for one in store.enrolments()]
        return ("host", "state", "key", "waits_for_approval", "data_address", "changed_at"), rows


def _enrolment(one: Enrolment) -> Row:
    state = "enrolled" if one.key else "pending" if one.offered else "invited"
    return one.host, state, one.key, one.offered, one.data_address, as_moment(one.changed_at)


class ListServices(ManageCommand, Lister):
    """List the schedulers, the processes of the API, and the shards with the scheduler that owns each.

    Example: fpga-pool-manage service list
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        with self.store() as store, store.reading() as tx:
            schedulers, apis, shards = tx.schedulers(), tx.api_processes(), tx.shards()
        rows: list[Row] = [("scheduler", one.name, "", "", as_moment(one.heard_at)) for one in schedulers]
        rows += [("api", one.name, "", "", as_moment(one.heard_at)) for one in apis]
        rows += [("shard", one.name, one.owner, one.epoch, as_moment(one.renewed_at)) for one in shards]
        return ("kind", "name", "owner", "epoch", "heard_at"), rows


_COLUMNS = ("host", "instance", "name", "wanted", "tier", "pcpus", "usage")


class _TierCommand(ManageCommand, Lister):
    """A command that calls the agent of a host."""

    @contextmanager
    def agents(self, host: str) -> Iterator[AgentAPI]:
        """Yield a client for agents; ServiceUnavailable if the agent of `host` does not answer or has no tiers."""
        files, places = (getattr(self.conf, name, None) or [] for name in ("config_file", "config_dir"))
        # oslo.messaging reads this global configuration only.
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
    """List the guests of a compute node that are in a tier, with their pCPUs and their usage of these.

    Example: fpga-pool-manage tier list compute-1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", help="name of the compute node in the pool")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        with self.agents(parsed_args.host) as agents:
            return _COLUMNS, [_row(parsed_args.host, guest) for guest in agents.tiers(parsed_args.host)]


class SetTiers(_TierCommand):
    """Change the tiers of running guests of a compute node, either of all that are named or of none; two may swap.

    Example: fpga-pool-manage tier set compute-1 UUID=background OTHER=foreground
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", help="name of the compute node in the pool")
        parser.add_argument(
            "tiers",
            nargs="+",
            type=_assignment,
            metavar="INSTANCE=TIER",
            help=f"uuid of an instance, and {' or '.join(TIERS)}",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
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
