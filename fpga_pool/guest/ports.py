"""The ports of this machine that are accelerators."""

from pathlib import Path
from typing import Dict, List, Tuple

from fpga_pool.guest.frames import PORT_PREFIX

#: Where udev names the ports, and where the kernel does when there is no udev.
NAMED = Path("/dev/virtio-ports")
KERNEL = Path("/sys/class/virtio-ports")
DEVICES = Path("/dev")


class NoAccelerator(Exception):
    """There is no accelerator (of that number)."""


def all_ports(named: Path = NAMED, kernel: Path = KERNEL, devices: Path = DEVICES) -> "List[Tuple[int, str]]":
    """Return number and device of every accelerator, in order."""
    found: "Dict[str, Path]" = {}
    for entry in _entries(kernel):
        try:
            found[(entry / "name").read_text().strip()] = devices / entry.name
        except OSError:  # it went away, or is a console without a name
            continue
    found.update((entry.name, entry) for entry in _entries(named))
    numbers = {name[len(PORT_PREFIX) :]: path for name, path in found.items() if name.startswith(PORT_PREFIX)}
    return sorted((int(number), str(path)) for number, path in numbers.items() if number.isdigit())


def find(number: int = 0) -> str:
    """Return the device of one accelerator; NoAccelerator says which there are."""
    ports = dict(all_ports())
    if number in ports:
        return ports[number]
    if ports:
        raise NoAccelerator(
            "no accelerator {}; there are {}".format(number, ", ".join(str(known) for known in sorted(ports)))
        )
    raise NoAccelerator(
        "no accelerator: no port {}* in {} or {}; check that the machine's flavor has fpga_pool:function and that the "
        "kernel module virtio_console is loaded".format(PORT_PREFIX, NAMED, KERNEL)
    )


def _entries(directory: Path) -> "List[Path]":
    try:
        return list(directory.iterdir())
    except OSError:
        return []
