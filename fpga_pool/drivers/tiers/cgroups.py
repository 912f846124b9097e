"""The control groups that libvirt keeps a guest in, version 1 or 2, with systemd or without.

A guest has a group, with groups for its emulator and each vCPU in it; libvirt names them `emulator` and `vcpuN`.
Between systemd's scope, which competes with other guests for the CPU, and these there may be one named `libvirt`.
"""

from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.exceptions import InvalidInput, NotFound, ServiceUnavailable

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")

IDLE_FILE = "cpu.idle"
_EMULATOR, _NESTED = "emulator", "libvirt"
#: Priority of the background and of the foreground against other guests, as libvirt's `cpu_shares`, by version.  The
#: foreground has sixteen times what a guest has by default: it leaves the background nothing, which has the least there
#: is, but lets a guest start that is not in a tier yet.  With the most that there is, such a start took minutes.
#: The kernel's least of version 2 is 1, which libvirt before 9.1 refuses.
SHARES = {1: (2, 16384), 2: (2, 1600)}
#: The accounting of version 1; version 2 has it in cpu.stat, also where it is beside version 1 without controllers.
_USAGE_1 = "cpuacct.usage"
_NS_PER_S, _US_PER_S = 1e9, 1e6


@dataclass(frozen=True, slots=True)
class GuestCgroup:
    """The groups of one guest."""

    version: int
    #: What competes with other guests for the CPU.
    guest: Path
    #: What has the accounting of each vCPU in groups below it; of either version.
    accounting: Path

    @property
    def shares(self) -> tuple[int, int]:
        """`cpu_shares` of the background and of the foreground."""
        return SHARES[self.version]

    @property
    def idle_file(self) -> Path:
        """File that says whether the guest gets only what others leave idle; absent before Linux 5.15."""
        return self.guest / IDLE_FILE

    @property
    def is_idle(self) -> bool | None:
        """Whether the guest gets only what others leave idle; None = the kernel cannot say so."""
        try:
            return int(self.idle_file.read_text()) == 1
        except FileNotFoundError:
            return None

    def cpu_time_s(self, vcpu: int | None = None) -> float:
        """Return the CPU time of a vCPU, or of all that a guest is, since it started."""
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
    """Return the groups of the guest that a process emulates; NotFound if there is no such process.

    InvalidInput where libvirt keeps it in no groups of its own.
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
    """Return the group around that of an emulator."""
    group = root / path.lstrip("/")
    if group.name != _EMULATOR:
        raise InvalidInput(
            f"{group}: libvirt does not create a control group per guest; cgroup_controllers of qemu.conf must include "
            "cpu, cpuacct and cpuset"
        )
    return group.parent


def _competing(group: Path) -> Path:
    return group.parent if group.name == _NESTED else group
