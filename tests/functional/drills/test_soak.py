"""A pool at half load for a long time, without faults: its use of resources does not grow.

Runs only if `FPGA_POOL_SOAK` is set to a duration in seconds.  `FPGA_POOL_SOAK_PER_S` sets how many jobs, shares,
processes and slots are submitted per second; by default half of the rate that ten clients reach in the first minute.
"""

import contextlib
import os
import time

import pytest

from fpga_pool.model.objects.pool import JobState
from fpga_pool.services.agent.instances.supervisor import START_S
from fpga_pool.store import Store
from support.drill import Clients, leased, submissions
from support.remains import files_left, recorded
from support.soak import HEADER, Pace, Sampler, fill_journal
from support.waiting import wait_until

WHOLE_S = float(os.environ["FPGA_POOL_SOAK"])
PER_S = float(os.environ.get("FPGA_POOL_SOAK_PER_S", "0"))
SEED = 5
FULL_S = 60.0
#: Ended objects are removed after this time, so the number of rows does not grow from then on.
RETENTION_S = 120.0
#: Not evaluated: full load, the first removal, and modules that processes load at first use.
WARM_UP_S = max(WHOLE_S / 4, FULL_S + 1.5 * RETENTION_S)
INTERVAL_S = 5.0

HOSTS = ("node-1", "node-2", "node-3", "node-4")
OPTIONS = {
    "scheduler": {
        "shards": 2,
        "gang_migration_s": 0.5,
        "retention_days": RETENTION_S / 86_400,
        "token_lifetime_s": RETENTION_S,
    },
    "driver_simulated": {"cards": 2},
    "agent": {"gang_processors": "0,1", "retention_s": RETENTION_S / 2},
    "runner_simulated": {"migration_s": 0.5},
}


@pytest.mark.timeout(1200 + 2 * WHOLE_S)
def test_nothing_grows(deployment, broker, database, tmp_path, end_and_audit, hypervisors):
    url = database.new_database()
    machines = hypervisors(HOSTS)
    for host in HOSTS:
        fill_journal(tmp_path / "pool-0" / host / "journal.sqlite")
    own = {host: machines[host].options for host in HOSTS}
    parts = {"schedulers": 2, "agents": len(HOSTS), "apis": 2, "options": OPTIONS, "own": own}
    pool = deployment(broker.url, url, **parts, forked=False)  # not forked, so that processes share no memory
    pace = Pace(submissions(SEED), FULL_S, WHOLE_S, PER_S)
    with contextlib.closing(Store(url)) as store:
        clients = Clients(pool, pace, tmp_path / "results", machines, store)
        begun_s = time.monotonic()
        sampler = Sampler(
            {name: pool.pid(name) for name in pool.names},
            {server.name: server.pid for server in (broker, database) if server.pid},
            {name: pool.directory / name for name in pool.names if (pool.directory / name).is_dir()},
            store,
            INTERVAL_S,
        )
        with contextlib.closing(sampler):
            clients.start()
            wait_until(lambda: not clients.busy, "all work ends", 600 + 2 * WHOLE_S)
        ended_s = time.monotonic()
        sampler.write(tmp_path / "soak.csv")
        verdicts = sampler.verdicts(begun_s + WARM_UP_S, begun_s + WHOLE_S)
        print(
            f"\n{pace.items} items of {pace.objects} objects in {ended_s - begun_s:.0f} s, {pace.per_s:.1f} a second"
            f" after {FULL_S:g} s at full load; judged from {WARM_UP_S:g} s on; samples are in {tmp_path}/soak.csv"
        )
        print(HEADER, *verdicts, sep="\n")
        assert not clients.ledger.wrong, "\n".join(clients.ledger.wrong)
        assert len(clients.ledger.ended) == pace.items
        wait_until(lambda: not leased(store), "instances that did not start have no slots", 2 * START_S)
    end_and_audit(pool, url, [JobState.CANCELLED])
    found = recorded(url)
    uuids = clients.ledger.uuids
    assert found.batches <= set().union(*(uuids[kind] for kind in uuids.keys() - {"gang"}))
    assert found.unfinished == set()
    assert found.finishes_of_completed <= {1}
    assert files_left(pool.directory, pool.hosts, found.held) == []
    assert [str(verdict) for verdict in verdicts if verdict.exceeds] == []
