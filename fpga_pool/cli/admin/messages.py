"""`fpga-pool-manage rabbitmq`: accounts of the pool's processes in RabbitMQ."""

import argparse
import shlex

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.permissions import permissions
from fpga_pool.rpc.transport import EXCHANGE


class ShowPermissions(ManageCommand):
    """Print the commands that give an account of RabbitMQ what a process of the pool needs, and no more."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("role", choices=[role.value for role in Role], help="role of the process")
        parser.add_argument("user", metavar="USER", help="account in RabbitMQ")
        parser.add_argument("--host", metavar="HOST", default="", help="name of an agent's host in the pool")
        parser.add_argument(
            "--notifications",
            metavar="TOPIC",
            action="append",
            default=[],
            help="topic of notifications that a scheduler sends; can be repeated",
        )
        parser.add_argument("--vhost", metavar="VHOST", default="/", help="virtual host (default: %(default)s)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print."""
        role = Role(parsed_args.role)
        if (role is Role.AGENT) != bool(parsed_args.host):
            raise InvalidInput("--host: expected for the role agent, and for no other one")
        if parsed_args.notifications and role is not Role.SCHEDULER:
            raise InvalidInput("--notifications: expected for the role scheduler only, the others send none")
        wanted = permissions(role, parsed_args.host, parsed_args.notifications)
        place = ["-p", parsed_args.vhost, parsed_args.user]
        names, keys = [wanted.configure, wanted.write, wanted.read], [EXCHANGE, wanted.topic_write, wanted.topic_read]
        self.print_line(shlex.join(["rabbitmqctl", "set_permissions", *place, *names]))
        self.print_line(shlex.join(["rabbitmqctl", "set_topic_permissions", *place, *keys]))
