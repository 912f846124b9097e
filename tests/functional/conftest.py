import contextlib
import random
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fpga_pool.client import Client
from fpga_pool.experiments.deployment import Deployment
from fpga_pool.experiments.embedded import start_pool

#: A pool that answers fast: real boards, heartbeats and retries in fractions of a second.
FAST = {
    "standalone": {"hosts": 3, "egress_mbps": 2000, "ingress_mbps": 4000},
    "driver_simulated": {"board": "kintex7", "cards": 1},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05, "host_timeout_s": 5.0},
    "agent": {"heartbeat_s": 0.5, "hang_factor": 2.0, "hang_grace_s": 1.0, "fault_pause_s": 0.3},
}


def merged(*options):
    """Options of several dicts; the later ones win name by name."""
    names = {}
    for groups in options:
        for group, values in groups.items():
            names.setdefault(group, {}).update(values)
    return names


def free_port() -> int:
    """A port that stays ours while the pool is down: below those that the kernel gives to outgoing connections."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@dataclass
class Pool:
    """One embedded pool in a process of its own, that tests may kill and start again on the same state."""

    directory: Path
    options: dict
    port: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen | None = None
    endpoint: str = ""
    clients: list[Client] = field(default_factory=list)

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    def start(self) -> "Pool":
        self.process, self.endpoint = start_pool(self.directory, self.options, self.port)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        for client in self.clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self.process.returncode

    def client(self, project_id: str = "demo") -> Client:
        client = Client(self.endpoint, project_id=project_id)
        self.clients.append(client)
        return client

    def log(self) -> str:
        return (self.directory / "pool.log").read_text()


@pytest.fixture
def make_pool(tmp_path) -> Iterator:
    """Start pools of a test's own: `make_pool(options)`; options are added to FAST."""
    pools = []

    def make(options=None, directory: Path | None = None) -> Pool:
        directory = directory or tmp_path / f"pool-{len(pools)}"
        pools.append(Pool(directory, merged(FAST, options or {})))
        return pools[-1].start()

    yield make
    for pool in pools:
        pool.stop()


@pytest.fixture(scope="session")
def pool(tmp_path_factory) -> Iterator[Pool]:
    """A pool that tests share; they leave its slots as they found them."""
    shared = Pool(tmp_path_factory.mktemp("shared-pool"), FAST).start()
    yield shared
    assert shared.stop() == 0


@pytest.fixture
def deployment(tmp_path) -> Iterator:
    """Start pools of processes: `deployment(rabbitmq.url, database_url, schedulers=2, agents=3)`; see Deployment."""
    pools = []
    with contextlib.ExitStack() as stack:

        def start(transport_url: str, database_url: str, **parts) -> Deployment:
            parts["options"] = merged(
                {group: FAST[group] for group in ("scheduler", "agent")}, parts.get("options", {})
            )
            pools.append(Deployment(tmp_path / f"pool-{len(pools)}", transport_url, database_url, **parts))
            return stack.enter_context(pools[-1])

        yield start
        for pool in pools:  # pytest shows it where the test failed
            for name in pool.names:
                print(f"--- {name}\n{pool.last_lines(name)}")


@pytest.fixture
def mariadb_url(mariadb) -> str:
    """A fresh database; it ends with its server."""
    return mariadb.new_database()
