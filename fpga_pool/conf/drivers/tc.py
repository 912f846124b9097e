"""[driver_tc]: where the flows that leave this host are shaped."""

import ipaddress
from dataclasses import dataclass

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

GROUP = cfg.OptGroup("driver_tc", title="Egress limits by the kernel's traffic control")
OPTS = [
    cfg.ListOpt(
        "devices",
        default=[],
        help="Network devices through which this host sends, each with its source addresses: DEVICE=NETWORK, such as "
        "eth0=192.0.2.0/24, eth1=2001:db8::/64. The most specific network that matches is used.",
    ),
    cfg.ListOpt(
        "taps",
        default=[],
        help="Devices of this host through which guests send, each with the guest's addresses: DEVICE=NETWORK, such "
        "as tap1f3c=10.0.0.7/32. The guest's flows are limited there, because an overlay hides them from the "
        "other devices.",
    ),
]


@dataclass(frozen=True, slots=True)
class ShapedDevice:
    """A device, and whether what is shaped there comes in (from a guest) rather than goes out."""

    name: str
    from_guest: bool


def shaped_devices(conf: cfg.ConfigOpts) -> dict[str, ShapedDevice]:
    """Return the device of each network of sources; InvalidInput says which entry is wrong."""
    found: dict[str, ShapedDevice] = {}
    for option, from_guest in (("devices", False), ("taps", True)):
        for entry in conf.driver_tc[option]:
            device, _, network = entry.partition("=")
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise InvalidInput(f"[driver_tc] {option}: {entry!r} is not DEVICE=NETWORK: {error}") from None
            if network in found:
                raise InvalidInput(
                    f"[driver_tc] {option}: {network} is already assigned to device {found[network].name}"
                )
            found[network] = ShapedDevice(device, from_guest)
    if not found:
        raise InvalidInput(
            "[driver_tc] devices: required by [agent] egress_driver = tc; expected DEVICE=NETWORK, such as "
            "eth0=192.0.2.0/24"
        )
    return found
