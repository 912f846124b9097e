"""Context of a request: the caller, the request id, and the scheduler that serves it."""

import re
import uuid
from dataclasses import dataclass
from typing import cast

from flask import Flask, current_app, g, request
from oslo_context.context import RequestContext, generate_request_id
from oslo_middleware.request_id import ID_FORMAT

from fpga_pool.model.exceptions import InvalidInput, NotFound, ServiceUnavailable, TokenRequired
from fpga_pool.rpc.scheduler_api import SchedulerAPI

#: Default project and user of requests without authentication.
DEFAULT_ID = "demo"
#: Default roles of requests without authentication: all roles of Keystone.
ALL_ROLES = "admin,manager,member,reader,service"

#: Set in the environment of a request whose token could not be checked.
ENV_NO_KEYSTONE = "fpga_pool.no_keystone"

_SCHEDULER = "fpga_pool_scheduler"
#: Format of global request ids, as in oslo.middleware.
_GLOBAL_ID = re.compile(ID_FORMAT)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The project and user that a request is made for; project "" = none, as with a token of system scope."""

    project_id: str
    user_id: str
    #: Whether the token is of system scope. A token of a domain has neither a project nor system scope.
    of_system: bool = False


def provide_scheduler(app: Flask, scheduler: SchedulerAPI) -> None:
    """Set the scheduler that serves the requests of `app`."""
    app.extensions[_SCHEDULER] = scheduler


def scheduler() -> SchedulerAPI:
    """Return the scheduler that serves the current application."""
    return cast("SchedulerAPI", current_app.extensions[_SCHEDULER])


def tenant() -> Tenant:
    """Return the project and user that the current request is made for."""
    return cast("Tenant", g.tenant)


def request_id() -> str:
    """Return the id of the current request, which is in the response and in the log."""
    return cast("str", g.request_id)


def variable_of(header: str) -> str:
    """Return the WSGI environment variable of a request header."""
    return f"HTTP_{header.upper().replace('-', '_')}"


def number() -> None:
    """Set the ids of the request, its own and the caller's global one, before any error can occur."""
    g.request_id, sent = generate_request_id(), request.environ.get("HTTP_X_OPENSTACK_REQUEST_ID", "")
    g.global_request_id = sent if _GLOBAL_ID.match(sent) else None
    RequestContext(request_id=g.request_id, global_request_id=g.global_request_id)


def identify() -> RequestContext:
    """Return the caller, from the headers that Keystone's middleware has set after checking the token.

    Raises TokenRequired if the token is missing or invalid, ServiceUnavailable if it could not be checked.  Without the
    middleware (`noauth`) headers are trusted as sent, so such a server listens on loopback only.
    """
    ids = {"request_id": g.request_id, "global_request_id": g.global_request_id}
    if current_app.config["KEYSTONE"]:
        of_user = request.environ.get("HTTP_X_IDENTITY_STATUS") == "Confirmed"
        of_service = request.environ.get("HTTP_X_SERVICE_IDENTITY_STATUS", "Confirmed") == "Confirmed"
        if not (of_user and of_service):
            if request.environ.get(ENV_NO_KEYSTONE):
                raise ServiceUnavailable("Keystone, which validates tokens, does not respond; try again later")
            if of_user:
                raise TokenRequired("X-Service-Token: expected a valid token of a user with the service role")
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
    """Return the canonical form of the uuid in a URL. Raises NotFound if it is not a uuid."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise NotFound(f"no {noun} {text[:64]!r}: not a uuid") from None
