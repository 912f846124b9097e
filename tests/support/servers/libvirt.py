"""A libvirtd with private files: it and the processes started in its namespaces form a compute host on this machine.

The paths of libvirtd's files are compiled in.  A mount namespace puts private directories there, so that a libvirtd of
this machine and its guests are not touched, and hooks are installed where an operator installs them.

A libvirtd with its own name is another host for libvirt, to and from which guests can migrate.  It has its own UUID,
and its own control groups and network devices, also in namespaces.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from fpga_pool.model.exceptions import ServiceUnavailable
from support.servers.own_host import ALONE, CGROUPS, OwnHost
from support.servers.server import Server

#: Private directories by the path at which the host sees them.
PLACES: Mapping[str, str] = {
    "/etc/libvirt": "etc",
    "/var/lib/libvirt": "lib",
    "/run/libvirt": "run",
    "/var/cache/libvirt": "cache",
    "/var/log/libvirt": "logs",
    "/etc/fpga_pool": "etc-pool",
    "/run/fpga_pool": "run-pool",
    # When guests migrate, their disks must have the same path on all hosts.
    "/var/lib/nova": "nova",
}

#: Mount point of version 2 of control groups beside version 1.
UNIFIED = "unified"
#: The controllers that the tiers of guests need; in version 1 each has its own directory.
CONTROLLERS = ("cpu", "cpuacct", "cpuset")

#: Guests run as root, and are logged without another daemon, so this also works inside a container.
QEMU = """\
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = {controllers}
"""
#: Guests do not migrate between hosts with the same UUID; the UUID of this machine may not be unique.
LIBVIRTD = """\
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "{uuid}"
"""


class Libvirt(Server):
    """A libvirtd for emulated guests; only root can start it.

    With `own_name`, this is the host name, and it is another host than this machine, see OwnHost.
    """

    name = "libvirt"
    package = "libvirt-daemon-system"
    package_user = "root"
    programs = ("libvirtd", "virsh", "qemu-system-x86_64", "unshare", "nsenter", "ip", "hostname")

    def __init__(self, directory: Path, own_name: str = "") -> None:
        super().__init__(directory / own_name)
        self._own_name = own_name

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or ("libvirt needs root" if os.geteuid() else None)

    @staticmethod
    def control_groups() -> tuple[str, ...]:
        """Return the controllers for guests: all that tiers need, or none if one of them is not available."""
        alone = CGROUPS / "cgroup.subtree_control"
        if not alone.exists():
            return CONTROLLERS if all(os.access(CGROUPS / name, os.W_OK) for name in CONTROLLERS) else ()
        try:
            alone.write_text("+cpu +cpuset")  # groups of version 2 always have the accounting
        except OSError:  # root may not write here, or, in a container, the group itself has processes
            return ()
        return CONTROLLERS

    @property
    def url(self) -> str:
        """URL for clients inside the namespaces."""
        return "qemu:///system"

    @property
    def entrance(self) -> list[str]:
        """The words before a command that make it enter the namespaces of libvirtd."""
        spaces = {"mount": "mnt", "uts": "uts", "cgroup": "cgroup"}
        return ["nsenter", *(f"--{word}=/proc/{self._process.pid}/ns/{name}" for word, name in spaces.items()), "--"]

    @property
    def own_host(self) -> OwnHost | None:
        """The separate host on which it runs; None if it runs on this machine itself."""
        if not self._own_name:
            return None
        hierarchies = list(self.control_groups())
        if hierarchies and (CGROUPS / "cgroup.controllers").exists():
            hierarchies = [ALONE]
        elif hierarchies and (CGROUPS / UNIFIED).is_dir():  # libvirt also uses it, besides those of version 1
            hierarchies.append(UNIFIED)
        return OwnHost(name=self._own_name, number=self.port, hierarchies=hierarchies)

    @property
    def socket(self) -> Path:
        """The socket of libvirtd, reachable from all namespaces of this machine."""
        return self.directory / PLACES["/run/libvirt"] / "libvirt-sock"

    @property
    def host_name(self) -> str:
        """libvirt's name of this host."""
        return self._virsh("hostname").strip()

    def install_hook(self, hook: Path, name: str) -> None:
        """Install a hook for guests that start and end, unless it is already installed."""
        installed = self.directory / "etc" / "hooks" / "qemu.d" / name
        if installed.exists():
            return
        installed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(hook, installed)
        installed.chmod(0o755)
        self.restart()  # it looks for hooks when it starts

    def restart(self) -> None:
        """Restart libvirtd so that it outlives this process; its guests keep running."""
        super().stop()
        self.start(keep=True)

    def stop(self) -> None:
        """End the guests, then libvirtd."""
        if self.running:
            with contextlib.suppress(ServiceUnavailable):
                for guest in self._virsh("list", "--name").split():
                    self._virsh("destroy", guest)
        super().stop()
        if (self.directory / "complete").exists() and (own := self.own_host):
            own.remove()

    def _initialise(self) -> None:
        for name in (*PLACES.values(), "cgroups"):
            (self.directory / name).mkdir()
        (self.directory / PLACES["/var/lib/nova"] / "instances").mkdir()
        self._write("etc/qemu.conf", QEMU.format(controllers=json.dumps(self.control_groups())))
        self._write("etc/libvirtd.conf", LIBVIRTD.format(uuid=uuid.uuid4()))

    def _launch(self, keep: bool) -> None:
        mounts = []
        for place, name in PLACES.items():
            mounts.append(f"mkdir -p {place} && mount --bind '{self.directory / name}' {place}")
        script = " && ".join([*mounts, "exec libvirtd --pid-file /run/libvirt/libvirtd.pid"])
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
        if own := self.own_host:
            own.make()
            command = own.command(script, self.directory / "cgroups")
        self._spawn(self._process, command, keep)

    def _answers(self) -> bool:
        with contextlib.suppress(ServiceUnavailable):
            return bool(self._virsh("version"))
        return False

    def _virsh(self, *words: str) -> str:
        return self._run([*self.entrance, "virsh", f"--connect={self.url}", *words])
