"""[driver_tc]: where the flows that leave this host are shaped."""

import ipaddress

from oslo_config import cfg

from fpga_pool.conf.agent import NO_GUESTS
from fpga_pool.model.exceptions import InvalidInput

GROUP = cfg.OptGroup("driver_tc", title="Egress limits by the kernel's traffic control")
OPTS = [
    cfg.ListOpt(
        "devices",
        default=[],
        help="Network devices through which this host sends, each with its source addresses: DEVICE=NETWORK, such as "
        "eth0=192.0.2.0/24, eth1=2001:db8::/64. The most specific network that matches is used. Taps of Nova's servers "
        "need no entry: an agent with a guest driver finds them.",
    ),
]


def shaped_devices(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Return the device of each network of sources; InvalidInput says which entry is wrong."""
    found: dict[str, str] = {}
    for entry in conf.driver_tc.devices:
        device, _, network = entry.partition("=")
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise InvalidInput(f"[driver_tc] devices: {entry!r} is not DEVICE=NETWORK: {error}") from None
        if network in found:
            raise InvalidInput(f"[driver_tc] devices: {network} is already assigned to device {found[network]}")
        found[network] = device
    if not found and conf.agent.guest_driver == NO_GUESTS:
        raise InvalidInput(
            "[driver_tc] devices: required by [agent] egress_driver = tc on a host without a guest driver; expected "
            "DEVICE=NETWORK, such as eth0=192.0.2.0/24"
        )
    return found
