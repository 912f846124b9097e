"""The pool on the testbed: one scheduler, the API, and an agent on every host, each in its own process.

Scheduler and API run beside the servers; agents run in the namespaces of their hosts, and reach the messages over the
control network.
"""

import configparser
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.cli.admin.keys import create_key_pairs
from fpga_pool.client import PoolApi
from fpga_pool.conf.catalogue import load_catalogue, private_key
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.experiments.testbed import GOODPUT, Case
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.services.scheduler.enrolment import invite
from fpga_pool.store.store import Store
from support.deployment import SCRIPTS
from support.servers import Database, RabbitMQ
from support.servers.process import dies_with_us
from support.testbed.cases import Nic, nics, requesters, responders
from support.testbed.network import Endpoint, Network
from support.waiting import wait_until

#: Enough for senders, which poll several times per second, to get a plan before its time 0.
LEAD_S = 1.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
_BOARD = "testbed"

Options = Mapping[str, Mapping[str, object]]

#: Times come from the case.  Reconfiguration takes negligible time; section 3 of the makespan paper sets it to 0.
_CATALOGUE = """\
format_version = 1

[functions.{function}]
version = "1.0"
slot_kinds = ["whole"]
io_bps = 1e9
preemptible = false
speedup = 1.0
source = "the testbed's case {case}"

[functions.{function}.fpga_time]
{board} = {{ a_s = {a_s!r}, b_s_per_byte = {b_s_per_byte!r} }}

[boards.{board}]
slots = ["whole"]
configuration_bps = 1e12
dma_bps = 1e12
source = "no real board: one slot, with negligible reconfiguration and DMA times"

[boards.{board}.regions]
whole = {{ bitstream_bytes = 1024 }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers that all processes of the pool use; RabbitMQ must be reachable from the control network."""

    messages: RabbitMQ
    database: Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A running pool."""

    endpoint: str
    api: PoolApi


@contextlib.contextmanager
def running_pool(case: Case, network: Network, servers: Servers, directory: Path, egress_driver: str) -> Iterator[Pool]:
    """Start a new pool for a case, yield it once all hosts are known to it, and stop it at the end."""
    directory.mkdir(parents=True)
    url = servers.database.new_database()
    codes, shared = _prepare(case, servers, directory, url)
    with contextlib.ExitStack() as ends:
        ends.callback(servers.database.drop_database, url)
        services: list[_Process] = []
        ends.callback(_stop, services)
        for name, program, own, command in _services(case, network, directory, egress_driver, codes):
            services.append(_start(directory, name, program, {**shared, **own}, command))
        ready = {service.name: service.wait_ready() for service in services}
        endpoint = ready["api"].removeprefix("API on ")
        api = ends.enter_context(PoolApi(endpoint))
        wait_until(lambda: _complete(api, case), "the pool sees all of its hosts and slots", START_TIMEOUT_S)
        yield Pool(endpoint=endpoint, api=api)


def _prepare(case: Case, servers: Servers, directory: Path, database_url: str) -> tuple[Mapping[str, str], Options]:
    """Create keys, catalogue, bitstreams and schema; return enrolment codes by host, and the common options."""
    keys, library = directory / "keys", directory / "bitstreams"
    create_key_pairs(keys)
    catalogue = directory / "catalogue.toml"
    catalogue.write_text(
        _CATALOGUE.format(
            function=case.function, case=case.name, board=_BOARD,
            a_s=case.time.a_s, b_s_per_byte=case.time.b_s_per_byte,
        )
    )  # fmt: skip
    known = load_catalogue(catalogue)
    BitstreamLibrary(library).fill(known, known.board(_BOARD), private_key("key", str(keys / "bitstreams.pem")))
    with contextlib.closing(Store(database_url)) as store:
        store.migrate()
        codes = {nic.host: invite(store, nic.host, time.time()) for nic in nics(case)}
    return codes, {
        "DEFAULT": {"transport_url": servers.messages.url},
        "database": {"connection": database_url},
        "functions": {"catalogue": catalogue},
    }


def _services(
    case: Case, network: Network, directory: Path, egress_driver: str, codes: Mapping[str, str]
) -> Iterator[tuple[str, str, Options, Sequence[str]]]:
    """Yield the name, program, options and command prefix of each process."""
    here = dies_with_us([])
    baselines = {f"policy_{name}": {"prefetch": case.prefetch} for name in ("sjf", "ljf")}
    yield "scheduler", "fpga-pool-scheduler", {"scheduler": _scheduler(directory), **baselines}, here
    yield "api", "fpga-pool-api", {"api": _api(directory)}, here
    for nic in nics(case):
        endpoint = network.hosts[nic.host]
        options: Options = {
            "agent": {**_agent(nic, endpoint, directory, egress_driver), "enrolment_code": codes[nic.host]},
            "driver_tc": {"devices": f"{Endpoint.nic}={endpoint.data_address}/32"},
            "driver_simulated": {"board": _BOARD, "cards": int(nic.host in responders(case))},
        }
        yield nic.host, "fpga-pool-agent", options, endpoint.command()


def _api(directory: Path) -> Mapping[str, object]:
    return {"auth_strategy": "noauth", "host": "127.0.0.1", "port": 0, "key": directory / "keys" / "api.pem"}


def _scheduler(directory: Path) -> Mapping[str, object]:
    return {
        "name": "testbed",
        "state_dir": directory / "scheduler",
        "token_key": directory / "keys" / "tokens.pem",
        "api_public_key": directory / "keys" / "api.pub",
        "nova_public_key": directory / "keys" / "nova.pub",
        "dispatch_lead_s": LEAD_S,
        # Observed times must not change the plans of later runs.
        "refit_interval_s": 1e6,
        "host_timeout_s": START_TIMEOUT_S,
    }


def _agent(nic: Nic, endpoint: Endpoint, directory: Path, egress_driver: str) -> Mapping[str, object]:
    return {
        "host": nic.host,
        "state_dir": directory / nic.host,
        "nic": Endpoint.nic,
        "egress_mbps": GOODPUT * nic.egress_bps / 1e6,
        "ingress_mbps": GOODPUT * nic.ingress_bps / 1e6,
        "data_address": endpoint.data_address,
        "egress_driver": egress_driver,
        "bitstream_library": directory / "bitstreams",
        "bitstream_public_key": directory / "keys" / "bitstreams.pub",
        "token_public_key": directory / "keys" / "tokens.pub",
    }


def _complete(api: PoolApi, case: Case) -> bool:
    try:
        hosts, slots = api.hosts(), api.slots()
    except FpgaPoolError:
        return False  # the API is up before the scheduler has taken its shard
    return len(hosts) == len(requesters(case)) + len(responders(case)) and len(slots) == len(responders(case))


# Processes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    said: Path

    def wait_ready(self) -> str:
        """Wait until the service is ready and return how it names itself; ServiceUnavailable names its log."""
        wait_until(lambda: self._title() or self.process.poll() is not None, f"{self.name} is ready", START_TIMEOUT_S)
        title = self._title()
        if title is None:
            raise ServiceUnavailable(f"{self.name} did not start: {self.said.read_text().strip()} (log: {self.log})")
        return title

    def _title(self) -> str | None:
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            if line.endswith(" is ready"):
                return line.removesuffix(" is ready").rpartition("] ")[2]
        return None


def _start(directory: Path, name: str, program: str, options: Options, command: Sequence[str]) -> _Process:
    config, log, said = (directory / f"{name}.{kind}" for kind in ("conf", "log", "out"))
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(options)
    with config.open("w") as file:
        parser.write(file)
    words = [*command, sys.executable, "-P", str(SCRIPTS / program), f"--config-file={config}", f"--log-file={log}"]
    with said.open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    return _Process(name, process, log, said)


def _stop(services: Sequence[_Process]) -> None:
    """Stop all processes in parallel; agents may need a while to deliver their reports."""
    for service in services:
        service.process.terminate()
    end_s = time.monotonic() + STOP_TIMEOUT_S
    for service in services:
        try:
            service.process.wait(max(end_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            service.process.kill()
            service.process.wait()
