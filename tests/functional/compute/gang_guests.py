"""Processes of gangs as real guests: their image, their hosts, and their state as seen without the agent."""

import contextlib
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import libvirt
from oslo_config import cfg

from fpga_pool.conf import agent, drivers
from fpga_pool.drivers.runners.domain import ProcessDomain
from fpga_pool.drivers.runners.libvirt import LibvirtRunner
from fpga_pool.drivers.tiers.domain import PROCESS_URI
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from support import guest_image

MEMORY_MIB = 96


def build_image(kernel, directory):
    """Build an image as an operator does; return the directory of images."""
    image = directory / "images" / "default"
    image.mkdir(parents=True)
    shutil.copy2(kernel, image / "kernel")
    shutil.copy2(guest_image.build_counting(directory), image / "initrd")
    # On a busy machine an emulated timer may be too late for the kernel's check of it, which ends in a panic.
    (image / "cmdline").write_text("console=ttyS0 quiet panic=-1 no_timer_check\n")
    return image.parent


@dataclass
class Shared:
    """The directories that hosts share."""

    images: Path
    directory: Path

    def __post_init__(self):
        for place in (self.saved, self.consoles):
            place.mkdir(parents=True, exist_ok=True)

    @property
    def saved(self):
        return self.directory / "saved"

    @property
    def consoles(self):
        return self.directory / "consoles"

    @property
    def options(self):
        """Options of [runner_libvirt] on all hosts."""
        return {
            "images": self.images,
            "saved": self.saved,
            "consoles": self.consoles,
            "memory_mib": MEMORY_MIB,
            "virt_type": "qemu",
        }

    def text(self, gang, index=0):
        file = self.consoles / f"{gang}.{index}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def births(self, gang, index=0):
        """Return the id of each boot of a process."""
        return re.findall(r"^born ([0-9a-f-]{36})", self.text(gang, index), re.MULTILINE)

    def counted(self, gang, index=0):
        """Return the numbers that a process has counted, as (id of the boot, number)."""
        found = re.findall(r"^counted ([0-9a-f-]{36}) (\d+)\r?$", self.text(gang, index), re.MULTILINE)
        return [(born, int(number)) for born, number in found]

    def done(self, gang, index=0):
        return re.findall(r"^done ([0-9a-f-]{36})", self.text(gang, index), re.MULTILINE)

    def memories(self):
        return sorted(path.name for path in self.saved.iterdir())


def domains(connection):
    """Return all domains of a hypervisor, also those of others, by name."""
    return {domain.name(): domain for domain in connection.listAllDomains()}


class GangHost:
    """One host, as seen without its agent."""

    def __init__(self, hypervisor, shared):
        self.hypervisor, self.shared = hypervisor, shared

    @property
    def connection(self):
        """A new connection each time, as this program does not answer libvirtd's keepalive messages on old ones."""
        return libvirt.open(self.hypervisor.uri)

    @property
    def pids(self):
        return self.hypervisor.directory / "run" / "libvirt" / "qemu"

    def new_runner(self, clock=time.time):
        """Return a runner as an agent that has just started has it."""
        conf = cfg.ConfigOpts()
        for group, options in (
            (agent.GROUP, agent.OPTS),
            (drivers.RUNNER_LIBVIRT_GROUP, drivers.RUNNER_LIBVIRT_OPTS),
            (drivers.TIERS_GROUP, drivers.TIERS_OPTS),
        ):
            conf.register_opts(options, group=group)
        conf([], project="test", default_config_files=[], default_config_dirs=[])
        for group, options in {
            "agent": {"libvirt_uri": self.hypervisor.uri},
            "tiers": {"libvirt_pid_dir": self.pids},
            "runner_libvirt": self.shared.options,
        }.items():
            for name, value in options.items():
                conf.set_override(name, value if isinstance(value, int) else str(value), group=group)
        return LibvirtRunner.from_conf(conf, self.shared.directory, clock)

    def new_tiers(self, *, of_gangs=False):
        return LibvirtTiers(self.hypervisor.uri, self.pids, of_gangs=of_gangs)

    def domain(self, key):
        """Return the domain of a process, found by its metadata."""
        for domain in self.connection.listAllDomains():
            with contextlib.suppress(libvirt.libvirtError):
                said = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, PROCESS_URI, 0)
                if ProcessDomain.from_element(said).key == key:
                    return domain
        raise KeyError(key)

    def uuid(self, key):
        return self.domain(key).UUIDString()

    def tier(self, key):
        """Return tier and pCPUs of a process, as the hypervisor reports them."""
        with contextlib.closing(self.new_tiers(of_gangs=True)) as driver:
            found = {guest.instance: (guest.tier, guest.pcpus) for guest in driver.guests()}
        return found[self.uuid(key)]

    def kill_guest(self, key):
        """Kill a guest as the kernel does when memory runs out."""
        os.kill(int((self.pids / f"{self.domain(key).name()}.pid").read_text()), signal.SIGKILL)

    def close(self):
        for domain in domains(self.connection).values():
            with contextlib.suppress(Exception):
                domain.destroy()
            with contextlib.suppress(Exception):
                domain.undefine()
