"""An embedded pool in a separate process for the duration of an experiment."""

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from queue import Empty, Queue
from uuid import uuid4
from xml.etree import ElementTree

from fpga_pool.guest.accelerator import Accelerator, Interrupted, RequestFailed
from fpga_pool.guest.frames import Lines
from fpga_pool.model.exceptions import ServiceUnavailable

#: Long enough for a pool on a busy machine; a pool that ends instead is reported at once.
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0

#: `fpga-pool-standalone`, wherever it is installed.
_STANDALONE = "import sys; from fpga_pool.cli.roles import standalone; sys.exit(standalone())"

Options = Mapping[str, Mapping[str, object]]


@contextmanager
def embedded_pool(directory: Path, options: Options, port: int = 0) -> Iterator[str]:
    """Start a pool on `directory` with options by group and name, yield its endpoint, and stop it at the end."""
    process, endpoint = start_pool(directory, options, port)
    try:
        yield endpoint
    finally:
        stop_pool(process)


def free_port() -> int:
    """Return a port that stays free while no pool uses it: below the ephemeral ports of the kernel."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise ServiceUnavailable("no free port for the API on 127.0.0.1")


def stop_pool(process: subprocess.Popen[str]) -> None:
    """Stop a pool; kill it if it does not end in time, or on Ctrl-C."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def start_pool(
    directory: Path, options: Options, port: int = 0, popen: Callable[..., subprocess.Popen[str]] = subprocess.Popen
) -> tuple[subprocess.Popen[str], str]:
    """Start a pool with `popen`; return its process and endpoint, or raise ServiceUnavailable, which names its log."""
    directory.mkdir(parents=True, exist_ok=True)
    config, log = directory / "fpga_pool.conf", directory / "pool.log"
    config.write_text(config_text(options))
    command = [sys.executable, "-P", "-c", _STANDALONE, "--config-file", str(config)]
    command += ["--state-dir", str(directory / "state"), "--port", str(port), "--log-file", str(log)]
    process = popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: Queue[str] = Queue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    said = []
    with ExitStack() as stopped:
        stopped.callback(stop_pool, process)
        try:
            while line := lines.get(timeout=START_TIMEOUT_S):
                if " ready on " in line:
                    stopped.pop_all()
                    return process, line.split(" ready on ")[1].strip()
                said.append(line)
        except Empty:
            said.append(f"not ready after {START_TIMEOUT_S:g} s\n")
    raise ServiceUnavailable(f"the pool did not start: {''.join(said[-5:]).strip()} (log: {log})")


def _read_lines(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert process.stdout is not None  # noqa: S101
    with process.stdout as said:
        for line in said:
            lines.put(line)
    lines.put("")


def config_text(options: Options) -> str:
    """Return the text of a configuration file; an option with several values gets one line per value."""
    groups = (
        "\n".join([f"[{group}]", *(line for name, value in values.items() for line in _lines(name, value))])
        for group, values in options.items()
    )
    return "\n\n".join(groups) + "\n"


def _lines(name: str, value: object) -> list[str]:
    return [f"{name} = {each}" for each in (value if isinstance(value, tuple) else (value,))]


# ---- A simulated virtual machine that holds a slot of the pool

_NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
#: Timeout of a request to an agent: longer than an agent lets a machine wait for its slots.
ASK_S = 90.0


class Machine(Accelerator):
    """A machine whose flavor requests one slot with a function; its guest is this process.

    It is started as libvirt would do it: a request goes to its agent on the socket `hook`, and a file in the directory
    `guests` describes it to the agent (the simulated guest driver, `drivers.guests.simulated`).
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
        """Start the machine when its slot is ready; raise ServiceUnavailable, with the reason, if it must not start."""
        self._ask("prepare")
        self._file.write_text(self._description)

    def compute(self, data: bytes) -> bytes:
        """Return the result that the guest's slot computes for `data`; raise ServiceUnavailable if it fails."""
        result = BytesIO()
        try:
            with self:
                self.run(BytesIO(data), result)
        except (RequestFailed, Interrupted) as error:
            raise ServiceUnavailable(f"instance {self.instance}: {error}") from error
        return result.getvalue()

    def end(self) -> None:
        """Stop the machine, which releases its slot."""
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
    """Return the libvirt description of a machine, with the metadata of the flavor that Nova adds to it."""
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
