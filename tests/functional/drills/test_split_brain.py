"""Schedulers that continue after their lease of shards has expired, with delayed SQL statements.

`FPGA_POOL_SPLITS` sets how many times, `FPGA_POOL_DRILL_SEEDS` the number of seeds.
"""

import contextlib
import itertools
import math
import os
import statistics
import threading

import pytest

from fpga_pool.model.objects.pool import JobState
from fpga_pool.services.agent.instances.supervisor import START_S
from fpga_pool.store import Store
from support.drill import Clients, leased, submissions
from support.remains import files_left, recorded
from support.soak import Pace
from support.splits import Splits
from support.waiting import wait_until

COUNT = int(os.environ.get("FPGA_POOL_SPLITS", "3"))
SEEDS = range(int(os.environ.get("FPGA_POOL_DRILL_SEEDS", "1")))

SCHEDULERS = ("scheduler-1", "scheduler-2")
HOSTS = ("node-1", "node-2", "node-3")
LEASE_S = 1.5
#: Jobs, shares, processes and slots that are submitted per second.
PER_S = 5.0
OPTIONS = {
    "scheduler": {"shards": 2, "shard_timeout_s": LEASE_S, "gang_migration_s": 0.5, "max_attempts": 20},
    "driver_simulated": {"cards": 2},
    "agent": {"gang_processors": "0,1"},
    "runner_simulated": {"migration_s": 0.5},
}


@pytest.mark.long
@pytest.mark.timeout(600 + 50 * COUNT)
@pytest.mark.parametrize("seed", SEEDS)
def test_who_has_lost_a_shard_changes_nothing_of_it(
    deployment, broker, database, seed, tmp_path, end_and_audit, hypervisors, relays, by_way
):
    url = database.new_database()
    ways = relays({(name, "database"): url for name in SCHEDULERS})
    machines = hypervisors(HOSTS)
    own = by_way(ways, {host: machines[host].options for host in HOSTS})
    pool = deployment(broker.url, url, schedulers=2, agents=len(HOSTS), options=OPTIONS, own=own)
    over = threading.Event()
    work = itertools.takewhile(lambda _: not over.is_set(), Pace(submissions(seed), 0.0, math.inf, PER_S))
    with contextlib.closing(Store(url)) as store:
        clients = Clients(pool, work, tmp_path / "results", machines, store)
        splits = Splits(pool, SCHEDULERS, {name: relay for (name, _), relay in ways.items()}, store, seed, LEASE_S)
        clients.start()
        try:
            splits.run(COUNT)
        finally:
            over.set()
        wait_until(lambda: not clients.busy, "all work ends", 900)
        print(f"done: {dict(splits.done)}; another one had the shard: {dict(splits.taken)}")
        print(
            f"items took {statistics.median(clients.ledger.took_s):.1f} s, {max(clients.ledger.took_s):.1f} s at most"
        )
        assert not clients.ledger.wrong, "\n".join(clients.ledger.wrong)
        assert COUNT - sum(splits.taken.values()) < max(2, 0.2 * COUNT)
        wait_until(lambda: not leased(store), "instances that did not start have no slots", 2 * START_S)
    end_and_audit(pool, url, [JobState.CANCELLED])
    found = recorded(url)
    refused = sum(pool.log_file(name).read_text(errors="replace").count(" is lost: ") for name in SCHEDULERS)
    print(
        f"{len(clients.ledger.ended)} items, jobs {dict(found.finished)}; owners learned {refused} times of their loss"
    )
    uuids = clients.ledger.uuids
    assert found.batches == set().union(*(uuids[kind] for kind in uuids.keys() - {"gang"}))
    assert found.unfinished == set()
    assert found.finishes_of_completed == {1}
    assert files_left(pool.directory, pool.hosts, found.held) == []
