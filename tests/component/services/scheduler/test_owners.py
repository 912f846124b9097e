"""Requests of batch owners, from the RPC interface to the database, with the planner and the tick running."""

import pytest

from fpga_pool.model.exceptions import NotFound, PreconditionFailed
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.values import changed


def asked(bench, agent, *functions, project="p", **options):
    return bench.api.create_batch(changed(bench.request(agent, *functions, project=project), **options)).batch


def state(bench, batch):
    return bench.api.batch_detail("p", batch.uuid).batch.state


def finish(bench, batch, eventually):
    eventually(lambda: set(bench.states(batch)) == {"WAITING_INPUT"})
    for job in bench.jobs(batch):
        bench.report(job, "staged", "started", "finished")
    assert state(bench, batch) is BatchState.COMPLETED


def test_a_held_batch_is_stored_and_runs_when_it_is_released(running, eventually):
    agent = running.host()
    held, other = asked(running, agent, "sha256", held=True), asked(running, agent, "sha256")
    finish(running, other, eventually)
    assert running.states(held) == ["PENDING"]
    assert running.api.batch_detail("p", held.uuid).pending_reason == "held by its owner"
    with pytest.raises(NotFound):
        running.api.change_batch("another", held.uuid, BatchChange(held=False))
    with pytest.raises(PreconditionFailed):
        running.api.change_batch("p", held.uuid, BatchChange(held=False), ("77",))
    assert running.api.change_batch("p", held.uuid, BatchChange(held=False, priority=2)).priority == 2
    eventually(lambda: running.states(held) == ["WAITING_INPUT"])
    (job,) = running.jobs(held)
    eventually(lambda: job.uuid in agent.held)
    running.api.change_batch("p", held.uuid, BatchChange(held=True))
    assert running.states(held) == ["PENDING"]
    eventually(lambda: job.uuid not in agent.held)
    running.api.change_batch("p", held.uuid, BatchChange(held=False))
    finish(running, held, eventually)


def test_a_batch_waits_for_others_and_ends_with_them(running, eventually):
    agent = running.host()
    first, held = asked(running, agent, "sha256"), asked(running, agent, "sha256", held=True)
    second = asked(running, agent, "sha256", after=(first.uuid,))
    third = asked(running, agent, "sha256", after=(second.uuid, held.uuid))
    finish(running, first, eventually)
    assert running.api.batch_detail("p", third.uuid).pending_reason.startswith("waits for batches")
    finish(running, second, eventually)
    running.api.cancel_batch("p", held.uuid)
    eventually(lambda: state(running, third) is BatchState.CANCELLED)
    assert running.jobs(third)[0].reason == f"not computed: batch {held.uuid} was cancelled"
    with pytest.raises(NotFound, match=f"no batch {first.uuid}"):
        asked(running, agent, "sha256", project="another", after=(first.uuid,))
