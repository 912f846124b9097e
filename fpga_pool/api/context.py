"""Context of a request: the caller, the request id, and the scheduler that answers."""

import re
import uuid
from dataclasses import dataclass
from typing import cast

from flask import Flask, current_app, g, request
from oslo_context.context import RequestContext, generate_request_id
from oslo_middleware.request_id import ID_FORMAT

from fpga_pool.model.exceptions import InvalidInput, NotFound, ServiceUnavailable, TokenRequired
from fpga_pool.rpc.scheduler_api import SchedulerAPI

#: Project and user of a request that names none, where nobody authenticates.
DEFAULT_ID = "demo"
#: Roles of a request that names none, where nobody authenticates: all that Keystone has.
ALL_ROLES = "admin,manager,member,reader,service"

#: In the environment of a request whose token could not be checked.
ENV_NO_KEYSTONE = "fpga_pool.no_keystone"

_SCHEDULER = "fpga_pool_scheduler"
#: As oslo.middleware knows them.
_GLOBAL_ID = re.compile(ID_FORMAT)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """On whose behalf a request comes; "" = no project, with a token of system scope."""

    project_id: str
    user_id: str
    #: Whether the token is of system scope; one of a domain alone has neither.
    of_system: bool = False


def provide_scheduler(app: Flask, scheduler: SchedulerAPI) -> None:
    """Let the resources of `app` ask this scheduler."""
    app.extensions[_SCHEDULER] = scheduler


def scheduler() -> SchedulerAPI:
    """Return the scheduler that answers this application."""
    return cast("SchedulerAPI", current_app.extensions[_SCHEDULER])


def tenant() -> Tenant:
    """Return the project and user on whose behalf the request comes."""
    return cast("Tenant", g.tenant)


def request_id() -> str:
    """Return the id that the answer and the log carry."""
    return cast("str", g.request_id)


def variable_of(header: str) -> str:
    """Return the name of a request's header in the environment of WSGI."""
    return f"HTTP_{header.upper().replace('-', '_')}"


def number() -> None:
    """Note the ids of the request, before anything can go wrong with it: its own, and that of the caller's request."""
    g.request_id, sent = generate_request_id(), request.environ.get("HTTP_X_OPENSTACK_REQUEST_ID", "")
    g.global_request_id = sent if _GLOBAL_ID.match(sent) else None
    RequestContext(request_id=g.request_id, global_request_id=g.global_request_id)


def identify() -> RequestContext:
    """Return the caller; TokenRequired if its token is missing or invalid, ServiceUnavailable if that is not known.

    Keystone's middleware has checked the token and set the headers of the caller.  Without it (`noauth`) they are
    believed as they are sent, which is why such a server listens on loopback only.
    """
    ids = {"request_id": g.request_id, "global_request_id": g.global_request_id}
    if current_app.config["KEYSTONE"]:
        of_user = request.environ.get("HTTP_X_IDENTITY_STATUS") == "Confirmed"
        of_service = request.environ.get("HTTP_X_SERVICE_IDENTITY_STATUS", "Confirmed") == "Confirmed"
        if not (of_user and of_service):
            if request.environ.get(ENV_NO_KEYSTONE):
                raise ServiceUnavailable("Keystone does not answer, which checks the tokens; try again later")
            if of_user:
                raise TokenRequired("X-Service-Token: expected a valid token of a user with the role of services")
            raise TokenRequired("a valid token of Keystone is required in X-Auth-Token")
        caller = RequestContext.from_environ(request.environ, **ids)
    else:
        system = request.headers.get("X-System-Scope")
        caller = RequestContext(
            **ids,
            project_id=None if system else _identity("X-Project-Id"),
            user_id=_identity("X-User-Id"),
            roles=request.headers.get("X-Roles", ALL_ROLES).split(","),
            system_scope="all" if system else None,
        )
    g.tenant = Tenant(caller.project_id or "", caller.user_id or "", of_system=bool(caller.system_scope))
    return caller


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
