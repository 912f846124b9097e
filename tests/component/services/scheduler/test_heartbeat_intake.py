"""Heartbeats and reports: how the database is spared, and how impostors are refused."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from fpga_pool.model.exceptions import HostTaken, InvalidInput, LateMessage, ServiceUnavailable
from fpga_pool.model.messages.agents import JobStarted, ObservedFlow, ObservedJob
from fpga_pool.model.messages.counters import CardCounters, GuestCounters, HostCounters
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import changed
from fpga_pool.services.scheduler import heartbeats as heartbeat_intake
from fpga_pool.services.scheduler.heartbeats import FULL_EVERY, GIVEN_UP_S, LIFE_SIGNS, LONGEST_DUE_S


@pytest.fixture
def agent(running):
    agent = running.host()
    # The first heartbeat has added new slots, so that it and the next one are compared in full.
    running.api.heartbeat(agent.heartbeat(running.clock()))
    return agent


def generation(bench):
    with bench.store.reading("default") as tx:
        return tx.shard.pool_generation


def beat(bench):
    with bench.store.reading() as tx:
        (host,) = tx.hosts()
        return host.beat


def test_a_heartbeat_that_says_nothing_new_changes_no_shard_and_is_noted(running, agent, until):
    running.service.ownership.pause()
    before = generation(running)
    heartbeats = [agent.heartbeat(running.clock()) for _ in range(FULL_EVERY - 1)]
    for heartbeat in heartbeats:
        running.api.heartbeat(heartbeat)
    assert generation(running) == before
    until(lambda: beat(running) == heartbeats[-1].beat)


def break_slot(bench, agent):
    """Change the state of a slot in the database so that it differs from the agent's; return the slot's name."""
    name = agent.heartbeat(bench.clock()).slots[0].slot
    with bench.store.transaction("default") as tx:
        tx.save(changed(tx.slot(name), state=SlotState.FAULTED))
    return name


def slot_state(bench, name):
    with bench.store.reading() as tx:
        return tx.slot(name).state


def test_now_and_then_a_heartbeat_is_compared_in_full(running, agent, monkeypatch):
    monkeypatch.setattr(heartbeat_intake, "FULL_APART_S", 0.0)
    running.service.ownership.pause()
    for _ in range(2):
        broken = break_slot(running, agent)
        for beats in range(2 * FULL_EVERY):
            assert slot_state(running, broken) is SlotState.FAULTED or beats == FULL_EVERY
            running.service.heartbeat_intake.flush()
            running.api.heartbeat(agent.heartbeat(running.clock()))
            if slot_state(running, broken) is SlotState.EMPTY:
                break
        else:
            pytest.fail("nothing was compared")


def test_where_many_are_due_each_waits_its_turn_but_not_for_ever(running, agent, monkeypatch):
    monkeypatch.setattr(heartbeat_intake, "FULL_APART_S", 1e6)
    monkeypatch.setattr(heartbeat_intake, "FULL_AT_LATEST", 2 * FULL_EVERY)
    running.service.ownership.pause()
    running.service.heartbeat_intake._compared_s = time.monotonic()
    broken = break_slot(running, agent)
    for _ in range(2 * FULL_EVERY - 1):
        running.api.heartbeat(agent.heartbeat(running.clock()))
    assert slot_state(running, broken) is SlotState.FAULTED
    running.service.heartbeat_intake.flush()  # so that the change of the shard is noticed
    running.api.heartbeat(agent.heartbeat(running.clock()))
    assert slot_state(running, broken) is SlotState.EMPTY


def test_hosts_without_news_are_compared_one_after_the_other(running, agent, until, monkeypatch):
    """Otherwise, with a slow database, full comparisons for many hosts would occupy the threads of all other calls."""
    monkeypatch.setattr(heartbeat_intake, "FULL_APART_S", 0.0)
    running.service.ownership.pause()
    intake, writer = running.service.heartbeat_intake, running.service.writer("default")
    agents = [agent, running.host()]
    for _ in range(3 * FULL_EVERY):  # they have been compared since the last change of the shard
        for each in agents:
            intake.heartbeat(each.heartbeat(running.clock()))
        intake.flush()
    flush = intake.flush
    monkeypatch.setattr(intake, "flush", lambda: False)  # no other thread flushes
    broken = [break_slot(running, each) for each in agents]
    assert intake.heartbeat(agent.heartbeat(running.clock())) == []
    flush()  # so that the change of the shard is noticed
    with ThreadPoolExecutor() as threads:
        with writer._turn:
            first = threads.submit(intake.heartbeat, agents[0].heartbeat(running.clock()))
            until(lambda: writer._waiting)
            assert intake.heartbeat(agents[1].heartbeat(running.clock())) == []
        assert first.result()
    assert intake.heartbeat(agents[1].heartbeat(running.clock()))
    assert [slot_state(running, name) for name in broken] == [SlotState.EMPTY] * 2


def test_heartbeats_without_news_need_no_statement_where_their_shard_does_not_change(running, agent, monkeypatch):
    """They are recorded together, whatever their number: one update, and reads of shards, lost hosts and places."""
    monkeypatch.setattr(heartbeat_intake, "FULL_APART_S", 0.0)
    running.service.ownership.pause()
    intake = running.service.heartbeat_intake
    for _ in range(2 * FULL_EVERY):  # it has been compared since the last change of the shard
        intake.heartbeat(agent.heartbeat(running.clock()))
        intake.flush()
    flush = intake.flush
    monkeypatch.setattr(intake, "flush", lambda: False)  # no other thread flushes
    mine, statements = threading.get_ident(), []
    event.listen(
        running.store.engine,
        "before_cursor_execute",
        lambda *call: statements.append(call[2]) if threading.get_ident() == mine else None,
    )
    for _ in range(10 * FULL_EVERY):
        assert intake.heartbeat(agent.heartbeat(running.clock())) == []
    assert statements == []
    flush()
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "UPDATE", *["SELECT"] * 3]


def test_a_lost_host_that_says_nothing_new_is_back_with_its_second_heartbeat(running, agent, until):
    running.service.ownership.pause()
    with running.store.transaction("default") as tx:
        tx.save(changed(tx.host(agent.name), alive=False))
    running.api.heartbeat(agent.heartbeat(running.clock()))
    assert not running.api.hosts()[0].alive
    until(lambda: agent.name not in running.service.heartbeat_intake._known)  # the heartbeat is recorded
    running.api.heartbeat(agent.heartbeat(running.clock()))
    assert running.api.hosts()[0].alive


def alive(bench, agent, **others):
    """Send the next heartbeat of an agent as a life sign; return its number."""
    heartbeat = changed(agent.heartbeat(bench.clock()), **others)
    sign = heartbeat.host, heartbeat.agent_id, heartbeat.boot, heartbeat.beat, heartbeat.counters
    bench.service.heartbeat_intake.alive(*sign)
    return heartbeat.beat


def test_life_signs_are_noted_and_followed_by_heartbeats(running, agent, until):
    running.service.ownership.pause()
    before = generation(running)
    heard = [alive(running, agent, counters=counters) for counters in (None, COUNTERS, None)]
    until(lambda: beat(running) == heard[-1])
    assert running.api.counters()[0].counters == COUNTERS
    running.api.heartbeat(agent.heartbeat(running.clock()))
    until(lambda: beat(running) == heard[-1] + 1)
    assert generation(running) == before


def test_a_life_sign_of_another_agent_or_start_or_from_before_is_without_effect(running, agent, until):
    running.service.ownership.pause()
    late = agent.heartbeat(running.clock())
    last = alive(running, agent)
    for others in ({"beat": late.beat}, {"agent_id": "another"}, {"boot": 2}):
        running.service.heartbeat_intake.flush()
        alive(running, agent, **others)
    running.service.heartbeat_intake.flush()
    assert beat(running) == last
    with pytest.raises(LateMessage):
        running.api.heartbeat(late)


def test_a_lost_host_is_back_with_a_heartbeat_not_with_a_life_sign(running, agent):
    running.service.ownership.pause()
    with running.store.transaction("default") as tx:
        tx.save(changed(tx.host(agent.name), alive=False))
    alive(running, agent)
    running.service.heartbeat_intake.flush()
    assert not running.api.hosts()[0].alive
    running.api.heartbeat(agent.heartbeat(running.clock()))
    assert running.api.hosts()[0].alive


class Reader:
    """A reader of life signs that has been without a connection for `broken_s`, if not 0."""

    def __init__(self):
        self.broken_s = 0.0

    def read(self):
        if self.broken_s:
            raise ServiceUnavailable("the connection is broken")

    def age_s(self):
        return self.broken_s


def test_hosts_whose_life_signs_cannot_be_read_are_not_lost_until_they_have_been_asked_for_heartbeats(
    bench, until, clock
):
    reader = Reader()
    service = bench.new_service(host_timeout_s=1.0)
    service.heartbeat_intake.life_signs = reader
    bench.start(service)
    agent = bench.host()
    answer = bench.api.heartbeat(agent.heartbeat(clock()))
    assert answer.full_due_s == pytest.approx((LIFE_SIGNS + 1) * answer.due_s)
    reader.broken_s = GIVEN_UP_S
    time.sleep(3.0)
    answer = bench.api.heartbeat(agent.heartbeat(clock()))
    assert bench.api.hosts()[0].alive
    assert answer.full_due_s == answer.due_s
    time.sleep(3.0)
    assert bench.api.hosts()[0].alive
    reader.broken_s = 10 * GIVEN_UP_S
    until(lambda: not bench.api.hosts()[0].alive)


COUNTERS = HostCounters(
    at=1e9,
    cpus=4.0,
    busy_cpus=3.5,
    memory_bytes=1 << 34,
    guests=(GuestCounters(uuid=str(uuid.uuid4()), cpus=1.5),),
    cards=(CardCounters(card="sim0", dma_bps=1e9),),
)


def test_counters_are_noted_without_a_transaction_and_stay_until_there_are_others(running, agent, until):
    running.service.ownership.pause()
    before = generation(running)
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), counters=COUNTERS))
    for _ in range(2):  # concurrently or later
        running.api.heartbeat(agent.heartbeat(running.clock()))
    until(running.api.counters)
    (load,) = running.api.counters()
    assert (load.host, load.counters) == (agent.name, COUNTERS)
    last = agent.heartbeat(running.clock())
    running.api.heartbeat(last)
    until(lambda: beat(running) == last.beat)
    assert running.api.counters(agent.name) == [load]
    assert running.api.counters("nobody") == []
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), counters=changed(COUNTERS, busy_cpus=0.5)))
    until(lambda: running.api.counters()[0].counters.busy_cpus == 0.5)
    assert generation(running) == before


def test_counters_of_a_heartbeat_that_is_compared_in_full_are_noted_too(running, new_agent, until):
    agent = new_agent()
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), counters=COUNTERS))
    until(lambda: [load.counters for load in running.api.counters()] == [COUNTERS])


@pytest.mark.parametrize(
    "wrong",
    [
        {"busy_cpus": float("inf")},
        {"received_bps": 1e300},
        {"cpu_pressure": 1.5},
        {"used_bytes": -1},
        {"guests": (GuestCounters(uuid="me", cpus=1.0),)},
        {"guests": (GuestCounters(uuid=str(uuid.uuid4()), cpus=-1.0),)},
        {"cards": (CardCounters(card="sim0", dma_bps=float("inf")),)},
        {"cards": (CardCounters(card="sim0", dma_bps=1.0),) * 65},
    ],
    ids=lambda wrong: ", ".join(wrong),
)
def test_counters_beyond_their_bounds_are_refused_by_name_and_nothing_of_them_stays(running, agent, wrong):
    with pytest.raises(InvalidInput, match=f"counters.{next(iter(wrong))}"):
        running.api.heartbeat(changed(agent.heartbeat(running.clock()), counters=changed(COUNTERS, **wrong)))
    running.service.heartbeat_intake.flush()
    assert running.api.counters() == []


def test_a_heartbeat_answers_with_the_pools_time_and_when_the_next_one_is_due(running, agent, clock):
    asked_at = clock()
    answer = running.api.heartbeat(agent.heartbeat(asked_at))
    assert asked_at <= answer.at <= clock()
    # A host is lost after 300 s.
    assert answer.due_s == answer.full_due_s == LONGEST_DUE_S  # no life signs are read here
    new = running.agent()
    assert running.api.heartbeat(new.heartbeat(clock())).due_s == 0.0  # repaired: its slots were discovered


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored yet"])
def test_a_replayed_heartbeat_is_refused_and_counted(running, agent, monkeypatch, stored):
    if not stored:
        monkeypatch.setattr(running.service.heartbeat_intake, "flush", lambda: False)
    heartbeat = agent.heartbeat(running.clock())
    running.api.heartbeat(heartbeat)
    running.service.heartbeat_intake.flush()
    with pytest.raises(LateMessage, match=f"heartbeat {heartbeat.beat} of start 1 arrived after"):
        running.api.heartbeat(heartbeat)
    assert running.api.hosts()[0].refused_messages == 1
    assert running.api.describe("me")["refused"] == {"fpga_pool.late_message": 1}


def test_an_agent_in_anothers_name_is_refused_and_changes_nothing(running, agent, clock):
    before = running.api.hosts()[0]
    forged = changed(agent.heartbeat(clock()), agent_id="mallory", data_address="203.0.113.1")
    with pytest.raises(HostTaken, match=f"host {agent.name}: another agent reports for it"):
        running.api.heartbeat(forged)
    with pytest.raises(HostTaken):
        running.api.report(agent.name, "mallory", [(10**6, JobStarted(job="j", attempt=1, at=1.0))])
    after = running.api.hosts()[0]
    assert after.refused_messages == 2
    assert (after.data_address, after.reported) == (before.data_address, before.reported)


def test_an_agent_that_tells_of_anothers_slots_is_refused(running, agent, clock):
    mallory = running.host()
    forged = changed(mallory.heartbeat(clock()), slots=agent.heartbeat(clock()).slots)
    with pytest.raises(InvalidInput, match=f"slots: .* is not a slot of host {mallory.name}"):
        running.api.heartbeat(forged)
    held = ObservedJob(job="j", attempt=1, slot=f"{agent.name}/sim0/slot0", moved_bytes=7)
    with pytest.raises(InvalidInput, match=f"jobs: .* is not a slot of host {mallory.name}"):
        running.api.heartbeat(changed(mallory.heartbeat(clock()), jobs=(held,)))


def test_another_agent_is_the_hosts_once_the_old_one_is_given_up(bench, until, clock):
    bench.start(bench.new_service(host_timeout_s=0.5))
    agent = bench.host()
    until(lambda: not bench.api.hosts()[0].alive)
    bench.service.ownership.pause()  # from now on silent hosts are not noticed
    bench.api.heartbeat(changed(agent.heartbeat(clock()), agent_id="reinstalled", beat=1))
    assert bench.api.hosts()[0].alive


def test_a_report_is_applied_once_however_often_it_comes(running, agent):
    started = JobStarted(job="nobody", attempt=1, at=1.0)
    running.api.report(agent.name, agent.name, [(5, started), (6, started)])
    assert running.service.heartbeat_intake.report(agent.name, agent.name, [(5, started), (6, started)]) == [
        "2 applied before"
    ]
    assert running.service.heartbeat_intake.report(agent.name, agent.name, [(6, started), (7, started)]) == [
        "1 applied before",
        "JobStarted: no job nobody",
    ]


def test_rates_of_flows_are_noted_with_the_hosts_life_and_listed_for_their_project(running, agent, until):
    """Each heartbeat reports another rate, and no shard changes. Rates of other attempts are left out."""
    batch = running.create(agent, "sha256", "sha256")
    until(lambda: len(agent.held) == 2)
    running.api.heartbeat(agent.heartbeat(running.clock()))
    running.service.ownership.pause()
    first, second = running.api.batch_jobs("p", batch.uuid, [], None, 0.0).jobs
    before = generation(running)

    def heard(*flows):
        running.api.heartbeat(changed(agent.heartbeat(running.clock()), flows=flows))

    def rates(project):
        return {flow.job: flow.measured_bps for flow in running.api.flows(project)}

    heard(*(ObservedFlow(job.uuid, job.attempt, 1e6) for job in (first, second)))
    until(lambda: rates("p") == {first.uuid: 1e6, second.uuid: 1e6})
    heard(ObservedFlow(first.uuid, first.attempt, 3e6), ObservedFlow(second.uuid, second.attempt + 1, 9e6))
    until(lambda: rates("p") == {first.uuid: 3e6})
    assert (rates(None), rates("q")) == ({first.uuid: 3e6}, {})
    (flow,) = running.api.flows("p")
    assert (flow.batch_uuid, flow.requester, flow.host) == (batch.uuid, first.requester, first.host)
    heard()
    until(lambda: rates("p") == {})
    assert generation(running) == before


def test_rates_in_a_heartbeat_that_says_more_are_noted_too_and_forgotten_with_the_next(running, agent, until):
    batch = running.create(agent, "sha256")
    until(lambda: len(agent.held) == 1)
    (job,) = running.api.batch_jobs("p", batch.uuid, [], None, 0.0).jobs
    running.service.ownership.pause()
    flows = (ObservedFlow(job.uuid, job.attempt, 2e6),)
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), flows=flows, refused_streams=1))
    until(lambda: [flow.measured_bps for flow in running.api.flows("p")] == [2e6])
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), refused_streams=2))
    until(lambda: running.api.flows("p") == [])
