"""A compute host of its own kind on this machine: libvirtd, and what is started beside it, see private files.

libvirtd has the places of its files built in.  A mount namespace puts directories of ours there, so neither a libvirtd
of the machine nor its guests are touched, and hooks can be installed where an operator installs them.

One that is given a name of its own is another host to libvirt, to and from which guests migrate: it has a UUID, and
control groups and network devices of its own, in namespaces too.
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

#: Our directories by the place where the host sees them.
PLACES: Mapping[str, str] = {
    "/etc/libvirt": "etc",
    "/var/lib/libvirt": "lib",
    "/run/libvirt": "run",
    "/var/cache/libvirt": "cache",
    "/var/log/libvirt": "logs",
    "/etc/fpga_pool": "etc-pool",
    "/run/fpga_pool": "run-pool",
    # Where guests migrate their disks are in the same place on all hosts.
    "/var/lib/nova": "nova",
}

#: Where version 2 is mounted beside version 1.
UNIFIED = "unified"
#: The controllers of version 1 that tiers of guests need, each a directory of its own.
CONTROLLERS = ("cpu", "cpuacct", "cpuset")

#: Guests run as root, logged without another daemon: it works inside a container, too.
QEMU = """\
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = {controllers}
"""
#: Guests do not migrate between hosts that have the same UUID; that of this machine may not be its own.
LIBVIRTD = """\
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "{uuid}"
"""


class Libvirt(Server):
    """A libvirtd for emulated guests; only root can start it.

    With `own_name` it is called so, and is another host than this machine, see OwnHost.
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
        """Return the controllers that guests are put under: all that tiers need, or none where one is not to be had."""
        alone = CGROUPS / "cgroup.subtree_control"
        if not alone.exists():
            return CONTROLLERS if all(os.access(CGROUPS / name, os.W_OK) for name in CONTROLLERS) else ()
        try:
            alone.write_text("+cpu +cpuset")  # groups of version 2 always have the accounting
        except OSError:  # it is not root's, or, in a container, the group of its processes
            return ()
        return CONTROLLERS

    @property
    def url(self) -> str:
        """What those inside connect to."""
        return "qemu:///system"

    @property
    def entrance(self) -> list[str]:
        """The words before a command that make it see what libvirtd sees."""
        spaces = {"mount": "mnt", "uts": "uts", "cgroup": "cgroup"}
        return ["nsenter", *(f"--{word}=/proc/{self._process.pid}/ns/{name}" for word, name in spaces.items()), "--"]

    @property
    def own_host(self) -> OwnHost | None:
        """What makes it another host; None = it is this machine."""
        if not self._own_name:
            return None
        hierarchies = list(self.control_groups())
        if hierarchies and (CGROUPS / "cgroup.controllers").exists():
            hierarchies = [ALONE]
        elif hierarchies and (CGROUPS / UNIFIED).is_dir():  # libvirt uses it beside those of version 1, too
            hierarchies.append(UNIFIED)
        return OwnHost(name=self._own_name, number=self.port, hierarchies=hierarchies)

    @property
    def socket(self) -> Path:
        """Where it is reached from everywhere on this machine."""
        return self.directory / PLACES["/run/libvirt"] / "libvirt-sock"

    @property
    def host_name(self) -> str:
        """What libvirt calls this machine."""
        return self._virsh("hostname").strip()

    def install_hook(self, hook: Path, name: str) -> None:
        """Have libvirt ask a program about guests that start and end, unless it does already."""
        installed = self.directory / "etc" / "hooks" / "qemu.d" / name
        if installed.exists():
            return
        installed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(hook, installed)
        installed.chmod(0o755)
        self.restart()  # it looks for hooks when it starts

    def restart(self) -> None:
        """End libvirtd and start it again to outlive this process; guests run on."""
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
