"""Makes processes of this machine those of another host, with their own name, network devices and control groups.

The namespaces of network devices and control groups have names, so that they outlive their processes.  What the
processes created is still there when they start again.  A cable of two devices connects the network namespace to this
machine.
"""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from fpga_pool.model.exceptions import ServiceUnavailable
from support.servers.process import find_program

COMMAND_TIMEOUT_S = 120.0
#: Addresses for tests of networks (RFC 2544), which are not used elsewhere.
NETWORK = IPv4Address("198.18.0.0")
#: Number of addresses per host: the network, the two ends of the cable, and broadcast.
ADDRESSES = 4
#: Name of the cable inside the namespace.
CABLE = "cable"

CGROUPS = Path("/sys/fs/cgroup")
#: The hierarchy of version 2 if there is no other.
ALONE = "."
#: Files that must be written in a new control group of `cpuset` before it can have processes.
_CPUSET = ("cpuset.cpus", "cpuset.mems")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHost:
    """One host; `number`, below 32,768, must be unique on this machine."""

    name: str
    number: int
    #: Hierarchies of control groups in which it has its own groups.
    hierarchies: Sequence[str]

    @property
    def label(self) -> str:
        """Name of its network namespace, its control groups, and this machine's end of the cable."""
        return f"fpga-{self.number}"

    @property
    def outer_address(self) -> str:
        """Address of this machine as seen from the host."""
        return str(NETWORK + self.number * ADDRESSES + 1)

    @property
    def address(self) -> str:
        """Address of the host as seen from this machine."""
        return str(NETWORK + self.number * ADDRESSES + 2)

    @property
    def network(self) -> Path:
        """Path of the network namespace."""
        return Path("/run/netns") / self.label

    @property
    def control_groups(self) -> Path:
        """Path of the namespace of control groups."""
        return Path("/run") / f"{self.label}.cgroup"

    def _within(self, hierarchy: str) -> Path:
        """Return the group of its processes other than guests: in version 2, a group has either processes or groups."""
        group = CGROUPS / hierarchy / self.label
        return group / "processes" if hierarchy == ALONE else group

    def make(self) -> None:
        """Create whatever does not exist yet."""
        if not self.network.exists():
            _ip("netns", "add", self.label)
            _ip("link", "add", self.label, "type", "veth", "peer", "name", CABLE, "netns", self.label)
            _ip("address", "add", f"{self.outer_address}/30", "dev", self.label)
            _ip("link", "set", self.label, "up")
            _ip("-netns", self.label, "address", "add", f"{self.address}/30", "dev", CABLE)
            for device in ("lo", CABLE):
                _ip("-netns", self.label, "link", "set", device, "up")
        for hierarchy in self.hierarchies:
            group = CGROUPS / hierarchy / self.label
            group.mkdir(exist_ok=True)
            self._within(hierarchy).mkdir(exist_ok=True)
            for name in _CPUSET if hierarchy == "cpuset" else ():
                (group / name).write_text((CGROUPS / hierarchy / name).read_text())
        if not self.control_groups.exists():
            self.control_groups.touch()
            joins = "".join(f"echo $$ > {CGROUPS / each / self.label}/cgroup.procs && " for each in self.hierarchies)
            _run("sh", "-c", f"{joins}exec unshare --cgroup={self.control_groups} true")

    def remove(self) -> None:
        """Remove everything; its processes must have ended."""
        if self.network.exists():
            _ip("netns", "delete", self.label)
        # The device disappears with the namespace, but a little later.
        with contextlib.suppress(ServiceUnavailable):
            _ip("link", "delete", self.label)
        with contextlib.suppress(ServiceUnavailable):
            _run("umount", str(self.control_groups))
        self.control_groups.unlink(missing_ok=True)
        for hierarchy in self.hierarchies:
            for group, _, _ in os.walk(CGROUPS / hierarchy / self.label, topdown=False):
                with contextlib.suppress(OSError):  # it still has a process
                    Path(group).rmdir()

    def command(self, script: str, directory: Path) -> list[str]:
        """Return the command that runs a shell script on the host, in a mount namespace; the script ends with `exec`.

        `directory` must exist, and must not be used for anything else.
        """
        joins = [f"echo $$ > {self._within(each)}/cgroup.procs" for each in self.hierarchies]
        kept = shlex.quote(str(directory))
        # sysfs shows the devices of the network namespace in which it was mounted.
        mounts = [
            f"mount --rbind {CGROUPS} {kept}",
            "mount -t sysfs sysfs /sys",
            f"mount --rbind {kept} {CGROUPS}",
            *(f"mount --bind {CGROUPS / each / self.label} {CGROUPS / each}" for each in self.hierarchies),
        ]
        inside = shlex.quote(" && ".join([f"hostname {self.name}", *mounts, script]))
        outside = " && ".join([*joins, f"exec nsenter --cgroup={self.control_groups} sh -c {inside}"])
        enter = ["nsenter", f"--net={self.network}", "--"]
        return [*enter, "unshare", "--mount", "--uts", "--propagation=private", "sh", "-c", outside]


def _ip(*words: str) -> None:
    _run(find_program("ip") or "ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    if done.returncode:
        raise ServiceUnavailable(f"{' '.join(words)}: {done.stderr.strip()}")
