"""A scheduler runs pipelines on a real database, and permits agents to read the results of other agents."""

import uuid

import pytest

from fpga_pool.model.exceptions import Conflict, HostTaken, NotFound
from fpga_pool.model.messages.requests import Page, TicketRequest
from fpga_pool.model.messages.work import PipelineRequest, SubtaskRequest
from fpga_pool.model.objects.pool import BatchState, JobState
from support.waiting import wait_until


def subtask(name, *after, requester=""):
    return SubtaskRequest(
        uuid=str(uuid.uuid4()), name=name, function="sha256", after=after, requester=requester,
        input_bytes=0 if after else 1000,
    )  # fmt: skip


@pytest.fixture
def pipeline(running):
    """Return a pipeline of two subtasks. The first is complete, and the second is planned."""
    agent = running.host()
    subtasks = subtask("first", requester=agent.name), subtask("second", "first")
    request = PipelineRequest(uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="n", subtasks=subtasks)
    created = running.api.create_pipeline(request)
    jobs = lambda: running.api.pipeline("p", created.uuid).subtask_list  # noqa: E731
    wait_until(lambda: jobs()[0].state is JobState.WAITING_INPUT, "a place for the first")
    running.report(jobs()[0], "staged", "started", "finished")
    wait_until(lambda: jobs()[1].state is JobState.WAITING_INPUT, "a place for the second")
    return created, jobs


def test_an_agent_gets_leave_to_read_what_its_job_waits_for_and_no_client_does(running, pipeline):
    created, jobs = pipeline
    first, second = jobs()
    (ticket,) = running.api.source_tickets(second.host, second.host, second.uuid, second.attempt)
    assert (ticket.job, ticket.host, ticket.address, ticket.port) == (first.uuid, first.host, "192.0.2.1", 7000)
    for host, agent, job, attempt, error in [
        (second.host, "another agent", second.uuid, second.attempt, HostTaken),
        (second.host, second.host, second.uuid, second.attempt + 1, Conflict),
        (second.host, second.host, first.uuid, first.attempt, Conflict),
        (second.host, second.host, str(uuid.uuid4()), 1, NotFound),
    ]:
        with pytest.raises(error):
            running.api.source_tickets(host, agent, job, attempt)
    for job, purpose in [(first, "fetch"), (second, "send")]:
        wanted = TicketRequest(job=job.uuid, purpose=purpose, source_address="192.0.2.9", source_port=9)
        with pytest.raises(Conflict):
            running.api.tickets("p", created.uuid, [wanted])


def test_a_pipeline_and_the_batch_of_its_subtasks_tell_alike_why_it_waits(running):
    agent = running.host()
    subtasks = subtask("first", requester=agent.name), subtask("second", "first")
    request = PipelineRequest(uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="n", subtasks=subtasks)
    created = running.api.create_pipeline(request)
    shown = lambda: running.api.pipeline("p", created.uuid)  # noqa: E731
    wait_until(lambda: shown().subtask_list[0].state is JobState.WAITING_INPUT, "a place for the first")
    found, batch = shown(), running.api.batch_detail("p", created.uuid)
    assert found.pending_reason == batch.pending_reason == "subtasks wait for the results of others"
    assert found.expected_at is not None
    assert found.ends_at == batch.ends_at == found.subtask_list[0].dispatched_at + found.subtask_list[0].end_s


def test_a_pipeline_is_listed_ended_and_another_projects_are_not_there(running, pipeline):
    created, jobs = pipeline
    running.report(jobs()[1], "staged", "started", "finished")
    wait_until(lambda: running.api.pipeline("p", created.uuid).pipeline.state is BatchState.COMPLETED, "the end")
    assert [one.uuid for one in running.api.pipelines(Page(project_id="p"))] == [created.uuid]
    assert running.api.pipelines(Page(project_id="q")) == []
    with pytest.raises(NotFound):
        running.api.cancel_pipeline("q", created.uuid)
