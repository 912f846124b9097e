"""Guests and devices that end while a driver inspects them."""

import logging

import pytest

from fpga_pool.drivers.egress.tc import netlink
from fpga_pool.model.exceptions import InvalidInput, NotFound


@pytest.mark.parametrize(("error", "warnings"), [(NotFound("no domain"), 0), (InvalidInput("no description"), 1)])
def test_a_guest_that_has_just_ended_is_not_worth_a_warning(error, warnings, caplog, monkeypatch):
    pytest.importorskip("libvirt")
    from fpga_pool.drivers.guests.libvirt import LibvirtGuests

    def call(look):
        raise error

    guests = LibvirtGuests("test:///default")
    monkeypatch.setattr(guests._libvirt, "active", lambda: [object()])
    monkeypatch.setattr(guests._libvirt, "call", call)
    assert guests.running() == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warnings


def test_a_device_that_is_gone_is_named_with_the_reason():
    with pytest.raises(NotFound, match="no network device gone0 on this host: no interface with this name"):
        netlink.alias("gone0")
