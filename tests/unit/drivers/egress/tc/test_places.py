import pytest

from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.tc import places
from fpga_pool.drivers.egress.tc.places import GROUP_FLOWS, GROUPS, Numbers, Places
from fpga_pool.model.exceptions import Conflict, InvalidInput


def flow(source_port=5000, source="10.0.0.1", destination="10.0.0.2"):
    return Flow(
        key=f"f{source_port}",
        source_address=source,
        source_port=source_port,
        destination_address=destination,
        destination_port=7000,
    )


def test_numbers_are_the_lowest_that_are_free():
    numbers = Numbers(4)
    assert [numbers.take() for _ in range(4)] == [1, 2, 3, 4]
    numbers.give_back(3)
    numbers.give_back(2)
    assert [numbers.take() for _ in range(3)] == [2, 3, None]


def test_first_flows_are_in_the_devices_own_queue():
    place = Places().take(flow())
    assert (place.classid, place.group.qdisc) == (0xF9400001, 0xF9400000)
    (only,) = place.filters
    assert (only.parent, only.classid) == (0xF9400000, 0xF9400001)
    # Table 0x100 (IPv4), bucket 5000 / 2 mod 256 = 196 = 0xc4, node 1.
    assert only.handle == 0x100 << 20 | 0xC4 << 12 | 1


def test_flows_beyond_the_first_queue_pass_through_it():
    taken = Places()
    for _ in range(GROUP_FLOWS):
        taken.take(flow())
    place = taken.take(flow())
    assert place.classid == 0xF9410001
    assert [(each.parent, each.classid) for each in place.filters] == [
        (0xF9400000, 0xF9408001),
        (0xF9410000, 0xF9410001),
    ]
    # Its bucket in the first queue already has 1024 filters, that in the second queue none.
    assert [each.node for each in place.filters] == [1025, 1]


def test_every_class_fits_below_those_that_lead_to_queues():
    assert GROUP_FLOWS < places.PASSING_MINOR < 0x8000
    assert 0x8000 + GROUPS <= 0xFFFF
    assert places.MAJOR + GROUPS <= 0xFFFF


def test_place_that_was_given_back_is_taken_again():
    taken = Places()
    first, second = taken.take(flow()), taken.take(flow())
    taken.give_back(first)
    again = taken.take(flow())
    assert again == first
    assert again.filters[0].node != second.filters[0].node


def test_device_that_is_full(monkeypatch):
    monkeypatch.setattr(places, "GROUPS", 1)
    taken = Places()
    for number in range(GROUP_FLOWS):
        taken.take(flow(1 + number))
    with pytest.raises(Conflict, match="1024 flows are open on the device"):
        taken.take(flow())


def test_flow_that_finds_its_bucket_full_keeps_no_number(monkeypatch):
    monkeypatch.setattr(places, "_NODES", 1)
    taken = Places()
    taken.take(flow(5000))
    # Port 5001 has the same bucket as 5000; 5002 has the next one.
    with pytest.raises(Conflict, match="1 flows are open whose source ports share a hash with port 5001"):
        taken.take(flow(5001))
    assert taken.take(flow(5002)).classid == 0xF9400002


def test_addresses_of_ipv6_and_mapped_addresses_of_ipv4():
    taken = Places()
    assert taken.take(flow(source="fd00::1", destination="fd00::2")).filters[0].handle >> 20 == 0x200
    assert taken.take(flow(source="::ffff:10.0.0.1")).filters[0].source == bytes([10, 0, 0, 1])


@pytest.mark.parametrize(
    ("source", "reason"), [("fd00::1", "different IP versions"), ("host-1", "IPv4 or IPv6 address")]
)
def test_addresses_that_do_not_fit(source, reason):
    with pytest.raises(InvalidInput, match=reason):
        Places().take(flow(source=source))
