"""The scheduler over its transport, on a real database."""

import threading
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import (
    Conflict,
    DuplicateId,
    InvalidInput,
    NotFound,
    PreconditionFailed,
    UnknownFunction,
    UnknownRequester,
)
from fpga_pool.model.messages.agents import JobStarted, ReleaseJob
from fpga_pool.model.messages.requests import Page, Receipt
from fpga_pool.model.objects.cards import CardState
from fpga_pool.model.objects.pool import BatchState, JobState, LeaseKind, SlotState
from fpga_pool.model.preconditions import version_of
from fpga_pool.model.rules.shared.changes import end_lease, new_lease
from fpga_pool.model.rules.shared.reconcile import CARD_GONE
from fpga_pool.model.values import changed
from fpga_pool.transfer.tokens import Verifier


@pytest.fixture
def agent(running):
    return running.host()


@pytest.fixture
def planned(running, agent, until):
    """Return a batch of two jobs that are planned, and of which the agent knows."""
    batch = running.create(agent, "sha256", "sha256")
    until(lambda: len(agent.held) == 2)
    return batch


def test_a_batch_is_stored_planned_and_commanded(running, agent, until):
    batch = running.create(agent, "sha256", "optical_flow")
    assert running.api.batch_detail("p", batch.uuid).batch.name == "n"
    until(lambda: len(agent.held) == 2)
    assert running.states(batch) == ["WAITING_INPUT"] * 2
    assert running.api.batch_detail("p", batch.uuid).batch.state is BatchState.RUNNING
    until(lambda: running.waiting() == [])


def test_services_are_listed_with_what_is_up(running, agent):
    found = {(one.kind, one.name): (one.up, one.shards) for one in running.api.services()}
    name = running.service.settings.name
    assert found["scheduler", name] == (True, ("default",))
    assert found["agent", agent.name] == (True, ("default",))


def test_hosts_slots_and_open_work_are_counted(running, agent, planned):
    """Two jobs of project p are on slots, which the pool leases. Another project has none."""
    counts = running.api.pool_counts()
    assert (counts.alive_hosts, counts.lost_hosts) == (1, 0)
    assert sum(one.slots for one in counts.slot_list) == len(running.api.slots())
    assert [(one.kind, one.slots) for one in counts.lease_list] == [("pool", len(agent.held))]
    assert sum(one.cards for one in counts.card_list) == len({(slot.host, slot.card) for slot in running.api.slots()})
    for project in ("p", None):
        (work,) = running.api.work_counts(project)
        assert (work.kind, work.state, work.count) == ("job", "WAITING_INPUT", 2)
        assert work.oldest_at == pytest.approx(planned.created_at)
    assert running.api.work_counts("q") == []


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"jobs": ()}, InvalidInput, "at least one job"),
        ({"policy": "psychic"}, InvalidInput, "policy: no batch policy 'psychic'; known: .*ect"),
        ({"policy": "exact"}, InvalidInput, "policy: 'exact' blocks all other planning until it has proven its plan"),
    ],
)
def test_bad_batches_are_refused_with_their_own_error(running, agent, changes, error, message):
    with pytest.raises(error, match=message):
        running.api.create_batch(changed(running.request(agent, "sha256"), **changes))


def test_a_bad_job_is_refused_with_its_own_error(running, agent):
    with pytest.raises(UnknownFunction, match=r"jobs\[0\].function: 'md5'"):
        running.create(agent, "md5")
    request = running.request(agent, "sha256")
    with pytest.raises(UnknownRequester):
        running.api.create_batch(changed(request, jobs=(changed(request.jobs[0], requester="nobody"),)))
    with pytest.raises(InvalidInput, match="input_bytes: expected a number of bytes, found 'many'"):
        running.api.create_batch(changed(request, jobs=(changed(request.jobs[0], input_bytes="many"),)))


def test_a_batch_that_is_sent_again_is_a_duplicate(running, agent):
    request = running.request(agent, "sha256")
    running.api.create_batch(request)
    with pytest.raises(DuplicateId, match=request.uuid):
        running.api.create_batch(request)


def test_another_project_sees_and_changes_nothing(running, planned):
    job = running.jobs(planned)[0].uuid
    for use in (
        lambda: running.api.batch_detail("q", planned.uuid).batch,
        lambda: running.api.batch_jobs("q", planned.uuid),
        lambda: running.api.cancel_batch("q", planned.uuid),
        lambda: running.tickets(planned, job, project="q"),
    ):
        with pytest.raises(NotFound, match=f"no batch {planned.uuid}"):
            use()
    assert running.api.batches(Page(project_id="q")) == []
    assert [batch.uuid for batch in running.api.batches(Page(project_id="p"))] == [planned.uuid]


def test_cancellation_reaches_the_agent(running, agent, planned, until):
    assert running.api.cancel_batch("p", planned.uuid).cancel_requested
    until(lambda: agent.held == {})
    assert sum(isinstance(command.action, ReleaseJob) for command in agent.commands) == 2


def test_a_drained_slot_takes_no_job_until_it_is_resumed(running, agent, until):
    drained = [running.api.drain_slot(slot.uuid, "dust").slot for slot in running.api.slots()]
    assert {slot.state for slot in drained} == {SlotState.DRAINED}
    batch = running.create(agent, "sha256")
    running.service.work_arrived()
    assert running.states(batch) == ["PENDING"]
    resumed = running.api.resume_slot(drained[1].uuid).slot
    until(lambda: running.states(batch) == ["WAITING_INPUT"])
    assert running.jobs(batch)[0].slot == resumed.name
    assert running.api.slot(drained[0].uuid).slot.reason == "dust"


def test_a_card_is_drained_and_resumed_as_a_whole(running, agent, planned):
    """Its two jobs have not begun, so they are removed. The counts of the pool agree with the list."""
    (card,) = running.api.cards()
    assert (card.name, card.slots, card.state) == (f"{agent.name}/c", 3, CardState.IN_SERVICE)
    assert len(running.api.card(card.uuid).user_list) == len({job.slot for job in running.jobs(planned)})
    drained = running.api.drain_card(card.uuid, "dust")
    assert {slot.state for slot in drained.slot_list} == {SlotState.DRAINED}
    assert drained.user_list == ()
    assert running.states(planned) == ["PENDING"] * 2
    assert [one.state for one in running.api.pool_counts().card_list] == [CardState.OUT_OF_SERVICE]
    with pytest.raises(PreconditionFailed):
        running.api.resume_card(card.uuid, (version_of(card),))
    resumed = running.api.resume_card(card.uuid, (version_of(drained),))
    assert (resumed.state, {slot.reason for slot in resumed.slot_list}) == (CardState.IN_SERVICE, {""})


def test_a_card_leaves_when_nobody_uses_it_and_its_agent_does_not_report_it(running, agent, clock):
    (card,) = running.api.cards()
    slot = running.api.slots()[0].name
    with running.store.transaction("default") as tx:
        lease = new_lease(tx, slot, LeaseKind.INSTANCE, "vm-1", clock(), project_id="p-1")
        tx.add(lease)
    with pytest.raises(Conflict, match=f"but drained: slot {slot} is held by instance vm-1 of project p-1"):
        running.api.remove_card(card.uuid)
    assert running.api.card(card.uuid).drain_requested
    with running.store.transaction("default") as tx:
        end_lease(tx, tx.leases()[0], clock())
    with pytest.raises(Conflict, match=f"the agent of {agent.name} reports them"):
        running.api.remove_card(card.uuid)
    with running.store.transaction("default") as tx:
        for one in tx.slots():
            tx.save(replace(one, state=SlotState.FAULTED, reason=CARD_GONE))
    assert [one.name for one in running.api.remove_card(card.uuid).slot_list] == [f"{card.name}/r{n}" for n in range(3)]
    assert (running.api.cards(), running.api.slots(), running.api.pool_counts().card_list) == ([], [], ())
    # A heartbeat that contains the card adds it again.
    running.api.heartbeat(agent.heartbeat(clock()))
    assert [one.uuid for one in running.api.cards()] == [card.uuid]


def test_an_unknown_card_is_not_found(running, agent):
    uses = (running.api.card, running.api.resume_card, running.api.remove_card)
    for use in (*uses, lambda uuid: running.api.drain_card(uuid, "")):
        with pytest.raises(NotFound, match="no card nothing"):
            use("nothing")


def test_bitstreams_are_those_that_a_host_with_the_board_has(running, agent):
    (found,) = running.api.bitstreams()
    assert (found.name, found.host, found.verified) == ("fast/small/sha256", agent.name, True)
    assert running.api.bitstreams(agent.name) == [found]
    with pytest.raises(NotFound, match="no host nobody"):
        running.api.bitstreams("nobody")


def test_bitstreams_of_a_host_that_does_not_say_are_not_verified(running, agent):
    expected = {(function.name, kind) for function, kind in running.catalogue.loadable(running.catalogue.board("fast"))}
    agent.unavailable = True
    silent = running.api.bitstreams()
    assert {(one.function, one.kind) for one in silent} == expected
    assert {(one.verified, one.reason) for one in silent} == {
        (False, f"the agent of {agent.name} did not report the content of its library")
    }
    with running.store.transaction("default") as tx:
        tx.save(replace(tx.host(agent.name), alive=False))
    assert {(one.host, one.reason) for one in running.api.bitstreams()} == {("", "no live host has such a card")}


def test_an_unknown_slot_is_not_found(running, agent):
    for use in (running.api.slot, running.api.resume_slot, lambda uuid: running.api.drain_slot(uuid, "")):
        with pytest.raises(NotFound, match="no slot nothing"):
            use("nothing")


def test_hosts_and_functions_are_told_as_they_are_in_force(running, agent):
    assert [host.name for host in running.api.hosts()] == [agent.name]
    slots = {function.name: function.slots for function in running.api.functions()}
    assert slots == {"aes": 3, "mvm": 3, "optical_flow": 1, "sha256": 3, "wordcount": 3}


# Tickets


def test_a_ticket_to_send_says_where_how_fast_and_for_how_long(running, agent, planned, clock):
    job = running.jobs(planned)[0]
    (ticket,) = running.tickets(planned, job.uuid)
    assert (ticket.address, ticket.port, ticket.input_bytes) == ("192.0.2.1", 7000, 1000)
    assert ticket.transfer == job.transfer
    assert 0 <= ticket.elapsed_s < 60
    grant = Verifier([running.key.public_key()], agent.name).verify(ticket.token, clock())
    assert (grant.job, grant.attempt, grant.project_id, grant.purpose) == (job.uuid, 1, "p", "send")
    assert 0 < grant.deadline_s - clock() <= running.service.settings.token_lifetime_s
    assert not ticket.shaped


def test_each_ticket_has_a_token_of_its_own(running, planned, agent, clock):
    job = running.jobs(planned)[0].uuid
    verifier = Verifier([running.key.public_key()], agent.name)
    grants = [
        verifier.verify(ticket.token, clock())
        for ticket in running.tickets(planned, job) + running.tickets(planned, job)
    ]
    assert grants[0].token_id != grants[1].token_id


@pytest.mark.parametrize(
    ("steps", "state", "purposes"),
    [
        ([], JobState.WAITING_INPUT, {"send"}),
        (["staged"], JobState.STAGED, {"fetch"}),
        (["staged", "started"], JobState.RUNNING, {"fetch"}),
        (["staged", "started", "finished"], JobState.RESULT_HELD, {"fetch"}),
    ],
)
def test_tickets_are_given_for_what_makes_sense_in_the_jobs_state(running, planned, steps, state, purposes):
    job = running.jobs(planned)[0]
    if steps:
        running.report(job, *steps)
    assert running.jobs(planned)[0].state is state
    for purpose in ("send", "fetch"):
        if purpose in purposes:
            assert running.tickets(planned, job.uuid, purpose=purpose)[0].purpose == purpose
        else:
            with pytest.raises(Conflict, match=f"job {job.uuid} is {state}: there is nothing to {purpose} now"):
                running.tickets(planned, job.uuid, purpose=purpose)


def test_tickets_are_all_given_or_none(running, planned):
    first, second = (job.uuid for job in running.jobs(planned))
    running.report(running.jobs(planned)[1], "staged")
    with pytest.raises(Conflict):
        running.tickets(planned, first, second)
    assert running.jobs(planned)[0].flow == ""


def test_no_ticket_for_another_purpose_another_batch_or_a_job_to_be_cancelled(running, agent, planned, until):
    other = running.create(agent, "sha256")
    job = running.jobs(planned)[0].uuid
    with pytest.raises(InvalidInput, match="purpose: expected send or fetch, found 'keep'"):
        running.tickets(planned, job, purpose="keep")
    with pytest.raises(NotFound, match=f"no job {job} in batch {other.uuid}"):
        running.tickets(other, job)
    with pytest.raises(InvalidInput, match="job: expected a uuid, found 'nothing'"):
        running.tickets(planned, "nothing")
    running.api.cancel_batch("p", planned.uuid)
    with pytest.raises(Conflict, match="nothing to send now"):
        running.tickets(planned, job)


def test_a_result_that_the_client_confirms_again_is_released_once(running, agent, planned, until, clock):
    job = running.jobs(planned)[0]
    until(lambda: running.waiting() == [])
    running.report(job, "staged", "started", "finished")
    receipt = Receipt(job=job.uuid, sha256="ab" * 32)
    with pytest.raises(NotFound, match=f"no batch {planned.uuid}"):
        running.api.confirm_results("q", planned.uuid, [receipt])
    with pytest.raises(InvalidInput, match="job: expected a uuid"):
        running.api.confirm_results("p", planned.uuid, [changed(receipt, job="nobody")])
    for _ in range(2):
        assert running.api.confirm_results("p", planned.uuid, [receipt]).jobs_completed == 1
        assert running.jobs(planned)[0].state is JobState.COMPLETED
    running.api.heartbeat(agent.heartbeat(clock()))
    until(lambda: job.uuid not in agent.held)
    assert sum(isinstance(command.action, ReleaseJob) for command in agent.commands) == 1


# Agents


def test_agents_that_report_at_once_complete_each_job_once(running, until):
    agents = [running.host() for _ in range(4)]
    batch = running.create(agents[0], *["sha256"] * 24)
    until(lambda: sum(len(agent.held) for agent in agents) == 24)
    jobs = running.jobs(batch)
    failures = []

    def tell(host):
        try:
            for job in (job for job in jobs if job.host == host):
                running.report(job, "staged", "started")
                for _ in range(2):  # reports are sent at least once
                    running.report(job, "finished")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=tell, args=(agent.name,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    ended = running.api.batch_detail("p", batch.uuid).batch
    assert (ended.state, ended.jobs_completed) == (BatchState.COMPLETED, 24)
    until(lambda: sum(row.runs for row in running.api.calibration("sha256")) == 24)


def test_a_report_that_is_no_report_is_refused(running, agent):
    with pytest.raises(InvalidInput, match=r"reports\[0\]\[1\]\.type: invalid value .ReleaseJob."):
        running.api.report(agent.name, agent.name, [(1, ReleaseJob(job="j"))])
    running.api.report(agent.name, agent.name, [(1, JobStarted(job="nobody", attempt=1, at=1.0))])
    (host,) = running.api.hosts()
    assert (host.reported, host.refused_messages) == (1, 1)
    assert running.api.describe("me")["refused"] == {"fpga_pool.invalid_input": 1}


def test_a_job_that_its_agent_lost_is_planned_again(running, agent, planned, until, clock):
    lost = running.jobs(planned)[0].uuid
    until(lambda: running.waiting() == [])
    del agent.held[lost]
    running.api.heartbeat(agent.heartbeat(clock()))
    until(lambda: next(job for job in running.jobs(planned) if job.uuid == lost).attempt == 2)
    until(lambda: lost in agent.held)


# Calibration


def test_calibration_tells_the_catalogue_beside_what_was_observed_and_stores_the_fit(running, agent, planned, until):
    assert running.api.calibration() == []
    running.report(running.jobs(planned)[0], "staged", "started", "finished")
    (row,) = running.api.calibration("sha256")
    assert (row.function, row.board, row.runs) == ("sha256", "fast", 1)
    assert (row.catalogue_a_s, row.catalogue_b_s_per_byte) == (0.005, 1e-9)
    # It took 20 ms, four times the 5 ms of the catalogue. The fit lies between them.
    assert 0.005 < row.fitted_a_s + 1000 * row.fitted_b_s_per_byte < 0.02

    def stored():
        with running.store.reading() as tx:
            return tx.time_models()

    until(stored)
    assert stored()["sha256", "fast"].a_s == pytest.approx(row.fitted_a_s)


def test_instances_that_have_ended_tell_how_long_those_of_their_project_run(running, agent):
    assert running.api.observations().run_times == ()
    with running.store.reading() as tx:
        slot = tx.slots()[0]
    for held_s in (5.0, 20.0, 300.0):
        with running.store.transaction(slot.shard) as tx:
            lease = new_lease(tx, slot.name, LeaseKind.INSTANCE, "vm", 100.0, project_id="p", function="sha256")
            tx.add(lease)
            end_lease(tx, lease, 100.0 + held_s)
    assert running.api.observations().run_time_s("p", "sha256") == 20.0


def test_calibration_of_an_unknown_function_is_refused(running):
    with pytest.raises(UnknownFunction, match="md5"):
        running.api.calibration("md5")
