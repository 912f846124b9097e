import contextlib
import os
import secrets
import tempfile
from pathlib import Path

import pytest

from fpga_pool.model.exceptions import ServiceUnavailable
from support.guests import Hypervisor
from support.partitions import LOST, parted
from support.relay import Relay
from support.servers import MariaDB, PostgreSQL, RabbitMQ
from support.servers.server import free_port

#: The soak test runs separately, like benchmarks: growth shows after an hour.
collect_ignore = [] if "FPGA_POOL_SOAK" in os.environ else ["test_soak.py"]

#: Disk space for the database of a drill with 10,000 objects.
DISK_MB = 1024


@pytest.fixture
def broker(run_server, servers_directory):
    yield from run_server(RabbitMQ(servers_directory / "drill"))


@pytest.fixture(params=[MariaDB, PostgreSQL], ids=lambda kind: kind.name)
def database(request, run_server, servers_directory):
    yield from run_server(request.param(servers_directory / f"drill-{request.param.name}"))


class ShortLogs(PostgreSQL):
    """A server whose small log files let a full disk stop it within seconds."""

    log_file_mb = 1


@pytest.fixture(params=[MariaDB, ShortLogs], ids=lambda kind: kind.name)
def database_on_disk(request, run_server, servers_directory, small_disk):
    """A server on a small disk, and that disk."""
    disk = small_disk(servers_directory / f"{request.param.name}-{secrets.token_hex(4)}", DISK_MB)
    for server in run_server(request.param(disk)):
        yield server, disk


@pytest.fixture
def hypervisors():
    """Make the hypervisors of hosts: `hypervisors(names)`."""
    with tempfile.TemporaryDirectory(prefix="drill-") as directory:
        yield lambda hosts: {host: Hypervisor(Path(directory) / host) for host in hosts}


@pytest.fixture
def relays():
    """Make relays to servers: `relays({(process, server): url})`."""
    with contextlib.ExitStack() as ends:
        yield lambda urls: {way: ends.enter_context(contextlib.closing(Relay(url))) for way, url in urls.items()}


@pytest.fixture
def partitions():
    """Skip the test if clients cannot be cut off from a port on this machine."""
    try:
        with parted(free_port(), LOST):
            pass
    except (OSError, ServiceUnavailable) as error:
        pytest.skip(f"parting clients from data ports is not possible here: {error}")


@pytest.fixture
def by_way():
    """Add the URLs of relays to the options of the processes that use them: `by_way(relays, own)`."""

    def options(ways, own):
        found = {name: dict(groups) for name, groups in own.items()}
        for (name, server), relay in ways.items():
            found.setdefault(name, {}).update(
                {"DEFAULT": {"transport_url": relay.url}}
                if server == "RabbitMQ"
                else {"database": {"connection": relay.url}}
            )
        return found

    return options
