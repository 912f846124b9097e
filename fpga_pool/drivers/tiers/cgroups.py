"""The control groups of libvirt guests, version 1 or 2, with systemd or without.

A guest has a group that contains groups for its emulator and each vCPU, named `emulator` and `vcpuN` by libvirt.
There may be a group named `libvirt` between these and systemd's scope, which competes with other guests for the CPU.
"""

from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.exceptions import InvalidInput, NotFound, ServiceUnavailable

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")

IDLE_FILE = "cpu.idle"
_EMULATOR, _NESTED = "emulator", "libvirt"
#: libvirt's `cpu_shares` of the background and of the foreground, by version of cgroups.  The background has the
#: minimum, and gets practically nothing beside the foreground.  That has 16 times the default, so that guests that are
#: in no tier yet can still start; with the maximum such a start took minutes.
#: The kernel's minimum in version 2 is 1, which libvirt before 9.1 refuses.
SHARES = {1: (2, 16384), 2: (2, 1600)}
#: File with the CPU time in version 1. Version 2 uses cpu.stat, even if mounted beside version 1 without controllers.
_USAGE_1 = "cpuacct.usage"
_NS_PER_S, _US_PER_S = 1e9, 1e6


@dataclass(frozen=True, slots=True)
class GuestCgroup:
    """The groups of one guest."""

    version: int
    #: The group that competes with other guests for the CPU.
    guest: Path
    #: The group, of either version, below which each vCPU has a group with its CPU accounting.
    accounting: Path

    @property
    def shares(self) -> tuple[int, int]:
        """`cpu_shares` of the background and of the foreground."""
        return SHARES[self.version]

    @property
    def idle_file(self) -> Path:
        """File that states whether the guest runs only when others are idle; absent before Linux 5.15."""
        return self.guest / IDLE_FILE

    @property
    def is_idle(self) -> bool | None:
        """Whether the guest runs only when others are idle; None = the kernel does not support that."""
        try:
            return int(self.idle_file.read_text()) == 1
        except FileNotFoundError:
            return None

    def cpu_time_s(self, vcpu: int | None = None) -> float:
        """Return the CPU time of a vCPU, or of the whole guest, since it started, in seconds."""
        group = self.accounting if vcpu is None else self.accounting / f"vcpu{vcpu}"
        try:
            if (group / _USAGE_1).exists():
                return int((group / _USAGE_1).read_text()) / _NS_PER_S
            lines = (group / "cpu.stat").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("usage_usec ")).split()[1]) / _US_PER_S
        except (OSError, StopIteration, ValueError) as error:
            raise ServiceUnavailable(f"{group}: no CPU accounting: {error}") from error


def foreground_shares() -> int:
    """Return `cpu_shares` of the foreground on this host."""
    return SHARES[2 if (ROOT / "cgroup.controllers").exists() else 1][1]


def of_process(pid: int, root: Path = ROOT, proc: Path = PROC) -> GuestCgroup:
    """Return the groups of the guest that a process emulates. Raises NotFound if there is no such process.

    Raises InvalidInput if libvirt has not created groups for the guest.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise NotFound(f"process {pid}: gone") from error
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    if "cpu" in paths:
        cpu = _emulated(root / "cpu", paths["cpu"])
        if Path(paths.get("cpuacct", "")).name == _EMULATOR:
            return GuestCgroup(1, _competing(cpu), _emulated(root / "cpuacct", paths["cpuacct"]))
        return GuestCgroup(1, _competing(cpu), _emulated(root / "unified", paths.get("", "/")))
    cpu = _emulated(root, paths.get("", "/"))
    return GuestCgroup(2, _competing(cpu), cpu)


def _emulated(root: Path, path: str) -> Path:
    """Return the parent of an emulator's group."""
    group = root / path.lstrip("/")
    if group.name != _EMULATOR:
        raise InvalidInput(
            f"{group}: libvirt does not create a control group per guest; cgroup_controllers of qemu.conf must include "
            "cpu, cpuacct and cpuset"
        )
    return group.parent


def _competing(group: Path) -> Path:
    return group.parent if group.name == _NESTED else group
