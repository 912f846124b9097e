"""A pool as an operator runs it, on one machine: its own services as processes, on given messages and database.

Every process is started from files that an operator could have written, may be hurt, and is started again on the same
files.  What the pool needs beside it, RabbitMQ and a database server, is in `support.servers`.
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

#: Lines of a log that are shown where something went wrong.
LAST_LINES = 40
#: In a log, an error with a traceback of ours or of a call that we serve.  But where RabbitMQ goes while a connection
#: for an answer is opened, the library says so with one, and its caller asks again.
UNFORESEEN = re.compile(
    r"^(?P<what>.* ERROR (?P<logger>fpga_pool\S*|oslo_messaging\.rpc\.server) \[(?!.* Can not send reply ).*)\n"
    r"(?:.*\n)??.* ERROR (?P=logger) Traceback \(",
    re.MULTILINE,
)

API = "api"

#: Where the programs are installed.
SCRIPTS = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class _Program:
    """One process of the pool: its command, and options that are its own."""

    command: str
    options: Options


class Deployment:
    """Processes `api`, `api-2` ..., `scheduler-1` ..., `node-1` ... (agents), agents without cards `requester-1` ...

    `options` are for all of them; `own`, by name, for one; `launchers` are words before the command of one (such as
    those that enter a network namespace).  With `forked`, programs without such words are forked from a server that
    has imported their modules, which is quicker.
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

    # What is in its files --------------------------------------------------------------------------------------

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

    # Life and death --------------------------------------------------------------------------------------------

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
        """Make keys, schema and bitstreams, start all processes, and return when every host is alive."""
        self.prepare()
        for name in self._programs:
            self.restart(name)
        self.wait_for_hosts(self.hosts)
        return self

    def prepare(self) -> None:
        """Do what an operator does before the first start, for the most part without processes of their own."""
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
        """Give agents the codes with which the pool accepts them, unless it knows them."""
        known = {one.host for one in store.enrolments() if one.key}
        for name in hosts:
            options = self._programs[name].options
            host = str(options["agent"]["host"])
            if host not in known:  # of two agents with one name the first is enrolled
                known.add(host)
                code = invite(store, host, time.time())
                self._write(name, _merged(options, {"agent": {"enrolment_code": code}}))

    def identity(self, role: Role, name: str) -> Identity:
        """Return a caller with the key of a role."""
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
        """Start a process on its files, after ending it at once where it still runs."""
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
        # A test that dies takes its processes with it.
        self._processes[name] = spawn(dies_with_us([*command, *files]), self.log_file(name))

    def kill(self, name: str) -> None:
        """End a process as kill -9 does, stalled or not."""
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def stop(self, name: str) -> None:
        """Stall a process (SIGSTOP): its connections stay, nothing answers."""
        _signal_group(self._processes[name].pid, signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """Let a stalled process go on."""
        _signal_group(self._processes[name].pid, signal.SIGCONT)

    def terminate(self, name: str) -> int:
        """End a process in order, as systemd does; return its exit status."""
        self._processes[name].terminate()
        return self._wait(name)

    def end(self) -> dict[str, int]:
        """End API, agents, then schedulers, those of a kind at once, in order; return the exit status of each."""
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
            process.send_signal(signal.SIGABRT)  # its log ends with what each thread was doing
            process.wait(STOP_TIMEOUT_S)
            raise
        del self._processes[name]
        return status

    def pid(self, name: str) -> int:
        """Return the number of a process."""
        return self._processes[name].pid

    def running(self) -> list[str]:
        """Return the names of the processes that there are, stalled or not."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def close(self) -> None:
        """End whatever is left, at once."""
        for client in self._clients:
            client.close()
        for name in list(self._processes):
            self.kill(name)

    # Looking at it ---------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """All processes."""
        return list(self._programs)

    @property
    def endpoint(self) -> str:
        """Where the first API listens."""
        return self.endpoints[API]

    def client(self, project_id: str = "demo", api: str = API) -> Client:
        """Return a client of one of the pool's APIs."""
        self._clients.append(Client(self.endpoints[api], project_id=project_id))
        return self._clients[-1]

    def wait_for_hosts(self, hosts: Sequence[str], timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when these hosts are alive; ServiceUnavailable tells what the first process said that has died."""
        client = self.client()
        until_s = time.monotonic() + timeout_s
        while not set(hosts) <= _alive(client):
            dead = set(self._processes) - set(self.running())
            if dead or time.monotonic() > until_s:
                name = min(dead, default=API)
                raise ServiceUnavailable(f"{name} {'has ended' if dead else 'waits'}: {self.last_lines(name)}")
            time.sleep(POLL_INTERVAL_S)

    def log_file(self, name: str) -> Path:
        """Return where a process logs to."""
        return self.directory / f"{name}.log"

    def unforeseen(self) -> list[str]:
        """Return the errors that processes have logged with a traceback: nothing expects and explains them."""
        found = []
        for name in self.names:
            if (log := self.log_file(name)).exists():
                text = log.read_text(errors="replace")
                found += [f"{name}: {error['what']}" for error in UNFORESEEN.finditer(text)]
        return found

    def last_lines(self, name: str) -> str:
        """Return the end of a process's log."""
        log = self.log_file(name)
        return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]) if log.exists() else ""

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _write(self, name: str, options: Options) -> None:
        file = self._file(name)
        file.touch(0o600)
        file.write_text(config_text(options))


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(leader, number)


def _alive(client: Client) -> set[str]:
    try:
        return {host.name for host in client.hosts() if host.alive}
    except FpgaPoolError:  # no API yet, or no scheduler behind it
        return set()


def _merged(first: Options, second: Options) -> Options:
    return {group: {**first.get(group, {}), **second.get(group, {})} for group in [*first, *second]}
