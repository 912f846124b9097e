"""Ports on one machine: each is a tap device, bound at once and anywhere, with nobody to wire it."""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class TapDriver(api.MechanismDriver):
    """Mechanism driver `fpga_pool_tap` of Neutron's ML2 plug-in, for clouds of one machine."""

    def initialize(self) -> None:
        """Nothing has to be prepared."""

    @property
    def connectivity(self) -> str:
        """What a network gives to its ports."""
        return str(portbindings.CONNECTIVITY_L2)

    def bind_port(self, context: api.PortContext) -> None:
        """Bind to the first segment there is."""
        for segment in context.segments_to_bind[:1]:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_TAP,
                {portbindings.CAP_PORT_FILTER: False},
                status=constants.PORT_STATUS_ACTIVE,
            )
