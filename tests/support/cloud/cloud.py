"""Starts, stops and shows one cloud.  A start that was interrupted is completed by the next one."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from openstack.connection import Connection
from openstack.exceptions import SDKException

from fpga_pool.model.exceptions import NotFound
from support.cloud.first_use import bootstrap_identity, connect, fill_catalogue, furnish, make_keys, write_clouds
from support.cloud.pool import (
    HOOK,
    HOOK_NAME,
    agent,
    hosts_with_slots,
    pool_programs,
    prepare_pool,
    write_pool_settings,
)
from support.cloud.programs import Programs, compute, programs
from support.cloud.schemas import make_databases
from support.cloud.settings import Arrivals, make_directories, write_settings
from support.cloud.site import Site
from support.servers import Libvirt, MariaDB, RabbitMQ, Server
from support.waiting import wait_until

#: Time for the computes to be seen by the scheduler, after all other services answer.
COMPUTES_TIMEOUT_S = 240.0

#: The unit of libvirt on a host.
LIBVIRTD = "libvirtd"

#: Directories that are deleted when a cloud is stopped, and marker files of the steps that are done only once.
_STATE = ("servers", "keys", "images", "nova", "neutron", "fpga_pool", "locks", "run")
_DONE = ("databases", "bootstrapped")


class Cloud:
    """The cloud of a site; `say` is called with the description of each completed step.

    Without `pool`, Nova is configured for the pool, but nothing of the pool is created or started.
    """

    def __init__(self, site: Site, say: Callable[[str], None], *, pool: bool = True) -> None:
        self._site = site
        self._say = say
        self._pool = pool
        self._messages = RabbitMQ(site.directory / "servers")
        self._database = MariaDB(site.directory / "servers")
        self._hosts = libvirts(site)
        self._programs = Programs(site.directory, pool_programs(site) | programs(site))

    def start(self) -> None:
        """Start everything; return when a tenant can boot a virtual machine on every compute."""
        site = self._site
        with self._step(", ".join(server.name for server in self._servers)), ThreadPoolExecutor() as threads:
            for started in [threads.submit(server.start, keep=True) for server in self._servers]:
                started.result()
        make_directories(site)
        write_settings(site, self._database.url, self._messages.url, _arrivals(self._hosts))
        write_clouds(site)
        with self._step("databases"):
            make_databases(site, self._database)
        with self._step("Keystone"):
            make_keys(site)
            self._programs.start(["keystone-api"])
            bootstrapped = site.directory / "bootstrapped"
            if not bootstrapped.exists():
                bootstrap_identity(site)
                bootstrapped.touch()
            self._programs.wait(["keystone-api"])
            fill_catalogue(site)
        libvirt_names = {name: host.host_name for name, host in self._hosts.items()}
        write_pool_settings(site, self._database, self._messages.url, libvirt_names)
        if self._pool:
            with self._step("keys, database, bitstreams and hook of the pool"):
                prepare_pool(site)
                for host in self._hosts.values():
                    host.install_hook(HOOK, HOOK_NAME)
        hosts = [*site.fakes, *site.libvirts]
        computes = [compute(host) for host in hosts]
        ours = list(pool_programs(site))
        controllers = [name for name in self._programs.names if name not in computes + ours]
        with self._step("Placement, Glance, Neutron, Nova"):
            self._programs.start(controllers)
            self._programs.wait(controllers)
        with self._step("computes"):
            self._start(ours * self._pool + computes)
            cloud = connect(site)
            furnish(site, cloud)

            def are_ready() -> bool:
                self._programs.require(computes)
                return set(hosts) <= _ready(cloud)

            wait_until(are_ready, f"{', '.join(hosts)} known to Nova", COMPUTES_TIMEOUT_S)
        if self._pool:
            with self._step("slots in Placement"):

                def are_known() -> bool:
                    self._programs.require(ours)
                    return hosts_with_slots(cloud.placement) >= len(hosts)

                wait_until(are_known, f"slots of {', '.join(hosts)} known to Placement", COMPUTES_TIMEOUT_S)
                self._programs.wait(ours)

    def stop(self) -> None:
        """Stop what this or an earlier command started, and nothing else.

        The state of the cloud is deleted: Nova's fake driver invents a new identity in each process, so its computes
        could not come back.  Ports, password, configuration and logs are kept.
        """
        self._programs.stop(self._programs.names)
        for server in self._servers:
            server.stop()
        for name in _STATE:
            shutil.rmtree(self._site.directory / name, ignore_errors=True)
        for name in _DONE:
            (self._site.directory / name).unlink(missing_ok=True)

    def restart(self, services: Sequence[str]) -> None:
        """Restart services as `systemctl restart` does; a service is a process, or all processes with this prefix.

        Raises NotFound if there is no such service.
        """
        found: list[str] = []
        for service in services:
            names = [name for name in self._programs.names if name == service or name.startswith(f"{service}-")]
            if not names and service != LIBVIRTD:
                raise NotFound(f"no service {service}; there are {LIBVIRTD}, {', '.join(self._programs.names)}")
            found += names
        if LIBVIRTD in services:
            for host in self._hosts.values():
                host.restart()
        self._programs.stop(found)
        self._start(found)
        self._programs.wait(found)

    def _start(self, names: Sequence[str]) -> None:
        """Start processes; those on the host of a libvirtd enter its namespaces."""
        beside = {process(name): host for name, host in self._hosts.items() for process in (agent, compute)}
        for name in names:
            self._programs.start([name], beside[name].entrance if name in beside else ())

    def status(self) -> dict[str, bool]:
        """Return, for each process, whether it runs."""
        servers = {server.name: server.running for server in (self._messages, self._database)}
        servers |= {f"{LIBVIRTD}-{name}": host.running for name, host in self._hosts.items()}
        return servers | {name: self._programs.running(name) for name in self._programs.names}

    @property
    def _servers(self) -> list[Server]:
        return [self._messages, self._database, *self._hosts.values()]

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        begin_s = time.monotonic()
        yield
        self._say(f"{time.monotonic() - begin_s:6.1f} s  {what}")


def libvirts(site: Site) -> dict[str, Libvirt]:
    """Return the libvirtd of each libvirt compute by host: this machine's, and those of hosts in namespaces."""
    directory = site.directory / "servers"
    return {name: Libvirt(directory, "" if number == 0 else name) for number, name in enumerate(site.libvirts)}


def _arrivals(hosts: Mapping[str, Libvirt]) -> dict[str, Arrivals]:
    """Return how guests migrate to each host, over the cable between two hosts; empty if there is only one host."""
    if len(hosts) < 2:
        return {}
    other = next(own for host in hosts.values() if (own := host.own_host))
    return {
        name: Arrivals(
            address=own.address if (own := host.own_host) else other.outer_address,
            socket=host.socket,
            network=own.network if own else None,
        )
        for name, host in hosts.items()
    }


def _ready(cloud: Connection) -> set[str]:
    """Return the hosts on which a server can boot: those that are up and known to the cells."""
    with contextlib.suppress(SDKException):
        found = cloud.compute.hypervisors(details=True)
        return {each.service_details["host"] for each in found if each.state == "up"}
    return set()
