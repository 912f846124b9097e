"""An owner that stalls while its commands are in transit: they arrive when another scheduler has taken over."""

import time

import pytest

from fpga_pool.client import RunSettings
from fpga_pool.services.audit import audit
from fpga_pool.store import Store
from support.waiting import wait_until

OPTIONS = {
    # Agents send no heartbeats while they wait for a stalled scheduler, and lost hosts are not tested here.
    "scheduler": {"shard_timeout_s": 8.0, "host_timeout_s": 60.0},
    # RabbitMQ must not disconnect a process whose messages are held up.
    "oslo_messaging_rabbit": {"heartbeat_timeout_threshold": 300},
}
SCHEDULERS = ("scheduler-1", "scheduler-2")
AGENTS = ("node-1", "node-2")
JOBS = 40


@pytest.fixture
def store(mariadb_url):
    store = Store(mariadb_url)
    yield store
    store.close()


def owner(store):
    with store.reading() as tx:
        (shard,) = tx.shards()
    return shard.owner, shard.epoch


def work_as_stored(store):
    """Return all jobs and slots; each has a generation, so that every change is visible."""
    with store.reading() as tx:
        return [tx.batch_jobs(batch.uuid) for batch in tx.batches()], tx.slots()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_stalled_owner_has_sent_is_refused_by_agents_and_what_it_writes_by_the_database(
    deployment, rabbitmq, line, mariadb_url, store, new_work, end_and_audit
):
    lines = {name: line() for name in SCHEDULERS}
    own = {name: {"DEFAULT": {"transport_url": lines[name].url}} for name in SCHEDULERS}
    pool = deployment(rabbitmq.url, mariadb_url, schedulers=2, agents=2, options=OPTIONS, own=own)
    work = new_work(AGENTS, JOBS)
    first, epoch = owner(store)
    second = next(name for name in SCHEDULERS if name != first)

    # 1. The owner has decided and sent its commands, and stalls before they arrive.
    lines[first].hold(b"AssignJob")
    work.start(pool.client(), range(JOBS), RunSettings(patience_s=90.0, timeout_s=400.0))
    wait_until(lambda: lines[first].holds, "commands are on their way")
    pool.stop(first)
    stalled_s = time.monotonic()
    assert owner(store) == (first, epoch)

    # 2. The other scheduler takes over, and sends its own commands for the same jobs.
    wait_until(lambda: owner(store) == (second, epoch + 1), "another takes over")
    print(f"{second} took over {time.monotonic() - stalled_s:.1f} s after {first} had stalled")
    work.wait(300)
    assert work.wrong() == []
    wait_until(lambda: audit(store, idle=True) == [], "the pool is at rest")
    before = work_as_stored(store)

    # 3. The late commands arrive: the addressed agents refuse them, and the operator sees it.
    lines[first].release()
    client = pool.client()

    def refused():
        """Return by host whether commands were refused, according to the agent's log, and to what the operator sees."""
        over = f"accepts commands of epoch {epoch + 1} of shard default: epoch {epoch} is over"
        return {h.name: (over in pool.log_file(h.name).read_text(), h.refused_commands > 0) for h in client.hosts()}

    wait_until(lambda: (True, True) in refused().values(), "commands are refused, and counted")
    wait_until(lambda: {(True, False), (False, True)}.isdisjoint(refused().values()), "log and count agree")

    # 4. The former owner continues, and learns from the database that it has lost the shard.
    pool.cont(first)
    lost = f"shard default is lost: shard default: {first} does not own it in epoch {epoch}"
    wait_until(lambda: lost in pool.log_file(first).read_text(), "the former owner hears of it")
    assert work_as_stored(store) == before
    assert owner(store) == (second, epoch + 1)
    assert len(end_and_audit(pool, mariadb_url)) == JOBS
