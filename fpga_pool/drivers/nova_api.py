"""Log in to a cloud as configured in [nova], send requests to Nova's API, and map its responses to exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import CatalogException, ClientException, MissingAuthPlugin
from openstack.connection import Connection
from openstack.exceptions import DuplicateResource, EndpointNotFound, SDKException
from oslo_config import cfg

from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import NAMESPACE

GROUP = cfg.OptGroup(
    "nova",
    title="Nova",
    help="Credentials with which agents whose gang_runner is nova access Keystone, Nova, Glance and Neutron, as in "
    "the configuration of other services. The project owns the servers. Schedulers with [scheduler] tier_migrations "
    "request live migrations with them, which Nova allows administrators.",
)
#: Default timeout of a request, in seconds.
TIMEOUT_S = 30
#: Retries of a read request whose connection failed. Requests that change something are sent only once.
CONNECT_RETRIES = 2
#: The adapter options that apply to all services. Options that select a single service are left out.
_WHERE = ("region-name", "valid-interfaces")


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return the options for the sample configuration."""
    options = [
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_session_conf_options(),
        *_place_options(),
    ]
    return [(GROUP, options)]


def _place_options() -> list[Any]:
    options = loading.get_adapter_conf_options(include_deprecated=False)
    return [option for option in options if option.name in _WHERE]


def log_in(conf: cfg.ConfigOpts) -> Connection:
    """Return a connection to the configured cloud, without sending a request. Raises InvalidInput if misconfigured."""
    name = GROUP.name
    loading.register_auth_conf_options(conf, name)
    loading.register_session_conf_options(conf, name)
    conf.register_opts(_place_options(), group=name)
    conf.set_default("timeout", TIMEOUT_S, name)
    group = conf[name]
    if not group.auth_type and not group.auth_section:
        who = "[agent] gang_runner = nova and by [scheduler] tier_migrations"
        raise InvalidInput(f"[{name}] auth_type: missing; required by {who}")
    interfaces = group.valid_interfaces or ["internal", "public"]
    retries = {f"{service}_connect_retries": CONNECT_RETRIES for service in ("compute", "image", "network")}
    try:
        auth = loading.load_auth_from_conf_options(conf, name)
        session = loading.load_session_from_conf_options(conf, name, auth=auth)
        return Connection(session=session, region_name=group.region_name, interface=interfaces, **retries)
    except (ClientException, MissingAuthPlugin, ValueError) as error:
        raise InvalidInput(f"[{name}]: {error}") from error


# ---- Requests

#: First microversion in which a server can be requested on a host with scheduler filters applied (Train, 2019).
MICROVERSION = "2.74"
#: Statuses of requests that had no effect and can be repeated later.
_LATER = (HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class NovaApi:
    """Base class of clients of Nova's API.

    Requests raise ServiceUnavailable if a service does not respond or the outcome is unknown, and Conflict, with the
    reason, if it refuses.
    """

    def __init__(self, cloud: Connection) -> None:
        self._cloud = cloud

    def _migrate(self, uuid: str, host: str) -> None:
        """Request the live migration of a server to a host. Nova's scheduler filters may refuse it, even later."""
        self._act(uuid, {"os-migrateLive": {"host": host, "block_migration": "auto"}})

    def _act(self, uuid: str, action: Mapping[str, object]) -> None:
        self._ask("POST", f"/servers/{uuid}/action", dict(action))

    def _ask(self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None) -> Any:
        options: dict[str, Any] = {} if body is None else {"json": body}
        if method != "GET":
            options["connect_retries"] = 0  # a request whose response was lost may have been executed
        if params:
            options["params"] = dict(params)
        answer = self._answered(
            lambda: self._cloud.compute.request(path, method, microversion=MICROVERSION, raise_exc=False, **options)
        )
        if answer.ok:
            return self._answered(answer.json) if answer.content else None
        said = f"Nova, {method} {path}: {answer.status_code} {_said(answer)}"
        if answer.status_code == HTTPStatus.NOT_FOUND and not _is_novas(answer):
            raise ServiceUnavailable(said)
        raise _refusal(answer.status_code)(said)

    @staticmethod
    def _answered(ask: Any) -> Any:
        try:
            return ask()
        except (ClientException, SDKException, ValueError) as error:
            said = " ".join(str(error).split())
            if _is_final(error):
                raise Conflict(f"the cloud refuses: {said}") from error
            raise ServiceUnavailable(f"the cloud does not answer: {said}") from error


def _is_final(error: Exception) -> bool:
    """Return whether a retry would fail too, because of the configuration or of what the cloud provides."""
    if isinstance(error, CatalogException | DuplicateResource | EndpointNotFound):
        return True
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return status is not None and _refusal(status) is not ServiceUnavailable


def _refusal(status: int) -> type[FpgaPoolError]:
    """Return the exception for an HTTP status: ServiceUnavailable if a retry may succeed, else a final refusal."""
    if status == HTTPStatus.NOT_FOUND:
        return NotFound
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServiceUnavailable
    return Conflict


def _is_novas(answer: Any) -> bool:
    """Return whether a 404 response is from Nova itself, and not from a proxy that did not find Nova."""
    try:
        return "itemNotFound" in answer.json()
    except (ValueError, TypeError):
        return False


def _said(answer: Any) -> str:
    """Return Nova's description of a failure, in one line."""
    try:
        said = next(iter(answer.json().values()))["message"]
    except (ValueError, LookupError, TypeError, StopIteration, AttributeError):
        said = answer.reason or answer.text[:200]
    return " ".join(str(said).split())


# ---- Servers of tenants

#: Statuses that Nova reports for finished migrations.
_OVER = frozenset({"completed", "done", "error", "failed", "cancelled", "confirmed", "reverted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantServer:
    """A tenant's server that the pool may request to live-migrate."""

    #: Host that runs it, according to Nova.
    host: str
    #: Whether it is ACTIVE and Nova has no task in progress on it.
    is_idle: bool
    memory_bytes: int
    #: When it was started on its first host, UTC seconds.
    launched_at: float
    #: Runtime that its flavor specifies; None = unknown.
    runtime_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMigration:
    """A live migration of any server."""

    server: str
    is_over: bool


class TenantServers(NovaApi):
    """Live migrations of servers that do not belong to the pool. Requires an administrator account."""

    def show(self, uuid: str) -> TenantServer:
        """Return a server. Raises NotFound if it does not exist."""
        plain = self._ask("GET", f"/servers/{uuid}")["server"]
        runtime = plain.get("flavor", {}).get("extra_specs", {}).get(f"{NAMESPACE}:runtime")
        try:
            return TenantServer(
                host=plain["OS-EXT-SRV-ATTR:host"] or "",
                is_idle=plain["status"] == "ACTIVE" and not plain["OS-EXT-STS:task_state"],
                memory_bytes=plain["flavor"]["ram"] << 20,
                launched_at=_seconds(plain["OS-SRV-USG:launched_at"] or plain["created"]),
                runtime_s=None if runtime is None else float(runtime),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise ServiceUnavailable(f"Nova: server {uuid} is not described as expected: {error!r}") from error

    def migrations(self, since_s: float) -> list[LiveMigration]:
        """Return the live migrations that have started, changed or ended since `since_s` (UTC seconds)."""
        since = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = {"migration_type": "live-migration", "changes-since": since}
        found = self._ask("GET", "/os-migrations", params=asked)["migrations"]
        return [LiveMigration(server=one["instance_uuid"], is_over=one["status"] in _OVER) for one in found]

    def migrate(self, uuid: str, host: str) -> None:
        """Request the live migration of a server to a host. `migrations` reports its state later."""
        self._migrate(uuid, host)


def _seconds(moment: str) -> float:
    """Convert a timestamp of Nova, with or without Z, to UTC seconds."""
    return datetime.fromisoformat(moment.removesuffix("Z")).replace(tzinfo=UTC).timestamp()
