"""Guests for the tests of tier drivers: real ones of libvirt, and simulated ones in files, with a common interface."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.drivers.tiers.simulated import SimulatedTiers

from . import hypervisor as hypervisors

CONTROLLERS = ("cpu", "cpuacct", "cpuset")


def _specs(specs):
    return "".join(f"<nova:extraSpec name='{name}'>{value}</nova:extraSpec>" for name, value in specs.items())


@dataclass
class SimulatedMachines:
    """Simulated guests."""

    directory: Path

    def new_driver(self):
        return SimulatedTiers(self.directory, host_pcpus=2)

    def start(self, specs, *, vcpus=1, own_wish="", pins="", duty=5):
        instance = str(uuid.uuid4())
        specs = specs | {"fpga_pool:cpu_usage": str(duty)}
        text = hypervisors.DOMAIN.format(
            name=f"guest-{instance[:8]}", uuid=instance, specs=_specs(specs), kernel="", initrd="", console="",
            devices="", vcpus=vcpus, cmdline="", metadata=wish(own_wish) if own_wish else "",
        )  # fmt: skip
        text = text.replace("</vcpu>", f"</vcpu>{pins}")
        (self.directory / f"{instance}.xml").write_text(text)
        return instance

    def stop(self, instance):
        (self.directory / f"{instance}.xml").unlink()

    def seen(self, instance):
        """Return the changes to a guest, as seen without the driver."""
        kept = self.directory / f"{instance}.tier"
        return [word for word in ("foreground", "background") if kept.exists() and word in kept.read_text()]

    def close(self):
        """Do nothing, as nothing runs."""


class LibvirtMachines:
    """Real guests."""

    def __init__(self, hypervisor, connection, kernel, initrd, directory):
        self.hypervisor, self._connection, self._kernel, self._initrd = hypervisor, connection, kernel, initrd
        self._directory = directory
        self.domains = {}
        self._texts = {}

    def new_driver(self):
        return LibvirtTiers(self.hypervisor.uri, self.hypervisor.directory / "run" / "libvirt" / "qemu")

    def start(self, specs, *, vcpus=1, own_wish="", pins="", duty=5):
        instance = str(uuid.uuid4())
        text = hypervisors.DOMAIN.format(
            name=f"tier-{instance[:8]}", uuid=instance, specs=_specs(specs), kernel=self._kernel, initrd=self._initrd,
            console=self.console(instance), devices="", vcpus=vcpus, cmdline=f"duty={duty}",
            metadata=wish(own_wish) if own_wish else "",
        )  # fmt: skip
        text = text.replace("</vcpu>", f"</vcpu>{pins}").replace("<memory unit='MiB'>256", "<memory unit='MiB'>128")
        self.domains[instance] = self._connection.createXML(text)
        self._texts[instance] = text
        return instance

    def reboot(self, instance):
        """Hard-reboot a machine as Nova does: destroy it, and create it from its original description."""
        self.domains[instance].destroy()
        self.domains[instance] = self._connection.createXML(self._texts[instance])

    def console(self, instance):
        return self._directory / f"console-{instance}"

    def is_up(self, instance):
        file = self.console(instance)
        return file.exists() and "guest: up" in file.read_text(errors="replace")

    def stop(self, instance):
        self.domains.pop(instance).destroy()

    def seen(self, instance):
        """Return the changes to a guest, as seen without the driver."""
        domain = self.domains[instance]
        shares = domain.schedulerParametersFlags(0)["cpu_shares"]
        return [shares, domain.vcpuPinInfo(0), domain.emulatorPinInfo(0), "placed" in domain.XMLDesc()]

    def close(self):
        """Destroy all concurrently, as a background guest needs CPU time to end, which its foreground may use."""
        with ThreadPoolExecutor() as threads:
            for domain in self.domains.values():
                threads.submit(domain.destroy)  # fails if the guest has ended already
        self.domains.clear()
