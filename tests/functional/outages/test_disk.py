"""A full disk of an agent, and of the database."""

import time

import pytest

from fpga_pool.model.exceptions import StorageFull
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import JobState
from support.disks import Ballast
from support.servers import MariaDB, PostgreSQL
from support.waiting import wait_until

NO_ROOM = "no space for the journal; free space on the disk of [agent] state_dir"
DATABASE_FULL = "the database is full: nothing was stored; free space on its disk and try again"
#: How long nothing can be stored, in seconds: longer than the timeout of hosts (conftest.OPTIONS).
FULL_S = 9.0


@pytest.fixture
def agents_disk(small_disk, tmp_path):
    return small_disk(tmp_path / "disk", 8)


@pytest.mark.timeout(600)
def test_an_agent_without_room_computes_and_takes_in_when_there_is_some(run_pool, broker, mariadb, agents_disk):
    ballast = Ballast(agents_disk)
    own = {"node-2": {"agent": {"state_dir": agents_disk / "state"}}}
    with run_pool(broker, mariadb.new_database(), agents=2, own=own) as scene:
        # Before: 4 of 8 jobs compute, the others wait in their slots; none ends before the disk is full.
        work = scene.begin_twice_full(seconds=4.0)
        log = scene.pool.log_file("node-2")

        ballast.fill()
        # Results are not reported, as they could not be stored, and new work is refused.
        wait_until(lambda: NO_ROOM in log.read_text(), "the agent says what it lacks")
        later = scene.begin([1.0] * 8)
        time.sleep(FULL_S)
        assert {job.state for job in work.jobs() if job.host == "node-2"} <= {JobState.STAGED, JobState.RUNNING}
        assert not scene.hosts_were_lost()
        ballast.remove()

        # After: every job was done where it was planned, only by the agent's own retries.
        work.finish()
        later.finish()
        assert work.attempts() == {1}
        assert not scene.hosts_were_lost()
        assert scene.alive() == {"node-1": True, "node-2": True}
        assert "Traceback" not in log.read_text()


@pytest.fixture(params=[MariaDB, PostgreSQL], ids=lambda kind: kind.name)
def full_database(request, run_server, servers_directory, small_disk):
    """A server on a small disk, and a ballast to fill it."""
    disk = small_disk(servers_directory / f"small-{request.param.name}", 400)
    for server in run_server(request.param(disk)):
        yield server, Ballast(disk)


def fill_tables(client) -> str:
    """Create batches and cancel them at once, until the database is full; return the error message."""
    for batch in range(40):
        jobs = [
            JobRequest(uuid=f"{batch:08x}-0000-4000-8000-{number:012x}", name="x" * 200, function="sha256",
                       requester="node-1", input_bytes=1)
            for number in range(500)
        ]  # fmt: skip
        try:
            client.cancel(client.create_batch(jobs, patience_s=0.0).uuid)
        except StorageFull as full:
            return str(full)
    raise AssertionError("the database has room for everything")


@pytest.mark.timeout(600)
def test_a_database_without_room_refuses_what_is_new_and_jobs_go_on(run_pool, broker, full_database):
    server, ballast = full_database
    with run_pool(broker, server.new_database(), agents=2) as scene:
        client = scene.pool.client()
        # Before: 4 of 8 jobs compute, the others wait in their slots.
        work = scene.begin_twice_full(seconds=4.0)

        ballast.fill()
        assert fill_tables(client) == DATABASE_FULL
        assert {batch.jobs for batch in client.batches()} <= {8, 500}  # reading still works
        wait_until(lambda: work.results == 8, lambda: f"the client has all results: {work.results}")
        ballast.remove()

        # After: every job is done in its first attempt.
        work.finish()
        assert work.attempts() == {1}
        assert not scene.hosts_were_lost()
        later = scene.begin([0.5] * 4)
        later.finish()
