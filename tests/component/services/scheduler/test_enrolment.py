"""Hosts are enrolled by their keys. Attempts of peers without an approved key have no effect."""

import logging
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import (
    HostTaken,
    InvalidInput,
    NotEnrolled,
    NotFound,
    StorageFull,
    TooManyRequests,
    Unauthenticated,
)
from fpga_pool.model.messages.agents import InputStaged, JobFinished, JobStarted
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.pool import JobState, SlotState
from fpga_pool.model.values import changed
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.services.scheduler.enrolment import KeyRing, approve, invite, revoke
from support.waiting import wait_until

from .conftest import Agent


@pytest.fixture
def gated(bench):
    """Start a scheduler that accepts only enrolled hosts and one API."""
    service = bench.new_service()
    known = [bench.key.public_key()]
    service.keys = KeyRing(bench.store, {Role.API: known, Role.SCHEDULER: known}, bench.clock)
    return bench.start(service, Gate(service.keys, SCHEDULER_METHODS))


@pytest.fixture
def caller(gated):
    """Return a function that makes a caller, with a new key unless one is given."""

    def make(role, name, key=None):
        return SchedulerAPI(gated.transport, Identity(role, name, key or Ed25519PrivateKey.generate()), timeout_s=60.0)

    return make


@pytest.fixture
def api(gated, caller):
    return caller(Role.API, "api", gated.key)


@pytest.fixture
def enrolled(gated, caller):
    """Enroll a host and send a heartbeat; return its agent and the caller with the agent's key."""
    agent = Agent(f"h-{uuid.uuid4().hex[:8]}")
    gated.serve(agent)
    mine = caller(Role.AGENT, agent.name)
    assert mine.enroll(agent.name, invite(gated.store, agent.name, gated.clock()))
    mine.heartbeat(agent.heartbeat(gated.clock()))
    return agent, mine


@pytest.fixture
def stranger(caller):
    """Return a function that makes a peer which can reach RabbitMQ and calls in the name of a host with another key."""
    return lambda host: caller(Role.AGENT, host)


def staged_job(gated, api, agent, mine):
    batch = api.create_batch(gated.request(agent, "sha256")).batch

    def job():
        return api.batch_jobs("p", batch.uuid).jobs[0]

    wait_until(lambda: job().state is JobState.WAITING_INPUT, "the job is planned")
    found = job()
    about = {"job": found.uuid, "attempt": found.attempt, "at": gated.clock()}
    mine.report(agent.name, agent.name, [(1, InputStaged(**about)), (2, JobStarted(**about))])
    return job, about


# Observed attacks ---------------------------------------------------------------------------------------------------


def test_a_forged_report_does_not_complete_a_job_and_its_number_voids_no_later_one(gated, api, enrolled, stranger):
    agent, mine = enrolled
    job, about = staged_job(gated, api, agent, mine)
    forged = JobFinished(**about, compute_s=0.1, result_bytes=5, result_sha256=64 * "f")
    with pytest.raises(NotEnrolled):
        stranger(agent.name).report(agent.name, agent.name, [(10**9, forged)])
    assert job().state is JobState.RUNNING
    mine.report(agent.name, agent.name, [(3, changed(forged, result_sha256=64 * "a"))])
    assert (job().state, job().result_sha256) == (JobState.RESULT_HELD, 64 * "a")


def test_an_unknown_host_offers_no_slots_and_draws_no_job(gated, api, enrolled, stranger):
    evil = Agent("evil")
    with pytest.raises(NotEnrolled):
        stranger("evil").heartbeat(evil.heartbeat(gated.clock()))
    assert not stranger("evil").enroll("evil")
    with pytest.raises(NotEnrolled):
        stranger("evil").heartbeat(evil.heartbeat(gated.clock()))
    agent, _ = enrolled
    assert [host.name for host in api.hosts()] == [agent.name]
    assert {slot.host for slot in api.slots()} == {agent.name}


def test_an_enrolled_agent_calls_nothing_of_the_apis(gated, api, enrolled):
    agent, mine = enrolled
    batch = api.create_batch(gated.request(agent, "sha256")).batch
    for ask in (
        lambda: mine.tickets("p", batch.uuid, []),
        lambda: mine.batches(Page(project_id="p")),
        lambda: mine.cancel_batch("p", batch.uuid),
        lambda: mine.drain_slot(api.slots()[0].uuid, "why not"),
        mine.hosts,
    ):
        with pytest.raises(Unauthenticated, match="role agent may not call"):
            ask()
    assert not api.batch_detail("p", batch.uuid).batch.cancel_requested


def test_an_enrolled_agent_does_nothing_in_the_name_of_another_host(gated, api, enrolled, caller):
    agent, _ = enrolled
    other = caller(Role.AGENT, "other")
    assert other.enroll("other", invite(gated.store, "other", gated.clock()))
    with pytest.raises(Unauthenticated, match="the agent of host other may not call heartbeat"):
        other.heartbeat(changed(agent.heartbeat(gated.clock()), data_address="203.0.113.1"))
    with pytest.raises(Unauthenticated):
        other.release_slots(agent.name, agent.name, {})
    (host,) = api.hosts()
    assert host.data_address == "192.0.2.1"


def test_the_secret_by_which_an_agent_is_told_from_another_one_is_in_no_answer(gated, api, caller):
    agent, secret = Agent(f"h-{uuid.uuid4().hex[:8]}"), uuid.uuid4().hex
    mine = caller(Role.AGENT, agent.name)
    assert mine.enroll(agent.name, invite(gated.store, agent.name, gated.clock()))
    mine.heartbeat(changed(agent.heartbeat(gated.clock()), agent_id=secret))
    told = [api.hosts(), api.slots(), api.cards(), api.services(), api.describe("me"), api.snapshot()]
    assert agent.name in repr(told)
    assert secret not in repr(told)
    with pytest.raises(HostTaken) as refused:
        mine.report(agent.name, "another", [])
    assert secret not in str(refused.value)


def test_a_captured_agent_does_not_pass_the_address_of_another_host_off_as_its_own(gated, api, enrolled, caplog):
    agent, mine = enrolled
    (approved,) = gated.store.enrolments()
    moved = changed(agent.heartbeat(gated.clock()), data_address="192.0.2.7")
    with pytest.raises(InvalidInput, match=r"expected '192\.0\.2\.1', as host \S+ had it first, found '192\.0\.2\.7'"):
        mine.heartbeat(moved)
    assert mine.enroll(agent.name)  # an agent does this by itself, so it is no approval
    with pytest.raises(InvalidInput):
        mine.heartbeat(changed(agent.heartbeat(gated.clock()), data_address="192.0.2.7"))
    assert "expected '192.0.2.1'" in caplog.text
    (host,) = api.hosts()
    assert (host.data_address, host.refused_messages) == ("192.0.2.1", 2)
    mine.heartbeat(agent.heartbeat(gated.clock()))
    approve(gated.store, agent.name, approved.key, gated.clock())
    mine.heartbeat(changed(agent.heartbeat(gated.clock()), data_address="192.0.2.7"))
    (host,) = api.hosts()
    assert host.data_address == "192.0.2.7"
    with pytest.raises(InvalidInput, match=r"expected '192\.0\.2\.7'"):
        mine.heartbeat(agent.heartbeat(gated.clock()))


def test_a_captured_agent_does_not_move_its_slots_below_the_compute_node_of_another_host(gated, enrolled):
    agent, mine = enrolled
    with pytest.raises(InvalidInput, match=r"node: expected '', as host \S+ had it first, found 'compute-2'"):
        mine.heartbeat(changed(agent.heartbeat(gated.clock()), node="compute-2"))
    mine.heartbeat(agent.heartbeat(gated.clock()))


# Enrolment ----------------------------------------------------------------------------------------------------------


def test_a_code_is_for_one_host_and_one_use(gated, caller):
    code = invite(gated.store, "h", gated.clock())
    with pytest.raises(Unauthenticated, match="host other: the enrolment code is wrong"):
        caller(Role.AGENT, "other").enroll("other", code)
    assert caller(Role.AGENT, "h").enroll("h", code)
    with pytest.raises(Unauthenticated, match="used or expired"):
        caller(Role.AGENT, "h").enroll("h", code)


def test_a_code_expires(gated, caller):
    code = invite(gated.store, "h", gated.clock() - 24 * 3600 - 1)
    with pytest.raises(Unauthenticated, match="used or expired"):
        caller(Role.AGENT, "h").enroll("h", code)


def test_a_key_that_was_offered_waits_until_it_is_approved(gated, caller):
    key = Ed25519PrivateKey.generate()
    mine, agent = caller(Role.AGENT, "h", key), Agent("h")
    assert not mine.enroll("h")
    (waiting,) = gated.store.enrolments()
    assert (waiting.key, waiting.offered) == ("", Identity(Role.AGENT, "h", key).public_text)
    approve(gated.store, "h", waiting.offered, gated.clock())
    assert mine.enroll("h")
    mine.heartbeat(agent.heartbeat(gated.clock()))


def test_another_key_for_an_enrolled_host_changes_nothing_until_it_is_approved(gated, enrolled, stranger):
    agent, mine = enrolled
    assert not stranger(agent.name).enroll(agent.name)
    mine.heartbeat(agent.heartbeat(gated.clock()))
    with pytest.raises(NotEnrolled):
        stranger(agent.name).heartbeat(agent.heartbeat(gated.clock()))


def test_a_host_that_was_removed_is_not_listened_to_any_more(gated, enrolled):
    agent, mine = enrolled
    revoke(gated.store, agent.name)

    def is_refused():
        try:
            mine.heartbeat(agent.heartbeat(gated.clock()))
        except NotEnrolled:
            return True
        return False

    wait_until(is_refused, "the scheduler has learnt of it")
    with pytest.raises(NotFound):
        revoke(gated.store, agent.name)


def test_a_host_whose_key_was_revoked_is_lost_at_once_with_its_jobs_and_no_other_host_is(gated, api, enrolled, caller):
    agent, mine = enrolled
    job, _ = staged_job(gated, api, agent, mine)
    other = Agent(f"h-{uuid.uuid4().hex[:8]}")
    gated.serve(other)
    others = caller(Role.AGENT, other.name)
    assert others.enroll(other.name, invite(gated.store, other.name, gated.clock()))
    others.heartbeat(other.heartbeat(gated.clock()))
    revoke(gated.store, agent.name)
    wait_until(lambda: job().host == other.name, "the job is planned elsewhere")  # hosts may be silent for 300 s here
    alive = {host.name: host.alive for host in api.hosts()}
    assert alive == {agent.name: False, other.name: True}
    assert {slot.state for slot in api.slots() if slot.host == agent.name} == {SlotState.FAULTED}
    batch = api.create_batch(gated.request(agent, *["sha256"] * 5)).batch
    wait_until(lambda: all(one.slot for one in api.batch_jobs("p", batch.uuid).jobs), "its jobs are planned")
    assert {one.host for one in api.batch_jobs("p", batch.uuid).jobs} == {other.name}


def test_a_host_that_was_lost_as_its_key_was_revoked_comes_back_when_it_is_enrolled_again(gated, api, enrolled):
    agent, mine = enrolled

    def is_alive():
        return api.hosts()[0].alive

    (known,) = gated.store.enrolments()
    revoke(gated.store, agent.name)
    wait_until(lambda: not is_alive(), "the host is lost")
    with pytest.raises(NotEnrolled):  # another scheduler, which has read the keys earlier, would accept it
        gated.service.heartbeat_intake.heartbeat(agent.heartbeat(gated.clock(), unreported=1))
    assert not is_alive()
    approve(gated.store, agent.name, known.key, gated.clock())

    def is_back():
        try:
            mine.heartbeat(agent.heartbeat(gated.clock()))
        except NotEnrolled:  # the keys were read a moment ago
            return False
        return is_alive()

    wait_until(is_back, "the host is back")


def test_the_place_of_a_living_host_whose_key_is_approved_again_is_what_its_next_heartbeats_say(gated, enrolled):
    agent, mine = enrolled
    mine.heartbeat(agent.heartbeat(gated.clock()))
    (known,) = gated.store.enrolments()
    assert known.data_address
    approve(gated.store, agent.name, known.key, gated.clock())

    def confirmed():
        mine.heartbeat(agent.heartbeat(gated.clock()))
        return gated.store.enrolments()[0].data_address

    assert wait_until(confirmed, "its place is confirmed") == known.data_address
    with pytest.raises(InvalidInput, match="data_address: expected"):
        mine.heartbeat(changed(agent.heartbeat(gated.clock()), data_address="192.0.2.99"))


def test_strangers_cannot_fill_the_database_with_offers(gated, caller, monkeypatch):
    monkeypatch.setattr("fpga_pool.services.scheduler.enrolment.MOST_PENDING", 2)
    for name in ("a", "b"):
        assert not caller(Role.AGENT, name).enroll(name)
    with pytest.raises(StorageFull, match="2 hosts wait for approval"):
        caller(Role.AGENT, "c").enroll("c")
    assert caller(Role.AGENT, "b").enroll("b", invite(gated.store, "b", gated.clock()))


def test_strangers_do_not_put_one_key_after_another_in_place_of_the_one_that_waits(gated, stranger, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):  # the first key, and two that replace it
        assert not stranger("h").enroll("h")
    waiting = gated.store.enrolments()
    for _ in range(5):
        with pytest.raises(TooManyRequests, match="host h: too many keys are offered"):
            stranger("h").enroll("h")
    assert gated.store.enrolments() == waiting
    assert caplog.text.count("host h waits for approval of key") == 3
    assert not stranger("other").enroll("other")
    assert stranger("h").enroll("h", invite(gated.store, "h", gated.clock()))


def test_offers_of_all_hosts_are_few_at_a_time_and_one_that_waits_may_be_repeated(gated, caller, stranger, monkeypatch):
    monkeypatch.setattr(gated.service.keys, "_offers", Allowance(at_once=2, per_s=0.001))
    mine = caller(Role.AGENT, "a")
    assert not mine.enroll("a")
    assert not stranger("b").enroll("b")
    with pytest.raises(TooManyRequests, match="host c: too many keys"):
        stranger("c").enroll("c")
    assert not mine.enroll("a")


def test_what_is_no_key_is_not_approved(bench):
    with pytest.raises(InvalidInput, match="expected the 43 characters"):
        approve(bench.store, "h", "secret", 0.0)
