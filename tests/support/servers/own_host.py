"""What makes processes of this machine those of another host: a name, network devices and control groups of their own.

The namespaces of network devices and control groups have names, so that they outlive their processes: what these have
made is there when they start again.  A cable of two devices leads to the network namespace from this machine.
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
#: Addresses for tests of networks (RFC 2544): nobody has them.
NETWORK = IPv4Address("198.18.0.0")
#: Of each host: that of its network, one for each end of the cable, and that of all.
ADDRESSES = 4
#: What the cable is called inside.
CABLE = "cable"

CGROUPS = Path("/sys/fs/cgroup")
#: The hierarchy of version 2 where there is no other.
ALONE = "."
#: What a new control group of `cpuset` has to be told before anybody can be in it.
_CPUSET = ("cpuset.cpus", "cpuset.mems")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHost:
    """One host; `number`, below 32,768, is nobody else's on this machine."""

    name: str
    number: int
    #: Those of control groups in which it has groups of its own.
    hierarchies: Sequence[str]

    @property
    def label(self) -> str:
        """What its network namespace, its control groups, and this machine's end of the cable are called."""
        return f"fpga-{self.number}"

    @property
    def outer_address(self) -> str:
        """Where this machine is for those inside."""
        return str(NETWORK + self.number * ADDRESSES + 1)

    @property
    def address(self) -> str:
        """Where those inside are for this machine."""
        return str(NETWORK + self.number * ADDRESSES + 2)

    @property
    def network(self) -> Path:
        """The network namespace."""
        return Path("/run/netns") / self.label

    @property
    def control_groups(self) -> Path:
        """The namespace of control groups."""
        return Path("/run") / f"{self.label}.cgroup"

    def _within(self, hierarchy: str) -> Path:
        """Return the group of its processes that are no guests: a group of version 2 has processes or groups."""
        group = CGROUPS / hierarchy / self.label
        return group / "processes" if hierarchy == ALONE else group

    def make(self) -> None:
        """Make what is not there yet."""
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
        """Remove all of it; its processes have ended."""
        if self.network.exists():
            _ip("netns", "delete", self.label)
        # The device goes with the namespace, a little later.
        with contextlib.suppress(ServiceUnavailable):
            _ip("link", "delete", self.label)
        with contextlib.suppress(ServiceUnavailable):
            _run("umount", str(self.control_groups))
        self.control_groups.unlink(missing_ok=True)
        for hierarchy in self.hierarchies:
            for group, _, _ in os.walk(CGROUPS / hierarchy / self.label, topdown=False):
                with contextlib.suppress(OSError):  # somebody is left in it
                    Path(group).rmdir()

    def command(self, script: str, directory: Path) -> list[str]:
        """Return the command that runs a script of the shell there, which ends with `exec`, in a mount namespace.

        `directory` is any that is there and not used.
        """
        joins = [f"echo $$ > {self._within(each)}/cgroup.procs" for each in self.hierarchies]
        kept = shlex.quote(str(directory))
        # The devices in /sys are those of the namespace in which it is mounted.
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
