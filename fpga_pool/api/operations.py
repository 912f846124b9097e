"""The one table of the REST API: each operation with its path, what it takes and what it answers.

Routes (`api.app`) and the OpenAPI document (`api.openapi`) are made of it; bodies and answers are derived from the
classes of the pool (`model.rest`), so a field of an object is declared there and nowhere here.
"""

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import current_app

from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.personas import CATALOGUE, INSPECTOR, MEMBER, OPERATOR, READER, Persona
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.fields import ProjectId
from fpga_pool.model.messages.requests import (
    Calibration,
    CalibrationQuery,
    FunctionInfo,
    GangDetail,
    JobList,
    JobQuery,
    NoQuery,
    PageQuery,
    PipelineDetail,
    SlotChange,
    TaskDetail,
    Ticket,
    TicketRequests,
)
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import Batch, Host, JobState, Slot
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rest import as_request, show
from fpga_pool.model.rules.batch.admission import BatchRequest
from fpga_pool.model.rules.gang.admission import GangRequest
from fpga_pool.model.rules.pipeline.admission import PipelineRequest
from fpga_pool.model.rules.task.admission import TaskRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A request, after its parts were read by the types that its operation names."""

    #: Of the path: a uuid, or the name of what has no uuid; "" = none in it.
    uuid: str
    query: Any
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    #: For the OpenAPI document, the policy file, and the name of the route.
    name: str
    summary: str
    handle: Callable[[Call], Any]
    #: Who may request it, unless a policy file says otherwise.
    persona: Persona
    #: What the answer holds: a class for each key, or a list of one, or a class whose fields are the keys.
    answer: Any
    body: Any = None
    query: Any = NoQuery
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What the uuid, or the name, in the path names.
    noun: str = ""


# ---- Batches, gangs and tasks: alike


def _family(
    noun: str, nouns: str, listed: type, shown: type, wanted: type, create: Callable[[Call], Any]
) -> tuple[Operation, ...]:
    """Return how things of a kind are listed, created, shown and cancelled."""
    path = f"/v1/{nouns}"

    def list_newest(call: Call) -> dict[str, Any]:
        limit, marker = call.query.limit, call.query.marker
        found = getattr(scheduler(), nouns)(tenant().project_id, limit, marker and _chosen_uuid(marker))
        links = (
            [{"rel": "next", "href": f"{path}?limit={limit}&marker={found[-1].uuid}"}] if len(found) == limit else []
        )
        return {nouns: [show(one) for one in found], "links": links}

    def show_one(call: Call) -> dict[str, Any]:
        return {noun: show(getattr(scheduler(), noun)(tenant().project_id, call.uuid), detail=True)}

    def cancel(call: Call) -> dict[str, Any]:
        return {noun: show(getattr(scheduler(), f"cancel_{noun}")(tenant().project_id, call.uuid))}

    one = f"{path}/<uuid>"
    return (
        Operation(method="GET", path=path, name=f"list_{nouns}", persona=READER, handle=list_newest, query=PageQuery,
                  summary=f"List the project's {nouns}, newest first, a page at a time.",
                  answer={nouns: [listed], "links": [dict[str, str]]}),
        Operation(method="POST", path=path, name=f"create_{noun}", persona=MEMBER,
                  handle=create, body=wanted, status=201,
                  summary=f"Create a {noun}; once this is answered it will not be lost.", answer={noun: listed}),
        Operation(method="GET", path=one, name=f"show_{noun}", persona=READER, handle=show_one, noun=noun,
                  summary=f"Show a {noun}, with its history.", answer={noun: shown}),
        Operation(method="DELETE", path=one, name=f"cancel_{noun}", persona=MEMBER,
                  handle=cancel, noun=noun, status=202,
                  summary=f"Ask for the end of a {noun}; it is over when its state says so.", answer={noun: listed}),
    )  # fmt: skip


def _create_batch(call: Call) -> dict[str, Any]:
    count, most = len(call.body.jobs), current_app.config["MAX_BATCH_JOBS"]
    if count > most:
        raise InvalidInput(f"jobs: {count} jobs in one batch, at most {most} are accepted; split the batch")
    return {"batch": show(scheduler().create_batch(_request(BatchRequest, call)))}


def _create_gang(call: Call) -> dict[str, Any]:
    return {"gang": show(scheduler().create_gang(_request(GangRequest, call)))}


def _create_task(call: Call) -> dict[str, Any]:
    return {"task": show(scheduler().create_task(_request(TaskRequest, call)))}


def _create_pipeline(call: Call) -> dict[str, Any]:
    return {"pipeline": show(scheduler().create_pipeline(_request(PipelineRequest, call)))}


def _request(wanted: type, call: Call) -> Any:
    given = {"project_id": tenant().project_id, "user_id": tenant().user_id}
    return as_request(wanted, call.body, given, _chosen_uuid)


def _chosen_uuid(text: str) -> str:
    return str(uuid.UUID(text) if text else uuid.uuid4())


# ---- Jobs and tickets of a batch


def _jobs(call: Call) -> Any:
    states = [_state(text) for text in call.query.state]
    found = scheduler().batch_jobs(
        tenant().project_id, call.uuid, states, _seen(call.query.changed_after), call.query.wait_s
    )
    # The state that was seen is one opaque token.
    seen = base64.urlsafe_b64encode(json.dumps(dict(found.seen)).encode()).decode()
    return show(JobList(jobs=found.jobs, seen=seen, at=found.at))


def _state(text: str) -> JobState:
    try:
        return JobState(text.upper())
    except ValueError:
        raise InvalidInput(f"state: expected one of {', '.join(JobState)}, found {text[:20]!r}") from None


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
    wanted = as_request(TicketRequests, call.body, {}, _chosen_uuid).tickets
    return {"tickets": [show(ticket) for ticket in scheduler().tickets(tenant().project_id, call.uuid, wanted)]}


# ---- The pool


def _change_slot(call: Call) -> dict[str, Any]:
    if call.body.drain:
        return {"slot": show(scheduler().drain_slot(call.uuid, call.body.reason), detail=True)}
    return {"slot": show(scheduler().resume_slot(call.uuid), detail=True)}


def _show_host(call: Call) -> dict[str, Any]:
    found = {host.name: host for host in scheduler().hosts()}
    if call.uuid not in found:
        raise NotFound(f"no host {call.uuid[:64]!r}")
    return {"host": show(found[call.uuid], detail=True)}


def _show_function(call: Call) -> dict[str, Any]:
    found = {info.name: info for info in scheduler().functions()}
    if call.uuid not in found:
        raise NotFound(f"no function {call.uuid[:64]!r}")
    return {"function": show(found[call.uuid], detail=True)}


def _set_quota(call: Call) -> dict[str, Any]:
    limits: QuotaLimits = as_request(QuotaLimits, call.body, {}, _chosen_uuid)
    return {"quota": show(scheduler().set_quota(_project(call), limits))}


def _project(call: Call) -> str:
    project_id: str = read(ProjectId, call.uuid, "project")
    return project_id


_BATCH = "/v1/batches/<uuid>"

OPERATIONS = (
    *_family("batch", "batches", Batch, Batch, BatchRequest, _create_batch),
    Operation(method="GET", path=f"{_BATCH}/jobs", name="list_jobs", persona=READER,
              handle=_jobs, query=JobQuery, answer=JobList,
              noun="batch", summary="List the jobs of a batch, by index."),
    Operation(method="POST", path=f"{_BATCH}/tickets", name="create_tickets", persona=MEMBER,
              handle=_tickets, body=TicketRequests,
              noun="batch", summary="Give leave to move the bytes of jobs; a ticket holds a secret and is for once.",
              answer={"tickets": [Ticket]}, headers={"Cache-Control": "no-store"}),
    *_family("gang", "gangs", Gang, GangDetail, GangRequest, _create_gang),
    *_family("pipeline", "pipelines", Batch, PipelineDetail, PipelineRequest, _create_pipeline),
    *_family("task", "tasks", Task, TaskDetail, TaskRequest, _create_task),
    Operation(method="GET", path="/v1/slots", name="list_slots", persona=INSPECTOR, summary="List all slots, by name.",
              handle=lambda _: {"slots": [show(slot) for slot in scheduler().slots()]}, answer={"slots": [Slot]}),
    Operation(method="GET", path="/v1/slots/<uuid>", name="show_slot", persona=INSPECTOR,
              summary="Show a slot, with its history.",
              handle=lambda call: {"slot": show(scheduler().slot(call.uuid), detail=True)}, answer={"slot": Slot},
              noun="slot"),
    Operation(method="PATCH", path="/v1/slots/<uuid>", name="change_slot", persona=OPERATOR,
              handle=_change_slot, body=SlotChange,
              summary="Take a slot out of service, or give it back; a drain is over when the state says DRAINED.",
              answer={"slot": Slot}, noun="slot"),
    Operation(method="GET", path="/v1/hosts", name="list_hosts", persona=CATALOGUE, summary="List all hosts, by name.",
              handle=lambda _: {"hosts": [show(host) for host in scheduler().hosts()]}, answer={"hosts": [Host]}),
    Operation(method="GET", path="/v1/hosts/<name>", name="show_host", persona=CATALOGUE, summary="Show a host.",
              handle=_show_host, answer={"host": Host}, noun="host"),
    Operation(method="GET", path="/v1/functions/<name>", name="show_function", persona=CATALOGUE, noun="function",
              summary="Show a function as it is in force.", handle=_show_function, answer={"function": FunctionInfo}),
    Operation(method="GET", path="/v1/functions", name="list_functions", persona=CATALOGUE,
              answer={"functions": [FunctionInfo]},
              handle=lambda _: {"functions": [show(info) for info in scheduler().functions()]},
              summary="List the catalogue as it is in force."),
    Operation(method="GET", path="/v1/functions/calibration", name="calibration", persona=CATALOGUE,
              query=CalibrationQuery,
              summary="Show how well the time models fit, of one function or of all.",
              handle=lambda call: {"calibration": [show(fit) for fit in scheduler().calibration(call.query.function)]},
              answer={"calibration": [Calibration]}),
    Operation(method="GET", path="/v1/quotas", name="show_quota", persona=READER,
              handle=lambda _: {"quota": show(scheduler().quota(tenant().project_id))}, answer={"quota": Quota},
              summary="Show the quota of the own project, and how much of it is used."),
    Operation(method="GET", path="/v1/quotas/<name>", name="show_project_quota", persona=INSPECTOR, noun="project",
              handle=lambda call: {"quota": show(scheduler().quota(_project(call)))}, answer={"quota": Quota},
              summary="Show the quota of a project, and how much of it is used."),
    Operation(method="PUT", path="/v1/quotas/<name>", name="set_quota", persona=OPERATOR, noun="project",
              handle=_set_quota, body=QuotaLimits, answer={"quota": Quota},
              summary="Change limits of a project; -1 means no limit, limits that are not given stay as they are."),
    Operation(method="DELETE", path="/v1/quotas/<name>", name="unset_quota", persona=OPERATOR, noun="project",
              handle=lambda call: {"quota": show(scheduler().unset_quota(_project(call)))}, answer={"quota": Quota},
              summary="Return a project to the default limits."),
)  # fmt: skip
