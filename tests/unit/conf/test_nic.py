import pytest

from fpga_pool.conf.agent import nic_limits_bps
from fpga_pool.model.exceptions import InvalidInput


@pytest.fixture
def devices(tmp_path):
    """Return the kernel's directory of three devices: one of 10 Gbit/s, one with its link down, one without a speed."""
    for name, speed in (("eth0", "10000\n"), ("eth1", "-1\n"), ("br0", None)):
        (tmp_path / "net" / name).mkdir(parents=True)
        if speed is not None:
            (tmp_path / "net" / name / "speed").write_text(speed)
    return tmp_path / "net"


def test_limits_are_those_given(read_conf, devices):
    conf = read_conf("[agent]\negress_mbps = 100\ningress_mbps = 2.5")
    assert nic_limits_bps(conf, devices) == (100e6, 2.5e6)


def test_a_limit_that_is_not_given_is_the_speed_of_the_device(read_conf, devices):
    conf = read_conf("[agent]\nnic = eth0\negress_mbps = 100")
    assert nic_limits_bps(conf, devices) == (100e6, 10e9)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"\[agent\] egress_mbps: set it, or name the network device in \[agent\] nic"),
        ("nic = eth7", r"\[agent\] nic: no network device 'eth7' on this host; available: br0, eth0, eth1"),
        ("nic = eth1", r"\[agent\] egress_mbps: set it, the kernel does not know the speed of eth1"),
        ("nic = br0\negress_mbps = 1", r"\[agent\] ingress_mbps: set it, the kernel does not know the speed of br0"),
    ],
)
def test_a_limit_that_cannot_be_known_is_asked_for(read_conf, devices, text, reason):
    with pytest.raises(InvalidInput, match=reason):
        nic_limits_bps(read_conf(f"[agent]\n{text}"), devices)
