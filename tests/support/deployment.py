"""A pool as an operator runs it, on one machine: its services are processes that use a given RabbitMQ and database.

Every process is started from files that an operator could have written.  It may be killed or stalled, and is restarted
with the same files.  The servers of RabbitMQ and databases are in `support.servers`.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from oslo_config import cfg

from fpga_pool.cli.admin.keys import create_key_pairs
from fpga_pool.client import Client
from fpga_pool.conf.catalogue import configured_catalogue, private_key
from fpga_pool.conf.opts import register_opts
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.experiments.embedded import Options, config_text
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.services.scheduler.enrolment import invite
from fpga_pool.store import Store
from support.forked import Forked
from support.peers import identity
from support.servers.process import dies_with_us, spawn
from support.servers.server import free_port

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 180.0
COMMAND_TIMEOUT_S = 240.0
POLL_INTERVAL_S = 0.1

#: Number of lines of a log that an error message shows.
LAST_LINES = 40
#: Matches logged errors with a traceback, of fpga_pool or of RPC calls that it serves.  Excluded is the traceback of
#: oslo.messaging if RabbitMQ disappears while a connection for a reply is opened: the caller repeats its call.
UNFORESEEN = re.compile(
    r"^(?P<what>.* ERROR (?P<logger>fpga_pool\S*|oslo_messaging\.rpc\.server) \[(?!.* Can not send reply ).*)\n"
    r"(?:.*\n)??.* ERROR (?P=logger) Traceback \(",
    re.MULTILINE,
)

API = "api"

#: Directory of the installed programs.
SCRIPTS = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class _Program:
    """One process of the pool: its command and its own options."""

    command: str
    options: Options


class Deployment:
    """Processes `api`, `api-2` ..., `scheduler-1` ..., agents `node-1` ..., and `requester-1` ... without cards.

    `options` apply to all processes; `own` are additional options by process name; `launchers` are, by process name,
    words before the command, for example to enter a network namespace.  With `forked`, programs without launchers are
    forked from a server that has already imported their modules, which is faster.
    """

    def __init__(
        self,
        directory: Path,
        transport_url: str,
        database_url: str,
        *,
        schedulers: int = 1,
        agents: int = 2,
        requesters: int = 0,
        apis: int = 1,
        options: Options | None = None,
        own: Mapping[str, Options] | None = None,
        launchers: Mapping[str, Sequence[str]] | None = None,
        forked: bool = False,
    ) -> None:
        self.directory = directory
        self._forked = forked
        self._launchers = dict(launchers or {})
        self._common = _merged(self._defaults(transport_url, database_url), options or {})
        self._programs = {f"scheduler-{number}": self._scheduler(number) for number in range(1, schedulers + 1)}
        self.hosts = [f"node-{number}" for number in range(1, agents + 1)]
        self._programs |= {host: self._agent(host) for host in self.hosts}
        without_cards = [f"requester-{number}" for number in range(1, requesters + 1)]
        self._programs |= {host: self._agent(host, {"driver_simulated": {"cards": 0}}) for host in without_cards}
        self.hosts += without_cards
        self.endpoints: dict[str, str] = {}
        for name in [API, *(f"{API}-{number}" for number in range(2, apis + 1))]:
            port = free_port()
            self.endpoints[name] = f"http://127.0.0.1:{port}"
            self._programs[name] = _Program("fpga-pool-api", {"api": {"port": port, "auth_strategy": "noauth"}})
        for name, more in (own or {}).items():
            program = self._programs[name]
            self._programs[name] = _Program(program.command, _merged(program.options, more))
        self._processes: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._clients: list[Client] = []

    # Configuration ---------------------------------------------------------------------------------------------

    def _defaults(self, transport_url: str, database_url: str) -> Options:
        keys = self.directory / "keys"
        return {
            "DEFAULT": {"transport_url": transport_url, "graceful_shutdown_timeout": 60},
            "database": {"connection": database_url},
            "scheduler": {
                "token_key": keys / "tokens.pem",
                "api_public_key": keys / "api.pub",
                "nova_public_key": keys / "nova.pub",
            },
            "api": {"key": keys / "api.pem"},
            "agent": {
                "bitstream_library": self.directory / "bitstreams",
                "bitstream_public_key": keys / "bitstreams.pub",
                "token_public_key": keys / "tokens.pub",
                "data_address": "127.0.0.1",
                "data_port": 0,
                "egress_mbps": 2000,
                "ingress_mbps": 4000,
            },
            "driver_simulated": {"board": "kintex7"},
        }

    def _scheduler(self, number: int) -> _Program:
        name = f"scheduler-{number}"
        return _Program("fpga-pool-scheduler", {"scheduler": {"name": name, "state_dir": self.directory / name}})

    def _agent(self, host: str, more: Options | None = None) -> _Program:
        options = {"agent": {"host": host, "state_dir": self.directory / host}}
        return _Program("fpga-pool-agent", _merged(options, more or {}))

    # Start and end ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Create keys, schema and bitstreams, start all processes, and return when every host is alive."""
        self.prepare()
        for name in self._programs:
            self.restart(name)
        self.wait_for_hosts(self.hosts)
        return self

    def prepare(self) -> None:
        """Do what an operator does before the first start, mostly without starting processes for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write("pool", self._common)
        for name, program in self._programs.items():
            self._write(name, program.options)
        keys = self.directory / "keys"
        if not keys.exists():
            create_key_pairs(keys)
        conf = cfg.ConfigOpts()
        register_opts(conf)
        conf([f"--config-file={self._file('pool')}"], project="fpga_pool")
        catalogue, library = configured_catalogue(conf), BitstreamLibrary(Path(conf.agent.bitstream_library))
        key = private_key("--key", str(keys / "bitstreams.pem"))
        library.fill(catalogue, catalogue.board(conf.driver_simulated.board), key)
        with contextlib.closing(Store(self._common["database"]["connection"])) as store:  # type: ignore[arg-type]
            store.migrate()
            self._enroll(store, self.hosts)

    def _enroll(self, store: Store, hosts: Sequence[str]) -> None:
        """Give enrolment codes to the agents that the pool does not know yet."""
        known = {one.host for one in store.enrolments() if one.key}
        for name in hosts:
            options = self._programs[name].options
            host = str(options["agent"]["host"])
            if host not in known:  # if two agents have the same name, the first is enrolled
                known.add(host)
                code = invite(store, host, time.time())
                self._write(name, _merged(options, {"agent": {"enrolment_code": code}}))

    def identity(self, role: Role, name: str) -> Identity:
        """Return the identity of a caller, with the key of a role."""
        return identity(self.directory / "keys", role, name)

    def manage(self, *words: str) -> str:
        """Run `fpga-pool-manage`; return what it prints."""
        command = [
            sys.executable,
            "-P",
            "-m",
            "fpga_pool.cli.admin.main",
            "--config-file",
            str(self._file("pool")),
            *words,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
        if done.returncode:
            raise ServiceUnavailable(f"fpga-pool-manage {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def restart(self, name: str) -> None:
        """Start a process with its files; kill it first if it still runs."""
        self.kill(name)
        files = [f"--config-file={self._file(part)}" for part in ("pool", name)]
        program = self._programs[name].command
        if self._forked and name not in self._launchers:
            self._processes[name] = Forked(program.removeprefix("fpga-pool-"), files, self.log_file(name))
            return
        command = [
            *self._launchers.get(name, ()),
            sys.executable,
            "-P",
            "-X",
            "faulthandler",
            str(SCRIPTS / program),
        ]
        # If the test dies, its processes end, too.
        self._processes[name] = spawn(dies_with_us([*command, *files]), self.log_file(name))

    def kill(self, name: str) -> None:
        """Kill a process (SIGKILL), even if it is stalled."""
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def stop(self, name: str) -> None:
        """Stall a process (SIGSTOP): its connections stay open, but it does not answer."""
        _signal_group(self._processes[name].pid, signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """Resume a stalled process (SIGCONT)."""
        _signal_group(self._processes[name].pid, signal.SIGCONT)

    def terminate(self, name: str) -> int:
        """End a process gracefully, as systemd does; return its exit status."""
        self._processes[name].terminate()
        return self._wait(name)

    def end(self) -> dict[str, int]:
        """End the APIs, then the agents, then the schedulers, gracefully; return the exit status of each."""
        schedulers = [name for name in self._programs if name not in (*self.endpoints, *self.hosts)]
        statuses: dict[str, int] = {}
        for kind in (list(self.endpoints), self.hosts, schedulers):
            for name in kind:
                self._processes[name].terminate()
            statuses |= {name: self._wait(name) for name in kind}
        return statuses

    def _wait(self, name: str) -> int:
        process = self._processes[name]
        try:
            status = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler then logs the stacks of all threads
            process.wait(STOP_TIMEOUT_S)
            raise
        del self._processes[name]
        return status

    def pid(self, name: str) -> int:
        """Return the process ID of a process."""
        return self._processes[name].pid

    def running(self) -> list[str]:
        """Return the names of the processes that exist, stalled or not."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def close(self) -> None:
        """Close the clients, and kill all processes that are left."""
        for client in self._clients:
            client.close()
        for name in list(self._processes):
            self.kill(name)

    # Inspection ------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of all processes."""
        return list(self._programs)

    @property
    def endpoint(self) -> str:
        """URL of the first API."""
        return self.endpoints[API]

    def client(self, project_id: str = "demo", api: str = API) -> Client:
        """Return a client of one of the pool's APIs."""
        self._clients.append(Client(self.endpoints[api], project_id=project_id))
        return self._clients[-1]

    def wait_for_hosts(self, hosts: Sequence[str], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for these hosts to be alive; raise ServiceUnavailable with the last lines of a process that has died."""
        client = self.client()
        until_s = time.monotonic() + timeout_s
        while not set(hosts) <= _alive(client):
            dead = set(self._processes) - set(self.running())
            if dead or time.monotonic() > until_s:
                name = min(dead, default=API)
                raise ServiceUnavailable(f"{name} {'has ended' if dead else 'waits'}: {self.last_lines(name)}")
            time.sleep(POLL_INTERVAL_S)

    def log_file(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.directory / f"{name}.log"

    def unforeseen(self) -> list[str]:
        """Return the errors that processes have logged with a traceback, that is, those that no code expects."""
        found = []
        for name in self.names:
            if (log := self.log_file(name)).exists():
                text = log.read_text(errors="replace")
                found += [f"{name}: {error['what']}" for error in UNFORESEEN.finditer(text)]
        return found

    def last_lines(self, name: str) -> str:
        """Return the last lines of a process's log."""
        log = self.log_file(name)
        return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]) if log.exists() else ""

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _write(self, name: str, options: Options) -> None:
        file = self._file(name)
        file.touch(0o600)
        file.write_text(config_text(options))


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has already ended
        os.killpg(leader, number)


def _alive(client: Client) -> set[str]:
    try:
        return {host.name for host in client.hosts() if host.alive}
    except FpgaPoolError:  # no API yet, or no scheduler behind it
        return set()


def _merged(first: Options, second: Options) -> Options:
    return {group: {**first.get(group, {}), **second.get(group, {})} for group in [*first, *second]}
