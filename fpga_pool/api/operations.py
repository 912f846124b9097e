"""The one table of the REST API: each operation with its path, what it takes and what it answers.

Routes (`api.app`) and the OpenAPI document (`api.openapi`) are made of it; bodies and answers are derived from the
classes of the pool (`model.rest`), so a field of an object is declared there and nowhere here.
"""

import base64
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

import msgspec
from flask import current_app, request

from fpga_pool.api.catalogue import CATALOGUE_OPERATIONS
from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.operation import (
    LINKS,
    Call,
    Operation,
    chosen_project,
    chosen_uuid,
    events_of,
    link_to,
    list_of,
    named,
    paged,
    requested,
    state_of,
)
from fpga_pool.api.personas import CATALOGUE, INSPECTOR, MEMBER, OPERATOR, PROJECT, READER, Persona
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.fields import ProjectId
from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.purge import Purge, PurgeRequest
from fpga_pool.model.messages.queries import (
    BatchQuery,
    CardQuery,
    CountersQuery,
    FlowQuery,
    HostQuery,
    JobQuery,
    NamedWorkQuery,
    NewBatchQuery,
    PoolEventQuery,
    ProcessorQuery,
    ProjectJobQuery,
    ProjectQuery,
    ServiceQuery,
    SlotQuery,
    TaskQuery,
    UsageQuery,
    WorkCountQuery,
    WorkQuery,
)
from fpga_pool.model.messages.requests import (
    BatchChange,
    BatchDetail,
    EventPage,
    GangDetail,
    JobChanges,
    JobDetail,
    JobList,
    Page,
    PipelineDetail,
    PoolCounts,
    Receipts,
    Service,
    SlotChange,
    SlotDetail,
    TaskDetail,
    Ticket,
    TicketRequests,
    WorkCount,
)
from fpga_pool.model.messages.usage import Usage, UsagePage
from fpga_pool.model.messages.work import (
    BatchRequest,
    GangRequest,
    PipelineRequest,
    TaskRequest,
)
from fpga_pool.model.objects.cards import Card, CardState, Instance
from fpga_pool.model.objects.gangs import Gang, GangProcessor, GangState
from fpga_pool.model.objects.history import PoolEvent
from fpga_pool.model.objects.pool import Batch, BatchState, Host, JobState, Slot, SlotState
from fpga_pool.model.objects.progress import Flow
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.objects.tasks import Task, TaskState
from fpga_pool.model.rest import as_request, show
from fpga_pool.model.values import changed

# ---- Batches, gangs and tasks: alike


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
    """Return how things of a kind are listed, created, shown and cancelled; `creation` is more of what creates one."""
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
                  summary=f"Create a {noun}; once this is answered it will not be lost.",
                  **{"answer": {noun: listed}, **(creation or {})}),
        Operation(method="GET", path=one, name=f"show_{noun}", persona=READER, handle=show_one, noun=noun,
                  query=ProjectQuery, summary=f"Show a {noun}, with its history.", answer={noun: shown}),
        events_of(noun, one, READER),
        Operation(method="DELETE", path=one, name=f"cancel_{noun}", persona=MEMBER,
                  handle=cancel, query=ProjectQuery, noun=noun, status=202,
                  summary=f"Ask for the end of a {noun}; it is over when its state says so.", answer={noun: listed}),
    )  # fmt: skip


def _plan(
    noun: str, path: str, wanted: type, planned: type, request_of: Callable[[Call], Any], **options: Any
) -> Operation:
    """Return how a dry run of a thing of a kind is made: who may create it may also ask for that."""
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


def _jobs(call: Call) -> Any:
    states = [JobState(state_of(JobState, text)) for text in call.query.state]
    asked = chosen_project(call.query.project_id), call.uuid, states, _seen(call.query.changed_after)
    found = scheduler().batch_jobs(*asked, call.wait_s, with_batch=call.query.batch)
    page = paged("jobs", found.jobs, call.query, attrgetter("index"))
    return msgspec.structs.replace(_job_list(found), **page)


def _job_list(found: JobChanges) -> Any:
    # The state that was seen is one opaque token.
    seen = base64.urlsafe_b64encode(json.dumps(dict(found.seen)).encode()).decode() if found.seen else ""
    return show(JobList(jobs=found.jobs, seen=seen, at=found.at, batch=found.batch, tickets=found.tickets))


def _seen(text: str | None) -> dict[str, int] | None:
    if not text:
        return None if text is None else {}
    try:
        seen = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, RecursionError):
        seen = None
    if not isinstance(seen, dict) or not all(type(n) is int and 0 <= n < 2**63 for n in seen.values()):
        raise InvalidInput(f"changed_after: expected the `seen` value of an earlier response, found {text[:20]!r}")
    return seen


def _tickets(call: Call) -> dict[str, Any]:
    wanted = as_request(TicketRequests, call.body, {}, chosen_uuid).tickets
    return {"tickets": [show(ticket) for ticket in scheduler().tickets(tenant().project_id, call.uuid, wanted)]}


def _confirm_results(call: Call) -> Batch:
    receipts = as_request(Receipts, call.body, {}, chosen_uuid).receipts
    return scheduler().confirm_results(tenant().project_id, call.uuid, receipts)


# ---- The pool


def _change_slot(call: Call) -> SlotDetail:
    if call.body.drain:
        return scheduler().drain_slot(call.uuid, call.body.reason, call.seen)
    return scheduler().resume_slot(call.uuid, call.seen)


def _change_card(call: Call) -> Card:
    if call.body.drain:
        return scheduler().drain_card(call.uuid, call.body.reason, call.seen)
    return scheduler().resume_card(call.uuid, call.seen)


def _show_host(call: Call) -> Host:
    found = scheduler().hosts(Page(where={"name": (call.uuid,)}))
    if not found:
        raise NotFound(f"no host {call.uuid[:64]!r}")
    return found[0]


def _set_quota(call: Call) -> Quota:
    limits: QuotaLimits = as_request(QuotaLimits, call.body, {}, chosen_uuid)
    return scheduler().set_quota(_project(call), limits, call.seen)


def _project(call: Call) -> str:
    project_id: str = read(ProjectId, call.uuid, "project")
    return project_id


def _purge(call: Call) -> Purge:
    return scheduler().purge(as_request(PurgeRequest, call.body, {}, chosen_uuid))


def _pool_events(call: Call) -> dict[str, Any]:
    query: PoolEventQuery = call.query
    found = scheduler().pool_events(
        EventPage(
            project_id=chosen_project(query.project_id),
            kind=query.kind,
            name=query.name,
            host=query.host,
            event=query.event,
            since=None if query.since is None else query.since.timestamp(),
            until=None if query.until is None else query.until.timestamp(),
            limit=query.limit,
            marker=query.marker,
        )
    )
    links = [link_to("/v1/events", query.limit, found.next)] if found.next else []
    return {"events": [show(event) for event in found.events], "links": links}


def _counters(call: Call) -> dict[str, Any]:
    return paged("counters", scheduler().counters(call.query.host), call.query, attrgetter("host"))


def _services(call: Call) -> dict[str, Any]:
    return paged("services", scheduler().services(), call.query, lambda one: f"{one.kind}/{one.name}")


def _work(call: Call) -> dict[str, Any]:
    found = scheduler().work_counts(chosen_project(call.query.project_id))
    return paged("work", found, call.query, lambda one: f"{one.kind}/{one.state}")


def _flows(call: Call) -> dict[str, Any]:
    found = scheduler().flows(chosen_project(call.query.project_id))
    return paged("flows", found, call.query, lambda flow: f"{flow.requester}/{flow.host}/{flow.job}")


def _usage(call: Call) -> dict[str, Any]:
    query, after = call.query, None
    if query.marker is not None:
        project, slash, function = query.marker.partition("/")
        if not slash:
            raise InvalidInput(f"marker: expected PROJECT/FUNCTION, found {query.marker[:64]!r}")
        after = project, function
    page = UsagePage(
        project_id=chosen_project(query.project_id),
        begin_at=None if query.start is None else query.start.timestamp(),
        end_at=None if query.end is None else query.end.timestamp(),
        after=after,
        limit=query.limit,
        descending=query.sort.endswith(":desc"),
    )
    found = [show(one) for one in scheduler().usage(page)]
    return {"usage": found, "links": [_next_usage(found[-1], page.limit)] if len(found) == page.limit else []}


def _next_usage(last: Any, limit: int) -> dict[str, str]:
    """Return the link to the next page, of the same period although time goes on."""
    where = {"start": last.begin_at, "end": last.end_at, "marker": f"{last.project_id}/{last.function}", "limit": limit}
    where |= {name: text for name, text in request.args.items() if name in ("project_id", "sort")}
    return {"rel": "next", "href": f"/v1/usage?{urlencode(where)}"}


_BATCH = "/v1/batches/<uuid>"

OPERATIONS = (
    *_family("batch", "batches", Batch, BatchDetail, BatchRequest, _create_batch, BatchState,
             BatchQuery, detail="batch_detail",
             creation={"query": NewBatchQuery, "answer": JobList, "created": "batch", "errors": (404,),
                       "headers": {"Cache-Control": "no-store"}}),
    Operation(method="PATCH", path=_BATCH, name="change_batch", persona=MEMBER, noun="batch", body=BatchChange,
              handle=_change_batch, answer={"batch": Batch},
              summary="Hold a batch, or a pipeline, back, or release it; change its priority."),
    Operation(method="GET", path=f"{_BATCH}/jobs", name="list_batch_jobs", persona=READER,
              handle=_jobs, query=JobQuery, answer=JobList,
              noun="batch", summary="List the jobs of a batch, by index."),
    Operation(method="POST", path=f"{_BATCH}/tickets", name="create_tickets", persona=MEMBER,
              handle=_tickets, body=TicketRequests,
              noun="batch", summary="Give leave to move the bytes of jobs; a ticket holds a secret and is for once.",
              answer={"tickets": [Ticket]}, headers={"Cache-Control": "no-store"}),
    Operation(method="POST", path=f"{_BATCH}/receipts", name="confirm_results", persona=MEMBER,
              handle=_confirm_results, body=Receipts, noun="batch", answer={"batch": Batch},
              summary="Confirm results that the client has, so that the pool holds them no longer; may be repeated."),
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
    Operation(method="GET", path="/v1/events", name="list_events", persona=READER, query=PoolEventQuery,
              handle=_pool_events, answer={"events": [PoolEvent], **LINKS},
              summary="List what happened to all objects of the project, or of the pool, newest first."),
    list_of("slots", Slot, SlotState, SlotQuery, INSPECTOR, "List the slots, by name."),
    Operation(method="GET", path="/v1/slots/<uuid>", name="show_slot", persona=INSPECTOR,
              summary="Show a slot, with its history and what holds it.",
              handle=lambda call: scheduler().slot(call.uuid), answer={"slot": SlotDetail}, noun="slot"),
    events_of("slot", "/v1/slots/<uuid>", INSPECTOR, of_project=False),
    Operation(method="PATCH", path="/v1/slots/<uuid>", name="change_slot", persona=OPERATOR,
              handle=_change_slot, body=SlotChange,
              summary="Take a slot out of service, or give it back; a drain is over when the state says DRAINED.",
              answer={"slot": SlotDetail}, noun="slot"),
    list_of("cards", Card, CardState, CardQuery, INSPECTOR, "List the cards, by name."),
    Operation(method="GET", path="/v1/cards/<uuid>", name="show_card", persona=INSPECTOR, noun="card",
              handle=lambda call: scheduler().card(call.uuid), answer={"card": Card},
              summary="Show a card, with its slots and what uses them."),
    events_of("card", "/v1/cards/<uuid>", INSPECTOR, of_project=False),
    Operation(method="PATCH", path="/v1/cards/<uuid>", name="change_card", persona=OPERATOR, noun="card",
              handle=_change_card, body=SlotChange, answer={"card": Card},
              summary="Take all slots of a card out of service, or give them back, in one transaction."),
    Operation(method="DELETE", path="/v1/cards/<uuid>", name="remove_card", persona=OPERATOR, noun="card",
              handle=lambda call: scheduler().remove_card(call.uuid, call.seen), answer={"card": Card},
              summary="Remove a card that nobody uses any more; while it is used, it is drained and stays."),
    list_of("hosts", Host, None, HostQuery, CATALOGUE, "List the hosts, by name."),
    Operation(method="GET", path="/v1/hosts/<name>", name="show_host", persona=CATALOGUE,
              summary="Show a host, with its history.", handle=_show_host, answer={"host": Host}, noun="host"),
    events_of("host", "/v1/hosts/<name>", CATALOGUE, of_project=False),
    list_of("processors", GangProcessor, None, ProcessorQuery, INSPECTOR,
            "List the processors that hosts give to gangs, by name, with what their tiers carry."),
    Operation(method="GET", path="/v1/counters", name="list_counters", persona=INSPECTOR, query=CountersQuery,
              handle=_counters, answer={"counters": [HostLoad], **LINKS},
              summary="List what the hosts that live have measured of themselves last, by name."),
    Operation(method="GET", path="/v1/processors/<uuid>", name="show_processor", persona=INSPECTOR, noun="processor",
              handle=lambda call: named(call, "processor", scheduler().processors()),
              answer={"processor": GangProcessor},
              summary="Show a processor that a host gives to gangs, with what its tiers carry."),
    Operation(method="GET", path="/v1/instances/<uuid>", name="show_instance", persona=READER, noun="instance",
              handle=lambda call: scheduler().instance(chosen_project(call.query.project_id), call.uuid),
              query=ProjectQuery, answer={"instance": Instance},
              summary="Show an instance of Nova, with the slots that it holds."),
    events_of("instance", "/v1/instances/<uuid>", READER),
    Operation(method="GET", path="/v1/services", name="list_services", persona=INSPECTOR,
              query=ServiceQuery, handle=_services, answer={"services": [Service], **LINKS},
              summary="List the schedulers and agents, and whether they are up."),
    Operation(method="GET", path="/v1/services/<uuid>", name="show_service", persona=INSPECTOR, noun="service",
              handle=lambda call: named(call, "service", scheduler().services()), answer={"service": Service},
              summary="Show a scheduler or agent, and whether it is up."),
    Operation(method="GET", path="/v1/pool", name="show_pool", persona=INSPECTOR, answer={"pool": PoolCounts},
              handle=lambda _: scheduler().pool_counts(),
              summary="Count the hosts, cards and slots of the pool, by state."),
    Operation(method="GET", path="/v1/work", name="count_work", persona=READER, query=WorkCountQuery,
              answer={"work": [WorkCount], **LINKS}, handle=_work,
              summary="Count the jobs, tasks and gangs of the project that have not ended, by state."),
    Operation(method="POST", path="/v1/purges", name="purge_work", persona=OPERATOR, handle=_purge, body=PurgeRequest,
              answer={"purge": Purge},
              summary="Remove what ended before a point in time, for a few seconds; may be repeated."),
    Operation(method="GET", path="/v1/flows", name="list_flows", persona=READER, query=FlowQuery,
              answer={"flows": [Flow], **LINKS}, handle=_flows,
              summary="List the inputs of the project that are under way, with planned and measured rates."),
    *CATALOGUE_OPERATIONS,
    Operation(method="GET", path="/v1/quotas", name="show_quota", persona=READER,
              handle=lambda _: scheduler().quota(tenant().project_id), answer={"quota": Quota},
              summary="Show the quota of the own project, and how much of it is used."),
    Operation(method="GET", path="/v1/quotas/<name>", name="show_project_quota", persona=INSPECTOR, noun="project",
              handle=lambda call: scheduler().quota(_project(call)), answer={"quota": Quota},
              summary="Show the quota of a project, and how much of it is used."),
    Operation(method="PUT", path="/v1/quotas/<name>", name="set_quota", persona=OPERATOR, noun="project",
              handle=_set_quota, body=QuotaLimits, answer={"quota": Quota},
              summary="Change limits of a project; -1 means no limit, limits that are not given stay as they are."),
    Operation(method="DELETE", path="/v1/quotas/<name>", name="unset_quota", persona=OPERATOR, noun="project",
              handle=lambda call: scheduler().unset_quota(_project(call), call.seen), answer={"quota": Quota},
              summary="Return a project to the default limits."),
    events_of("quota", "/v1/quotas/<name>", INSPECTOR, of_project=False, rule="show_project_quota"),
    Operation(method="GET", path="/v1/usage", name="show_usage", persona=READER, query=UsageQuery, handle=_usage,
              answer={"usage": [Usage], **LINKS},
              summary="Show what a project has used in a period, by function."),
)  # fmt: skip
