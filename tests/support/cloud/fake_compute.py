"""A nova-compute with simulated guests, whose slots are those of the pool, for clouds on one machine.

    python -m support.cloud.fake_compute HOOK_SOCKET GUESTS_DIRECTORY --config-file nova.conf ...

It extends Nova's fake driver: it asks the agent as libvirt's hook does, and describes its machines to the agent's
simulated guest driver.  [DEFAULT] compute_driver must be fake.AcceleratedFakeDriver.
"""

import json
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nova import exception
from nova.cmd import compute
from nova.virt import fake
from nova.virt.libvirt import config as libvirt_config

from fpga_pool.model.flavor import asks_the_pool

#: Time for an answer, longer than an agent lets a machine wait for its slots.
ASK_S = 90.0


class AcceleratedFakeDriver(fake.FakeDriver):
    """Nova's fake driver on a host with an agent of the pool."""

    hook_socket: Path
    guests: Path

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        """Return the names of the nodes by uuids that survive a restart, unlike those of Nova's fake driver."""
        return {_node_uuid(name): name for name in self.get_available_nodes(refresh)}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """Return the resources of a node, with the same uuid."""
        found: dict[str, Any] = super().get_available_resource(nodename)
        return found and found | {"uuid": _node_uuid(nodename)}

    def spawn(self, context: Any, instance: Any, *others: Any, **more: Any) -> None:
        """Start a machine once its slots are ready; the error that is raised otherwise makes Nova try another host."""
        self._begin(instance)
        super().spawn(context, instance, *others, **more)

    def power_on(self, context: Any, instance: Any, *others: Any, **more: Any) -> None:
        """Start a machine once its slots are ready."""
        self._begin(instance)
        super().power_on(context, instance, *others, **more)

    def power_off(self, instance: Any, *others: Any, **more: Any) -> None:
        """Stop a machine, and release its slots."""
        super().power_off(instance, *others, **more)
        self._end(instance)

    def destroy(self, context: Any, instance: Any, *others: Any, **more: Any) -> None:
        """Destroy a machine, and release its slots."""
        super().destroy(context, instance, *others, **more)
        self._end(instance)

    def _begin(self, instance: Any) -> None:
        if not asks_the_pool(instance.flavor.extra_specs):
            return
        described = describe(instance)
        if refused := self._ask("prepare", described):
            raise exception.ComputeResourcesUnavailable(reason=refused)
        file = self._file(instance)
        file.with_suffix(".new").write_bytes(described)
        file.with_suffix(".new").rename(file)

    def _end(self, instance: Any) -> None:
        if asks_the_pool(instance.flavor.extra_specs):
            self._file(instance).unlink(missing_ok=True)
            self._ask("release", describe(instance))

    def _file(self, instance: Any) -> Path:
        return self.guests / f"{instance.uuid}.xml"

    def _ask(self, operation: str, described: bytes) -> str:
        """Ask the agent as libvirt's hook does; return the reason for a refusal, "" if it agrees."""
        question = {"operation": operation, "domain": described.decode()}
        try:
            with socket.socket(socket.AF_UNIX) as agent:
                agent.settimeout(ASK_S)
                agent.connect(os.fspath(self.hook_socket))
                agent.sendall(json.dumps(question).encode())
                agent.shutdown(socket.SHUT_WR)
                with agent.makefile("rb") as answer:
                    return str(json.load(answer).get("error", ""))
        except (OSError, ValueError) as error:
            return f"the agent does not answer on {self.hook_socket}: {error}"


def _node_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def describe(instance: Any) -> bytes:
    """Return the part of libvirt's description of a machine that the agent reads, with Nova's own metadata in it."""
    flavor = libvirt_config.LibvirtConfigGuestMetaNovaFlavor()
    flavor.name, flavor.id = instance.flavor.name, instance.flavor.flavorid
    flavor.extra_specs = instance.flavor.extra_specs
    owner = libvirt_config.LibvirtConfigGuestMetaNovaOwner()
    owner.projectid = owner.projectname = instance.project_id
    nova = libvirt_config.LibvirtConfigGuestMetaNovaInstance()
    nova.package, nova.name, nova.flavor, nova.owner = "fake", instance.display_name, flavor, owner
    domain = ElementTree.Element("domain")
    ElementTree.SubElement(domain, "name").text = instance.name
    ElementTree.SubElement(domain, "uuid").text = instance.uuid
    ElementTree.SubElement(domain, "vcpu").text = str(instance.flavor.vcpus)
    ElementTree.SubElement(domain, "metadata").append(ElementTree.fromstring(nova.to_xml()))
    return ElementTree.tostring(domain)


def main() -> None:
    """Run nova-compute with this driver."""
    AcceleratedFakeDriver.hook_socket, AcceleratedFakeDriver.guests = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
    fake.AcceleratedFakeDriver = AcceleratedFakeDriver  # drivers are found in Nova's own package only
    compute.main()


if __name__ == "__main__":
    main()
