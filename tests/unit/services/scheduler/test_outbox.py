"""Delivery of commands, over a real transport."""

import itertools
import threading

import pytest

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages import Command, LoadFunction, ReleaseJob
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.services.scheduler import outbox as outbox_module
from fpga_pool.services.scheduler.outbox import Outbox


@pytest.fixture
def outbox(bench, jumping_clock, monkeypatch):
    monkeypatch.setattr(outbox_module, "RETRY_S", (0.05, 0.1))
    bench.store.ensure_shards(["default"], jumping_clock())
    shard = bench.store.acquire_shard("default", "me", jumping_clock())
    outbox = Outbox(bench.store, shard, AgentAPI(bench.transport, timeout_s=0.3), jumping_clock)
    yield outbox
    outbox.stop()


@pytest.fixture
def send(bench, outbox):
    """Put commands for a host into the outbox, for a slot of theirs; returns their ids."""
    numbers = itertools.count(1)

    def put(agent, *wanted, epoch=1):
        ids = []
        with bench.store.transaction("default", "me", 1) as tx:
            for item in wanted:
                number = next(numbers)
                ids.append(f"{agent.name}-{number}")
                tx.send(
                    Command(
                        id=ids[-1], shard="default", epoch=epoch, host=agent.name, slot="s", sequence=number,
                        action=ReleaseJob(job=item) if isinstance(item, str) else item,
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


# Loads ahead of jobs

AHEAD = LoadFunction(function="sha256", replaces="")


def test_a_load_ahead_is_delivered_among_the_others(bench, new_agent, send, deliver):
    host = new_agent()
    ids = send(host, "a", AHEAD, "b")
    deliver(lambda: bench.waiting() == [])
    assert (received(host), host.ahead) == (ids, [("s", "sha256")])


def test_an_agent_of_the_release_before_gets_what_was_sent_with_a_load_ahead(
    bench, new_agent, send, deliver, caplog, jumping_clock
):
    older = new_agent()
    older.unknown = {"LoadFunction"}
    ids = send(older, "a", AHEAD, "b")
    deliver(lambda: bench.waiting() == [])
    # In their order, and with a number for each: the slot is not behind, as if something were still under way.
    assert received(older) == ids
    assert [command.sequence for command in older.commands] == [1, 2, 3]
    assert older.ahead == []
    refused = older.not_understood
    assert refused > 0
    # It is asked for none for a while, and then whether it was upgraded; the log says it once.
    send(older, AHEAD, "c")
    deliver(lambda: bench.waiting() == [])
    assert older.not_understood == refused
    jumping_clock.ahead_s += outbox_module.NO_LOADS_S
    send(older, AHEAD, "d")
    deliver(lambda: bench.waiting() == [])
    assert (older.ahead, older.not_understood > refused) == ([], True)
    assert caplog.text.count(f"agent {older.name} does not know LoadFunction") == 1
    assert f"commands for agent {older.name} wait" not in caplog.text


def test_an_agent_that_was_upgraded_loads_ahead(bench, new_agent, send, deliver, jumping_clock):
    agent = new_agent()
    agent.unknown = {"LoadFunction"}
    send(agent, AHEAD)
    deliver(lambda: bench.waiting() == [])
    agent.unknown = set()
    jumping_clock.ahead_s += outbox_module.NO_LOADS_S
    for _ in range(2):
        send(agent, AHEAD)
        deliver(lambda: bench.waiting() == [])
    assert agent.ahead == [("s", "sha256")] * 2


def test_a_list_that_is_refused_for_something_else_waits(bench, new_agent, send, deliver, caplog):
    older = new_agent()
    older.unknown = {"ReleaseJob"}
    ids = send(older, "a", AHEAD)
    deliver(lambda: f"commands for agent {older.name} wait" in caplog.text)
    assert [command.id for command in bench.waiting()] == ids
    assert "LoadFunction" not in caplog.text
    older.unknown = set()
    deliver(lambda: bench.waiting() == [])
    assert (received(older), older.ahead) == (ids, [("s", "sha256")])


@pytest.mark.parametrize(("waited", "loads"), [(0.0, 1), (1.0, 0)])
def test_an_agent_that_is_back_loads_nothing_whose_moment_is_over(
    bench, new_agent, send, deliver, jumping_clock, caplog, waited, loads
):
    agent = new_agent()
    agent.unavailable = True
    ids = send(agent, AHEAD, "a")
    deliver(lambda: f"commands for agent {agent.name} wait" in caplog.text)
    jumping_clock.ahead_s += waited * outbox_module.LOAD_AHEAD_S
    agent.unavailable = False
    deliver(lambda: bench.waiting() == [])
    assert (received(agent), len(agent.ahead)) == (ids, loads)
    # What is decided now is done.
    send(agent, AHEAD)
    deliver(lambda: bench.waiting() == [])
    assert len(agent.ahead) == loads + 1


def test_a_load_ahead_that_the_former_owner_of_the_shard_decided_is_not_done(
    bench, new_agent, send, until, jumping_clock
):
    host = new_agent()
    ids = send(host, AHEAD, "a")
    with bench.store.reading("default") as tx:
        seen = tx.shard
    # The same scheduler, started again: it cannot know for how long these have waited.
    shard = bench.store.acquire_shard("default", "me", jumping_clock(), expired=seen)
    later = Outbox(bench.store, shard, AgentAPI(bench.transport, timeout_s=0.3), jumping_clock)
    try:
        until(lambda: later.dispatch(lambda: None) or bench.waiting() == [])
    finally:
        later.stop()
    assert (bench.waiting(), received(host), host.ahead) == ([], ids, [])
