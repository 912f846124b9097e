import pytest

from fpga_pool.model.exceptions import QuotaExceeded
from fpga_pool.model.messages.work import (
    BatchRequest,
    GangRequest,
    JobRequest,
    PipelineRequest,
    ShareRequest,
    SubtaskRequest,
    TaskRequest,
)
from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, UNLIMITED, ProjectLimits, QuotaLimits, Resource
from fpga_pool.model.objects.tasks import TaskShape
from fpga_pool.model.rules.shared.admission import ValidTickets, check_quota, quota_of

NOTHING = dict.fromkeys(set(Resource) - {Resource.REQUESTS_PER_S}, 0)
WHO = {"uuid": "u", "project_id": "p", "user_id": "u"}
SENT = {"uuid": "j", "requester": "r"}


@pytest.mark.parametrize(("used", "requested"), [(0, 10), (9, 1), (10, 0)])
def test_a_limit_may_be_reached(used, requested):
    check_quota("p", QuotaLimits(jobs=10), {Resource.JOBS: used}, {Resource.JOBS: requested})


@pytest.mark.parametrize("limit", [UNLIMITED, None])
def test_what_has_no_limit_is_not_refused(limit):
    check_quota("p", QuotaLimits(jobs=limit), NOTHING, {Resource.JOBS: 2**62})


def test_every_resource_that_is_exceeded_is_named_with_limit_use_and_request():
    limits = QuotaLimits(jobs=10, input_bytes=100, task_slots=1)
    used = NOTHING | {Resource.JOBS: 7, Resource.INPUT_BYTES: 100}
    requested = {Resource.JOBS: 4, Resource.INPUT_BYTES: 1, Resource.TASK_SLOTS: 1}
    with pytest.raises(QuotaExceeded) as refused:
        check_quota("p", limits, used, requested)
    assert str(refused.value) == (
        "the quota of project p does not allow it: jobs: 4 requested, 7 of 10 used; "
        "input_bytes: 1 requested, 100 of 100 used"
    )


def test_a_limit_of_its_own_goes_before_the_default_also_where_it_is_zero():
    found = quota_of(
        "p", ProjectLimits(QuotaLimits(jobs=0), QuotaLimits(jobs=5, task_slots=6)), NOTHING | {Resource.TASK_SLOTS: 2}
    )
    assert [(one.resource, one.limit, one.default, one.used) for one in found.resources] == [
        ("jobs", 0, False, 0),
        ("input_bytes", UNLIMITED, True, 0),
        ("task_slots", 6, True, 2),
        ("gang_processors", UNLIMITED, True, 0),
        ("tickets", UNLIMITED, True, 0),
        ("requests_per_s", UNLIMITED, True, None),
        ("design_bytes", UNLIMITED, True, 0),
    ]


def test_tickets_count_until_they_expire_whoever_has_others():
    tickets = ValidTickets()
    tickets.add("p", 3, 10.0)
    tickets.add("q", 5, 11.0)
    tickets.add("p", 4, 12.0)
    assert [tickets.of("p", now_s) for now_s in (9.0, 10.0, 11.9, 12.0)] == [7, 4, 4, 0]
    assert tickets.of("q", 12.0) == 0


def test_each_kind_of_work_says_what_it_adds():
    jobs = tuple(JobRequest(**SENT, function="f", input_bytes=size) for size in (3, 4))
    assert BatchRequest(**WHO, jobs=jobs).amounts == {Resource.JOBS: 2, Resource.INPUT_BYTES: 7}
    subtasks = (
        SubtaskRequest(uuid="a", name="a", function="f", requester="r", input_bytes=5),
        SubtaskRequest(uuid="b", name="b", function="f", after=("a",)),
    )
    assert PipelineRequest(**WHO, subtasks=subtasks).amounts == {Resource.JOBS: 2, Resource.INPUT_BYTES: 5}
    gang = GangRequest(**WHO, processes=7, runtime_s=1.0, cpu_usage=0.5)
    assert gang.amounts == {Resource.GANG_PROCESSORS: 7}


@pytest.mark.parametrize(("shapes", "slots"), [((), 3), ((1, 2), 2)])
def test_a_task_counts_with_its_widest_shape(shapes, slots):
    shares = tuple(ShareRequest(**SENT, input_bytes=2) for _ in range(3))
    shapes = tuple(TaskShape(slots=count) for count in shapes)
    found = TaskRequest(**WHO, function="f", shares=shares, shapes=shapes).amounts
    assert found == {Resource.JOBS: 3, Resource.INPUT_BYTES: 6, Resource.TASK_SLOTS: slots}


def test_every_resource_has_a_default_limit():
    assert all(DEFAULT_LIMITS.of(resource) > 0 for resource in Resource)
