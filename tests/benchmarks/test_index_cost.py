"""The cost of the indexes of jobs for writes.

    pytest tests/benchmarks/test_index_cost.py -s

MariaDB stores batches of 100 jobs and takes each job through its states, in one transaction for all jobs of a batch, as
a scheduler does.  The databases have different indexes, take turns, and grow equally.  Prints milliseconds of the
server's CPU time, and of elapsed time, for each 100 jobs that are stored, and that pass through their states.
"""

import os
import statistics
import time
import uuid
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa

from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.shared.admission import as_stored
from fpga_pool.store import Store

from .test_small_jobs import cpu_s

ROUNDS, BATCHES = int(os.environ.get("ROUNDS", "6")), int(os.environ.get("BATCHES", "10"))
WAY = (JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING, JobState.RESULT_HELD, JobState.COMPLETED)
#: Indexes of the table of jobs that are dropped from the schema, and columns of those that are added.
VARIANTS = {
    "as in the schema": ((), ()),
    "without lists by host": (("ix_jobs_newest_on_host",), ()),
    "without lists by host or state": (
        ("ix_jobs_newest_on_host", "ix_jobs_newest_in_state", "ix_jobs_newest_in_state_of_project"),
        (),
    ),
    "with lists by function": ((), ("function, created_at, uuid",)),
}


@pytest.fixture
def stores(mariadb):
    """A store of each variant, and its batches."""
    opened = {}
    for name, (omitted, added) in VARIANTS.items():
        url = mariadb.new_database()
        store = Store(url)
        store.migrate()
        store.ensure_shards(("default",), 1e9)
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            for index in omitted:
                connection.exec_driver_sql(f"DROP INDEX {index} ON jobs")
            for number, columns in enumerate(added):
                connection.exec_driver_sql(f"CREATE INDEX ix_more_{number} ON jobs ({columns})")
        engine.dispose()
        opened[name] = store
    yield opened
    for store in opened.values():
        store.close()


def submit(store, number):
    """Store a batch; return its uuid."""
    batch_uuid = str(uuid.uuid4())
    wanted = [
        JobRequest(uuid=str(uuid.uuid4()), function="sha256", requester="node-1", input_bytes=1) for _ in range(100)
    ]
    request = BatchRequest(uuid=batch_uuid, project_id=f"p{number % 10}", user_id="u", name="n", jobs=tuple(wanted))
    batch, jobs = as_stored(request, "makespan", request.jobs, ["default"] * 100, 1e9 + number)
    with store.admission() as tx:
        tx.add(batch, *jobs)
    return batch_uuid


def bring(store, batch_uuid, number):
    """Take the jobs of a batch through their states."""
    place = {"host": f"node-{number % 100}", "slot": f"node-{number % 100}/card/{number % 4}"}
    for state in WAY:
        with store.transaction("default") as tx:
            for job in tx.batch_jobs(batch_uuid):
                tx.save(replace(job, state=state, **place))


def submit_all(store, numbers):
    return [submit(store, number) for number in numbers]


def bring_all(store, batches, numbers):
    for batch_uuid, number in zip(batches, numbers, strict=True):
        bring(store, batch_uuid, number)


@pytest.mark.timeout(3600)
def test_cost_of_indexes_of_jobs(mariadb, stores):
    server = {"server": mariadb._process.pid}
    found = {name: ([], []) for name in stores}

    def measured(into, action):
        before_s, began_s = cpu_s(server)["server"], time.perf_counter()
        done = action()
        into.append((1000 * (cpu_s(server)["server"] - before_s), 1000 * (time.perf_counter() - began_s)))
        return done

    for turn in range(ROUNDS):
        numbers = range(turn * BATCHES, (turn + 1) * BATCHES)
        for name, store in stores.items():
            stored, brought = found[name]
            batches = measured(stored, partial(submit_all, store, numbers))
            measured(brought, partial(bring_all, store, batches, numbers))
    print(f"\n{ROUNDS * BATCHES} batches of 100 jobs; ms of the server's CPU (of the clock), for 100 jobs, medians")
    for name, parts in found.items():
        stored, brought = (
            [statistics.median(one[place] for one in part) / BATCHES for place in (0, 1)] for part in parts
        )
        print(
            f"{name:40} stored {stored[0]:6.1f} ({stored[1]:6.1f}), on their way {brought[0]:6.1f} ({brought[1]:6.1f})"
        )
