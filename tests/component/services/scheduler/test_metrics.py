"""The metrics of a scheduler: counts of committed changes, and samples of its shards."""

from collections import Counter
from dataclasses import replace

import pytest

from fpga_pool.metrics import table
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.services.scheduler.metrics import pool_samples
from support.scraping import values_of


def host(name, shard="s", alive=True):
    return name, shard, "zone", alive, 1


def slot(host, place, state="READY", *, shard="s", lease="", drain=False, function="aes"):
    known = place.split("/")[0], "u250", "small", "", state, function
    return host, shard, place, *known, lease, "holder" if lease else "", False, drain, 1


def test_slots_cards_and_hosts_of_owned_shards_are_counted():
    hosts = [host("h1"), host("h2", alive=False), host("h3", shard="other")]
    slots = [
        slot("h1", "c0/0", "BUSY", lease="pool"),
        slot("h1", "c0/1", "FAULTED"),
        slot("h1", "c1/0", "DRAINED", drain=True),
        slot("h1", "c1/1", "READY", drain=True, lease="instance"),  # accepts no new work
        slot("h2", "c0/0"),
        slot("h3", "c0/0", shard="other"),
    ]
    pool = PoolColumns.of({"s": 1, "other": 1}, hosts, slots, (3, 6))
    found = {(one.metric, *one.labels): one.value for one in pool_samples(pool, ["s"])}
    states = Counter()
    for (metric, *labels), value in found.items():
        if metric is table.SLOTS:
            states[labels[1]] += value
    assert states == {"BUSY": 1, "FAULTED": 1, "DRAINED": 1, "READY": 2}
    assert (found[table.HOSTS, "alive"], found[table.HOSTS, "lost"]) == (1, 1)
    assert found[table.CARDS, "u250", "in_service"] == 1  # h1/c0, because of its slot 0
    assert found[table.CARDS, "u250", "out_of_service"] == 1  # h1/c1
    assert found[table.CARDS, "u250", "unreachable"] == 1  # h2/c0
    assert [found[table.LEASED_SLOTS, kind] for kind in ("pool", "instance", "task", "gang")] == [1, 1, 0, 0]


@pytest.mark.parametrize("shards", [[], ["s"]])
def test_a_pool_without_hosts_has_none(shards):
    pool = PoolColumns.of({"s": 1}, [], [], (0, 0))
    assert {one.value for one in pool_samples(pool, shards)} == {0}


def test_a_change_is_counted_once_however_often_it_is_reported(running, until):
    agent = running.host()
    batch = running.create(agent, "sha256", "aes")
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * 2)
    for job in running.jobs(batch):
        for _ in range(2):
            running.report(job, "staged", "started", "finished")
    found = values_of(running.service.instruments)
    assert found["fpga_pool_jobs_ended_total", "sha256", "COMPLETED"] == 1
    assert found["fpga_pool_jobs_ended_total", "aes", "COMPLETED"] == 1
    assert found["fpga_pool_job_wait_seconds_count", "p"] == 2
    assert found["fpga_pool_batch_makespan_ratio_count", batch.policy] == 1
    assert found["fpga_pool_planning_seconds_count", "batch", "decide"] >= 1
    assert found["fpga_pool_hosts", "alive"] == 1
    assert found["fpga_pool_shard_owned", "default"] == 1


def test_a_failed_transaction_is_not_counted(running):
    agent = running.host()
    batch = running.create(agent, "sha256")

    def fail(tx):
        tx.save(replace(tx.batch(batch.uuid), name="never stored"))
        raise ValueError("not this time")

    counted = []
    running.service.changes._observer = counted.append
    with pytest.raises(ValueError, match="not this time"):
        running.service.writer("default").run(fail)
    # The planner may change the batch in the meantime.
    assert not any(changed.name == "never stored" for tx in counted for _, changed in tx.changes(type(batch)))
