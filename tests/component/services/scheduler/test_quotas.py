"""Quotas at the scheduler: which requests are refused, and with which error, also if several are concurrent."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from keystoneauth1.exceptions import ClientException
from sqlalchemy import event

from fpga_pool.model.exceptions import Conflict, DuplicateId, InvalidInput, QuotaExceeded, ServiceUnavailable
from fpga_pool.model.messages.requests import Page, TicketRequest
from fpga_pool.model.messages.usage import UsagePage
from fpga_pool.model.objects.pool import Batch
from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, UNLIMITED, ProjectLimits, QuotaLimits
from fpga_pool.services.scheduler.cloud.unified_limits import MAX_AGE_S, UnifiedLimits
from fpga_pool.store.quotas import lock_limits


def used(running, project="p"):
    return {one.resource: one.used for one in running.api.quota(project).resources}


def test_a_batch_beyond_the_quota_of_its_project_is_refused_and_nothing_is_stored(running):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=3))
    running.create(agent, "sha256", "sha256")
    with pytest.raises(QuotaExceeded, match=r"project p .*: jobs: 2 requested, 2 of 3 used"):
        running.create(agent, "sha256", "sha256")
    running.create(agent, "sha256")
    assert used(running)["jobs"] == 3
    assert len(running.api.batches(Page(project_id="p", limit=10))) == 2
    running.create(agent, "sha256", "sha256", project="other")


def test_bytes_count_until_the_batch_ends(running, until):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(input_bytes=2500))
    batch = running.create(agent, "sha256", "sha256", input_bytes=1000)
    with pytest.raises(QuotaExceeded, match="input_bytes: 1000 requested, 2000 of 2500 used"):
        running.create(agent, "sha256", input_bytes=1000)
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * 2)
    running.api.cancel_batch("p", batch.uuid)
    for job in running.jobs(batch):
        running.released(job)
    running.create(agent, "sha256", input_bytes=1000)
    assert used(running)["input_bytes"] == 1000


def test_a_repeat_of_what_was_admitted_is_recognised_though_the_quota_is_used_up(running):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=1))
    request = running.request(agent, "sha256")
    running.api.create_batch(request)
    with pytest.raises(DuplicateId):
        running.api.create_batch(request)


def test_many_at_once_get_no_more_than_the_quota(running):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=4))

    def create(_):
        try:
            running.create(agent, "sha256")
        except QuotaExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(8) as clients:
        assert sum(clients.map(create, range(12))) == 4


def test_an_operator_returns_a_project_to_the_default(running):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=0))
    with pytest.raises(QuotaExceeded):
        running.create(agent, "sha256")
    assert running.api.unset_quota("p").resources[0].default
    running.create(agent, "sha256")


def test_limits_that_keystone_keeps_are_in_force_and_not_the_pools_to_change(running):
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=50))
    running.service.unified_limits = lambda _: ProjectLimits(QuotaLimits(jobs=1), DEFAULT_LIMITS)
    with pytest.raises(QuotaExceeded, match="jobs: 2 requested, 0 of 1 used"):
        running.create(agent, "sha256", "sha256")
    jobs, size, *_ = running.api.quota("p").resources
    assert [(one.limit, one.default) for one in (jobs, size)] == [(1, False), (DEFAULT_LIMITS.input_bytes, True)]
    for change in (lambda: running.api.set_quota("p", QuotaLimits(jobs=5)), lambda: running.api.unset_quota("p")):
        with pytest.raises(Conflict, match="limits of Keystone"):
            change()


class Keystone:
    """The methods of oslo.limit's Enforcer, with answers from the test."""

    def __init__(self):
        self.registered, self.own = [("jobs", 7), ("input_mib", 2), ("servers", 1)], [("tickets", UNLIMITED)]
        self.asked = 0

    def get_registered_limits(self, _):
        return self.registered

    def get_project_limits(self, project_id, _):
        self.asked += 1
        if self.own is None:
            raise ClientException("connection refused")
        return self.own


def test_keystone_is_asked_again_after_a_while_and_its_last_answer_holds_while_it_is_away():
    keystone, time_s = Keystone(), [0.0]
    limits = UnifiedLimits(lambda: keystone, DEFAULT_LIMITS, lambda: time_s[0])
    found = limits.of("p").in_force
    assert (found.jobs, found.input_bytes, found.tickets) == (7, 2 << 20, UNLIMITED)
    assert found.task_slots == DEFAULT_LIMITS.task_slots
    keystone.registered[0] = "jobs", 8
    assert limits.of("p").in_force.jobs == 7
    time_s[0] = MAX_AGE_S
    assert limits.of("p").in_force.jobs == 8
    keystone.own, time_s[0] = None, 2 * MAX_AGE_S
    assert limits.of("p").in_force.jobs == 8
    asked = keystone.asked
    limits.of("p")
    assert keystone.asked == asked  # not once per request
    with pytest.raises(ServiceUnavailable, match="limits of project new are not known"):
        limits.of("new")


def test_tickets_of_a_project_are_limited_until_they_expire_and_others_have_their_own(bench, jumping_clock, until):
    bench.clock = jumping_clock
    running = bench.start(bench.new_service())
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(tickets=3))
    batch = running.create(agent, "sha256", "sha256")
    other = running.create(agent, "sha256", project="q")
    until(lambda: running.states(batch) + running.states(other) == ["WAITING_INPUT"] * 3)
    jobs = [job.uuid for job in running.jobs(batch)]
    running.tickets(batch, *jobs)
    with pytest.raises(QuotaExceeded, match="tickets: 2 requested, 2 of 3 used"):
        running.tickets(batch, *jobs)
    with pytest.raises(Conflict):  # a request that is refused for another reason does not count
        running.tickets(batch, jobs[0], purpose="fetch")
    running.tickets(batch, jobs[0])
    assert used(running)["tickets"] == 3
    running.tickets(other, running.jobs(other)[0].uuid, project="q")
    jumping_clock.ahead_s += running.service.settings.token_lifetime_s
    running.tickets(batch, *jobs)
    assert used(running)["tickets"] == 2


@pytest.mark.parametrize("project", ["", "a b", "x" * 65, "../p"])
def test_names_that_no_project_has_are_refused(running, project):
    with pytest.raises(InvalidInput, match="project_id: expected 1 to 64 letters"):
        running.api.quota(project)


def test_usage_counts_jobs_when_they_have_computed(running, until):
    agent = running.host()
    batch = running.create(agent, "sha256", "sha256", input_bytes=1000)
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * 2)
    assert running.api.usage(UsagePage(project_id="p")) == []
    first, _ = running.jobs(batch)
    before = running.clock()
    running.report(first, "staged", "started", "finished")
    (used,) = running.api.usage(UsagePage(project_id="p", begin_at=before))
    assert (used.function, used.jobs, used.slot_s, used.cpu_s, used.input_bytes) == ("sha256", 1, 0.02, 0.0, 1000)
    assert used.result_bytes == 1
    assert running.api.usage(UsagePage(project_id="other")) == []
    assert running.api.usage(UsagePage(project_id="p", end_at=before)) == []
    (of_a_day,) = running.api.usage(UsagePage())
    assert of_a_day.end_at - of_a_day.begin_at == pytest.approx(86_400)


@pytest.mark.parametrize(("begin_at", "end_at"), [(10.0, 10.0), (20.0, 10.0), (0.0, 32 * 86_400.0)])
def test_usage_is_of_a_period_of_a_month_at_most(running, begin_at, end_at):
    with pytest.raises(InvalidInput, match="start: expected a point in time before the end, by at most 31 days"):
        running.api.usage(UsagePage(begin_at=begin_at, end_at=end_at))


@pytest.fixture
def sums(running):
    """Return the list of executed statements that count the usage of a project."""
    sums = []
    event.listen(
        running.service.store.engine,
        "before_cursor_execute",
        lambda *call: sums.append(call[2]) if "sum(batches.jobs" in call[2] else None,
    )
    return sums


def test_what_a_project_uses_is_counted_again_where_that_matters(running, until, sums):
    """Usage is counted again if limits might be exceeded, or if another scheduler has admitted work of the project."""
    agent = running.host()
    running.api.set_quota("p", QuotaLimits(jobs=3))
    sums.clear()
    batches = [running.create(agent, "sha256") for _ in range(3)]
    assert len(sums) == 1
    until(lambda: running.states(batches[0]) == ["WAITING_INPUT"])
    running.api.cancel_batch("p", batches[0].uuid)
    running.released(running.jobs(batches[0])[0])
    running.create(agent, "sha256")
    assert len(sums) == 2
    with pytest.raises(QuotaExceeded, match="jobs: 1 requested, 3 of 3 used"):
        running.create(agent, "sha256")
    running.api.set_quota("p", QuotaLimits(jobs=9))
    sums.clear()
    running.create(agent, "sha256")
    running.create(agent, "sha256")
    assert len(sums) == 1
    with running.store.admission() as tx:  # like another scheduler
        lock_limits(tx.connection, "p")
    running.create(agent, "sha256")
    assert len(sums) == 2
    assert used(running)["jobs"] == 6


def test_limits_that_are_reset_leave_the_count_of_admissions(running):
    """Otherwise a later admission by another scheduler could be mistaken for one by this scheduler."""
    agent = running.host()
    running.create(agent, "sha256")
    with running.store.admission() as tx:
        _, before = lock_limits(tx.connection, "p")
    running.api.unset_quota("p")
    with running.store.admission() as tx:
        assert lock_limits(tx.connection, "p")[1] == before + 2


def test_requests_that_are_admitted_together_count_for_each_other_and_read_the_use_once(running, sums, until):
    """The excess request is refused, without affecting the others."""
    agent, service = running.host(), running.service
    running.api.set_quota("p", QuotaLimits(jobs=3))

    def submit(_):
        try:
            return running.create(agent, "sha256")
        except QuotaExceeded as error:
            return error

    def admitted(number):
        """Let requests arrive while another thread admits, so that they are admitted together."""
        sums.clear()
        with ThreadPoolExecutor(number) as callers:
            with service._admissions._turn:
                waiting = [callers.submit(submit, one) for one in range(number)]
                until(lambda: len(service._admissions._waiting) == number)
            return [one.result() for one in waiting]

    assert all(isinstance(one, Batch) for one in admitted(2))
    assert len(sums) == 1
    found = admitted(3)
    assert sorted(isinstance(one, Batch) for one in found) == [False, False, True]
    assert used(running)["jobs"] == 3


def test_a_repeat_among_requests_that_are_admitted_together_is_refused_by_itself(running, until):
    agent, service = running.host(), running.service
    request, other = running.request(agent, "sha256"), running.request(agent, "sha256")

    def submit(one):
        try:
            return running.api.create_batch(one).batch
        except DuplicateId as error:
            return error

    with ThreadPoolExecutor(3) as callers:
        with service._admissions._turn:
            waiting = [callers.submit(submit, one) for one in (request, request, other)]
            until(lambda: len(service._admissions._waiting) == len(waiting))
        found = [one.result() for one in waiting]
    assert {type(one) for one in found[:2]} == {Batch, DuplicateId}
    assert isinstance(found[2], Batch)
    assert used(running)["jobs"] == 2


@pytest.mark.parametrize("kind", ["dry run", "tickets"])
def test_keystone_is_asked_before_a_transaction_begins_and_before_a_dry_run_has_its_turn(running, until, kind):
    agent, reading, asked = running.host(), set(), []
    batch = running.create(agent, "sha256")
    until(lambda: running.states(batch) == ["WAITING_INPUT"])

    def limits(project_id):
        with running.service.dry_runs.turn("other"):
            asked.append(threading.get_ident() in reading)
        return ProjectLimits(QuotaLimits(), DEFAULT_LIMITS)

    running.service.unified_limits = limits
    event.listen(running.store.engine, "before_cursor_execute", lambda *call: reading.add(threading.get_ident()))
    reading.clear()
    if kind == "dry run":
        running.api.plan_batch(running.request(agent, "sha256"))
    else:
        (job,) = running.jobs(batch)
        reading.clear()
        running.api.tickets(
            "p", batch.uuid, [TicketRequest(job=job.uuid, purpose="send", source_address="192.0.2.9", source_port=9)]
        )
    assert asked == [False]
