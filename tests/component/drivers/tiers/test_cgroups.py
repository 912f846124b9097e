"""Control groups of guests, as made by libvirt on different kinds of hosts."""

import pytest

from fpga_pool.drivers.tiers import cgroups
from fpga_pool.model.exceptions import InvalidInput, NotFound

SCOPE = "machine.slice/machine-qemu\\x2d1\\x2dguest.scope"


@pytest.fixture
def host(tmp_path):
    """Return a function that describes a host: the groups of process 7, and files below /sys/fs/cgroup."""

    def make(lines, files):
        (tmp_path / "proc" / "7").mkdir(parents=True)
        (tmp_path / "proc" / "7" / "cgroup").write_text("".join(f"{line}\n" for line in lines))
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return lambda: cgroups.of_process(7, tmp_path / "cgroup", tmp_path / "proc")

    return make


def test_version_2_with_systemd(host, tmp_path):
    read = host(
        [f"0::/{SCOPE}/libvirt/emulator"],
        {f"{SCOPE}/cpu.idle": "1\n", f"{SCOPE}/libvirt/vcpu1/cpu.stat": "usage_usec 2500000\nuser_usec 1\n"},
    )
    group = read()
    # Guests compete as scopes. The group that libvirt makes below a scope has no siblings.
    assert (group.version, group.guest) == (2, tmp_path / "cgroup" / SCOPE)
    assert group.shares == (2, 1600)
    assert group.is_idle
    assert group.cpu_time_s(1) == 2.5


def test_version_1_with_cpu_and_cpuacct_in_one(host, tmp_path):
    path = "machine/qemu-1-guest.libvirt-qemu"
    read = host(
        [f"4:cpu,cpuacct:/{path}/emulator", f"3:cpuset:/{path}/emulator", "0::/init.scope"],
        {f"cpu/{path}/cpu.idle": "0\n", f"cpuacct/{path}/vcpu0/cpuacct.usage": "1500000000\n"},
    )
    group = read()
    assert (group.version, group.guest) == (1, tmp_path / "cgroup" / "cpu" / path)
    assert group.shares == (2, 16384)
    assert group.is_idle is False
    assert group.cpu_time_s(0) == 1.5


def test_version_1_for_the_cpu_with_the_accounting_of_version_2_beside_it(host):
    path = "machine/qemu-1-guest.libvirt-qemu"
    read = host(
        ["2:cpuacct:/", f"1:cpu:/{path}/emulator", f"0::/{path}/emulator"],
        {f"unified/{path}/vcpu0/cpu.stat": "usage_usec 1000000\n"},
    )
    assert read().version == 1
    assert read().cpu_time_s(0) == 1.0


def test_a_kernel_without_cpu_idle_is_told_from_a_guest_that_is_not_idle(host):
    assert host([f"0::/{SCOPE}/libvirt/emulator"], {})().is_idle is None


def test_a_guest_without_groups_of_its_own_is_refused(host):
    with pytest.raises(InvalidInput, match="cgroup_controllers"):
        host(["0::/system.slice/libvirtd.service"], {})()


def test_a_process_that_is_gone_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        cgroups.of_process(8, tmp_path, tmp_path)
