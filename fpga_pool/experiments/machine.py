"""A virtual machine that is a fiction, whose slots are not: what its hypervisor and its guest do, towards an agent."""

import json
import os
import socket
from io import BytesIO
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

from fpga_pool.guest.accelerator import Accelerator, Interrupted, RequestFailed
from fpga_pool.guest.frames import Lines
from fpga_pool.model.exceptions import ServiceUnavailable

_NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
#: Longer than an agent lets a machine wait for its slots.
ASK_S = 90.0


class Machine(Accelerator):
    """A machine whose flavor asks for one slot with a function; its guest is this process.

    It is started as by libvirt: its agent is asked on `hook`, and described to in a file of the directory `guests` (the
    simulated guest driver, `drivers.guests.simulated`).
    """

    def __init__(self, guests: Path, hook: Path, function: str, project_id: str, timeout_s: float) -> None:
        self.instance = str(uuid4())
        self._hook = hook
        self._file = guests / f"{self.instance}.xml"
        self._description = _description(self.instance, function, project_id)
        self._port_of_guest = socket.socket(socket.AF_UNIX)
        self._port_of_guest.settimeout(timeout_s)
        self._port_of_guest.bind(os.fspath(guests / f"{self.instance}.0"))
        self._port_of_guest.listen(1)
        super().__init__("port 0", timeout_s)

    def start(self) -> None:
        """Start it when its slot is ready; ServiceUnavailable says why it must not start."""
        self._ask("prepare")
        self._file.write_text(self._description)

    def compute(self, data: bytes) -> bytes:
        """Return what the guest's slot computes; ServiceUnavailable if it does not."""
        result = BytesIO()
        try:
            with self:
                self.run(BytesIO(data), result)
        except (RequestFailed, Interrupted) as error:
            raise ServiceUnavailable(f"instance {self.instance}: {error}") from error
        return result.getvalue()

    def end(self) -> None:
        """Stop it, which gives its slot back."""
        self._file.unlink(missing_ok=True)
        self._ask("release")
        self._port_of_guest.close()

    def _open(self) -> None:
        port, _ = self._port_of_guest.accept()
        port.setblocking(False)
        self._port, self._lines = port.detach(), Lines()

    def _ask(self, operation: str) -> None:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(ASK_S)
            agent.connect(os.fspath(self._hook))
            agent.sendall(json.dumps({"operation": operation, "domain": self._description}).encode())
            agent.shutdown(socket.SHUT_WR)
            with agent.makefile("rb") as stream:
                answer = stream.read() or b'{"error": "the agent has not answered"}'
        if refused := json.loads(answer).get("error"):
            raise ServiceUnavailable(f"instance {self.instance}: {refused}")


def _description(instance: str, function: str, project_id: str) -> str:
    """Return what libvirt says of a machine, with what Nova writes into it of its flavor."""
    domain = ElementTree.Element("domain")
    ElementTree.SubElement(domain, "name").text = "demo"
    ElementTree.SubElement(domain, "uuid").text = instance
    nova = ElementTree.SubElement(ElementTree.SubElement(domain, "metadata"), f"{{{_NOVA}}}instance")
    flavor = ElementTree.SubElement(nova, f"{{{_NOVA}}}flavor", name="demo")
    specs = ElementTree.SubElement(flavor, f"{{{_NOVA}}}extraSpecs")
    ElementTree.SubElement(specs, f"{{{_NOVA}}}extraSpec", name="fpga_pool:function").text = function
    owner = ElementTree.SubElement(nova, f"{{{_NOVA}}}owner")
    ElementTree.SubElement(owner, f"{{{_NOVA}}}project", uuid=project_id)
    return ElementTree.tostring(domain, encoding="unicode")
