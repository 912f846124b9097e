"""Several concurrent writers: no change is lost, unless it was refused."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fpga_pool
from fpga_pool.model.exceptions import Conflict
from fpga_pool.store import Store


@pytest.fixture
def completed(store, counted):
    def read():
        with store.reading() as tx:
            return tx.batch(counted.uuid).jobs_completed

    return read


def test_increments_of_threads_all_arrive(begin, counted, bump, completed):
    def work(_):
        for _ in range(25):
            with begin() as tx:
                tx.save(bump(tx.batch(counted.uuid)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert completed() == 100


def test_increments_of_processes_all_arrive(connection, shard, counted, completed):
    writer = Path(__file__).with_name("writer.py")
    command = [sys.executable, str(writer), connection, str(shard.epoch), "count", counted.uuid]
    environment = {"PYTHONPATH": str(Path(fpga_pool.__file__).parents[1])}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert [int(process.communicate(timeout=240)[0]) for process in started] == [50, 50]
    assert completed() == 100


def test_decisions_on_what_was_read_before_arrive_or_meet_a_conflict(store, begin, counted, bump, completed):
    def work(_):
        arrived = 0
        for _ in range(25):
            with store.reading() as tx:
                seen = tx.batch(counted.uuid)
            try:
                with begin() as tx:
                    tx.save(bump(seen))
            except Conflict:
                continue
            arrived += 1
        return arrived

    with ThreadPoolExecutor(4) as threads:
        arrived = sum(threads.map(work, range(4)))
    assert completed() == arrived
    assert arrived >= 25  # the first writer of each round succeeds


def test_two_stores_on_one_database_see_each_other(connection, shard, begin, counted, bump):
    other = Store(connection)
    with other.transaction(shard.name, shard.owner, shard.epoch) as tx:
        tx.save(bump(tx.batch(counted.uuid)))
    other.close()
    with begin() as tx:
        assert tx.batch(counted.uuid).jobs_completed == 1
