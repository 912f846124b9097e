"""Operations on batches, gangs, pipelines and tasks, which share one scheme, and on their jobs."""

import base64
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from flask import current_app
from msgspec import Meta

from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.operation import (
    Call,
    Operation,
    chosen_project,
    chosen_uuid,
    events_of,
    list_of,
    paged,
    requested,
    state_of,
)
from fpga_pool.api.personas import MEMBER, PROJECT, READER, Persona
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import Count, Text
from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.queries import (
    BatchQuery,
    JobQuery,
    NamedWorkQuery,
    NewBatchQuery,
    ProjectJobQuery,
    ProjectQuery,
    TaskQuery,
    WorkQuery,
)
from fpga_pool.model.messages.requests import (
    BatchChange,
    BatchDetail,
    GangDetail,
    JobChanges,
    JobDetail,
    JobList,
    PipelineDetail,
    Receipts,
    TaskDetail,
    Ticket,
    TicketRequests,
)
from fpga_pool.model.messages.work import (
    BatchRequest,
    GangRequest,
    PipelineRequest,
    TaskRequest,
)
from fpga_pool.model.objects.gangs import Gang, GangState
from fpga_pool.model.objects.pool import Batch, BatchState, JobState
from fpga_pool.model.objects.tasks import Task, TaskState
from fpga_pool.model.rest import as_request, show
from fpga_pool.model.values import changed


def _family(
    noun: str,
    nouns: str,
    listed: type,
    shown: type,
    wanted: type,
    create: Callable[[Call], Any],
    states: type[StrEnum],
    query: type[WorkQuery] = NamedWorkQuery,
    detail: str = "",
    creation: Mapping[str, Any] | None = None,
) -> tuple[Operation, ...]:
    """Return the operations that list, create, show and cancel objects; `creation` has more options for creation."""
    path, detail = f"/v1/{nouns}", detail or noun

    def show_one(call: Call) -> Any:
        return getattr(scheduler(), detail)(chosen_project(call.query.project_id), call.uuid)

    def cancel(call: Call) -> Any:
        return getattr(scheduler(), f"cancel_{noun}")(chosen_project(call.query.project_id), call.uuid, call.seen)

    one = f"{path}/<uuid>"
    return (
        list_of(nouns, listed, states, query, READER, f"List the project's {nouns}, newest first, a page at a time."),
        Operation(method="POST", path=path, name=f"create_{noun}", persona=MEMBER,
                  handle=create, body=wanted, status=201,
                  summary=f"Create a {noun}; it is stored durably before the response is sent.",
                  **{"answer": {noun: listed}, **(creation or {})}),
        Operation(method="GET", path=one, name=f"show_{noun}", persona=READER, handle=show_one, noun=noun,
                  query=ProjectQuery, summary=f"Show a {noun}, with its history.", answer={noun: shown}),
        events_of(noun, one, READER),
        Operation(method="DELETE", path=one, name=f"cancel_{noun}", persona=MEMBER,
                  handle=cancel, query=ProjectQuery, noun=noun, status=202,
                  summary=f"Cancel a {noun}; it is complete when the state says so.", answer={noun: listed}),
    )  # fmt: skip


def _plan(
    noun: str, path: str, wanted: type, planned: type, request_of: Callable[[Call], Any], **options: Any
) -> Operation:
    """Return the operation that plans an object as a dry run; callers that may create it may also plan it."""
    return Operation(method="POST", path=path, name=f"plan_{noun}",
                     persona=Persona(f"rule:fpga_pool:create_{noun}", (PROJECT,)), body=wanted,
                     handle=lambda call: getattr(scheduler(), f"plan_{noun}")(request_of(call)),
                     summary=f"Plan a {noun} as if it was created now; nothing is stored.",
                     answer={"plan": planned}, **options)  # fmt: skip


def _create_batch(call: Call) -> Any:
    request = _batch_request(call)
    return _job_list(scheduler().create_batch(request, call.wait_s))


def _batch_request(call: Call) -> Any:
    count, most = len(call.body.jobs), current_app.config["MAX_BATCH_JOBS"]
    if count > most:
        raise InvalidInput(f"jobs: {count} jobs in one batch, at most {most} are accepted; split the batch")
    request = requested(BatchRequest, call)
    return changed(request, after=tuple(map(chosen_uuid, request.after)))


def _change_batch(call: Call) -> Batch:
    change = as_request(BatchChange, call.body, {}, chosen_uuid)
    return scheduler().change_batch(tenant().project_id, call.uuid, change, call.seen)


def _create_gang(call: Call) -> Gang:
    return scheduler().create_gang(requested(GangRequest, call))


def _create_task(call: Call) -> Task:
    return scheduler().create_task(requested(TaskRequest, call))


def _create_pipeline(call: Call) -> Batch:
    return scheduler().create_pipeline(requested(PipelineRequest, call))


# ---- Jobs and tickets of a batch

#: Generation by shard; a pool has fewer shards than this limit.
_Generations = Annotated[dict[Text, Count], Meta(max_length=1000)]


def _jobs(call: Call) -> Any:
    states = [JobState(state_of(JobState, text)) for text in call.query.state]
    asked = chosen_project(call.query.project_id), call.uuid, states, _seen(call.query.changed_after)
    found = scheduler().batch_jobs(*asked, call.wait_s, with_batch=call.query.batch)
    page = paged("jobs", found.jobs, call.query, attrgetter("index"))
    return msgspec.structs.replace(_job_list(found), **page)


def _job_list(found: JobChanges) -> Any:
    # The state that the client has seen is encoded as an opaque token.
    seen = base64.urlsafe_b64encode(json.dumps(dict(found.seen)).encode()).decode() if found.seen else ""
    return show(JobList(jobs=found.jobs, seen=seen, at=found.at, batch=found.batch, tickets=found.tickets))


def _seen(text: str | None) -> dict[str, int] | None:
    if not text:
        return None if text is None else {}
    try:
        seen: dict[str, int] = read(_Generations, json.loads(base64.urlsafe_b64decode(text)), "changed_after")
    except (ValueError, RecursionError, InvalidInput):
        complaint = f"changed_after: expected the `seen` value of an earlier response, found {text[:20]!r}"
        raise InvalidInput(complaint) from None
    return seen


def _tickets(call: Call) -> dict[str, Any]:
    wanted = as_request(TicketRequests, call.body, {}, chosen_uuid).tickets
    return {"tickets": [show(ticket) for ticket in scheduler().tickets(tenant().project_id, call.uuid, wanted)]}


def _confirm_results(call: Call) -> Batch:
    receipts = as_request(Receipts, call.body, {}, chosen_uuid).receipts
    return scheduler().confirm_results(tenant().project_id, call.uuid, receipts)


_BATCH = "/v1/batches/<uuid>"

WORK_OPERATIONS = (
    *_family("batch", "batches", Batch, BatchDetail, BatchRequest, _create_batch, BatchState,
             BatchQuery, detail="batch_detail",
             creation={"query": NewBatchQuery, "answer": JobList, "created": "batch", "errors": (404,),
                       "headers": {"Cache-Control": "no-store"}}),
    Operation(method="PATCH", path=_BATCH, name="change_batch", persona=MEMBER, noun="batch", body=BatchChange,
              handle=_change_batch, answer={"batch": Batch},
              summary="Hold or release a batch or pipeline, or change its priority."),
    Operation(method="GET", path=f"{_BATCH}/jobs", name="list_batch_jobs", persona=READER,
              handle=_jobs, query=JobQuery, answer=JobList,
              noun="batch", summary="List the jobs of a batch, by index."),
    Operation(method="POST", path=f"{_BATCH}/tickets", name="create_tickets", persona=MEMBER,
              handle=_tickets, body=TicketRequests,
              noun="batch", summary="Issue tickets to transfer data of jobs; each contains a secret and is valid once.",
              answer={"tickets": [Ticket]}, headers={"Cache-Control": "no-store"}),
    Operation(method="POST", path=f"{_BATCH}/receipts", name="confirm_results", persona=MEMBER,
              handle=_confirm_results, body=Receipts, noun="batch", answer={"batch": Batch},
              summary="Confirm that results have been received, so that the pool can delete them; may be repeated."),
    _plan("batch", "/v1/plans", BatchRequest, PlannedBatch, _batch_request, errors=(404,)),
    *(_plan(noun, f"/v1/plans/{noun}s", wanted, planned, partial(requested, wanted)) for noun, wanted, planned in (
        ("gang", GangRequest, PlannedGang),
        ("pipeline", PipelineRequest, PlannedPipeline),
        ("task", TaskRequest, PlannedTask),
    )),
    *_family("gang", "gangs", Gang, GangDetail, GangRequest, _create_gang, GangState),
    *_family("pipeline", "pipelines", Batch, PipelineDetail, PipelineRequest, _create_pipeline, BatchState, BatchQuery),
    *_family("task", "tasks", Task, TaskDetail, TaskRequest, _create_task, TaskState, TaskQuery),
    list_of("jobs", JobDetail, JobState, ProjectJobQuery, READER,
          "List the jobs of all batches of the project, newest first, a page at a time."),
    Operation(method="GET", path="/v1/jobs/<uuid>", name="show_job", persona=READER, noun="job",
              answer={"job": JobDetail}, query=ProjectQuery,
              handle=lambda call: scheduler().job(chosen_project(call.query.project_id), call.uuid),
              summary="Show a job, with its history, and why it waits."),
    events_of("job", "/v1/jobs/<uuid>", READER),
)  # fmt: skip
