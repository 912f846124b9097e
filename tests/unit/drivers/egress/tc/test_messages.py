"""Our netlink messages, as pyroute2 decodes them."""

import ipaddress
import struct

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.messages import FlowFilter, HtbClass

FLOW = FlowFilter(0xF9400000, 0xF9400007, 3, bytes([10, 0, 0, 1]), 5000, bytes([10, 0, 0, 2]), 7000)
CREATE = 0x1 | 0x400 | 0x200


def decoded(data):
    message = tcmsg(data)
    message.decode()
    assert message["header"]["length"] == len(data)
    return message


def options(message):
    return message.get_attr("TCA_OPTIONS")


def keys_of(data):
    """Return the keys of a u32 filter as (value, mask, offset); pyroute2 reads them 4 bytes too early."""
    attributes = dict(messages.attributes_of(data[36:]))
    selector = dict(messages.attributes_of(attributes[2]))[5]
    keys = [(*struct.unpack("!II", key[:8]), *struct.unpack("=ii", key[8:])) for key in batched16(selector[16:])]
    assert selector[2] == len(keys)
    return [(value, mask, offset) for mask, value, offset, _ in keys]


def batched16(data):
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def test_class():
    message = decoded(messages.new_class(4, HtbClass(0xF9400000, 0xF9400007, 12_500_000, 524_288, 65_536)))
    assert (message["header"]["type"], message["header"]["flags"]) == (messages.RTM_NEWTCLASS, CREATE)
    assert (message["index"], message["parent"], message["handle"]) == (4, 0xF9400000, 0xF9400007)
    assert message.get_attr("TCA_KIND") == "htb"
    parameters = options(message).get_attr("TCA_HTB_PARMS")
    assert parameters["rate"] == parameters["ceil"] == 12_500_000
    # 524288 bytes at 12.5e6 bytes/s are 41.94304 ms: 655360 ticks of 64 ns.
    assert parameters["buffer"] == parameters["cbuffer"] == 655_360
    assert parameters["quantum"] == 65_536


def test_class_beyond_32_bit():
    """100 Gbit/s are 12.5e9 bytes/s.  pyroute2 does not know the wider field, which the kernel returns."""
    data = messages.new_class(4, HtbClass(1, 2, 12_500_000_000, 10**9, 65_536))
    parameters = options(decoded(data)).get_attr("TCA_HTB_PARMS")
    assert parameters["rate"] == 2**32 - 1
    assert messages.class_rate(data[16:]) == (2, 12_500_000_000)


def test_class_read_back():
    data = messages.new_class(4, HtbClass(0xF9400000, 0xF9400007, 12_500_000, 524_288, 65_536))
    assert messages.class_rate(data[16:]) == (0xF9400007, 12_500_000)


def test_change_of_a_class_makes_none():
    message = decoded(messages.changed_class(4, HtbClass(0xF9400000, 0xF9400007, 1, 1, 1)))
    assert (message["header"]["type"], message["header"]["flags"]) == (messages.RTM_NEWTCLASS, 0x1)


def test_filter_of_an_ipv4_flow():
    data = messages.new_filter(4, FLOW)
    message = decoded(data)
    assert message["header"]["type"] == messages.RTM_NEWTFILTER
    assert (message["parent"], message["handle"]) == (0xF9400000, 0x100C4003)
    # Priority 1, ETH_P_IP in network order.
    assert message["info"] == 1 << 16 | 0x0008
    assert options(message).get_attr("TCA_U32_CLASSID") == 0xF9400007
    assert keys_of(data) == [
        (5000 << 16 | 7000, 0xFFFFFFFF, 20),
        (0x0A000001, 0xFFFFFFFF, 12),
        (0x0A000002, 0xFFFFFFFF, 16),
    ]


def test_filter_of_an_ipv6_flow():
    source, destination = (ipaddress.ip_address(f"fd00::{end}").packed for end in (1, 2))
    data = messages.new_filter(4, FLOW._replace(source=source, destination=destination))
    assert decoded(data)["info"] == 2 << 16 | 0xDD86
    assert [offset for _, _, offset in keys_of(data)] == [40, 8, 12, 16, 20, 24, 28, 32, 36]
    # Ports, then twice four words of an address.
    assert [value for value, _, _ in keys_of(data)][1::4] == [0xFD000000, 0xFD000000]
    assert [value for value, _, _ in keys_of(data)][4::4] == [1, 2]


def test_tables_are_entered_by_the_source_port():
    tables = list(messages.hash_tables(4, 0xF9400000))
    assert [options(decoded(each)).get_attr("TCA_U32_DIVISOR") for each in tables] == [256, None, 256, None]
    selector = options(decoded(tables[1])).get_attr("TCA_U32_SEL")
    assert (selector["hoff"], selector["hmask"]) == (20, 0x01FE0000)
    # IPv4 without options, no later fragment, TCP.
    assert keys_of(tables[1]) == [
        (0x45000000, 0xFF000000, 0),
        (0, 0x1FFF, 4),
        (0x00060000, 0x00FF0000, 8),
    ]


@pytest.mark.parametrize(("port", "bucket"), [(0, 0), (1, 0), (2, 1), (511, 255), (512, 0), (65535, 255)])
def test_bucket_is_the_source_port_without_its_lowest_bit(port, bucket):
    assert messages.bucket_of(port) == bucket


def test_attributes_end_with_their_message():
    assert list(messages.attributes_of(b"")) == []
    # A length of 0 must not lead to an endless loop.
    assert len(list(messages.attributes_of(bytes(8)))) == 2


def test_numbered_message_asks_for_an_acknowledgement():
    message = decoded(messages.numbered(messages.deleted_filter(4, FLOW), 17, messages.ACK))
    assert message["header"]["sequence_number"] == 17
    assert message["header"]["flags"] == 0x1 | 0x4
