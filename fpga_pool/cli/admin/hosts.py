"""`fpga-pool-manage host`: which hosts are part of the pool, by the keys of their agents."""

import argparse
import time

from cliff.lister import Lister

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.client.base import Moment, Row, Table
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.hosts import Enrolment
from fpga_pool.services.scheduler.enrolment import approve, invite, revoke


class Enroll(ManageCommand, Lister):
    """Create a one-time code for each host: an agent with this [agent] enrolment_code is accepted at once.

    The code is valid for 24 hours. The key that a host has already stays valid until the code is used.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("hosts", nargs="+", metavar="HOST", help="name of a host in the pool ([agent] host)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Create and show."""
        with self.store() as store:
            return ("host", "enrolment_code"), [(host, invite(store, host, time.time())) for host in parsed_args.hosts]


class Approve(ManageCommand):
    """Accept the key of a host, in place of any other one.

    Compare KEY with the log of the host's agent, which shows it at each start: every process that reaches RabbitMQ can
    offer a key. --all accepts what every host without a key has offered, for pools whose RabbitMQ no other process
    reaches.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="HOST", nargs="?", help="name of the host in the pool ([agent] host)")
        parser.add_argument("key", metavar="KEY", nargs="?", help="public key of the host's agent, 43 characters")
        parser.add_argument("--all", action="store_true", help="accept all hosts that wait and have no key yet")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Accept."""
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
    """Remove the key of a host: within seconds none of its messages is accepted, and it is lost to the pool."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="HOST", help="name of the host in the pool ([agent] host)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove."""
        with self.store() as store:
            revoke(store, parsed_args.host)
        self.print_line(f"{parsed_args.host}: revoked")


class List(ManageCommand, Lister):
    """List the hosts with the keys that are accepted, and those that wait for approval."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read and show."""
        with self.store() as store:
            rows: list[Row] = [_row(one) for one in store.enrolments()]
        return ("host", "state", "key", "waits_for_approval", "changed_at"), rows


def _row(one: Enrolment) -> Row:
    state = "enrolled" if one.key else "pending" if one.offered else "invited"
    return one.host, state, one.key, one.offered, Moment(one.changed_at)
