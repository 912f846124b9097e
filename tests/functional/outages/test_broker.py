"""RabbitMQ ends, and comes back after a minute."""

import time
from uuid import uuid4

import pytest

from fpga_pool.model.objects import JobState
from fpga_pool.model.pool.admission import JobRequest

SCHEDULER_SILENT = "the scheduler does not answer; try again later"
#: The API's own limit is below that of its clients.
CLIENT_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def scene(run_pool, broker, mariadb):
    with run_pool(broker, mariadb.new_database(), schedulers=2, agents=2) as scene:
        yield scene


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("end", "away_s"), [("stop", 60), ("kill", 30)])
def test_without_rabbitmq_jobs_go_on_and_are_told_of_when_it_is_back(scene, broker, soon, refusal, end, away_s):
    # Before: 4 of 8 jobs compute, the others wait in their slots.
    work = scene.begin_twice_full(seconds=away_s / 5)
    before, owners = work.states(), scene.owners()

    getattr(broker, end)()
    until_s = time.monotonic() + away_s
    client = scene.pool.client()
    job = JobRequest(uuid=str(uuid4()), name="", function="sha256", requester="node-1", input_bytes=1)
    for call in (lambda: client.create_batch([job]), client.batches):
        began_s = time.monotonic()
        assert refusal(call) == SCHEDULER_SILENT
        print(f"the API answered in {time.monotonic() - began_s:.1f} s")

    # Meanwhile all jobs end, and the client gets the results; what is to be told waits in the agents' journals.
    soon(lambda: work.results == len(work.jobs()), "the client has all results")
    assert work.states() == before
    time.sleep(max(until_s - time.monotonic(), 0))
    assert scene.alive() == {"node-1": True, "node-2": True}
    broker.start()
    back_s = time.monotonic()

    # After: every job is done, none was tried twice.
    work.finish()
    print(f"all was told {time.monotonic() - back_s:.1f} s after RabbitMQ was back")
    assert work.attempts() == {1}
    assert not scene.hosts_were_lost()
    assert scene.owners() == owners
    later = scene.begin([0.5] * 4)
    later.finish()
    print(f"new work was done {time.monotonic() - back_s:.1f} s after RabbitMQ was back")
    assert later.states() == {JobState.DONE: 4}
