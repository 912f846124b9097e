"""Processes of gangs as servers of Nova, each pinned to its pCPU by the tier driver of its host.

Nova creates, moves and deletes a server, and the local libvirt runs it: its current state is read from libvirt, and
changes in progress are read from Nova.  A server powers off when its work is done; any other end is a failure.  To move
a process, its server is paused, live-migrated if the target is another host, and resumed there.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.nova_api import log_in
from fpga_pool.drivers.runners.domain import ProcessDomain, Runner
from fpga_pool.drivers.runners.nova_servers import NovaView, Server, Servers, Stage
from fpga_pool.drivers.runners.process_guests import Guest, ProcessGuests
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec, Running
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

LOG = logging.getLogger(__name__)

#: Interval of queries to Nova while a server does not run, in seconds.
POLL_S = 1.0
#: Maximum time until a server is listed if the response to its request was lost, e.g. as the agent died, in seconds.
UNSURE_S = 10.0
#: Time to wait for the deletion of a server in one call, and the interval of checks, in seconds.
END_S, END_LOOK_S = 10.0, 0.5
#: Task states of a server that is being deleted, and of one that has ended or is powering off.
_DELETING = ("deleting", "soft-deleting")
_ENDING = ("", "powering-off")
_PAUSED = "PAUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Intervals and timeouts of the runner in seconds; see [runner_nova]."""

    poll_s: float
    build_s: float
    keep_saved_s: float


class NovaRunner(Runner):
    """The gang processes of one compute node that are servers of Nova."""

    def __init__(
        self,
        servers: Servers,
        guests: ProcessGuests,
        default_image: str,
        times: Times,
        clock: Callable[[], float],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nova = servers
        self._guests = guests
        self._default_image = default_image
        self._times = times
        self._clock = clock
        self._steady = steady
        #: The servers as last read from Nova, and when they were read.
        self._view = NovaView(servers)
        self._listed_at = float("-inf")
        #: Until then a server that was requested earlier may still appear.
        self._unsure_until = steady() + UNSURE_S
        #: Uuids of guests whose servers no longer existed at the last read.
        self._orphans: set[str] = set()
        #: Servers that are being saved, when Nova was last asked to save each, and since when servers do not run.
        self._busy: set[str] = set()
        self._acted_at: dict[str, float] = {}
        self._down_since: dict[str, float] = {}
        #: Tiers that were changed after the servers were requested, by uuid.
        self._tiers: dict[str, Tier] = {}
        #: Saved servers that this host no longer reports.
        self._left: set[str] = set()

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:  # noqa: ARG003
        group, uri = conf.runner_nova, conf.agent.libvirt_uri
        times = Times(poll_s=group.poll_interval_s, build_s=group.build_timeout_s, keep_saved_s=group.keep_saved_s)
        servers = Servers(log_in(conf), conf.agent.host, group.flavor, list(group.networks))
        tiers = LibvirtTiers(uri, Path(conf.tiers.libvirt_pid_dir), of_gangs=True)
        guests = ProcessGuests(LibvirtConnection(uri), tiers)
        return cls(servers, guests, group.default_image, times, clock)

    # Observed state -------------------------------------------------------------------------------------------------

    def observe(self) -> dict[Key, Running]:
        now_s = self._clock()
        before = self._marked()
        fresh = self._list_servers(before)
        guests = self._marked() if fresh else before
        begun = self._bring(guests) if fresh else set()
        self._guests.read_tiers(now_s)
        found = {}
        for key, server in self._view.servers.items():
            uuid = server.uuid
            if uuid not in self._left:
                was, now = before.get(uuid), guests.get(uuid)
                # A guest that is off may be rebooting: it has ended only if it was off before and after Nova was read.
                alike = _runs(was) == _runs(now) and (was is None) == (now is None)
                certain = fresh and uuid not in begun | self._view.unseen and alike
                found[key] = self._running(server, now if certain or _runs(now) else was, now_s, certain=certain)
        return found

    def _marked(self) -> dict[str, Guest]:
        """Return the guests of this host that are gang processes, by uuid."""
        return {guest.uuid: guest for guest in self._guests.find().values()}

    def _list_servers(self, guests: dict[str, Guest]) -> bool:
        """Read the servers if it is time to; return whether they were read, and so are newer than `guests`.

        Errors of Nova are logged while all servers run, and raised otherwise.
        """
        there = [server for server in self._view.servers.values() if server.uuid not in self._left]
        still = [each for each in there if each.uuid in self._busy or not _runs(guests.get(each.uuid))]
        moving = any(server.stage in (Stage.ARRIVING, Stage.MOVING) for server in there)
        pause_s = POLL_S if still or moving or self._is_unsure() else self._times.poll_s
        if self._steady() - self._listed_at < pause_s:
            return False
        try:
            self._list(guests)
        except FpgaPoolError as error:
            if still or self._listed_at == float("-inf"):
                raise
            LOG.warning("servers: %s", error)
            self._listed_at = self._steady() - self._times.poll_s + POLL_S
            return False
        return True

    def _is_unsure(self) -> bool:
        return self._steady() < self._unsure_until

    def _list(self, guests: dict[str, Guest]) -> None:
        """Read the servers from Nova. A guest whose server no longer exists in Nova is destroyed."""
        running = {uuid for uuid, guest in guests.items() if not guest.is_off}
        self._orphans = self._view.read(running)
        self._listed_at = self._steady()
        there = self._view.uuids
        self._busy &= there
        self._left &= there
        memory: dict[str, Any]
        for memory in (self._tiers, self._down_since, self._acted_at):
            for uuid in memory.keys() - there:
                del memory[uuid]
        for uuid, guest in (self._marked() if self._orphans else {}).items():
            if uuid in self._orphans and not guest.is_off:
                LOG.warning("process %s: its guest is destroyed, as Nova has no server %s", guest.about.key, uuid)
                self._guests.destroy(guest)

    def _running(self, server: Server, guest: Guest | None, now_s: float, *, certain: bool) -> Running:
        """Return the report of a process, which is assumed to run unless another phase is certain."""
        uuid = server.uuid
        if guest is not None and _runs(guest) and server.stage in (Stage.RUN, Stage.SAVED):
            self._down_since.pop(uuid, None)
            if server.stage is Stage.SAVED:
                return self._guests.running(guest, Phase.SAVED, "", now_s, saved=uuid)
            return self._guests.running(guest, Phase.RUNNING, "", now_s)
        phase, reason = self._phase(server, guest) if certain else (Phase.RUNNING, "")
        if guest is not None and phase is not Phase.RUNNING:
            return self._guests.running(guest, phase, reason, now_s)
        return Running(
            phase=phase,
            processor=server.about.processor,
            tier=self._tiers.get(uuid, server.about.tier),
            done_s=server.about.carried_s,
            rate=0.0,
            progress_at=now_s,
            cpu_s=guest.cpu_s if guest is not None and not guest.is_off else 0.0,
            reason=reason,
        )

    def _phase(self, server: Server, guest: Guest | None) -> tuple[Phase, str]:
        """Return the phase of a server that does not run, and the reason if it has failed."""
        arriving = server.stage in (Stage.ARRIVING, Stage.MOVING)
        if server.task in _DELETING:
            return Phase.FAILED, f"its server {server.uuid} was deleted"
        if server.stage is Stage.MOVING and server.host != self._nova.home and not server.task:
            # It is paused on its old host or in ERROR, depending on how far Nova got, and on Nova's release.
            why = f": {server.fault}" if server.fault else ""
            return Phase.FAILED, f"Nova: its server {server.uuid} could not be moved here from {server.host}{why}"
        if server.status == "ERROR" and not server.task:
            return Phase.FAILED, f"Nova: {server.fault or 'its server is in error'}"
        if server.status == "BUILD" or server.task not in _ENDING or arriving:
            down_s = self._steady() - self._down_since.setdefault(server.uuid, self._steady())
            if down_s < self._times.build_s:
                return Phase.RUNNING, ""
            doing = server.task or server.status
            return Phase.FAILED, f"Nova: its server {server.uuid} has been {doing} for {down_s:.0f} s"
        if guest is None:
            return Phase.FAILED, f"its server is {server.status} in Nova, but unknown to libvirt"
        if guest.is_off and server.stage is Stage.SAVED:
            return Phase.FAILED, "its server was paused, and has ended"
        return guest.end if guest.is_off else (Phase.RUNNING, "")

    def _bring(self, guests: dict[str, Guest]) -> set[str]:
        """Take the next step of each server towards running here; return the servers whose guests were just marked.

        A step that fails is retried at the next read, and does not affect other servers.
        """
        begun = set()
        for key, server in self._view.servers.items():
            if server.uuid in self._view.unseen:
                continue
            try:
                if server.uuid in self._left:
                    self._sweep(server)
                elif server.stage in (Stage.ARRIVING, Stage.MOVING):
                    self._arrive(server, guests.get(server.uuid))
                elif server.uuid in guests or server.host != self._nova.home:
                    continue
                elif self._guests.mark(server.uuid, server.about):
                    begun.add(server.uuid)
            except FpgaPoolError as error:
                LOG.warning("process %s: server %s: %s", key, server.uuid, error)
                if server.stage is Stage.RUN:
                    begun.add(server.uuid)  # the state of its guest is unknown
        return begun

    # Commands -------------------------------------------------------------------------------------------------------

    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        # Returns once Nova has accepted the request.
        self._list(self._marked())
        if spec.key in self._view.servers:
            return
        if self._is_unsure():
            raise ServiceUnavailable(f"process {spec.key}: waits for an earlier request to Nova")
        about = ProcessDomain.launched(spec, processor, tier)
        self._refuse_taken(processor, tier)
        try:
            if spec.saved:
                self._adopt(spec, about)
            else:
                self._nova.create(spec, about, spec.image or self._default_image)
        except ServiceUnavailable:
            self._unsure_until = self._steady() + UNSURE_S
            raise
        self._list(self._marked())

    def _refuse_taken(self, processor: int, tier: Tier) -> None:
        guests = self._marked()
        for key, other in self._view.servers.items():
            guest = guests.get(other.uuid)
            if other.uuid in self._left or other.about.processor != processor or (guest is not None and guest.is_off):
                continue
            given = self._guests.tier(guest) if guest is not None else None
            if (given or self._tiers.get(other.uuid, other.about.tier)) is tier:
                raise Conflict(f"processor {processor}: process {key} is in its {tier}")

    def set_tier(self, key: Key, tier: Tier) -> None:
        # A server that is not built yet will start in this tier.
        server, guest = self._known(key)
        self._tiers[server.uuid] = tier
        if guest is None or not _runs(guest):
            return
        if self._guests.is_placed(guest):
            self._guests.change_tier(guest, tier)
        else:
            self._guests.place(guest.domain, replace(server.about, tier=tier))

    def end(self, key: Key) -> None:
        until_s = self._steady() + END_S
        self._list(self._marked())
        if key not in self._view.servers and self._is_unsure():
            raise ServiceUnavailable(f"process {key}: waits for an earlier request to Nova")
        asked = ""
        while key in self._view.servers:
            server = self._view.servers[key]
            if server.uuid != asked and server.task not in _DELETING:
                asked = server.uuid
                self._nova.delete(asked)
            if self._steady() > until_s:
                raise ServiceUnavailable(f"process {key}: Nova is still deleting server {server.uuid}")
            self._pause(END_LOOK_S)
            self._list(self._marked())
        # If nova-compute is down, Nova deletes only its record of the server, and the guest keeps running.
        guest = self._guests.find().get(key)
        if guest is not None and not guest.is_off and guest.uuid in self._orphans:
            raise ServiceUnavailable(f"process {key}: server {guest.uuid} is deleted, its guest does not end")

    def discard(self, saved: str) -> None:
        # A server from which a process was resumed is no longer in stage SAVED, and stays.
        try:
            if self._nova.show(saved).stage is Stage.SAVED:
                self._nova.delete(saved)
        except (NotFound, InvalidInput) as error:
            LOG.debug("server %s: %s", saved, error)

    def _known(self, key: Key) -> tuple[Server, Guest | None]:
        server = self._view.servers.get(key)
        if server is None:
            raise NotFound(f"no process {key} on this host")
        return server, self._marked().get(server.uuid)

    @staticmethod
    def _pause(length_s: float) -> None:
        threading.Event().wait(length_s)

    # Moves ----------------------------------------------------------------------------------------------------------

    def save(self, key: Key) -> None:
        # The server is only paused: its memory stays on this host.
        server, guest = self._known(key)
        if guest is None or guest.is_off or server.stage is not Stage.RUN or server.task:
            return  # the next poll shows its state
        if self._listed_at <= self._acted_at.get(server.uuid, float("-inf")):
            return  # the servers were not read since the last request to Nova
        self._busy.add(server.uuid)
        self._acted_at[server.uuid] = self._steady()
        if server.status != _PAUSED:
            self._nova.pause(server.uuid)
        elif guest.state == libvirt.VIR_DOMAIN_PAUSED:
            self._guests.release(guest)
            self._nova.set_stage(server.uuid, Stage.SAVED)
            LOG.info("process %s: saved in server %s", key, server.uuid)

    def leave(self, key: Key) -> None:
        # Its server exists until it is resumed.
        server = self._view.servers.get(key)
        if server is not None:
            self._left.add(server.uuid)
            self._busy.discard(server.uuid)

    def _sweep(self, server: Server) -> None:
        changed = datetime.fromisoformat(server.updated.replace("Z", "+00:00"))
        if self._clock() - changed.timestamp() > self._times.keep_saved_s:
            LOG.warning("process %s: server %s is deleted, as it was not resumed", server.about.key, server.uuid)
            self._nova.delete(server.uuid)

    def _adopt(self, spec: ProcessSpec, about: ProcessDomain) -> None:
        try:
            server = self._nova.show(spec.saved)
        except NotFound as error:
            raise Conflict(f"the server in which it was saved is gone: {error}") from error
        if server.stage is not Stage.SAVED or server.about.key.gang != spec.key.gang:
            raise Conflict(f"server {server.uuid} does not hold its saved state")
        self._left.discard(server.uuid)
        self._tiers.pop(server.uuid, None)
        self._nova.adopt(server.uuid, about)

    def _arrive(self, server: Server, guest: Guest | None) -> None:
        """Move a paused server to this host and resume it, one step per check."""
        if server.task:
            return
        if server.host != self._nova.home:
            if server.stage is Stage.ARRIVING:
                self._nova.set_stage(server.uuid, Stage.MOVING)
                self._nova.fetch(server.uuid)
            return
        about = server.about
        if guest is None or guest.about.key != about.key:
            before_s = 0.0
            if guest is not None and server.stage is Stage.ARRIVING:  # the same guest resumes on the same host
                before_s = self._guests.cpu_time_s(guest)
            self._guests.mark(server.uuid, replace(about, before_s=before_s))
        elif server.status == _PAUSED and guest.state == libvirt.VIR_DOMAIN_PAUSED:
            tier = self._tiers.get(server.uuid, about.tier)
            self._guests.place(guest.domain, replace(guest.about, tier=tier))
            self._nova.unpause(server.uuid)
        elif server.status == "ACTIVE":
            self._nova.set_stage(server.uuid, Stage.RUN)
            LOG.info("process %s: resumed in server %s", about.key, server.uuid)


def _runs(guest: Guest | None) -> bool:
    return guest is not None and not guest.is_off
