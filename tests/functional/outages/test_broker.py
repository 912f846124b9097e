"""RabbitMQ ends, and returns after the timeouts of hosts and schedulers (conftest.OPTIONS)."""

import time

import pytest

from fpga_pool.model.objects.pool import JobState
from support.waiting import wait_until

SCHEDULER_SILENT = "the scheduler does not answer; try again later"


@pytest.fixture(scope="module")
def scene(run_pool, broker, mariadb):
    with run_pool(broker, mariadb.new_database(), schedulers=2, agents=2) as scene:
        yield scene


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("end", "away_s"), [("stop", 20), ("kill", 10)])
def test_without_rabbitmq_jobs_go_on_and_are_told_of_when_it_is_back(scene, broker, refusal, end, away_s):
    # Before: 4 of 8 jobs compute, the others wait in their slots.
    work = scene.begin_twice_full(seconds=3.0)
    jobs, owners = len(work.jobs()), scene.owners()

    getattr(broker, end)()
    until_s = time.monotonic() + away_s
    # The API reports it within its own timeout, which is below that of its client; the client's message would differ.
    assert refusal(scene.pool.client().batches) == SCHEDULER_SILENT
    # Meanwhile all jobs end, and the client gets the results; pending reports wait in the agents' journals.
    told = work.states()
    assert told[JobState.RUNNING] + told[JobState.STAGED] > 0
    wait_until(lambda: work.results == jobs, lambda: f"the client has all results: {work.results}")
    assert work.states() == told
    later = scene.begin([0.5] * 4)
    time.sleep(max(until_s - time.monotonic(), 0))
    assert scene.alive() == {"node-1": True, "node-2": True}
    broker.start()
    back_s = time.monotonic()

    # After: every job is done in one attempt, and so are the jobs that were submitted meanwhile.
    work.finish()
    print(f"all was told {time.monotonic() - back_s:.1f} s after RabbitMQ was back")
    later.finish()
    print(f"new work was done {time.monotonic() - back_s:.1f} s after RabbitMQ was back")
    assert work.attempts() == later.attempts() == {1}
    assert later.states() == {JobState.COMPLETED: 4}
    assert not scene.hosts_were_lost()
    assert scene.owners() == owners
