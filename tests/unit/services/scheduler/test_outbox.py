"""Delivery of commands, over a real transport."""

import threading

import pytest

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages import Command, ReleaseJob
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.services.scheduler import outbox as outbox_module
from fpga_pool.services.scheduler.outbox import Outbox


@pytest.fixture
def outbox(bench, clock, monkeypatch):
    monkeypatch.setattr(outbox_module, "RETRY_S", (0.05, 0.1))
    bench.store.ensure_shards(["default"], clock())
    shard = bench.store.acquire_shard("default", "me", clock())
    outbox = Outbox(bench.store, shard, AgentAPI(bench.transport, timeout_s=0.3), clock)
    yield outbox
    outbox.stop()


@pytest.fixture
def send(bench, outbox):
    """Put commands for a host into the outbox; returns their ids."""

    def put(agent, *jobs):
        ids = []
        with bench.store.transaction("default", "me", 1) as tx:
            for job in jobs:
                ids.append(f"{agent.name}-{job}")
                tx.send(
                    Command(
                        id=ids[-1], shard="default", epoch=1, host=agent.name, slot="s", sequence=len(ids),
                        action=ReleaseJob(job=job),
                    )
                )  # fmt: skip
        return ids

    return put


@pytest.fixture
def deliver(outbox, until):
    """Dispatch until a condition holds, as the service's loop would."""
    wake = threading.Event()

    def run(condition):
        def step():
            outbox.dispatch(wake.set)
            return condition()

        until(step)

    return run


def received(agent):
    return [command.id for command in agent.commands]


def test_commands_are_delivered_in_their_order_and_leave_the_outbox(bench, new_agent, send, deliver):
    host = new_agent()
    ids = send(host, "a", "b") + send(host, "c")
    deliver(lambda: bench.waiting() == [])
    assert received(host) == ids


def test_a_host_that_is_away_delays_nobody_else_and_gets_its_commands_when_it_is_back(bench, new_agent, send, deliver):
    away, present = new_agent(served=False), new_agent()
    for_away, for_present = send(away, "a", "b"), send(present, "c")
    deliver(lambda: received(present) == for_present and len(bench.waiting()) == 2)
    bench.serve(away)
    deliver(lambda: bench.waiting() == [])
    assert received(away) == for_away


def test_a_host_that_answers_too_late_gets_its_commands_again_and_knows_them(bench, new_agent, send, deliver, caplog):
    slow = new_agent()
    slow.answers.clear()
    ids = send(slow, "a", "b")
    deliver(lambda: f"commands for agent {slow.name} wait" in caplog.text)
    assert len(bench.waiting()) == 2
    slow.answers.set()
    deliver(lambda: bench.waiting() == [])
    assert received(slow) == ids


def test_refused_commands_are_logged_with_the_reason_and_removed(bench, new_agent, send, deliver, caplog):
    stubborn = new_agent()
    stubborn.refuses = "too late"
    (sent,) = send(stubborn, "a")
    deliver(lambda: bench.waiting() == [])
    assert f"agent {stubborn.name} refused command {sent}: too late" in caplog.text


def test_a_host_is_sent_a_bounded_number_of_commands_at_a_time(bench, new_agent, send, deliver, monkeypatch):
    monkeypatch.setattr(outbox_module, "BATCH", 3)
    host, calls = new_agent(), []
    take = host._take

    def counted(command):
        calls.append(len(bench.waiting()))
        return take(command)

    host._take = counted
    ids = send(host, *"abcdefgh")
    deliver(lambda: bench.waiting() == [])
    assert received(host) == ids
    # Eight commands go in calls of 3, 3 and 2; each call's are removed after it.
    assert calls == [8] * 3 + [5] * 3 + [2] * 2


def test_a_replaced_owner_leaves_what_it_sent_to_the_next_one(bench, new_agent, send, deliver, clock, caplog):
    host = new_agent()
    send(host, "a")
    with bench.store.reading("default") as tx:
        seen = tx.shard
    bench.store.acquire_shard("default", "you", clock(), expired=seen)
    deliver(lambda: f"agent {host.name}: shard default: me does not own it in epoch 1" in caplog.text)
    assert len(bench.waiting()) == 1
    with pytest.raises(StaleEpoch):
        bench.store.delivered("default", "me", 1, ["x"])
