"""Ports on one machine: tap devices that are bound immediately, on any host, and that no agent needs to wire."""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class TapDriver(api.MechanismDriver):
    """Mechanism driver `fpga_pool_tap` of Neutron's ML2 plug-in, for clouds of one machine."""

    def initialize(self) -> None:
        """Do nothing: no preparation is needed."""

    @property
    def connectivity(self) -> str:
        """The connectivity that a network provides to its ports."""
        return str(portbindings.CONNECTIVITY_L2)

    def bind_port(self, context: api.PortContext) -> None:
        """Bind a port to the first of its segments, if any."""
        for segment in context.segments_to_bind[:1]:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_TAP,
                {portbindings.CAP_PORT_FILTER: False},
                status=constants.PORT_STATUS_ACTIVE,
            )
