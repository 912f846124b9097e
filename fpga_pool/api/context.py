"""Who asks, and whom to ask: what every resource needs of its request."""

import re
import uuid
from dataclasses import dataclass
from typing import cast

from flask import Flask, current_app, g, request
from oslo_context.context import RequestContext, generate_request_id

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.rpc.scheduler_api import SchedulerAPI

#: Project and user of a request that names none.
DEFAULT_ID = "demo"

#: OpenStack's name for it.
REQUEST_ID_HEADER = "x-openstack-request-id"

_SCHEDULER = "fpga_pool_scheduler"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """On whose behalf a request comes."""

    project_id: str
    user_id: str


def provide_scheduler(app: Flask, scheduler: SchedulerAPI) -> None:
    """Let the resources of `app` ask this scheduler."""
    app.extensions[_SCHEDULER] = scheduler


def scheduler() -> SchedulerAPI:
    """Return the scheduler that answers this application."""
    return cast("SchedulerAPI", current_app.extensions[_SCHEDULER])


def tenant() -> Tenant:
    """Return who asks."""
    return cast("Tenant", g.tenant)


def request_id() -> str:
    """Return the id that the answer and the log carry."""
    return cast("str", g.request_id)


def number() -> None:
    """Give the request its id, before anything can go wrong with it."""
    g.request_id = generate_request_id()


def identify() -> None:
    """Find out who asks, before it is done.

    The headers are believed: there is no authentication yet, which is why the server listens on loopback only.
    Keystone's middleware will set the same headers from a token that it has checked.
    """
    g.tenant = Tenant(_identity("X-Project-Id"), _identity("X-User-Id"))
    RequestContext(request_id=request_id(), project_id=g.tenant.project_id, user_id=g.tenant.user_id)


def _identity(header: str) -> str:
    value = request.headers.get(header, DEFAULT_ID)
    if not _ID.fullmatch(value):
        raise InvalidInput(f"{header}: expected 1 to 64 letters, digits, dots, dashes, underscores or @")
    return value


def known_uuid(noun: str, text: str) -> str:
    """Return the canonical form of the uuid in a URL; what is no uuid names nothing that exists."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise NotFound(f"no {noun} {text[:64]!r}: not a uuid") from None
