"""Validation of callers' tokens by Keystone's middleware. Imported only if needed, as it loads Keystone's client."""

import hashlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from keystoneauth1.exceptions import ClientException, ConnectFailure, DiscoveryFailure, RequestTimeout
from keystonemiddleware import auth_token
from keystonemiddleware.auth_token._exceptions import InvalidToken, ServiceError
from keystonemiddleware.auth_token._request import _AuthTokenRequest
from keystonemiddleware.exceptions import ConfigurationError
from oslo_config import cfg

from fpga_pool.api.context import ENV_NO_KEYSTONE, variable_of
from fpga_pool.conf.opts import check_values
from fpga_pool.model.exceptions import InvalidInput

#: Lifetime in seconds and maximum number of cached results for valid tokens.
REMEMBERED_S, REMEMBERED = 1.0, 1000

_NO_ANSWER = (ConnectFailure, DiscoveryFailure, RequestTimeout, ServiceError)


def authenticated(application: WSGIApplication, conf: cfg.ConfigOpts) -> WSGIApplication:
    """Return the application behind Keystone's middleware. Raises InvalidInput, which names an invalid option."""
    for group, options in middleware_options():
        conf.register_opts(options, group)
    check_values(conf)
    return checked(application, conf)


def middleware_options() -> Iterable[tuple[str, Iterable[cfg.Opt]]]:
    """Return the options of the middleware by group."""
    found: Iterable[tuple[str, Iterable[cfg.Opt]]] = auth_token.list_opts()
    return found


def checked(application: WSGIApplication, conf: cfg.ConfigOpts) -> WSGIApplication:
    """Return the application like `authenticated`, if the options of the middleware are already registered."""
    # Without this, a service token without the service role would extend the validity of expired tokens.
    conf.set_default("service_token_roles_required", True, "keystone_authtoken")
    # The application decides, as version documents are public, and errors must have the common form.
    settings = {"oslo_config_config": conf, "delay_auth_decision": True}
    try:
        made: WSGIApplication = _Checked(application, settings)
    except TypeError as error:
        raise InvalidInput(f"[keystone_authtoken] auth_version: {error}") from None
    except ConfigurationError as error:
        raise InvalidInput(f"[keystone_authtoken]: {error}") from None
    except ClientException as error:  # raised by the plug-in that auth_type names
        raise InvalidInput(f"[keystone_authtoken] auth_type: {error}") from None
    return made


#: Variables that the middleware sets in the environment. All are replaced, as clients could send these headers.
_SAID = (
    *map(variable_of, _AuthTokenRequest._all_auth_headers(_AuthTokenRequest({}))),  # noqa: SLF001
    variable_of(_AuthTokenRequest._SYSTEM_SCOPE_HEADER),  # noqa: SLF001
    *("keystone.token_auth", "keystone.token_info"),
)


@dataclass(frozen=True, slots=True)
class _Known:
    said: dict[str, Any]
    #: When the token expires (epoch), and when the cached result does (monotonic clock).
    expires_s: float
    until_s: float


class _Checked(auth_token.AuthProtocol):
    """The middleware, changed so that a token is not reported as invalid if Keystone did not respond.

    Requests and responses are passed on without WebOb objects. The variables that it sets for a valid token are cached
    briefly, in addition to the middleware's own cache, which stores JSON.
    """

    def __init__(self, *arguments: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(*arguments)
        #: By digest of the token.
        self._known: dict[bytes, _Known] = {}
        self._remembers = int(self._conf.get("token_cache_time")) > 0

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *failed: Any) -> Any:
            challenges = self._reject_auth_headers if status.startswith("401") else []
            return start_response(status, [*headers, *challenges], *failed)

        token = environ.get("HTTP_X_AUTH_TOKEN")
        key = None if token is None or "HTTP_X_SERVICE_TOKEN" in environ else hashlib.sha256(token.encode()).digest()
        if not self._recall(key, environ):
            self.process_request(_AuthTokenRequest(environ))  # the application decides about invalid tokens
            self._remember(key, environ)
        passed: Iterable[bytes] = self._app(environ, start)
        return passed

    def _recall(self, key: bytes | None, environ: WSGIEnvironment) -> bool:
        """Set the cached variables of a token in a request; return whether there are any."""
        known = None if key is None else self._known.get(key)
        if known is None or known.until_s < time.monotonic() or known.expires_s <= time.time():
            return False
        for name in _SAID:
            environ.pop(name, None)
        environ.update(known.said)
        return True

    def _remember(self, key: bytes | None, environ: WSGIEnvironment) -> None:
        """Cache the variables of a token, if it is valid and its validity depends on nothing but the token."""
        if key is None or not self._remembers or environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed":
            return
        user = environ["keystone.token_auth"].user
        facts = environ["keystone.token_info"].get("token", {})
        if facts.get("application_credential") or user.bind:  # its validity depends on the path or the connection
            return
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        said = {name: environ[name] for name in _SAID if name in environ}
        self._known[key] = _Known(said, user.expires.timestamp(), time.monotonic() + REMEMBERED_S)

    def process_request(self, request: Any) -> Any:
        self._of_thread.unanswered = False
        answer = super().process_request(request)
        if self._of_thread.unanswered:
            request.environ[ENV_NO_KEYSTONE] = True
        return answer

    def fetch_token(self, token: Any, **options: Any) -> Any:  # type: ignore[override]
        try:
            return super().fetch_token(token, **options)
        except InvalidToken as error:
            self._of_thread.unanswered |= isinstance(error.__context__, _NO_ANSWER)
            raise
