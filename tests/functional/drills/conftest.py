import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from support.guests import Hypervisor
from support.relay import Relay
from support.servers import MariaDB, PostgreSQL, RabbitMQ

#: A soak is apart, as benchmarks are: what grows shows after an hour.
collect_ignore = [] if "FPGA_POOL_SOAK" in os.environ else ["test_soak.py"]


@pytest.fixture
def broker(run_server, servers_directory):
    yield from run_server(RabbitMQ(servers_directory / "drill"))


@pytest.fixture(params=[MariaDB, PostgreSQL], ids=lambda kind: kind.name)
def database(request, run_server, servers_directory):
    yield from run_server(request.param(servers_directory / f"drill-{request.param.name}"))


@pytest.fixture
def hypervisors():
    """Make the hypervisors of hosts: `hypervisors(names)`."""
    with tempfile.TemporaryDirectory(prefix="drill-") as directory:
        yield lambda hosts: {host: Hypervisor(Path(directory) / host) for host in hosts}


@pytest.fixture
def relays():
    """Make ways to servers: `relays({(process, server): url})`."""
    with contextlib.ExitStack() as ends:
        yield lambda urls: {way: ends.enter_context(contextlib.closing(Relay(url))) for way, url in urls.items()}


@pytest.fixture
def by_way():
    """Return the options of processes that use these ways, added to others: `by_way(relays, own)`."""

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
