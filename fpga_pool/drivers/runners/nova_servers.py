"""Processes of gangs as servers of Nova: their states, requests to Nova, and the last known list of a host's servers.

A server's metadata identify its process, and its tag the host of the pool.  Both are part of the request that creates
the server, so that a process is found again even if its creator died.
"""

import base64
import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from openstack.connection import Connection

from fpga_pool.drivers.nova_api import NovaApi
from fpga_pool.drivers.runners.domain import ProcessDomain
from fpga_pool.model.agent.gang_process import Key, ProcessSpec
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import NAMESPACE, is_dedicated

LOG = logging.getLogger(__name__)

#: Prefix of the names of our metadata and tags.
_OURS = "fpga_pool"
#: Maximum length of a tag.
LONGEST_TAG = 60


# ---- Servers and requests


class Stage(StrEnum):
    """Stage in the life of a process in its server."""

    RUN = "run"
    #: It is paused, and can be resumed by its uuid.
    SAVED = "saved"
    #: It will resume here; Nova was not yet asked to move it.
    ARRIVING = "arriving"
    #: It will resume here, and Nova was asked to migrate it.
    MOVING = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server, as reported by Nova."""

    uuid: str
    about: ProcessDomain
    stage: Stage
    #: The host of the pool that it is assigned to.
    home: str
    #: The host on which Nova runs it; "" = none yet.
    host: str
    status: str
    #: Task that Nova is performing on it; "" = none.
    task: str
    #: Reason if it is in ERROR.
    fault: str
    #: When it was created, and last changed: timestamps of Nova, whose lexical order is that of time.
    created: str
    updated: str

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Server | None":
        """Read a server as returned by Nova; None if it is not a gang process."""
        reported = {name.removeprefix(f"{_OURS}."): value for name, value in plain.get("metadata", {}).items()}
        try:
            about = ProcessDomain.from_facts(reported)
            stage, home = Stage(reported["stage"]), reported["home"]
        except (KeyError, ValueError):
            return None
        return cls(
            uuid=plain["id"],
            about=about,
            stage=stage,
            home=home,
            host=plain.get("OS-EXT-SRV-ATTR:host") or "",
            status=plain["status"],
            task=plain.get("OS-EXT-STS:task_state") or "",
            fault=(plain.get("fault") or {}).get("message", ""),
            created=plain["created"],
            updated=plain["updated"],
        )


def _metadata(about: ProcessDomain, home: str, stage: Stage) -> dict[str, str]:
    facts = about.facts() | {"home": home, "stage": str(stage)}
    return {f"{_OURS}.{name}": fact for name, fact in facts.items()}


class Servers(NovaApi):
    """The processes of one host of the pool, in one project of a cloud."""

    def __init__(self, cloud: Connection, home: str, flavor: str, networks: list[str]) -> None:
        super().__init__(cloud)
        self.home = home
        self._tag = f"{_OURS}.{home}"
        self._flavor = flavor
        self._networks = networks
        if len(self._tag) > LONGEST_TAG or set("/,") & set(self._tag):
            raise InvalidInput(
                f"[agent] host: {home} is not a valid tag in Nova: expected at most {LONGEST_TAG} characters without / "
                "and ,"
            )

    # Observed state -------------------------------------------------------------------------------------------------

    def list(self) -> list[Server]:
        """Return all servers assigned to this host; those of an unresponsive cell may be missing."""
        found: dict[str, Server] = {}  # Nova may list a server twice when it has just started to build it
        asked = {"tags": self._tag, "sort_key": "created_at", "sort_dir": "asc"}
        more = True
        while more:
            page = self._ask("GET", "/servers/detail", params=asked)
            found |= {server.uuid: server for server in map(Server.from_plain, page["servers"]) if server is not None}
            more = bool(page["servers"]) and "servers_links" in page
            asked["marker"] = page["servers"][-1]["id"] if more else ""
        return [server for server in found.values() if server.home == self.home]

    def show(self, uuid: str) -> Server:
        """Return a server of any host. Raises NotFound if it is missing, InvalidInput if it is not a gang process."""
        plain = self._ask("GET", f"/servers/{uuid}")["server"]
        if "metadata" not in plain or plain["status"] == "UNKNOWN":
            raise ServiceUnavailable(f"Nova: the cell of server {uuid} does not answer")
        server = Server.from_plain(plain)
        if server is None:
            raise InvalidInput(f"server {uuid} is not a gang process")
        return server

    # Requests -------------------------------------------------------------------------------------------------------

    def create(self, spec: ProcessSpec, about: ProcessDomain, image: str) -> None:
        """Request the server of a process on this host. The filters of Nova's scheduler may refuse it."""
        flavor = self._flavor_id()
        reported = {f"{_OURS}.processes": str(spec.processes), **_metadata(about, self.home, Stage.RUN)}
        server: dict[str, Any] = {
            "name": f"fpga-pool-{spec.key}",
            "flavorRef": flavor,
            "imageRef": self._image_id(image),
            "networks": [{"uuid": self._network_id(name)} for name in self._networks] or "none",
            "host": self.home,
            "metadata": reported,
            "tags": [self._tag],
        }
        if spec.command:
            server["user_data"] = base64.b64encode(spec.command.encode()).decode()
        self._ask("POST", "/servers", {"server": server})

    def delete(self, uuid: str) -> None:
        """Delete a server in any state; ignored if it no longer exists.

        Raises ServiceUnavailable, with the reason, if Nova refuses, so that the caller retries.
        """
        try:
            self._act(uuid, {"forceDelete": None})
        except NotFound:
            LOG.debug("server %s: gone", uuid)
        except Conflict as error:
            raise ServiceUnavailable(str(error)) from error

    def pause(self, uuid: str) -> None:
        """Pause a server; its memory stays on its host."""
        self._act(uuid, {"pause": None})

    def unpause(self, uuid: str) -> None:
        """Resume a paused server."""
        self._act(uuid, {"unpause": None})

    def fetch(self, uuid: str) -> None:
        """Request the live migration of a server to this host."""
        self._migrate(uuid, self.home)

    def adopt(self, uuid: str, about: ProcessDomain) -> None:
        """Assign a saved server to this host, where it will resume as the process `about`.

        During the change it has the tags of both hosts, so that the host that its metadata name always finds it.
        """
        self._ask("PUT", f"/servers/{uuid}/tags/{self._tag}")
        self._set_metadata(uuid, _metadata(about, self.home, Stage.ARRIVING))
        self._ask("PUT", f"/servers/{uuid}/tags", {"tags": [self._tag]})

    def set_stage(self, uuid: str, stage: Stage) -> None:
        """Store the stage of a server in its metadata."""
        self._set_metadata(uuid, {f"{_OURS}.stage": str(stage)})

    def _set_metadata(self, uuid: str, metadata: Mapping[str, str]) -> None:
        self._ask("POST", f"/servers/{uuid}/metadata", {"metadata": dict(metadata)})

    # Flavor, image and networks -------------------------------------------------------------------------------------

    def _flavor_id(self) -> str:
        flavor = self._found("flavor", self._flavor, lambda: self._cloud.compute.find_flavor(self._flavor))
        specs = self._ask("GET", f"/flavors/{flavor.id}/os-extra_specs")["extra_specs"]
        if flavor.vcpus != 1 or is_dedicated(specs) or any(name.startswith(f"{NAMESPACE}:") for name in specs):
            raise InvalidInput(
                f"[runner_nova] flavor: {self._flavor} must have one shared vCPU and no extra specs of {NAMESPACE}: "
                "the gang sets the tier, not the flavor"
            )
        return str(flavor.id)

    def _image_id(self, name: str) -> str:
        """Return the uuid of a public image, or of one of the pool's project, by its name."""
        project = self._answered(lambda: self._cloud.current_project_id)
        by_name = {"name": name, "status": "active"}
        found = self._answered(lambda: list(self._cloud.image.images(**by_name)))
        usable = [image for image in found if image.visibility == "public" or image.owner_id == project]
        if len(usable) != 1:
            raise InvalidInput(f"image {name!r}: {len(usable)} active images of this name are available to gangs")
        return str(usable[0].id)

    def _network_id(self, name: str) -> str:
        return str(self._found("networks", name, lambda: self._cloud.network.find_network(name)).id)

    def _found(self, option: str, name: str, find: Any) -> Any:
        found = self._answered(find)
        if found is None:
            raise InvalidInput(f"[runner_nova] {option}: no {name}, or the pool has no access to it")
        return found


# ---- The last known list


class NovaView:
    """The servers of one host of the pool.

    Nova silently omits the servers of an unresponsive cell from its list (`[api]
    list_records_by_skipping_down_cells`).  So a missing server is gone only if Nova cannot find its uuid either.
    """

    def __init__(self, nova: Servers) -> None:
        self._nova = nova
        self.servers: dict[Key, Server] = {}
        #: Uuids of servers that were missing in Nova's last list because their cell was down. Their last known state
        #: is kept.
        self.unseen: set[str] = set()

    @property
    def uuids(self) -> set[str]:
        """The uuids of all servers."""
        return {server.uuid for server in self.servers.values()}

    def read(self, running: AbstractSet[str]) -> set[str]:
        """Read the servers from Nova; return the gang processes that run here and no longer have a server.

        `running` and the result are uuids. Raises ServiceUnavailable if only the guest is known and Nova cannot show
        its server.
        """
        known = {server.uuid: server for server in self.servers.values()}
        found = {server.uuid: server for server in self._nova.list()}
        unseen, gone = set(), set()
        for uuid in (known.keys() | running) - found.keys():
            try:
                server = self._nova.show(uuid)
            except NotFound:
                gone.add(uuid)
            except InvalidInput as error:
                LOG.warning("ignoring server %s: %s", uuid, error)
            except (Conflict, ServiceUnavailable) as error:
                if uuid not in known:
                    raise
                LOG.warning("server %s: its last known state is kept: %s", uuid, error)
                found[uuid] = known[uuid]
                unseen.add(uuid)
            else:
                found |= {uuid: server} if server.home == self._nova.home else {}
        self.servers = self._by_key(found)
        self.unseen = unseen
        return gone & running

    def _by_key(self, found: dict[str, Server]) -> dict[Key, Server]:
        """Return servers by process, and delete duplicates, caused by lost responses, except for the oldest."""
        by_key: dict[Key, Server] = {}
        for server in sorted(found.values(), key=lambda server: (server.created, server.uuid)):
            first = by_key.setdefault(server.about.key, server)
            if first is not server:
                LOG.warning(
                    "process %s: duplicate server %s is deleted in favour of %s",
                    server.about.key,
                    server.uuid,
                    first.uuid,
                )
                try:
                    self._nova.delete(server.uuid)
                except FpgaPoolError as error:  # the next read retries
                    LOG.warning("server %s: %s", server.uuid, error)
        return by_key
