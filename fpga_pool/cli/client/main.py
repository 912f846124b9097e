"""`fpga-pool`: the pool on the command line.

Exit status: 0 done, 1 the work failed, 2 wrong usage or unreadable input.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager

from fpga_pool.cli.client.base import WRONG_USAGE, status_of
from fpga_pool.client import Client
from fpga_pool.client.api import DEFAULT_ENDPOINT

#: Where the commands are registered.
NAMESPACE = "fpga_pool.cli"


class PoolApp(App):
    """The options that all commands share, and the client that they make."""

    def __init__(self, command_manager: CommandManager | None = None, **streams: Any) -> None:
        super().__init__(
            description="Submit batches of jobs to a pool of FPGA slots, and inspect and operate the pool.",
            version=_version(),
            command_manager=command_manager or CommandManager(NAMESPACE),
            **streams,
        )
        self.NAME = "fpga-pool"
        self.client: Client | None = None
        self._error: BaseException | None = None

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """Add the pool and the project to cliff's own options."""
        # An abbreviation here would eat the options of commands.
        parser = super().build_option_parser(description, version, {"prog": "fpga-pool", "allow_abbrev": False})
        parser.add_argument(
            "--endpoint",
            metavar="URL",
            default=os.environ.get("FPGA_POOL_ENDPOINT", DEFAULT_ENDPOINT),
            help="URL of the pool's API (FPGA_POOL_ENDPOINT; default: %(default)s)",
        )
        parser.add_argument("--project", metavar="ID", default="demo", help="project that batches belong to")
        parser.add_argument("--user", metavar="ID", default="demo", help="user that submits them")
        return parser

    def configure_logging(self) -> None:
        """Show warnings, and lower levels only on request (-v, -vv); --debug shows everything."""
        super().configure_logging()
        levels = (logging.ERROR, logging.WARNING, logging.INFO)
        verbose = self.options.verbose_level
        level = logging.DEBUG if self.options.debug or verbose >= len(levels) else levels[verbose]
        logging.getLogger().setLevel(level)
        if not self.options.debug:
            # They log a failed connection in more detail than needed, before it is reported in one line.
            for noisy in ("keystoneauth", "urllib3"):
                logging.getLogger(noisy).setLevel(logging.ERROR)

    def initialize_app(self, argv: list[str]) -> None:
        """Make the client; nothing is sent yet."""
        options = self.options
        self.client = Client(options.endpoint, project_id=options.project, user_id=options.user)

    def clean_up(self, cmd: object, result: int, err: BaseException | None) -> None:
        """Remember what ended the command."""
        self._error = err
        if self.client is not None:
            self.client.close()

    def interact(self) -> None:
        """Ask for a command; there is no shell."""
        self.parser.print_usage(self.stderr)
        self.parser.exit(WRONG_USAGE, "fpga-pool: no command given; `fpga-pool help` lists the commands\n")

    def run(self, argv: list[str]) -> int:
        """Run one command; return the exit status."""
        try:
            status = super().run(argv)
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else 0
        return status if self._error is None else status_of(self._error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool`."""
    return PoolApp().run(list(sys.argv[1:] if argv is None else argv))


def _version() -> str:
    try:
        return version("fpga_pool")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
