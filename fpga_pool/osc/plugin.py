"""The interface of a plug-in of python-openstackclient: the name of the API, its versions, and a client."""

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
    """Return the client for a session of the `openstack` command."""
    # Imported here, so that other commands of `openstack` do not wait for the import.
    from fpga_pool.client import Client
    from fpga_pool.client.session import Login

    return Client(login=Login(instance.session, instance.interface, instance.region_name or None))


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option for the version of the API to the command."""
    parser.add_argument(
        "--os-fpga-api-version",
        metavar="VERSION",
        default=os.environ.get("OS_FPGA_API_VERSION", DEFAULT_API_VERSION),
        help=f"version of the API of fpga_pool (OS_FPGA_API_VERSION; default: {DEFAULT_API_VERSION})",
    )
    return parser
