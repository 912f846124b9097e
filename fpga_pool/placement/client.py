"""A client of the part of Placement's REST API that the pool needs, and its options; every call has a timeout."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException, MissingAuthPlugin
from oslo_config import cfg

from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import OWNER_TRAIT, RESOURCE_CLASS

#: First microversion with all features used here (1.37: a provider can get another parent), of the Wallaby release.
MICROVERSION = "1.37"

#: Exceptions by HTTP status; any other failure raises ServiceUnavailable.
_ERRORS: Mapping[int, type[FpgaPoolError]] = {
    HTTPStatus.BAD_REQUEST: InvalidInput,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}

Inventories = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A resource provider; its generation grows with every change of its inventories, traits or allocations."""

    uuid: str
    name: str
    generation: int
    parent: str | None


@dataclass(frozen=True, slots=True)
class Consumer:
    """The allocations of one consumer: numbers of slots by the uuid of their provider."""

    project_id: str
    slots: Mapping[str, int]


class PlacementClient:
    """Reads and writes providers and allocations; threads may share it.

    Raises
    ------
    ServiceUnavailable
        By every method, if Placement (or Keystone) does not answer, or not correctly.
    Conflict
        By methods that write, if the object has changed since it was read, or is in use.

    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    # Reading of providers

    def owned(self, trait: str = OWNER_TRAIT) -> list[Provider]:
        """Return all providers of the pool; empty if Placement does not know the trait that marks them."""
        try:
            found = self._ask("GET", f"/resource_providers?required={trait}")
        except InvalidInput as error:
            if trait in str(error):
                return []
            raise
        return [_provider(plain) for plain in found["resource_providers"]]

    def named(self, name: str) -> Provider | None:
        """Return the provider with a name, if it exists."""
        found = self._ask("GET", "/resource_providers", params={"name": name})["resource_providers"]
        return _provider(found[0]) if found else None

    def provider(self, uuid: str) -> Provider | None:
        """Return a provider, if it exists."""
        try:
            return _provider(self._ask("GET", f"/resource_providers/{uuid}"))
        except NotFound:
            return None

    def inventories(self, uuid: str) -> tuple[int, Inventories]:
        """Return the generation of a provider, and its inventories by resource class."""
        found = self._ask("GET", f"/resource_providers/{uuid}/inventories")
        return found["resource_provider_generation"], found["inventories"]

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """Return the generation of a provider, and its traits."""
        found = self._ask("GET", f"/resource_providers/{uuid}/traits")
        return found["resource_provider_generation"], frozenset(found["traits"])

    # Writing of providers

    def ensure_class(self, name: str = RESOURCE_CLASS) -> None:
        """Create a resource class if it does not exist; by default that of the pool's slots."""
        self._ask("PUT", f"/resource_classes/{name}")

    def ensure_trait(self, name: str) -> None:
        """Create a trait if it does not exist."""
        self._ask("PUT", f"/traits/{name}")

    def create(self, uuid: str, name: str, parent: str) -> int:
        """Create a provider below another one; return its generation."""
        body = {"uuid": uuid, "name": name, "parent_provider_uuid": parent}
        return int(self._ask("POST", "/resource_providers", body)["generation"])

    def move(self, uuid: str, name: str, parent: str) -> None:
        """Set the name and the parent of a provider."""
        self._ask("PUT", f"/resource_providers/{uuid}", {"name": name, "parent_provider_uuid": parent})

    def set_inventories(self, uuid: str, generation: int, inventories: Inventories) -> int:
        """Replace all inventories of a provider; return its new generation."""
        body = {"resource_provider_generation": generation, "inventories": inventories}
        found = self._ask("PUT", f"/resource_providers/{uuid}/inventories", body)
        return int(found["resource_provider_generation"])

    def set_traits(self, uuid: str, generation: int, traits: Collection[str]) -> int:
        """Replace all traits of a provider; return its new generation."""
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        found = self._ask("PUT", f"/resource_providers/{uuid}/traits", body)
        return int(found["resource_provider_generation"])

    def delete(self, uuid: str) -> None:
        """Remove a provider without allocations."""
        self._ask("DELETE", f"/resource_providers/{uuid}")

    # Allocations

    def consumer(self, uuid: str) -> Consumer:
        """Return the slots that a consumer was allocated; none if Placement does not know it."""
        found = self._ask("GET", f"/allocations/{uuid}")
        return Consumer(found.get("project_id", ""), _slots(found["allocations"]))

    def allocated(self, instance: str) -> Mapping[str, int]:
        """Return the number of slots that an instance was allocated, by the uuid of their provider."""
        return self.consumer(instance).slots

    def allocations_on(self, uuid: str) -> Mapping[str, int]:
        """Return the number of slots allocated from a provider, by consumer."""
        return _slots(self._ask("GET", f"/resource_providers/{uuid}/allocations")["allocations"])

    def resources_on(self, uuid: str) -> Mapping[str, Mapping[str, int]]:
        """Return all resources allocated from a provider, by consumer and class."""
        found = self._ask("GET", f"/resource_providers/{uuid}/allocations")["allocations"]
        return {consumer: allocation["resources"] for consumer, allocation in found.items()}

    def free(self, *classes: str) -> dict[str, int]:
        """Return the least free amount over these classes, by the uuid of each provider that has all of them.

        Providers below disabled compute nodes are left out.
        """
        asked = {"resources": ",".join(f"{name}:1" for name in classes), "root_required": "!COMPUTE_STATUS_DISABLED"}
        try:
            found = self._ask("GET", "/allocation_candidates", params=asked)["provider_summaries"]
        except InvalidInput as error:  # the class does not exist yet
            if any(name in str(error) for name in classes):
                return {}
            raise
        has = {uuid: summary["resources"] for uuid, summary in found.items()}
        return {
            uuid: min(resources[name]["capacity"] - resources[name]["used"] for name in classes)
            for uuid, resources in has.items()
            if all(name in resources for name in classes)
        }

    def claim(self, consumer: str) -> dict[str, Any]:
        """Return all allocations of a consumer, in the form for `set_claims`; empty `allocations` if it is unknown."""
        found = self._ask("GET", f"/allocations/{consumer}")
        claim = {name: found[name] for name in ("project_id", "user_id", "consumer_generation") if name in found}
        plain = {uuid: {"resources": given["resources"]} for uuid, given in found["allocations"].items()}
        return claim | {"allocations": plain}

    def set_claims(self, claims: Mapping[str, Any]) -> None:
        """Replace the allocations of consumers atomically; raises Conflict if one has changed or there is no room."""
        self._ask("POST", "/allocations", dict(claims))

    def _ask(self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None) -> Any:
        options: dict[str, Any] = {} if body is None else {"json": body}
        if params:
            options["params"] = dict(params)
        try:
            answer = self._adapter.request(path, method, raise_exc=False, microversion=MICROVERSION, **options)
        except ClientException as error:
            raise ServiceUnavailable(f"Placement does not answer: {error}") from error
        if answer.ok:
            return _content(answer)
        raise _ERRORS.get(answer.status_code, ServiceUnavailable)(
            f"Placement, {method} {path.partition('?')[0]}: {answer.status_code} {_detail(answer)}"
        )


def _content(answer: Any) -> Any:
    try:
        return answer.json() if answer.content else None
    except ValueError as error:
        raise ServiceUnavailable(f"Placement did not return JSON: {answer.text[:80]!r}") from error


def _provider(plain: Mapping[str, Any]) -> Provider:
    return Provider(
        uuid=plain["uuid"], name=plain["name"], generation=plain["generation"], parent=plain["parent_provider_uuid"]
    )


def _slots(allocations: Mapping[str, Any]) -> dict[str, int]:
    counts = {uuid: allocation["resources"].get(RESOURCE_CLASS, 0) for uuid, allocation in allocations.items()}
    return {uuid: count for uuid, count in counts.items() if count}


def _detail(answer: Any) -> str:
    """Return Placement's description of a failure in one line."""
    try:
        detail = answer.json()["errors"][0]["detail"]
    except (ValueError, LookupError, TypeError):
        detail = answer.reason or answer.text[:200]
    return " ".join(str(detail).split())


GROUP = cfg.OptGroup(
    "placement",
    title="Placement",
    help="Credentials with which the schedulers access Placement, as in nova.conf. Without auth_type and auth_section "
    "the pool does not use Placement: virtual machines then get any matching slots of their host.",
)
#: Default timeout of a request in seconds; booting instances wait for answers.
TIMEOUT_S = 5


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return the options for the sample configuration."""
    options = [
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    return [(GROUP, options)]


def open_placement(conf: cfg.ConfigOpts) -> PlacementClient | None:
    """Return a client of the configured Placement; None if it is not used.  Raises InvalidInput if misconfigured."""
    name = GROUP.name
    loading.register_auth_conf_options(conf, name)
    loading.register_session_conf_options(conf, name)
    loading.register_adapter_conf_options(conf, name, include_deprecated=False)
    conf.set_default("service_type", "placement", name)
    conf.set_default("valid_interfaces", ["internal", "public"], name)
    conf.set_default("timeout", TIMEOUT_S, name)
    if not conf.placement.auth_type and not conf.placement.auth_section:
        return None
    try:
        auth = loading.load_auth_from_conf_options(conf, name)
        session = loading.load_session_from_conf_options(conf, name, auth=auth)
        return PlacementClient(loading.load_adapter_from_conf_options(conf, name, session=session, auth=auth))
    except (ClientException, MissingAuthPlugin, ValueError) as error:
        raise InvalidInput(f"[placement]: {error}") from error
