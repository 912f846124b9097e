"""Batches, pipelines, tasks, gangs and instances while every part of the pool, and of its environment, fails.

`FPGA_POOL_DRILL` sets the number of jobs, shares and processes, `FPGA_POOL_DRILL_SEEDS` the number of seeds.
"""

import contextlib
import os
import statistics

import pytest

from fpga_pool.model.objects.pool import JobState
from fpga_pool.services.agent.instances.supervisor import START_S
from fpga_pool.store import Store
from support.clocks import Clock
from support.disks import Ballast
from support.drill import PROJECTS, Clients, items, leased
from support.faults import Faults
from support.remains import files_left, recorded
from support.servers import MariaDB
from support.waiting import wait_until

OBJECTS = int(os.environ.get("FPGA_POOL_DRILL", "150"))
SEEDS = range(int(os.environ.get("FPGA_POOL_DRILL_SEEDS", "1")))

SCHEDULERS, APIS = ("scheduler-1", "scheduler-2"), ("api", "api-2")
HOSTS = ("node-1", "node-2", "node-3", "node-4")
SHARD_TIMEOUT_S = 4.0
#: At least this many faults are injected, even if the work ends earlier.
LEAST_FAULTS = 10
OPTIONS = {
    "scheduler": {"shards": 2, "shard_timeout_s": SHARD_TIMEOUT_S, "gang_migration_s": 0.5, "max_attempts": 20},
    "driver_simulated": {"cards": 2, "load_fails": 0.01, "card_disappears": 0.003, "card_returns_after_s": 0.5},
    "agent": {"gang_processors": "0,1"},
    "runner_simulated": {"migration_s": 0.5},
}


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * OBJECTS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("partitions")
def test_nothing_is_lost_or_doubled(
    deployment, broker, database_on_disk, seed, tmp_path, end_and_audit, hypervisors, relays, by_way, small_disk
):
    database, databases_disk = database_on_disk
    url = database.new_database()
    ways = relays(
        {(name, "RabbitMQ"): broker.url for name in (*SCHEDULERS, *HOSTS, *APIS)}
        | {(name, "database"): url for name in SCHEDULERS}
    )
    machines = hypervisors(HOSTS)
    clocks = {name: Clock(tmp_path / f"clock-{name}") for name in (*SCHEDULERS, *HOSTS)}
    disk = small_disk(tmp_path / "pool-0" / HOSTS[-1], 32)
    launchers = {name: clock.launcher for name, clock in clocks.items()}
    numbers = {"schedulers": len(SCHEDULERS), "agents": len(HOSTS), "apis": len(APIS)}
    own = by_way(ways, {host: machines[host].options for host in HOSTS})
    # With one of the databases, the jobs of a batch are split among several shards.
    options = {**OPTIONS, "scheduler": {**OPTIONS["scheduler"], "split_batches": isinstance(database, MariaDB)}}
    pool = deployment(broker.url, url, **numbers, options=options, own=own, launchers=launchers)
    work = items(OBJECTS, seed)
    with contextlib.closing(Store(url)) as store:
        clients = Clients(pool, work, tmp_path / "results", machines, store)
        faults = Faults(
            pool, [broker, database], seed, stall_s=SHARD_TIMEOUT_S + 2.0, relays=ways,
            disks={HOSTS[-1]: Ballast(disk), database.name: Ballast(databases_disk)}, clocks=clocks,
        )  # fmt: skip
        clients.start()
        faults.run(lambda: clients.busy or sum(faults.done.values()) < LEAST_FAULTS)
        print(dict(faults.done))
        print(
            f"items took {statistics.median(clients.ledger.took_s):.1f} s, {max(clients.ledger.took_s):.1f} s at most"
        )
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
    assert found.finishes_of_completed == {1}
    assert files_left(pool.directory, pool.hosts, found.held) == []
