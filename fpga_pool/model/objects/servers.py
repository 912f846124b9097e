"""Servers of Nova as requesters: a job that names `server:UUID` is sent by that virtual machine, through its taps."""

from dataclasses import dataclass

from fpga_pool.model.fields import Limit

_PREFIX = "server:"


def server_of(requester: str) -> str:
    """Return the uuid of the server that a requester is; "" = it is a host."""
    return requester.removeprefix(_PREFIX) if requester.startswith(_PREFIX) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A virtual machine that runs on a host, as its agent reports it; while it moves it may be on two."""

    #: HOST/UUID.
    name: str
    uuid: str
    host: str
    project_id: str
    egress_bps: Limit
    #: The agent holds its flows at its taps.
    held: bool
    generation: int = 0

    @property
    def requester(self) -> str:
        """How jobs name it."""
        return _PREFIX + self.uuid
