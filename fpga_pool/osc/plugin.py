"""What python-openstackclient asks of a plug-in: the name of the API, its version, and a client."""

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpga_pool.client import Client

API_NAME = "fpga"
API_VERSION_OPTION = "os_fpga_api_version"
API_VERSIONS = {"1": "fpga_pool.client.Client"}
DEFAULT_API_VERSION = "1"


def make_client(instance: Any) -> "Client":
    """Return the client of a session of the `openstack` command."""
    # Here, because it takes a moment that all the other commands of `openstack` need not wait.
    from fpga_pool.client import Client
    from fpga_pool.client.session import Login

    return Client(login=Login(instance.session, instance.interface, instance.region_name or None))


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the version of the API to the options of the command."""
    parser.add_argument(
        "--os-fpga-api-version",
        metavar="VERSION",
        default=os.environ.get("OS_FPGA_API_VERSION", DEFAULT_API_VERSION),
        help=f"version of the API of fpga_pool (OS_FPGA_API_VERSION; default: {DEFAULT_API_VERSION})",
    )
    return parser
