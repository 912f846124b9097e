"""The cost of a page of a list of very many jobs, wherever in the list it begins.

    JOBS=1000000 pytest tests/benchmarks/test_listing.py -s --timeout 0

The jobs of two projects are copies of one job, in MariaDB; one in a hundred is not complete.  Prints for each kind of
list the median time of a page at the beginning, in the middle and at the end, as read by the store and as returned by
GET /v1/jobs, and the number of rows that the server has read for it.  Only the rows are asserted, as they, unlike
times, do not depend on the machine.
"""

import os
import statistics
import time
from contextlib import closing

import pytest
import requests
import sqlalchemy as sa

from fpga_pool.model.messages.requests import Page
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import Job
from fpga_pool.model.rules.shared.admission import as_stored
from fpga_pool.store import Store
from fpga_pool.store.tables import JOBS
from support.waiting import wait_until

COUNT = int(os.environ.get("JOBS", "50000"))
PIECE, LIMIT, ROUNDS = 10_000, 100, 7
#: More than the rows of a page, the row before it, and a few internal reads of the server.
MOST_READ = 110
#: By name: parameters of GET /v1/jobs, and the SQL condition of the listed jobs.
LISTS = {
    "own": ({}, "project_id = 'p0'"),
    "own, oldest first": ({"sort": "created_at:asc"}, "project_id = 'p0'"),
    "own, running": ({"state": "RUNNING"}, "project_id = 'p0' AND state = 'RUNNING'"),
    "own, of a host": ({"host": "node-7"}, "project_id = 'p0' AND host = 'node-7'"),
    "of all projects": ({"project_id": "all"}, "TRUE"),
    "own, running or failed": ({"state": ["RUNNING", "FAILED"]}, "project_id = 'p0' AND state = 'RUNNING'"),
    "of all, running": ({"project_id": "all", "state": "RUNNING"}, "state = 'RUNNING'"),
}


#: Factor for lists that read more rows: those of other projects on a host; and the first of each state, plus sorting.
MOST_TIMES = {"own, of a host": 2, "own, running or failed": 7}


def fill(url):
    """Store the jobs: the first like a scheduler, the others as copies by the server."""
    job = JobRequest(uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12, function="sha256", requester="node-1", input_bytes=1)
    request = BatchRequest(uuid=job.uuid, project_id="p0", user_id="u", name="n", jobs=(job,))
    batch, jobs = as_stored(request, "makespan", request.jobs, ["default"], 1e9)
    with closing(Store(url)) as store:
        store.ensure_shards(("default",), 1e9)
        with store.admission() as tx:
            tx.add(batch, *jobs)
    changed = {
        "uuid": "CONCAT(LPAD(LOWER(HEX(seq)), 8, '0'), '-0000-4000-8000-000000000000')",
        "project_id": "CONCAT('p', seq % 2)",
        "state": "IF(seq DIV 2 % 100 = 0, 'RUNNING', 'COMPLETED')",
        "host": "CONCAT('node-', seq DIV 2 % 100)",
        "created_at": "1e9 + seq DIV 3",  # many have the same
    }
    columns = [column.name for column in JOBS.columns]
    values = ", ".join(changed.get(name, f"one.`{name}`") for name in columns)
    names = ", ".join(f"`{name}`" for name in columns)
    engine = sa.create_engine(url)
    for begin in range(1, COUNT, PIECE):
        copied = f"INSERT INTO jobs ({names}) SELECT {values} FROM seq_{begin}_to_{min(COUNT, begin + PIECE) - 1}"
        with engine.begin() as connection:
            connection.exec_driver_sql(f"{copied} JOIN jobs one ON one.uuid = '{job.uuid}'".replace("%", "%%"))
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE TABLE jobs")
    return engine


def marker(engine, where, part, *, ascending):
    """Return the uuid of the job before a page that begins at this part of a list; None for the first page."""
    if part == 0:
        return None
    order = "" if ascending else "DESC"
    with engine.connect() as connection:
        count = connection.exec_driver_sql(f"SELECT COUNT(*) FROM jobs WHERE {where}").scalar()
        offset = max(0, int(part * count) - LIMIT - 1)
        return connection.exec_driver_sql(
            f"SELECT uuid FROM jobs WHERE {where} ORDER BY created_at {order}, uuid {order} LIMIT 1 OFFSET {offset}"
        ).scalar()


def rows_read(store, page):
    """Return how many rows the server reads for a page, by its own counters, and the length of the page."""
    with store.reading() as tx:
        count = lambda: sum(  # noqa: E731
            int(number) for _, number in tx.connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        )
        before = count()
        found = tx.page(Job, page)
        return count() - before, len(found)


def answers(session, address):
    try:
        return session.get(address, params={"limit": 1}, timeout=60).ok
    except requests.ConnectionError:
        return False


def median_ms(measured):
    times_s = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        measured()
        times_s.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(times_s)


def as_page(parameters, marker):
    given = {name: parameters[name] for name in ("state", "host") if name in parameters}
    where = {name: tuple(one) if isinstance(one, list) else (one,) for name, one in given.items()}
    project = None if parameters.get("project_id") == "all" else "p0"
    descending = parameters.get("sort") != "created_at:asc"
    return Page(project_id=project, where=where, marker=marker, limit=LIMIT, descending=descending)


@pytest.mark.timeout(3600)
def test_pages_of_many_jobs(scheduler_process):
    pool, url = scheduler_process
    engine = fill(url)
    pool.restart("api")
    address, session = f"{pool.endpoints['api']}/v1/jobs", requests.Session()
    session.headers.update({"X-Project-Id": "p0"})
    wait_until(lambda: answers(session, address), "the API", timeout_s=240.0)
    print(f"\n{COUNT} jobs; pages of {LIMIT} at the begin, in the middle and at the end; ms (median of {ROUNDS})")
    too_many = []
    with closing(Store(url)) as store:
        for name, (parameters, where) in LISTS.items():
            said = []
            for part in (0, 0.5, 1):
                last = marker(engine, where, part, ascending=parameters.get("sort") == "created_at:asc")
                page = as_page(parameters, last)
                read, found = rows_read(store, page)
                asked = parameters | {"limit": LIMIT} | ({} if last is None else {"marker": last})
                answer = session.get(address, params=asked, timeout=600)
                assert len(answer.json()["jobs"]) == found == LIMIT, answer.text[:200]
                store_ms = median_ms(lambda page=page: rows_read(store, page))
                api_ms = median_ms(lambda asked=asked: session.get(address, params=asked, timeout=600))
                said.append(f"{store_ms:7.1f} {api_ms:7.1f} ({read:7} rows)")
                if read > MOST_READ * MOST_TIMES.get(name, 1):
                    too_many.append(f"{name} at {part}: {read}")
            print(f"{name:20} {' |'.join(said)}")
    engine.dispose()
    assert too_many == []
