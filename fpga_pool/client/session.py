"""HTTP session with the API: timeouts, errors as exceptions of the pool, the pool's clock, and creation of objects."""

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests
from keystoneauth1 import adapter, session
from keystoneauth1 import exceptions as ksa
from keystoneauth1.noauth import NoAuth
from requests.adapters import HTTPAdapter

from fpga_pool.client.resources import read
from fpga_pool.model import exceptions
from fpga_pool.model.exceptions import (
    DuplicateId,
    FpgaPoolError,
    InvalidAnswer,
    InvalidInput,
    NoSuchPath,
    NotFound,
    ServiceUnavailable,
    TokenRequired,
    TooManyRequests,
)

#: Type of the pool's service in Keystone's catalogue.
SERVICE_TYPE = "fpga"

#: Number of the last answers that determine the clock, so that it follows when the pool's clock is set back.
_ANSWERS = 32


class PoolClock:
    """The pool's clock, estimated from its answers and the monotonic clock; thread-safe.

    An answer contains the time when it was made, and takes a while to arrive: the estimate is never ahead of the pool's
    clock, and behind it only by the delay of the fastest of the last answers.
    """

    def __init__(self) -> None:
        self._offsets_s: deque[float] = deque(maxlen=_ANSWERS)
        self._lock = threading.Lock()

    def note(self, at: float, answered_s: float) -> None:
        """Record an answer that was made `at` on the pool's clock, and arrived at `answered_s` on the monotonic one."""
        with self._lock:
            self._offsets_s.append(at - answered_s)

    def monotonic_s(self, at: float) -> float:
        """Return when the pool's clock shows `at`, on the monotonic clock; `inf` before the first answer."""
        with self._lock:
            return at - max(self._offsets_s, default=-math.inf)


#: Exceptions of the model by the code that the API sends.
BY_CODE = {
    kind.code: kind
    for kind in vars(exceptions).values()
    if isinstance(kind, type) and issubclass(kind, FpgaPoolError) and kind is not exceptions.TransferRefused
}

#: Requests refused as too many (429) are repeated when the API says, until this many seconds after the first try.
_PATIENCE_S = 60.0

DEFAULT_ENDPOINT = "http://127.0.0.1:9511"
_HTTP = re.compile("https?://[^/]")
#: OpenSSL's reasons for an untrusted certificate, and for other failures, within the messages of the layers above it.
_UNTRUSTED = re.compile(r"certificate verify failed: (.*?) \(")
_NO_TLS = re.compile(r"\[SSL: \w+\] (.*?) \(")

#: Connections kept open: as many as a batch has streams that request tickets.
_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Login:
    """A session of keystoneauth with a cloud, and the interface and region of the pool's endpoint there."""

    session: session.Session
    #: None = public.
    interface: str | None = None
    region: str | None = None


class ApiSession:
    """Calls of one endpoint for one project; thread-safe.

    With a `login` the user is that of its session, and the endpoint, unless given, is the one in its catalogue.
    Without a login the pool must be an embedded one, which trusts `project_id` and `user_id`; `cacert` is a file of
    authorities that may have signed its certificate (None: the usual ones).
    """

    def __init__(
        self,
        endpoint: str | None,
        project_id: str = "demo",
        user_id: str = "demo",
        *,
        login: Login | None = None,
        timeout_s: float = 30.0,
        connect_retries: int = 2,
        cacert: str | None = None,
    ) -> None:
        if cacert is not None and not Path(cacert).is_file():
            raise InvalidInput(f"cacert: no file {cacert}")
        if endpoint and not _HTTP.match(endpoint):
            raise InvalidInput(f"endpoint: expected a URL such as {DEFAULT_ENDPOINT}, found {endpoint!r}")
        self._timeout_s = timeout_s
        self._connect_retries = connect_retries
        self._http: requests.Session | None = None
        if login is None:
            if not endpoint:
                raise InvalidInput("endpoint: required without a login")
            endpoint = endpoint.rstrip("/")
            self._http = requests.Session()
            self._http.mount(endpoint, HTTPAdapter(pool_maxsize=_CONNECTIONS))
            # A web proxy cannot reach a loopback address.
            self._http.trust_env = False
            auth, verify = NoAuth(endpoint=endpoint), cacert or True
            login = Login(session.Session(auth=auth, session=self._http, timeout=timeout_s, verify=verify))
            headers = {"X-Project-Id": project_id, "X-User-Id": user_id}
        else:
            headers = {}
        self._adapter = adapter.Adapter(
            login.session,
            service_type=SERVICE_TYPE,
            interface=login.interface or "public",
            region_name=login.region,
            endpoint_override=endpoint,
            user_agent="fpga_pool.client",
            additional_headers=headers,
            raise_exc=False,
        )
        self.endpoint = endpoint or f"the {SERVICE_TYPE} endpoint of the catalogue"

    def close(self) -> None:
        """Close the connections that were kept open, except those of the session of a given login."""
        if self._http is not None:
            self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object | None = None,
        params: dict[str, Any] | None = None,
        secret: bool = False,
        retry: bool = True,
    ) -> dict[str, Any]:
        """Return the answer to one call; `secret` keeps it out of the log.

        A call is repeated if the connection fails, unless `retry` is false because the caller repeats it.  A call that
        is refused because the project has sent too many (429) is repeated when the API says, for up to a minute; then
        TooManyRequests is raised.
        """
        options = {
            "json": body,
            "params": params,
            "log": not secret,
            "connect_retries": self._connect_retries if retry else 0,
        }
        give_up_s = time.monotonic() + _PATIENCE_S
        while True:
            response = self._request(method, path, options)
            wait_s = _retry_after_s(response)
            if response.status_code != requests.codes.too_many_requests or time.monotonic() + wait_s > give_up_s:
                return self._content(response)
            time.sleep(wait_s)

    def _request(self, method: str, path: str, options: dict[str, Any]) -> requests.Response:
        try:
            return self._adapter.request(path, method, **options)
        except ksa.SSLError as error:
            raise InvalidInput(f"{self.endpoint}: {_mistrust(str(error))}") from error
        except ksa.ConnectionError as error:
            raise ServiceUnavailable(self._silence(error)) from error
        except (ksa.EndpointNotFound, ksa.MissingAuthPlugin) as error:
            raise InvalidInput(f"the catalogue of the cloud has no service of type {SERVICE_TYPE}") from error
        except ksa.ClientException as error:
            raise TokenRequired(f"no token: {error}") from error

    def _silence(self, error: Exception) -> str:
        if self._http is None:
            # Keystone or the pool: keystoneauth names the address first, then the cause.
            return str(error).partition(": ")[0]
        if isinstance(error, ksa.ConnectTimeout):
            return f"the pool's API at {self.endpoint} did not respond within {self._timeout_s:g} s"
        return f"no pool responds at {self.endpoint}: is its API running there?"

    def _content(self, response: requests.Response) -> dict[str, Any]:
        try:
            content = response.json()
        except requests.JSONDecodeError:
            content = None
        if response.ok and isinstance(content, dict):
            return content
        errors = content.get("errors") if isinstance(content, dict) else None
        if response.ok or not isinstance(errors, list) or not errors or not isinstance(errors[0], dict):
            raise self._foreign(response)
        error = errors[0]
        if error.get("code") == NoSuchPath.code:
            expected = f"expected the URL of its root, such as {DEFAULT_ENDPOINT}, without /v1"
            raise NoSuchPath(f"{self.endpoint} is not where a pool's API begins: {expected}")
        raised = BY_CODE.get(str(error.get("code")), _by_status(response.status_code))(str(error.get("detail")))
        raised.add_note(f"request id: {error.get('request_id')}")
        raise raised

    def _foreign(self, response: requests.Response) -> FpgaPoolError:
        kind = InvalidAnswer if response.ok else _by_status(response.status_code)
        return kind(f"{self.endpoint} returned {response.status_code} without an error of the pool's API")


def _mistrust(said: str) -> str:
    """Return why no TLS connection was made, extracted from the messages of all layers."""
    if untrusted := _UNTRUSTED.search(said):
        return f"its certificate is not trusted: {untrusted[1]}"
    failed = _NO_TLS.search(said)
    return f"TLS failed: {failed[1]}; http:// is for an API without TLS" if failed else said


def _retry_after_s(response: requests.Response) -> float:
    """Return when to repeat a request that was refused as too early, in seconds from now."""
    said = response.headers.get("Retry-After", "")
    return float(said) if re.fullmatch(r"[0-9]{1,6}", said) else 1.0


def _by_status(status: int) -> type[FpgaPoolError]:
    """Return the class of an error whose code is not known here."""
    if status == requests.codes.too_many_requests:
        return TooManyRequests
    if status in (502, 503, 504):
        return ServiceUnavailable
    return InvalidInput if 400 <= status < 500 else FpgaPoolError


# ---- Creation

#: First and longest pause between attempts to create an object, which double; default time limit of the attempts.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, CREATE_PATIENCE_S = 0.5, 4.0, 7.5

Created = TypeVar("Created")


def create(
    http: ApiSession,
    kind: type[Created],
    noun: str,
    body: Mapping[str, object],
    find: Callable[[], Created],
    patience_s: float,
    params: dict[str, Any] | None = None,
) -> Created:
    """Create an object and return it; if it exists because an earlier answer was lost, `find` fetches it.

    `noun` is its key in the answer; "" = a batch, which is a part of the returned object.
    """
    path = "/v1/batches" if noun in ("batch", "") else f"/v1/{noun}s"
    interrupted = exists = False
    paused_s, pause_s = 0.0, _FIRST_PAUSE_S
    while True:
        try:
            if exists:
                return find()
            return read(kind, http.call("POST", path, body=body, params=params, retry=False, secret=not noun), noun)
        except DuplicateId:
            if not interrupted:
                raise
            exists = True
        except NotFound:
            if not exists:
                raise
            raise DuplicateId(f"{noun or 'batch'} {body['uuid']} or a part of it is of another request") from None
        except TooManyRequests:
            raise  # the session has repeated the call for long enough
        except ServiceUnavailable:
            if paused_s >= patience_s:
                raise
            interrupted = True
            time.sleep(pause_s)
            paused_s, pause_s = paused_s + pause_s, min(2 * pause_s, _LONGEST_PAUSE_S)
