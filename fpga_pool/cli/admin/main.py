"""`fpga-pool-manage`: operator commands that need the configuration and the database of the pool.

Exit status: 0 done, 1 the work failed, 2 wrong usage or configuration.
"""

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, version
from typing import Any

from cliff.commandmanager import CommandManager
from oslo_config import cfg

from fpga_pool.cli.command import CommandApp
from fpga_pool.conf.opts import check_names, check_values, register_opts
from fpga_pool.model.exceptions import InvalidInput

PROGRAM = "fpga-pool-manage"
#: cliff's verbosity level for one -v.
VERBOSE = 2

#: Module and class of each command.  Only the module of the command that runs is imported: importing all takes seconds.
COMMANDS = {
    "audit": "database:Audit",
    "bitstreams stock": "keys:FillLibrary",
    "designs sign": "keys:SignDesign",
    "card remove": "retire:RemoveCard",
    "db check": "database:Check",
    "db purge": "database:Purge",
    "db sync": "database:Sync",
    "db version": "database:Version",
    "explain": "instances:Explain",
    "flavor check": "instances:Check",
    "flavor create": "instances:Create",
    "host approve": "hosts:Approve",
    "host enroll": "hosts:Enroll",
    "host list": "hosts:List",
    "host remove": "retire:RemoveHost",
    "host revoke": "hosts:Revoke",
    "keys create": "keys:Create",
    "prepare": "keys:Prepare",
    "rabbitmq permissions": "keys:ShowPermissions",
    "refit": "database:Refit",
    "service list": "hosts:ListServices",
    "slot remove": "retire:RemoveSlot",
    "tier list": "hosts:ListTiers",
    "tier set": "hosts:SetTiers",
}


#: A public key that looks like an option because it begins with a dash, as one in 64 does.
_DASHED_KEY = re.compile(r"-[\w-]{42}", re.ASCII)


class ManageApp(CommandApp):
    """The application: the options that all commands share, and the configuration of the pool."""

    def __init__(self, **streams: Any) -> None:
        group = "fpga_pool.manage"
        manager = CommandManager(group)
        for name, place in COMMANDS.items():
            manager.commands[name] = EntryPoint(name, f"fpga_pool.cli.admin.{place}", group)
        super().__init__(
            PROGRAM,
            description="Set up a pool of FPGA slots: keys, database, bitstreams, flavors.",
            version=version("fpga_pool"),
            command_manager=manager,
            **streams,
        )

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """Add the options for configuration files to cliff's own options."""
        parser = super().build_option_parser(description, version, {"prog": PROGRAM, "allow_abbrev": False})
        for option, what in (
            ("--config-file", "configuration file"),
            ("--config-dir", "directory of configuration files"),
        ):
            parser.add_argument(
                option,
                metavar="PATH",
                action="append",
                default=[],
                help=f"{what}; may be repeated (default: the files that the services read)",
            )
        return parser

    def configure_logging(self) -> None:
        """Log warnings and errors only, unless -v or --debug is given."""
        super().configure_logging()
        if not self.options.debug and self.options.verbose_level < VERBOSE:
            logging.getLogger().setLevel(logging.WARNING)

    def run(self, argv: list[str]) -> int:
        """Run a command; a public key among its arguments is not read as an option, even if it begins with a dash."""
        key = next((place for place, word in enumerate(argv) if _DASHED_KEY.fullmatch(word)), len(argv))
        status: int = super().run([*argv[:key], "--", *argv[key:]] if key < len(argv) else argv)
        return status

    @cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration, read on first use, without the options of policies, which only schedulers need.

        Raises InvalidInput if a name or value in it is wrong.
        """
        conf = cfg.ConfigOpts()
        register_opts(conf, policies=False)
        places = [f"--config-file={path}" for path in self.options.config_file]
        places += [f"--config-dir={path}" for path in self.options.config_dir]
        try:
            conf(places, project="fpga_pool", prog=PROGRAM)
        except cfg.Error as error:
            raise InvalidInput(str(error)) from error
        check_names(conf, policies=False)
        check_values(conf)
        return conf


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-manage`."""
    return ManageApp().run(list(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
