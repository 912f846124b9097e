"""Operations on the quotas and the activity of projects: events, counts, flows, quotas, usage, purges."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from flask import request

from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.operation import (
    LINKS,
    Call,
    Operation,
    chosen_project,
    chosen_uuid,
    events_of,
    link_to,
    paged,
)
from fpga_pool.api.personas import INSPECTOR, OPERATOR, READER
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import LATEST, ProjectId
from fpga_pool.model.messages.purge import Purge, PurgeRequest
from fpga_pool.model.messages.queries import (
    FlowQuery,
    PoolEventQuery,
    UsageQuery,
    WorkCountQuery,
)
from fpga_pool.model.messages.requests import (
    EventPage,
    WorkCount,
)
from fpga_pool.model.messages.usage import Usage, UsagePage
from fpga_pool.model.objects.history import PoolEvent
from fpga_pool.model.objects.progress import Flow
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.rest import as_request, show


def _within(at: datetime | None) -> float | None:
    """Return a time in seconds since the epoch, limited to the range of possible times of events."""
    return None if at is None else min(max(at.timestamp(), 0.0), LATEST)


def _pool_events(call: Call) -> dict[str, Any]:
    query: PoolEventQuery = call.query
    found = scheduler().pool_events(
        EventPage(
            project_id=chosen_project(query.project_id),
            kind=query.kind,
            name=query.name,
            host=query.host,
            event=query.event,
            since=_within(query.since),
            until=_within(query.until),
            limit=query.limit,
            marker=query.marker,
        )
    )
    links = [link_to("/v1/events", query.limit, found.next)] if found.next else []
    return {"events": [show(event) for event in found.events], "links": links}


def _work(call: Call) -> dict[str, Any]:
    found = scheduler().work_counts(chosen_project(call.query.project_id))
    return paged("work", found, call.query, lambda one: f"{one.kind}/{one.state}")


def _purge(call: Call) -> Purge:
    return scheduler().purge(as_request(PurgeRequest, call.body, {}, chosen_uuid))


def _flows(call: Call) -> dict[str, Any]:
    found = scheduler().flows(chosen_project(call.query.project_id))
    return paged("flows", found, call.query, lambda flow: f"{flow.requester}/{flow.host}/{flow.job}")


def _set_quota(call: Call) -> Quota:
    limits: QuotaLimits = as_request(QuotaLimits, call.body, {}, chosen_uuid)
    return scheduler().set_quota(_project(call), limits, call.seen)


def _project(call: Call) -> str:
    project_id: str = read(ProjectId, call.uuid, "project")
    return project_id


def _usage(call: Call) -> dict[str, Any]:
    query, after = call.query, None
    if query.marker is not None:
        project, slash, function = query.marker.partition("/")
        if not slash:
            raise InvalidInput(f"marker: expected PROJECT/FUNCTION, found {query.marker[:64]!r}")
        after = project, function
    page = UsagePage(
        project_id=chosen_project(query.project_id),
        begin_at=_within(query.start),
        end_at=_within(query.end),
        after=after,
        limit=query.limit,
        descending=query.sort.endswith(":desc"),
    )
    found = [show(one) for one in scheduler().usage(page)]
    return {"usage": found, "links": [_next_usage(found[-1], page.limit)] if len(found) == page.limit else []}


def _next_usage(last: Any, limit: int) -> dict[str, str]:
    """Return the link to the next page, with the period fixed to that of this page."""
    where = {"start": last.begin_at, "end": last.end_at, "marker": f"{last.project_id}/{last.function}", "limit": limit}
    where |= {name: text for name, text in request.args.items() if name in ("project_id", "sort")}
    return {"rel": "next", "href": f"/v1/usage?{urlencode(where)}"}


PROJECT_OPERATIONS = (
    Operation(method="GET", path="/v1/events", name="list_events", persona=READER, query=PoolEventQuery,
              handle=_pool_events, answer={"events": [PoolEvent], **LINKS},
              summary="List what happened to all objects of the project, or of the pool, newest first."),
    Operation(method="GET", path="/v1/work", name="count_work", persona=READER, query=WorkCountQuery,
              answer={"work": [WorkCount], **LINKS}, handle=_work,
              summary="Count the jobs, tasks and gangs of the project that have not ended, by state."),
    Operation(method="POST", path="/v1/purges", name="purge_work", persona=OPERATOR, handle=_purge, body=PurgeRequest,
              answer={"purge": Purge},
              summary="Purge objects that ended before a point in time; takes a few seconds at most, may be repeated."),
    Operation(method="GET", path="/v1/flows", name="list_flows", persona=READER, query=FlowQuery,
              answer={"flows": [Flow], **LINKS}, handle=_flows,
              summary="List the input transfers of the project in progress, with planned and measured rates."),
    Operation(method="GET", path="/v1/quotas", name="show_quota", persona=READER,
              handle=lambda _: scheduler().quota(tenant().project_id), answer={"quota": Quota},
              summary="Show the quota of the caller's project, and how much of it is used."),
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
