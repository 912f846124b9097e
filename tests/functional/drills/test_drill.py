"""Batches, pipelines, tasks, gangs and instances while every part of the pool, and what it stands on, is hurt.

Only if `FPGA_POOL_DRILL` says how many jobs, shares and processes there are; `FPGA_POOL_DRILL_SEEDS`: how many seeds.
"""

import contextlib
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from fpga_pool.model.objects.pool import ENDED_BATCHES, Job, JobState
from fpga_pool.services.agent.instances.supervisor import START_S
from fpga_pool.store import Store
from support.clocks import Clock
from support.disks import Ballast
from support.drill import PROJECTS, Clients, items, leased
from support.faults import Faults
from support.guests import Hypervisor
from support.relay import Relay
from support.servers import MariaDB, PostgreSQL, RabbitMQ
from support.waiting import wait_until

OBJECTS = int(os.environ["FPGA_POOL_DRILL"])
SEEDS = range(int(os.environ.get("FPGA_POOL_DRILL_SEEDS", "1")))

SCHEDULERS, APIS = ("scheduler-1", "scheduler-2"), ("api", "api-2")
HOSTS = ("node-1", "node-2", "node-3", "node-4")
SHARD_TIMEOUT_S = 4.0
OPTIONS = {
    "scheduler": {"shards": 2, "shard_timeout_s": SHARD_TIMEOUT_S, "gang_migration_s": 0.5, "max_attempts": 20},
    "driver_simulated": {"cards": 2, "load_fails": 0.01, "card_disappears": 0.003, "card_returns_after_s": 0.5},
    "agent": {"gang_processors": "0,1"},
    "runner_simulated": {"migration_s": 0.5},
}


@pytest.fixture
def broker(run_server, servers_directory):
    yield from run_server(RabbitMQ(servers_directory / "drill"))


@pytest.fixture(params=[MariaDB, PostgreSQL], ids=lambda kind: kind.name)
def database(request, run_server, servers_directory):
    yield from run_server(request.param(servers_directory / f"drill-{request.param.name}"))


@dataclass(frozen=True)
class Recorded:
    """What the database has at the end."""

    jobs: list[Job]
    batches: set[str]
    unfinished: set[str]

    @property
    def finished(self) -> Counter[tuple[JobState, int]]:
        """How many jobs ended in a state and were finished so many times.

        Not counted is an end whose result was lost with its host, and needed: the job was computed again then.
        """
        return Counter((job.state, happened(job, "JobFinished") - happened(job, "ResultLost")) for job in self.jobs)

    @property
    def held(self) -> set[str]:
        """The jobs whose results are with their agents."""
        return {job.uuid for job in self.jobs if job.state is JobState.RESULT_HELD}


def happened(job: Job, event: str) -> int:
    return [entry.event for entry in job.history].count(event)


def recorded(database_url: str) -> Recorded:
    with contextlib.closing(Store(database_url)) as store, store.reading() as tx:
        batches = tx.batches()
        return Recorded(
            jobs=[tx.job(job.uuid) for batch in batches for job in tx.batch_jobs(batch.uuid)],
            batches={batch.uuid for batch in batches},
            unfinished={batch.uuid for batch in batches if batch.state not in ENDED_BATCHES},
        )


def files_left(directory: Path, hosts: list[str], held: set[str]) -> list[str]:
    """Return the files of jobs in the directories of agents that are not results still held."""
    return [
        str(file.relative_to(directory))
        for host in hosts
        for kind in ("inputs", "results", "processes")
        for file in (directory / host / kind).iterdir()
        if file.name not in held
    ]


@pytest.fixture
def hypervisors(servers_directory):
    """The hypervisor of each host."""
    with tempfile.TemporaryDirectory(prefix="drill-") as directory:
        yield {host: Hypervisor(Path(directory) / host) for host in HOSTS}


@pytest.fixture
def relays(broker):
    """Make the ways to RabbitMQ and the database, by process and server."""
    with contextlib.ExitStack() as ends:

        def make(database_url: str) -> dict[tuple[str, str], Relay]:
            ways = {(name, "RabbitMQ"): broker.url for name in (*SCHEDULERS, *HOSTS, *APIS)}
            ways |= {(name, "database"): database_url for name in SCHEDULERS}
            return {way: ends.enter_context(contextlib.closing(Relay(url))) for way, url in ways.items()}

        yield make


@pytest.mark.timeout(300 + 2 * OBJECTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled(
    deployment, broker, database, seed, tmp_path, end_and_audit, hypervisors, relays, small_disk
):
    url = database.new_database()
    ways = relays(url)
    own = {host: hypervisors[host].options for host in HOSTS}
    for (name, server), relay in ways.items():
        group = (
            {"DEFAULT": {"transport_url": relay.url}}
            if server == "RabbitMQ"
            else {"database": {"connection": relay.url}}
        )
        own[name] = own.get(name, {}) | group
    clocks = {name: Clock(tmp_path / f"clock-{name}") for name in (*SCHEDULERS, *HOSTS)}
    disk = small_disk(tmp_path / "pool-0" / HOSTS[-1], 32)
    launchers = {name: clock.launcher for name, clock in clocks.items()}
    numbers = {"schedulers": len(SCHEDULERS), "agents": len(HOSTS), "apis": len(APIS)}
    pool = deployment(broker.url, url, **numbers, options=OPTIONS, own=own, launchers=launchers)
    work = items(OBJECTS, seed)
    with contextlib.closing(Store(url)) as store:
        clients = Clients(pool, work, tmp_path / "results", hypervisors, store)
        faults = Faults(
            pool, [broker, database], seed, stall_s=SHARD_TIMEOUT_S + 2.0, relays=ways,
            disks={HOSTS[-1]: Ballast(disk)}, clocks=clocks,
        )  # fmt: skip
        clients.start()
        faults.run(lambda: clients.busy)
        print(dict(faults.done))
        assert not clients.ledger.wrong, "\n".join(clients.ledger.wrong)
        assert sorted(clients.ledger.ended) == [item.number for item in work]
        wait_until(lambda: not leased(store), "instances that did not start have no slots", 2 * START_S)
    gangs = {gang.uuid for project in PROJECTS for gang in pool.client(project).gangs(limit=None)}
    end_and_audit(pool, url, [JobState.CANCELLED])
    found = recorded(url)
    print(dict(found.finished))
    uuids = clients.ledger.uuids
    assert gangs == uuids["gang"]
    assert found.batches == set().union(*(uuids[kind] for kind in uuids.keys() - {"gang"}))
    assert found.unfinished == set()
    assert {count for (state, count) in found.finished if state is not JobState.CANCELLED} == {1}
    assert files_left(pool.directory, pool.hosts, found.held) == []
