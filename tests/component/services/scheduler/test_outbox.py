"""The delivery of commands over a real transport."""

import itertools
import logging
import math
import threading

import pytest
from sqlalchemy import text

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages.agents import Command, EvictJob, LoadFunction, ReleaseJob
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.services.scheduler import outbox as outbox_module
from fpga_pool.services.scheduler.outbox import Outbox

from .conftest import ANSWER_S


@pytest.fixture
def outbox(bench, jumping_clock, monkeypatch):
    monkeypatch.setattr(outbox_module, "RETRY_S", (0.05, 0.1))
    bench.store.ensure_shards(["default"], jumping_clock())
    shard = bench.store.acquire_shard("default", "me", jumping_clock())
    outbox = Outbox(bench.store, shard, AgentAPI(bench.transport, bench.identity, timeout_s=ANSWER_S), jumping_clock)
    yield outbox
    outbox.stop()


@pytest.fixture
def send(bench, outbox):
    """Return a function that puts commands for a slot of a host into the outbox and returns their ids."""
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
    """Return a function that dispatches until a condition holds, like the loop of the service."""
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


def test_what_was_acknowledged_is_not_sent_again_before_it_is_removed(
    bench, new_agent, send, deliver, outbox, monkeypatch
):
    monkeypatch.setattr(outbox_module, "REMOVAL_S", math.inf)
    outbox._removed_s = math.inf
    host = new_agent()
    ids = send(host, "a")
    deliver(lambda: received(host) == ids)
    ids += send(host, "b")
    deliver(lambda: received(host) == ids)
    assert [command.id for command in bench.waiting()] == ids
    outbox.stop()
    assert bench.waiting() == []


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
    deliver(lambda: f"commands for agent {slow.name} are delayed" in caplog.text)
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
        if command not in host.commands:  # if an answer was late, the command is known
            calls.append(len(bench.waiting()))
        return take(command)

    host._take = counted
    ids = send(host, *"abcdefgh")
    deliver(lambda: bench.waiting() == [])
    assert received(host) == ids
    # Eight commands are sent in calls of 3, 3 and 2. Those of each call are removed after it.
    assert calls == [8] * 3 + [5] * 3 + [2] * 2


def test_a_replaced_owner_leaves_what_it_sent_to_the_next_one(bench, new_agent, send, deliver, clock, caplog):
    host = new_agent()
    send(host, "a")
    with bench.store.reading("default") as tx:
        seen = tx.shard
    bench.store.acquire_shard("default", "you", clock(), expired=seen)
    caplog.set_level(logging.DEBUG, "fpga_pool.services.scheduler.outbox")
    deliver(lambda: "shard default: me does not own it in epoch 1" in caplog.text)
    assert len(bench.waiting()) == 1
    with pytest.raises(StaleEpoch):
        bench.store.delivered("default", "me", 1, ["x"])


def test_a_long_backlog_of_a_host_that_is_away_starves_nobody(bench, new_agent, send, deliver, monkeypatch):
    # More commands wait for one host than are read at once. The other host gets its own, in pauses and at retries.
    monkeypatch.setattr(outbox_module, "MOST", 20)
    away, present = new_agent(served=False), new_agent()
    send(away, *map(str, range(50)))
    for_present = send(present, "a") + send(present, "b")
    deliver(lambda: received(present) == for_present)
    later = send(present, "c")
    deliver(lambda: received(present) == for_present + later and len(bench.waiting()) == 50)


def test_what_waits_for_hosts_that_pause_or_are_served_is_not_read(
    bench, new_agent, send, deliver, until, outbox, caplog
):
    away, slow = new_agent(served=False), new_agent()
    slow.answers.clear()
    send(away, "a")
    deliver(lambda: f"commands for agent {away.name} are delayed" in caplog.text)
    outbox._not_before[away.name] = math.inf
    outbox._agents._timeout_s = 60.0  # the call to the slow agent lasts until it answers
    send(slow, "b")
    outbox.dispatch(lambda: None)
    until(lambda: slow.owners)
    read = []
    undelivered = bench.store.undelivered
    bench.store.undelivered = lambda *args, **options: read.append(undelivered(*args, **options)) or read[-1]
    outbox.dispatch(lambda: None)
    slow.answers.set()
    assert read == [[]]


def test_a_command_that_the_agent_cannot_read_is_set_aside_and_the_others_go_on(
    bench, new_agent, send, deliver, caplog
):
    older = new_agent()
    older.unknown = {"EvictJob"}
    evict = EvictJob(job="x", attempt=1, keep_progress=False)
    ids = send(older, "a", "b", evict, "c", evict, "d")
    deliver(lambda: bench.waiting() == [])
    # They arrive in order, each with its number, so that no command appears to be still on its way.
    assert received(older) == ids
    assert [command.sequence for command in older.commands] == [1, 2, 3, 4, 5, 6]
    assert [command.action.job for command in older.commands] == ["a", "b", "", "c", "", "d"]
    for number in (2, 4):
        assert f"agent {older.name} cannot read command {ids[number]} " in caplog.text
    assert caplog.text.count("EvictJob(job='x', attempt=1, keep_progress=False)") == 2


def test_an_agent_that_can_read_nothing_gets_its_commands_later(bench, new_agent, send, deliver, caplog):
    older = new_agent()
    older.unknown = {"ReleaseJob"}
    ids = send(older, "a", "b")
    deliver(lambda: f"commands for agent {older.name} are delayed" in caplog.text)
    assert [command.id for command in bench.waiting()] == ids
    older.unknown = set()
    deliver(lambda: bench.waiting() == [])
    assert received(older) == ids


def test_a_stored_command_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    bench, new_agent, send, deliver, caplog
):
    host, other = new_agent(), new_agent()
    ids, others = send(host, "a", "b", "c"), send(other, "d")
    stored = '{"type": "Teleport", "job": "b"}'
    with bench.store.engine.begin() as connection:
        change = text("UPDATE commands SET action = :action WHERE id = :id")
        connection.execute(change, {"action": stored, "id": ids[1]})
    deliver(lambda: bench.waiting() == [])
    assert (received(host), received(other)) == (ids, others)
    assert [command.action.job for command in host.commands] == ["a", "", "c"]
    assert f"command {ids[1]} for host {host.name}, slot 's' cannot be read" in caplog.text
    assert f"stored is {stored}" in caplog.text


# Loads ahead of jobs

AHEAD = LoadFunction(function="sha256", replaces="")


def test_a_load_ahead_is_delivered_among_the_others(bench, new_agent, send, deliver):
    host = new_agent()
    ids = send(host, "a", AHEAD, "b")
    deliver(lambda: bench.waiting() == [])
    assert (received(host), host.ahead) == (ids, [("s", "sha256")])


def test_a_busy_host_that_is_never_behind_loads_ahead(bench, new_agent, send, deliver, jumping_clock):
    host = new_agent()
    for number in range(3):
        send(host, AHEAD)
        deliver(lambda: bench.waiting() == [])
        jumping_clock.ahead_s += outbox_module.LOAD_AHEAD_S
        assert len(host.ahead) == number + 1


@pytest.mark.parametrize(("waited", "loads"), [(0.0, 1), (1.0, 0)])
def test_an_agent_that_is_back_loads_nothing_whose_moment_is_over(
    bench, new_agent, send, deliver, jumping_clock, caplog, waited, loads
):
    agent = new_agent()
    agent.unavailable = True
    ids = send(agent, AHEAD, "a")
    deliver(lambda: f"commands for agent {agent.name} are delayed" in caplog.text)
    jumping_clock.ahead_s += waited * outbox_module.LOAD_AHEAD_S
    agent.unavailable = False
    deliver(lambda: bench.waiting() == [])
    assert (received(agent), len(agent.ahead)) == (ids, loads)
    # A new decision is executed.
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
    # The same scheduler has restarted, and does not know how long these commands have waited.
    shard = bench.store.acquire_shard("default", "me", jumping_clock(), expired=seen)
    later = Outbox(bench.store, shard, AgentAPI(bench.transport, bench.identity, timeout_s=ANSWER_S), jumping_clock)
    try:
        until(lambda: later.dispatch(lambda: None) or bench.waiting() == [])
    finally:
        later.stop()
    assert (bench.waiting(), received(host), host.ahead) == ([], ids, [])
