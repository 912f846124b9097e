"""The pool as a service of openstacksdk.

    connection.add_service(FpgaService("fpga"))
    connection.fpga.client.run("sha256", ["a.bin"], requester="node-1")

`connection.fpga` is an adapter for the REST API, with the token and endpoint of the connection.
"""

from functools import cached_property
from typing import ClassVar

from openstack import proxy, service_description

from fpga_pool.client.pool import Client
from fpga_pool.client.session import Login


class Proxy(proxy.Proxy):
    """REST calls, such as ``get("/slots")``, and the client library on the same session."""

    @cached_property
    def client(self) -> Client:
        """The client library; it keeps no connections of its own."""
        return Client(login=Login(self.session, self.interface, self.region_name))


class FpgaService(service_description.ServiceDescription):
    """The description of the service for `openstack.connection.Connection.add_service`."""

    supported_versions: ClassVar = {"1": Proxy}
