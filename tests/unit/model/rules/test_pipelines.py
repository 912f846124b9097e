"""Pipelines: jobs whose inputs are results of other jobs of their batch."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.cluster.policies import EarliestHost
from fpga_pool.core.cluster.slowdown import Run as CardRun
from fpga_pool.core.cluster.slowdown import learned_from
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput, UnknownFunction, UnknownRequester
from fpga_pool.model.messages.agents import AssignJob, ObservedServer, ReleaseJob
from fpga_pool.model.messages.work import PipelineRequest, SubtaskRequest
from fpga_pool.model.objects.pool import BatchState, JobState, Run, SlotState
from fpga_pool.model.rules.pipeline import outlook
from fpga_pool.model.rules.pipeline.admission import create_pipeline
from fpga_pool.model.rules.pipeline.family import PipelineFamily
from fpga_pool.model.rules.pipeline.outlook import pipeline_detail
from fpga_pool.model.values import changed

UUIDS = {name: f"00000000-0000-4000-8000-{number:012d}" for number, name in enumerate("abcdef")}


def subtask(name, *after, function="aes", **options):
    options = ({} if after else {"requester": "h0", "input_bytes": 1000}) | options
    return SubtaskRequest(uuid=UUIDS[name], name=name, function=function, after=after, **options)


@pytest.fixture
def submit(pool):
    def create(*subtasks):
        request = PipelineRequest(uuid="p1", project_id="p", user_id="u", name="", subtasks=subtasks)
        with pool.tx() as tx:
            return create_pipeline(tx, request, pool.catalogue, pool.settings, pool.now_s)

    return create


@pytest.fixture
def family(pool):
    return PipelineFamily(pool.catalogue, pool.settings, EarliestHost())


@pytest.fixture
def step(pool, family):
    """Return a function that runs one cycle of the family, and returns the names of the placed jobs."""

    def cycle():
        with pool.tx() as tx:
            look = family.snapshot(tx, pool.now_s)
        if look is None:
            return None
        wanted = family.decide(look, None, np.random.default_rng(0)).wanted
        if wanted is None:
            return []
        with pool.tx() as tx:
            return [job.name for job in family.commit(tx, look, wanted, pool.now_s).placed]

    return cycle


@pytest.fixture
def states(pool):
    return lambda: {name: pool.job(uuid).state for name, uuid in UUIDS.items() if pool.job(uuid) is not None}


def complete(pool, name):
    pool.bring(UUIDS[name], JobState.RESULT_HELD)


def test_a_subtask_waits_for_its_predecessors_and_reads_their_results_in_the_order_of_after(pool, submit, step):
    submit(subtask("a"), subtask("b"), subtask("c", "b", "a"))
    assert step() == ["a", "b"]
    complete(pool, "a")
    assert step() is None
    complete(pool, "b")
    pool.sent()
    assert step() == ["c"]
    (assign,) = [command.action for command in pool.sent()]
    assert isinstance(assign, AssignJob)
    assert [(source.job, source.host) for source in assign.sources] == [(UUIDS["b"], "h0"), (UUIDS["a"], "h0")]
    assert assign.input_bytes == pool.job(UUIDS["c"]).input_bytes == 3 + 3


def test_the_first_input_may_come_from_a_server_of_the_project(pool, submit, step):
    server = ObservedServer(uuid=UUIDS["f"], project_id="p", egress_bps=2e6, held=True)
    with pytest.raises(UnknownRequester, match="no server"):
        submit(subtask("a", requester=f"server:{server.uuid}"))
    pool.heard(changed(pool.heartbeat(), servers=(server,)))
    submit(subtask("a", requester=f"server:{server.uuid}"), subtask("b", "a"))
    assert step() == ["a"]


def test_batches_are_planned_again_around_a_subtask_that_waits(pool, submit, step):
    submit(subtask("a"), subtask("b", "a"))
    step()
    complete(pool, "a")
    step()
    pool.create(*["aes"] * 6)
    pool.plan()
    asked = pool.asked(movable=False)
    row = [job.uuid for job in asked.jobs].index(UUIDS["b"])
    problem = asked.underway.problem
    assert problem.requester[row] == problem.responder[asked.underway.accelerator[row]]
    assert problem.input_bytes[row] == 0
    assert pool.replan(asked).moved == []


def test_a_pipeline_that_waits_tells_why_and_when_it_is_expected_to_begin(pool, submit, step):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "b"))

    def told():
        with pool.tx() as tx:
            detail = pipeline_detail(tx, pool.batch("p1"), pool.catalogue, pool.now_s)
        return detail.pending_reason, detail.expected_at

    assert told() == ("it is about to be planned", pool.now_s)
    step()
    first = pool.job(UUIDS["a"])
    assert told() == ("subtasks wait for the results of others", first.dispatched_at + first.end_s)
    pool.now_s += 1000  # the subtask is late
    assert told() == ("subtasks wait for the results of others", pool.now_s)
    complete(pool, "a")
    assert told() == ("it is about to be planned", pool.now_s)
    with pool.tx() as tx:
        tx.save(changed(tx.host("h0"), alive=False))
    assert told() == ("subtasks wait for the results of others", None)
    with pool.tx() as tx:
        tx.save(changed(tx.batch("p1"), held=True))
    assert told() == ("held by its owner", None)


def test_a_list_of_subtasks_looks_at_their_pipeline_once(pool, submit, step, monkeypatch):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "a"), subtask("d", "b", "c"))
    step()
    looked, ready = [], outlook.ready
    monkeypatch.setattr(outlook, "ready", lambda jobs, living: looked.append(1) or ready(jobs, living))
    with pool.tx() as tx:
        jobs = tx.batch_jobs("p1")
        details = outlook.job_details(tx, jobs, pool.catalogue, pool.now_s)
    first = jobs[0]
    assert len(looked) == 1
    assert [(one.pending_reason, one.expected_at) for one in details] == [
        ("", first.expected_at),
        *[("subtasks wait for the results of others", first.dispatched_at + first.end_s)] * 2,
        ("subtasks wait for the results of others", None),
    ]


def test_agents_keep_the_results_that_others_read_whoever_has_them(pool, submit, step):
    submit(subtask("a"), subtask("b", "a"))
    pool.sent()
    step()
    complete(pool, "a")
    step()
    assigned = {command.action.job: command.action.kept for command in pool.sent()}
    assert assigned == {UUIDS["a"]: True, UUIDS["b"]: False}


def test_results_are_released_once_the_last_dependent_has_ended(pool, submit, step):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "a"))
    step()
    complete(pool, "a")
    assert step() == ["b", "c"]
    pool.sent()
    complete(pool, "b")
    assert not [command for command in pool.sent() if isinstance(command.action, ReleaseJob)]
    complete(pool, "c")
    released = [command.action.job for command in pool.sent() if isinstance(command.action, ReleaseJob)]
    assert released == [UUIDS["a"]]
    pool.released(UUIDS["a"])
    assert pool.job(UUIDS["a"]).state is JobState.COMPLETED
    assert pool.job(UUIDS["a"]).reason == "result discarded: no other job needs it any more"
    assert pool.batch("p1").state is BatchState.COMPLETED


def test_dependents_of_a_failed_subtask_end_with_a_reason_and_others_go_on(pool, submit, step, states):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "b"), subtask("d"))
    step()
    pool.bring(UUIDS["a"], JobState.RUNNING)
    pool.fail(UUIDS["a"], retryable=False)
    assert states() == {
        "a": JobState.FAILED, "b": JobState.CANCELLED, "c": JobState.CANCELLED, "d": JobState.WAITING_INPUT
    }  # fmt: skip
    assert pool.job(UUIDS["b"]).reason == "not computed: its predecessor a failed"
    assert pool.job(UUIDS["c"]).reason == "not computed: its predecessor b was skipped"
    assert pool.job(UUIDS["c"]).error_code == "fpga_pool.predecessor_failed"
    complete(pool, "d")
    assert pool.batch("p1").state is BatchState.FAILED


def test_results_are_released_when_all_their_readers_are_skipped(pool, submit, step, states):
    submit(subtask("a"), subtask("b"), subtask("c", "a", "b"))
    step()
    complete(pool, "a")
    pool.bring(UUIDS["b"], JobState.RUNNING)
    pool.sent()
    pool.fail(UUIDS["b"], retryable=False)
    assert states()["c"] is JobState.CANCELLED
    assert UUIDS["a"] in [command.action.job for command in pool.sent() if isinstance(command.action, ReleaseJob)]


def test_cancelling_ends_what_has_not_ended_and_keeps_what_has(pool, submit, step, states):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "b"))
    step()
    complete(pool, "a")
    step()
    pool.cancel("p1")
    pool.released(UUIDS["b"])
    pool.released(UUIDS["a"])
    assert states() == {"a": JobState.COMPLETED, "b": JobState.CANCELLED, "c": JobState.CANCELLED}
    assert pool.batch("p1").state is BatchState.CANCELLED


def test_a_result_lost_with_its_host_is_computed_again_and_counted_once(pool, submit, step, states):
    pool.host_up("h1")
    for slot in ("h0/c/r0", "h0/c/r1", "h0/c/r2"):
        pool.drain(slot)
    submit(subtask("a"), subtask("b", "a"))
    assert step() == ["a"]
    assert pool.job(UUIDS["a"]).host == "h1"
    complete(pool, "a")
    for slot in ("h0/c/r0", "h0/c/r1", "h0/c/r2"):
        pool.resume(slot)
    pool.now_s += 1000.0
    pool.heard(pool.heartbeat("h0"))
    pool.tick()
    assert step() == []  # the result is lost: the next cycle computes it again
    assert states() == {"a": JobState.PENDING, "b": JobState.PENDING}
    assert pool.batch("p1").jobs_completed == 0
    assert pool.store.all(Run) == []
    assert step() == ["a"]
    assert pool.job(UUIDS["a"]).host == "h0"
    complete(pool, "a")
    assert step() == ["b"]
    complete(pool, "b")
    assert pool.batch("p1").jobs_completed == 2
    assert [(run.job, run.attempt) for run in pool.store.all(Run)] == [(UUIDS["a"], 2), (UUIDS["b"], 1)]


def test_inputs_that_were_released_are_computed_again_too_where_the_lost_result_needs_them(pool, submit, step, states):
    submit(subtask("a"), subtask("b", "a"), subtask("c", "b"))
    step()
    complete(pool, "a")
    step()
    complete(pool, "b")
    pool.released(UUIDS["a"])
    with pool.tx() as tx:
        tx.save(replace(tx.host("h0"), alive=False))
    step()
    assert states() == {"a": JobState.PENDING, "b": JobState.PENDING, "c": JobState.PENDING}


@pytest.mark.parametrize(
    ("subtasks", "error", "message"),
    [
        ([subtask("a", "b"), subtask("b", "a")], InvalidInput, "subtasks: circular dependency: "),
        ([subtask("a", "z")], InvalidInput, r"subtasks\[0\].after: no subtask 'z'; known: a"),
        ([subtask("a"), subtask("b", "a", "a")], InvalidInput, r"subtasks\[1\].after: a predecessor is given twice"),
        ([subtask("a"), subtask("a")], InvalidInput, "subtasks: uuid .* is given 2 times"),
        ([subtask("a", function="nope")], UnknownFunction, r"subtasks\[0\].function: 'nope'"),
        ([subtask("a", requester="h9")], UnknownRequester, r"subtasks\[0\].requester: no host 'h9'"),
    ],
    ids=["cycle", "unknown", "twice", "same", "function", "requester"],
)
def test_what_cannot_run_is_refused_and_nothing_is_stored(pool, submit, subtasks, error, message):
    with pytest.raises(error, match=message):
        submit(*subtasks)
    assert pool.batch("p1") is None


def test_a_subtask_reads_a_limited_number_of_results():
    with pytest.raises(InvalidInput, match="a list of at most 100 names of subtasks"):
        read(SubtaskRequest, {"uuid": UUIDS["a"], "name": "a", "function": "aes", "after": ["b"] * 101}, "subtask")


def numbered(number, *after):
    options = {} if after else {"requester": "h0", "input_bytes": 1000}
    uuid = f"00000000-0000-4000-9000-{number:012d}"
    return SubtaskRequest(
        uuid=uuid, name=f"s{number}", function="aes", after=tuple(f"s{one}" for one in after), **options
    )


def test_reasons_and_errors_name_only_the_first_of_many_subtasks(pool, submit):
    pool.settings = replace(pool.settings, max_batch_jobs=1000)
    with pytest.raises(InvalidInput) as caught:
        submit(*(numbered(number, (number + 1) % 1000) for number in range(1000)))
    assert str(caught.value).endswith(" <- ...")
    assert len(str(caught.value)) < 300
    last = numbered(50, *range(50))
    submit(*map(numbered, range(50)), last)
    assert pool.job(last.uuid).reason == f"waits for {', '.join(f's{number}' for number in range(20))}, ..."


def slowing(rate):
    """Return a model in which aes and sha256 slow each other down."""
    pairs = [("x", "aes", 1 / rate), ("x", "sha256", 1 / rate)]
    beside = [CardRun(unit=card, type=name, estimated_s=1, actual_s=took, end_s=5) for card, name, took in pairs]
    alone = [CardRun(unit="y", type="aes", estimated_s=1, actual_s=1, end_s=5)]
    runs = [replace(run, end_s=run.end_s + 10 * number) for number in range(50) for run in (*beside, *alone)]
    return learned_from(runs)


@pytest.mark.parametrize(("known", "host"), [(False, "h0"), (True, "h1")])
def test_a_subtask_goes_where_its_neighbours_slow_it_down_least_once_that_is_known(
    pool, submit, foreign_lease, known, host
):
    pool.host_up("h1")
    foreign_lease("h0/c/r2")
    with pool.tx() as tx:
        tx.save(replace(tx.slot("h0/c/r2"), state=SlotState.BUSY, function="sha256"))
    model = slowing(0.5) if known else None
    family = PipelineFamily(pool.catalogue, pool.settings, EarliestHost(slowdown=lambda: model))
    submit(subtask("a"))
    with pool.tx() as tx:
        look = family.snapshot(tx, pool.now_s)
    (placed,) = family.decide(look, None, np.random.default_rng(0)).wanted.placed
    # Sending 1000 bytes takes 1 ms, during the load; sha256 on the same card would cost another second.
    assert placed.host == host
