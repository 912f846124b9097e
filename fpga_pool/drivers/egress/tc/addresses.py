"""Addresses as they are in a packet."""

import functools
import ipaddress

from fpga_pool.drivers.egress.base import Flow
from fpga_pool.model.exceptions import InvalidInput


def packed(flow: Flow) -> tuple[bytes, bytes]:
    """Return the source and destination address of a flow; an IPv4 flow of an IPv6 socket has IPv4 addresses."""
    source, destination = _packed(flow.source_address), _packed(flow.destination_address)
    if len(source) != len(destination):
        raise InvalidInput(
            f"flow {flow.key}: {flow.source_address} and {flow.destination_address} are of two versions of IP"
        )
    return source, destination


@functools.lru_cache(maxsize=4096)
def _packed(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidInput(f"expected an IPv4 or IPv6 address, got {text!r}") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).packed
