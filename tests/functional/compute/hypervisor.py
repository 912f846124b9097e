"""A separate libvirtd, in a mount namespace with private copies of all its directories."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import fpga_pool
from support.servers.process import dies_with_us

START_S = 180.0
ETC = Path(fpga_pool.__file__).parents[1] / "etc" / "fpga_pool"
HOOK, DROP_IN = ETC / "libvirt-qemu-hook", ETC / "fpga-pool-agent.guests.conf"

#: Directories of libvirt that are private in the namespace, and their names outside of it.
PLACES = {"/etc/libvirt": "etc", "/run": "run", "/var/lib/libvirt": "lib", "/var/log/libvirt": "log", "/var/cache/libvirt": "cache"}  # fmt: skip  # noqa: E501

#: Usually guests are unprivileged processes; here everything belongs to root, without confinement.
QEMU_CONF = """
user = "root"
group = "root"
namespaces = []
stdio_handler = "file"
security_driver = "none"
cgroup_controllers = {controllers}
dynamic_ownership = 0
remember_owner = 0
"""

DOMAIN = """
<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <metadata>
    {metadata}
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:flavor name="fpga"><nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>
      <nova:owner><nova:project uuid="p1">demo</nova:project></nova:owner>
    </nova:instance>
  </metadata>
  <memory unit='MiB'>256</memory>
  <vcpu>{vcpus}</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>console=ttyS0 panic=-1 quiet {cmdline}</cmdline>
  </os>
  <features><acpi/></features>
  <on_poweroff>destroy</on_poweroff>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    {devices}
    <serial type='file'><source path='{console}'/></serial>
  </devices>
</domain>
"""


def missing() -> str:
    """Return what this machine lacks to run a libvirtd; "" if nothing."""
    if os.getuid() != 0:
        return "only root can run a libvirtd of its own"
    programs = ("libvirtd", "qemu-system-x86_64", "unshare", "nsenter", "busybox", "ldd")
    lacking = [name for name in programs if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def as_installed() -> list[str]:
    """Return the command prefix that limits an agent to the root capabilities listed in its systemd drop-in."""
    left = re.findall(r"^CapabilityBoundingSet=CAP_(\w+)$", DROP_IN.read_text(), re.MULTILINE)
    return ["setpriv", f"--bounding-set=-all,{','.join(f'+{name.lower()}' for name in left)}", "--"]


class Hypervisor:
    """One libvirtd."""

    def __init__(self, directory: Path, cgroup_controllers: Sequence[str] = ()) -> None:
        self.directory = directory
        self._controllers = cgroup_controllers
        self._process: subprocess.Popen | None = None

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.directory}/sock/libvirt-sock"

    @property
    def enter(self) -> list[str]:
        """Command prefix of a process that has to run in the mount namespace of libvirtd."""
        return ["nsenter", f"--mount=/proc/{self._process.pid}/ns/mnt", "--"]

    def start(self, hook_socket: Path) -> None:
        for name in (*PLACES.values(), "sock"):
            (self.directory / name).mkdir(exist_ok=True)
        etc = self.directory / "etc"
        hooks = etc / "hooks" / "qemu.d"
        hooks.mkdir(parents=True, exist_ok=True)
        shutil.copy2(HOOK, hooks / "fpga_pool")
        (etc / "hooks" / "fpga_pool.conf").write_text(f"[hook]\nsocket = {hook_socket}\ntimeout_s = 40\n")
        controllers = json.dumps(list(self._controllers))
        (etc / "qemu.conf").write_text(QEMU_CONF.format(controllers=controllers))
        (etc / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{self.directory}/sock"\nunix_sock_rw_perms = "0700"\nauth_unix_rw = "none"\n'
            f'auth_unix_ro = "none"\nlog_outputs = "3:file:{self.directory}/libvirtd.log"\n'
        )
        mounts = " && ".join(f"mount --bind {self.directory / name} {place}" for place, name in PLACES.items())
        self._process = subprocess.Popen(
            dies_with_us(
                ["unshare", "--mount", "--propagation=private", "sh", "-c",
                 f"{mounts} && exec libvirtd -f /etc/libvirt/libvirtd.conf -p {self.directory}/pid"]
            ),
            env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until_s = time.monotonic() + START_S
        while not (self.directory / "sock" / "libvirt-sock").exists():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"libvirtd does not start: {self.log()}")
            time.sleep(0.1)

    def log(self) -> str:
        log = self.directory / "libvirtd.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def close(self) -> None:
        """Stop libvirtd, and kill remaining guests."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            self._process.kill()
            self._process.wait(60)
        for file in (self.directory / "run" / "libvirt" / "qemu").glob("*.pid"):
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
