"""[nova]: the login to a cloud; requests to Nova's API in one project, and what its answers mean to the pool."""

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
#: How long an answer may take where nothing is configured, in seconds.
TIMEOUT_S = 30
#: How often a question is asked again that was not answered; what changes something is asked for once.
CONNECT_RETRIES = 2
#: What of an adapter is configured: services are several, so none of what names one of them.
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
    """Return the cloud as configured, of which nothing is asked yet; InvalidInput says what is wrong."""
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

#: The first in which a server may be asked for on a host with the filters of the scheduler at work; Train, of 2019.
MICROVERSION = "2.74"
#: Answers that say that nothing was done, and that the same may be asked again later.
_LATER = (HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class NovaApi:
    """What all who make requests have in common.

    ServiceUnavailable where a service does not answer, or nothing is known of what it did; Conflict where it refuses,
    with its reason.
    """

    def __init__(self, cloud: Connection) -> None:
        self._cloud = cloud

    def _migrate(self, uuid: str, host: str) -> None:
        """Have a server live-migrated to a host; the filters of Nova's scheduler may refuse it, later as well."""
        self._act(uuid, {"os-migrateLive": {"host": host, "block_migration": "auto"}})

    def _act(self, uuid: str, action: Mapping[str, object]) -> None:
        self._ask("POST", f"/servers/{uuid}/action", dict(action))

    def _ask(self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None) -> Any:
        options: dict[str, Any] = {} if body is None else {"json": body}
        if method != "GET":
            options["connect_retries"] = 0  # one whose answer was lost may have been done
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
    """Return whether the same would fail again: what is configured, or what the cloud has, is not so."""
    if isinstance(error, CatalogException | DuplicateResource | EndpointNotFound):
        return True
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return status is not None and _refusal(status) is not ServiceUnavailable


def _refusal(status: int) -> type[FpgaPoolError]:
    """Return what a failure is to the pool: a refusal is final, and no answer is none."""
    if status == HTTPStatus.NOT_FOUND:
        return NotFound
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServiceUnavailable
    return Conflict


def _is_novas(answer: Any) -> bool:
    """Return whether it is Nova that has not found something: a proxy before it may not have found Nova."""
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

#: What Nova says of migrations that are over.
_OVER = frozenset({"completed", "done", "error", "failed", "cancelled", "confirmed", "reverted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantServer:
    """A server that the pool may have live-migrated."""

    #: Where Nova has it.
    host: str
    #: It runs, and Nova is doing nothing with it.
    is_idle: bool
    memory_bytes: int
    #: When it was started on its first host, UTC seconds.
    launched_at: float
    #: How long it runs, as its flavor says; None = unknown.
    runtime_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMigration:
    """A live migration of any server."""

    server: str
    is_over: bool


class TenantServers(NovaApi):
    """Live migrations of servers that are not the pool's own; the account has to be an administrator's."""

    def show(self, uuid: str) -> TenantServer:
        """Return a server; NotFound if there is none."""
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
        """Return the live migrations that have begun, changed or ended since then (UTC seconds)."""
        since = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = {"migration_type": "live-migration", "changes-since": since}
        found = self._ask("GET", "/os-migrations", params=asked)["migrations"]
        return [LiveMigration(server=one["instance_uuid"], is_over=one["status"] in _OVER) for one in found]

    def migrate(self, uuid: str, host: str) -> None:
        """Have a server live-migrated to a host; whether that succeeds, `migrations` says later."""
        self._migrate(uuid, host)


def _seconds(moment: str) -> float:
    """Return UTC seconds of a moment as Nova writes it, with Z or without."""
    return datetime.fromisoformat(moment.removesuffix("Z")).replace(tzinfo=UTC).timestamp()
