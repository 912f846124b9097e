"""`fpga-pool`: the pool on the command line.

Exit status: 0 done, 1 the work failed, 2 wrong usage or unreadable input, 130 interrupted.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cliff.commandmanager import CommandManager

from fpga_pool.cli.command import CommandApp, status_of
from fpga_pool.client import Client
from fpga_pool.client.cloud import cloud_login
from fpga_pool.client.session import DEFAULT_ENDPOINT
from fpga_pool.model.exceptions import FpgaPoolError, TokenRequired

#: Where the commands are registered.
NAMESPACE = "fpga_pool.cli"


class PoolApp(CommandApp):
    """The application: the options that all commands share, and the client that is created from them."""

    def __init__(self, command_manager: CommandManager | None = None, **streams: Any) -> None:
        super().__init__(
            "fpga-pool",
            description="Submit batches of jobs to a pool of FPGA slots, and inspect and operate the pool.",
            version=_version(),
            command_manager=command_manager or CommandManager(NAMESPACE),
            **streams,
        )
        self._client: Client | None = None
        self._error: BaseException | None = None

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """Add the options for the pool and the project to cliff's own options."""
        # If abbreviations were allowed here, options of commands would be taken for them.
        parser = super().build_option_parser(description, version, {"prog": "fpga-pool", "allow_abbrev": False})
        parser.add_argument(
            "--endpoint",
            metavar="URL",
            default=os.environ.get("FPGA_POOL_ENDPOINT"),
            help="URL of the pool's API (FPGA_POOL_ENDPOINT; default: from the cloud's catalogue, without a cloud "
            f"{DEFAULT_ENDPOINT})",
        )
        parser.add_argument(
            "--os-cloud",
            metavar="NAME",
            help="cloud in clouds.yaml to log in to (default: OS_CLOUD, or the OS_* variables of an openrc file)",
        )
        parser.add_argument(
            "--os-cacert",
            metavar="FILE",
            default=os.environ.get("OS_CACERT"),
            help="authorities that may have signed the certificates of the cloud, or of the pool (OS_CACERT)",
        )
        parser.add_argument(
            "--project", metavar="ID", default="demo", help="project, where the pool does not authenticate"
        )
        parser.add_argument("--user", metavar="ID", default="demo", help="user, where the pool does not authenticate")
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

    @property
    def client(self) -> Client:
        """The client, created on first use, because help needs no cloud."""
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> Client:
        options = self.options
        in_environment = os.environ.get("OS_CLOUD") or os.environ.get("OS_AUTH_URL")
        cacert = options.os_cacert
        if options.os_cloud or (in_environment and not (options.endpoint and _is_open(options.endpoint, cacert))):
            return Client(options.endpoint, login=cloud_login(options.os_cloud, cacert))
        return Client(options.endpoint, project_id=options.project, user_id=options.user, cacert=cacert)

    def clean_up(self, cmd: object, result: int, err: BaseException | None) -> None:
        """Store the exception that ended the command, and close the client."""
        self._error = err
        if self._client is not None:
            self._client.close()

    def run(self, argv: list[str]) -> int:
        """Run one command; return the exit status."""
        status = super().run(argv)
        # cliff returns the right status for a closed pipe.
        return status if self._error is None or isinstance(self._error, BrokenPipeError) else status_of(self._error)


def _is_open(endpoint: str, cacert: str | None) -> bool:
    """Return whether the pool at an endpoint requires no token, so that no login to a cloud is needed."""
    try:
        with Client(endpoint, cacert=cacert) as client:
            client.functions()
    except TokenRequired:
        return False
    except FpgaPoolError:
        pass  # the command itself reports it
    return True


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
