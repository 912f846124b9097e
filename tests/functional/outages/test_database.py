"""The database server ends while jobs run, and comes back."""

import time
from uuid import uuid4

import pytest

from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import JobState
from support.servers import MariaDB, PostgreSQL
from support.waiting import wait_until

DATABASE_SILENT = "the database does not respond; try again later"
#: Longer than the timeouts of schedulers and hosts (conftest.OPTIONS).
AWAY_S = 10.0


@pytest.fixture(
    scope="module", params=[MariaDB, pytest.param(PostgreSQL, marks=pytest.mark.long)], ids=lambda kind: kind.name
)
def database(request, run_server, servers_directory):
    """A separate server for these tests, which they stop and kill."""
    yield from run_server(request.param(servers_directory / f"outages-{request.param.name}"))


@pytest.fixture(scope="module")
def scene(run_pool, broker, database):
    with run_pool(broker, database.new_database(), schedulers=2, agents=2) as scene:
        yield scene


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.long), "kill"])
def test_without_database_jobs_go_on_and_are_told_of_when_it_is_back(scene, database, refusal, end):
    # Before: 4 of 8 jobs compute, the others wait in their slots.
    work = scene.begin_twice_full(seconds=2.0)
    jobs, owners = len(work.jobs()), scene.owners()

    getattr(database, end)()
    until_s = time.monotonic() + AWAY_S
    client = scene.pool.client()
    job = JobRequest(uuid=str(uuid4()), name="", function="sha256", requester="node-1", input_bytes=1)
    for call in (lambda: client.create_batch([job]), client.batches):
        assert refusal(call) == DATABASE_SILENT

    # Meanwhile all jobs end, and the client gets the results; pending reports wait in the agents' journals.
    wait_until(lambda: work.results == jobs, lambda: f"the client has all results: {work.results}")
    time.sleep(max(until_s - time.monotonic(), 0))
    database.start()
    back_s = time.monotonic()

    # After: every job is done in one attempt; shards have kept their owners.
    work.finish()
    print(f"all was told {time.monotonic() - back_s:.1f} s after the database was back")
    assert work.attempts() == {1}
    assert scene.alive() == {"node-1": True, "node-2": True}
    assert not scene.hosts_were_lost()
    assert scene.owners() == owners
    later = scene.begin([0.5] * 4)
    later.finish()
    print(f"new work was done {time.monotonic() - back_s:.1f} s after the database was back")
    assert later.states() == {JobState.COMPLETED: 4}
