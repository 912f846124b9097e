"""Operations of the REST API, and paged lists of objects and their events."""

import operator
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from flask import request

from fpga_pool.api.context import scheduler, tenant
from fpga_pool.api.personas import ALL, Persona
from fpga_pool.model.exceptions import Forbidden, InvalidInput, NotFound
from fpga_pool.model.messages.queries import EventQuery, NoQuery, WorkEventQuery, WorkQuery
from fpga_pool.model.messages.requests import JobDetail, Page
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.preconditions import Seen
from fpga_pool.model.rest import as_request, show


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose parts were parsed into the types that its operation declares."""

    #: The uuid in the path, or the name of an object that has no uuid; "" = none.
    uuid: str
    query: Any
    body: Any
    #: How long it may wait for changes.
    wait_s: float
    #: Accepted versions of the object (If-Match); None = any.
    seen: Seen = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    #: Name in the OpenAPI document, in the policy file, and of the route.
    name: str
    summary: str
    handle: Callable[[Call], Any]
    #: Default authorization, which a policy file can override.
    persona: Persona
    #: Content of the response: by key, a class or a list of one; or a class whose fields are the keys.
    answer: Any
    body: Any = None
    query: Any = NoQuery
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Kind of object that the uuid, or the name, in the path identifies.
    noun: str = ""
    #: Error statuses in addition to those implied by its method, its path and its body.
    errors: tuple[int, ...] = ()
    #: The field of the answer that contains the created object; "" = the answer is that object.
    created: str = ""

    @property
    def key(self) -> str:
        """The key of a response with one object, which `handle` returns; "" = other response."""
        key, *others = self.answer if isinstance(self.answer, dict) else ("", "")
        return "" if others or isinstance(self.answer[key], list) else key

    @property
    def has_tag(self) -> bool:
        """Whether its response has an ETag, which identifies the current version of the object in the path."""
        return self.status == 200 and self.method != "POST" and self.key != ""

    @property
    def is_conditional(self) -> bool:
        """Whether it changes the object in the path, and so supports If-Match."""
        return self.method in ("PUT", "PATCH", "DELETE")


# ---- Lists

#: Part of the response of every list.
LINKS: Mapping[str, Any] = {"links": [dict[str, str]]}
#: Times are shown in microseconds. A list since a time that was shown for an object must include that object.
SHOWN_S = 1e-6
#: Parameters that filter by values of a field, in addition to the state.
_FILTERS = ("board", "function", "host", "name", "batch_uuid")


def list_of(
    nouns: str, listed: type, states: type[StrEnum] | None, query: type, persona: Persona, summary: str
) -> Operation:
    """Return the operation that lists the objects that match its parameters, a page at a time."""
    path = f"/v1/{nouns}"

    def list_page(call: Call) -> dict[str, Any]:
        page = _page(call.query, states)
        found = getattr(scheduler(), nouns)(page)
        return {nouns: [show(one) for one in found], "links": links_of(path, page.limit, found, _key)}

    answer = {nouns: [listed], **LINKS}
    return Operation(method="GET", path=path, name=f"list_{nouns}", persona=persona, handle=list_page, query=query,
                     summary=summary, answer=answer)  # fmt: skip


def _page(query: Any, states: type[StrEnum] | None) -> Page:
    """Return the page that the parameters select."""
    where: dict[str, tuple[str | bool, ...]] = {}
    if states is not None and query.state:
        where["state"] = tuple(state_of(states, text) for text in query.state)
    where |= {name: values for name in _FILTERS if (values := getattr(query, name, ()))}
    if getattr(query, "alive", None) is not None:
        where["alive"] = (query.alive,)
    descending, marker = query.sort.endswith(":desc"), query.marker
    asked_since = getattr(query, "since", None)
    since = None if asked_since is None else asked_since.timestamp() - SHOWN_S
    if not isinstance(query, WorkQuery):
        return Page(where=where, since=since, marker=marker, limit=query.limit, descending=descending)
    return Page(
        project_id=chosen_project(query.project_id),
        where=where,
        since=since,
        marker=marker and chosen_uuid(marker),
        limit=query.limit,
        descending=descending,
    )


def chosen_project(wanted: str | None) -> str | None:
    """Return the project that a request selects; by default the caller's; None = all projects.

    A caller of system scope has no project, so its default is all projects. Raises Forbidden for other callers without
    a project.
    """
    if not (wanted or tenant().project_id or tenant().of_system):
        raise Forbidden("a token of a project, or of system scope, is required")
    return None if wanted == ALL else wanted or tenant().project_id or None


def paged(nouns: str, found: Iterable[Any], query: Any, key: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the response with a page of a list that is not paged in the database.

    The marker is the key of the last object of the previous page, which may no longer exist.
    """
    descending = query.sort.endswith(":desc")
    after = operator.lt if descending else operator.gt
    rows = sorted(found, key=key, reverse=descending)
    if query.marker is not None:
        rows = [one for one in rows if after(key(one), query.marker)]
    rows = rows[: query.limit]
    return {nouns: [show(one) for one in rows], "links": links_of(request.path, query.limit, rows, key)}


def links_of(
    path: str, limit: int | None, found: Sequence[Any], marker_of: Callable[[Any], object]
) -> list[dict[str, str]]:
    """Return the link to the next page; an empty list after a page that is not full."""
    return [] if limit is None or len(found) < limit else [link_to(path, limit, marker_of(found[-1]))]


def link_to(path: str, limit: int, marker: object) -> dict[str, str]:
    """Return the link to the page of the same list that starts after a marker."""
    parameters = [(name, value) for name, value in request.args.items(multi=True) if name not in ("limit", "marker")]
    parameters += [("limit", str(limit)), ("marker", str(marker))]
    return {"rel": "next", "href": f"{quote(path)}?{urlencode(parameters)}"}


def _key(listed: Any) -> str:
    thing = listed.job if isinstance(listed, JobDetail) else listed
    key: str = thing.uuid if hasattr(thing, "project_id") else thing.name
    return key


def state_of(states: type[StrEnum], text: str) -> StrEnum:
    """Return the state with this name. Raises InvalidInput, which lists the valid ones."""
    try:
        return states(text.upper())
    except ValueError:
        raise InvalidInput(f"state: expected one of {', '.join(states)}, found {text[:20]!r}") from None


def requested(wanted: type, call: Call) -> Any:
    """Return the body of a call as a request of the calling project and user."""
    given = {"project_id": tenant().project_id, "user_id": tenant().user_id}
    return as_request(wanted, call.body, given, chosen_uuid)


def events_of(noun: str, path: str, of: Persona, *, of_project: bool = True, rule: str = "") -> Operation:
    """Return the operation that lists the events of an object, allowed to callers that may show the object.

    `rule` is the name of the operation that shows it, if it is not the usual one.  `of_project` is False for objects of
    the pool.
    """

    def list_events(call: Call) -> dict[str, Any]:
        query: EventQuery = call.query
        found = scheduler().events(noun, chosen_project(getattr(query, "project_id", None)), call.uuid)
        if query.event:
            found = [event for event in found if event.event in query.event]
        # Compare the times as they are shown, in microseconds.
        if query.since is not None:
            found = [event for event in found if datetime.fromtimestamp(event.at, UTC) >= query.since]
        if query.until is not None:
            found = [event for event in found if datetime.fromtimestamp(event.at, UTC) < query.until]
        return paged("events", found, query, lambda event: event.number)

    return Operation(method="GET", path=f"{path}/events", name=f"list_{noun}_events", noun=noun,
                     persona=Persona(f"rule:fpga_pool:{rule or f'show_{noun}'}", of.scopes), handle=list_events,
                     query=WorkEventQuery if of_project else EventQuery,
                     summary=f"List the events of {'an' if noun[0] in 'aeiou' else 'a'} {noun}, "
                     "newest first, a page at a time.",
                     answer={"events": [HistoryEntry], **LINKS})  # fmt: skip


def chosen_uuid(text: str) -> str:
    """Return the canonical form of a uuid that a client has chosen; a new uuid for ""."""
    return str(uuid.UUID(text) if text else uuid.uuid4())


def named(call: Call, noun: str, found: Sequence[Any]) -> Any:
    """Return the found object with the uuid in the path. Raises NotFound if there is none."""
    for one in found:
        if one.uuid == call.uuid:
            return one
    raise NotFound(f"no {noun} {call.uuid}")
