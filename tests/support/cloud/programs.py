"""The processes of the OpenStack services: how each is started, found again, and ended with all its children."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from fpga_pool.model.exceptions import ServiceUnavailable
from support import IMPORT_PATH
from support.cloud.settings import settings_file
from support.cloud.site import APIS, Site
from support.servers.process import Process

#: Time for an API to answer for the first time, on a machine that starts all the others, too.
ANSWER_TIMEOUT_S = 180.0
PROBE_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.2

#: Number of lines of a log that an error message shows.
LAST_LINES = 15

#: Number of requests that one API handles concurrently.
API_THREADS = 8

BIN = Path(sys.prefix) / "bin"

#: Metadata of a distribution, with the entry points by which Neutron finds drivers.
PLUGINS = Path(__file__).parent / "plugins"


@dataclass(frozen=True, slots=True)
class Program:
    """One process: its command, its additional environment, and the port on which it must answer."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


def programs(site: Site) -> dict[str, Program]:
    """Return the processes of the services by name, in the order in which they are needed."""
    found = {f"{service}-api": api_program(site, service) for service in ("keystone", "placement", "glance", "neutron")}
    found |= {f"nova-{name}": _nova(site, name) for name in ("conductor", "scheduler")}
    found["nova-api"] = api_program(site, "nova")
    found |= {compute(host): _fake_compute(site, host) for host in site.fakes}
    return found | {compute(host): _nova(site, "compute", host) for host in site.libvirts}


def compute(host: str) -> str:
    """Return the name of the nova-compute process of a host."""
    return f"nova-compute-{host}"


def api_program(site: Site, service: str) -> Program:
    """Return the process that serves the API of a service."""
    port = site.ports[service]
    options = {
        "http-socket": f"127.0.0.1:{port}",
        "module": f"{APIS[service][1]}:application",
        "processes": "1",
        "threads": str(API_THREADS),
        "buffer-size": "65535",
        # Otherwise it closes connections that the clients expect to stay open.
        "add-header": "Connection: close",
        "procname-prefix": f"all-in-one-{service}-",
    }
    switches = ["master", "enable-threads", "lazy-apps", "need-app", "die-on-term", "no-orphans", "disable-logging"]
    command = [str(BIN / "uwsgi"), *(f"--{switch}" for switch in switches)]
    command += [f"--{name}={value}" for name, value in options.items()]
    directory = settings_file(site, service)
    environment = {f"OS_{service.upper()}_CONFIG_DIR": str(directory)}
    if service == "neutron":
        environment["OS_NEUTRON_CONFIG_FILES"] = "neutron.conf;ml2.ini"
        environment["PYTHONPATH"] = os.pathsep.join([IMPORT_PATH, str(PLUGINS)])
    return Program(command, environment, port)


def _nova(site: Site, service: str, host: str | None = None) -> Program:
    return Program([str(BIN / f"nova-{service}"), *_nova_files(site, host)])


def _fake_compute(site: Site, host: str) -> Program:
    agent = [str(hook_socket(site, host)), str(guests_directory(site, host))]
    module = "support.cloud.fake_compute"
    command = [sys.executable, "-P", "-m", module, *agent, *_nova_files(site, host)]
    return Program(command, {"PYTHONPATH": IMPORT_PATH})


def _nova_files(site: Site, host: str | None) -> list[str]:
    return [f"--config-file={settings_file(site, f'nova/{name}.conf')}" for name in ("nova", host) if name]


def hook_socket(site: Site, host: str) -> Path:
    """Return the socket on which a fake compute asks its agent as libvirt's hook does."""
    return site.directory / "fpga_pool" / host / "hook.sock"


def guests_directory(site: Site, host: str) -> Path:
    """Return the directory in which a fake compute describes its machines."""
    return site.directory / "fpga_pool" / host / "guests"


class Programs:
    """The programs of one directory, running or not."""

    def __init__(self, directory: Path, table: Mapping[str, Program]) -> None:
        self._directory = directory
        self._table = table
        self._processes = {name: Process(directory / "run" / f"{name}.pid") for name in table}

    @property
    def names(self) -> list[str]:
        """Names of all programs, in the order in which they are needed."""
        return list(self._table)

    def running(self, name: str) -> bool:
        """Return whether the process of a program exists."""
        return self._processes[name].pid is not None

    def start(self, names: Sequence[str], entrance: Sequence[str] = ()) -> None:
        """Start the programs that do not run; the words `entrance` precede their commands."""
        for directory in ("run", "logs"):
            (self._directory / directory).mkdir(parents=True, exist_ok=True)
        for name in names:
            if not self.running(name):
                program = self._table[name]
                environment = _environment() | dict(program.environment)
                self._processes[name].start([*entrance, *program.command], environment, self.log(name))

    def wait(self, names: Sequence[str]) -> None:
        """Wait until all answer on their ports; raise ServiceUnavailable with the last lines of one that does not."""
        end_s = time.monotonic() + ANSWER_TIMEOUT_S
        for name in names:
            port = self._table[name].port
            while port is not None and not _answers(port):
                self.require([name])
                if time.monotonic() > end_s:
                    raise ServiceUnavailable(
                        f"{name} did not answer in {ANSWER_TIMEOUT_S:g} s: {self.last_lines(name)}"
                    )
                time.sleep(POLL_INTERVAL_S)

    def require(self, names: Sequence[str]) -> None:
        """Raise ServiceUnavailable if one of the programs has ended."""
        for name in names:
            if not self.running(name):
                raise ServiceUnavailable(f"{name} has ended: {self.last_lines(name)}")

    def stop(self, names: Sequence[str]) -> None:
        """End programs and their child processes, all at the same time."""
        with ThreadPoolExecutor(len(self._table)) as threads:
            list(threads.map(self._end, [self._processes[name] for name in names]))

    @staticmethod
    def _end(process: Process) -> None:
        pid = process.pid
        if pid is None:
            return
        process.end(signal.SIGTERM)
        # It led its own process group (see `spawn`); the kernel does not reuse its number while the group has members.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._directory / "logs" / f"{name}.log"

    def last_lines(self, name: str) -> str:
        """Return the last lines of a process's log, and the path of the log."""
        lines = self.log(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([*lines, f"(log: {self.log(name)})"])


def _environment() -> dict[str, str]:
    """Return the environment of all processes, without variables of the caller, which may name another cloud."""
    path = os.pathsep.join([str(BIN), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {"PATH": path, "LANG": "C.UTF-8", "HOME": str(Path.home()), "PYTHONWARNINGS": "ignore"}


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
