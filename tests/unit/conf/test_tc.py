import pytest

from fpga_pool.conf.drivers import shaped_devices
from fpga_pool.model.exceptions import InvalidInput


def test_each_network_has_its_device(read_conf):
    text = "[driver_tc]\ndevices = eth0=192.0.2.0/24, eth1=2001:db8::/64"
    assert shaped_devices(read_conf(text)) == {"192.0.2.0/24": "eth0", "2001:db8::/64": "eth1"}


def test_a_host_with_guests_needs_no_devices(read_conf):
    assert shaped_devices(read_conf("[agent]\nguest_driver = libvirt")) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"\[driver_tc\] devices: required by"),
        ("devices = eth0", r"devices: 'eth0' is not DEVICE=NETWORK"),
        ("devices = eth0=10.0.0.7/24", r"devices: 'eth0=10.0.0.7/24' is not DEVICE=NETWORK: .* has host bits set"),
        ("devices = eth0=10.0.0.0/8, eth1=10.0.0.0/8", r"devices: 10.0.0.0/8 is already assigned to device eth0"),
    ],
)
def test_a_wrong_entry_is_named(read_conf, text, reason):
    with pytest.raises(InvalidInput, match=reason):
        shaped_devices(read_conf(f"[driver_tc]\n{text}"))
