"""How a guest finds its accelerators."""

import pytest

from fpga_pool.guest import accelerator
from fpga_pool.guest.accelerator import NoAccelerator, all_ports, find


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function to build ports, `build({"vport0p1": "name"}, udev=["name"])`, and the directory of udev."""
    named, kernel = tmp_path / "virtio-ports", tmp_path / "class"
    monkeypatch.setattr(accelerator, "NAMED", named)
    monkeypatch.setattr(accelerator, "KERNEL", kernel)

    def build(kernel_names=(), udev=()):
        for device, name in dict(kernel_names).items():
            (kernel / device).mkdir(parents=True)
            (kernel / device / "name").write_text(f"{name}\n")
        named.mkdir()
        for name in udev:
            (named / name).touch()

    return build, named


def test_ports_are_found_by_the_names_that_udev_gives_and_in_order(machine):
    build, named = machine
    build(udev=["org.fpga_pool.10", "org.fpga_pool.2", "org.qemu.guest_agent.0", "org.fpga_pool.x"])
    assert all_ports() == [(2, str(named / "org.fpga_pool.2")), (10, str(named / "org.fpga_pool.10"))]


def test_ports_are_found_without_udev(machine):
    build, _ = machine
    build({"vport0p1": "org.qemu.guest_agent.0", "vport0p2": "org.fpga_pool.0"})
    assert find(0) == "/dev/vport0p2"


def test_a_port_that_is_not_there_is_told_with_those_that_are(machine):
    build, _ = machine
    build({"vport0p1": "org.fpga_pool.0", "vport0p2": "org.fpga_pool.1"})
    with pytest.raises(NoAccelerator, match="no accelerator 7; available: 0, 1"):
        find(7)


def test_a_machine_without_accelerators_is_told_what_to_look_at(machine):
    build, _ = machine
    build()
    with pytest.raises(NoAccelerator, match="fpga_pool:function"):
        find()
