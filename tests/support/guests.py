"""Virtual machines of the simulated guest driver, reported to the agent of their host as by libvirt's hook."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

from fpga_pool.experiments.embedded import Options

ANSWER_S = 30.0

DOMAIN = """<domain><name>{uuid}</name><uuid>{uuid}</uuid><metadata>
<n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:flavor name="f"><n:extraSpecs>
<n:extraSpec name="fpga_pool:function">{function}</n:extraSpec><n:extraSpec name="fpga_pool:count">{slots}</n:extraSpec>
</n:extraSpecs></n:flavor><n:owner><n:project uuid="{project}">{project}</n:project></n:owner></n:instance>
</metadata></domain>"""


class Hypervisor:
    """The hypervisor of one host.  The path of its directory must be short, because it contains a socket."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._socket = directory / "hook"

    @property
    def options(self) -> Options:
        """Options of the host's agent."""
        guests = {
            "guest_driver": "simulated",
            "simulated_guests_dir": self._directory,
            "start_timeout_s": ANSWER_S - 10,
        }
        return {"agent": {**guests, "hook_socket": self._socket}}

    def boot(self, uuid: str, function: str, slots: int, project: str) -> bool:
        """Start a machine as libvirt does; return whether its agent let it start."""
        domain = DOMAIN.format(uuid=uuid, function=function, slots=slots, project=project)
        if self._ask("prepare", domain) != {}:
            self._ask("release", domain)
            return False
        new = self._directory / f"{uuid}.new"
        new.write_text(domain)
        new.rename(self._file(uuid))
        return True

    def end(self, uuid: str) -> None:
        """End a machine; an agent that does not answer notices it later."""
        domain = self._file(uuid).read_text()
        self._file(uuid).unlink()
        self._ask("release", domain)

    def _file(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.xml"

    def _ask(self, operation: str, domain: str) -> Any:
        """Return the agent's answer; None if there is none."""
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(ANSWER_S)
            agent.connect(str(self._socket))
            agent.sendall(json.dumps({"operation": operation, "domain": domain}).encode())
            agent.shutdown(socket.SHUT_WR)
            with agent.makefile("rb") as answer:
                return json.loads(answer.read())
        return None
