"""The scheduler's own time: silent hosts, pauses, restarts."""

import re
import threading

from fpga_pool.model.messages.agents import AssignJob
from fpga_pool.model.objects.pool import JobState


def test_hosts_that_fall_silent_are_lost(bench, until):
    bench.start(bench.new_service(host_timeout_s=0.5))
    agent = bench.host()
    until(lambda: not bench.api.hosts()[0].alive)
    bench.service.ownership.pause()  # from now on silent hosts are not noticed
    bench.api.heartbeat(agent.heartbeat(bench.clock()))
    assert bench.api.hosts()[0].alive


def test_a_pause_of_the_scheduler_is_no_silence_of_its_hosts(bench, until, jumping_clock, caplog):
    bench.clock = jumping_clock
    bench.start(bench.new_service(host_timeout_s=10.0))
    agent = bench.host()
    batch = bench.create(agent, "sha256")
    until(lambda: agent.held)
    bench.clock.ahead_s = 1000.0  # as if suspended
    # A busy machine may have caused other delays, and may have made this one longer.
    until(lambda: any(float(late_s) >= 1000.0 for late_s in re.findall(r"did not run for ([\d.]+) s", caplog.text)))
    ticked = threading.Event()
    ticked.wait(0.2)  # wait for some more ticks
    assert bench.api.hosts()[0].alive
    assert bench.jobs(batch)[0].attempt == 1


def test_a_restarted_scheduler_delivers_what_was_committed_and_not_delivered(bench, until):
    first = bench.start()
    away = first.host(served=False)
    batch = first.create(away, "sha256")
    until(lambda: bench.states(batch) == ["WAITING_INPUT"])
    first.service.stop()
    assert len(bench.waiting()) == 1
    again = bench.new_service()
    again.start()
    try:
        bench.serve(away)
        until(lambda: away.held)
        (command,) = away.commands
        assert isinstance(command.action, AssignJob)
        # The owner of epoch 1 decided it. The next command has epoch 2, so agents accept both in this order.
        assert command.epoch == 1
        with bench.store.transaction("default", "me", 2) as tx:
            assert tx.job(batch_job(bench, batch)).state is JobState.WAITING_INPUT
    finally:
        again.stop()


def batch_job(bench, batch):
    with bench.store.reading() as tx:
        return tx.batch_jobs(batch.uuid)[0].uuid


def test_a_service_that_was_never_started_can_be_stopped(bench):
    bench.service.stop()
