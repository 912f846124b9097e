"""The domains of a host that are gang processes, whichever program started them: their state and tier.

Metadata in a domain identify the process.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import libvirt

from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.runners.domain import Meter, ProcessDomain
from fpga_pool.drivers.tiers.domain import PROCESS_URI
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.model.agent.gang_process import Key, Phase, Running
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

LOG = logging.getLogger(__name__)

#: Only states are read: for others, such as CPU time, libvirt asks QEMU, which may respond late in the background.
_STATS = libvirt.VIR_DOMAIN_STATS_STATE
_NOWAIT = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
#: States of a domain that has ended.
_OFF = (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED)
_ENDS = {
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "its guest was destroyed",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "its guest crashed",
    libvirt.VIR_DOMAIN_SHUTOFF_FAILED: "its guest did not start",
}
#: Error domains of failures of the connection to libvirt, not of a guest.
_LOST = (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE)
_NS_PER_S = 1e9
#: Interval between reads of the guests' tiers, in seconds.
REREAD_S = 5.0
#: Time that libvirt may take to notice that a guest has ended, in seconds.
END_SEEN_S = 2.0


@dataclass(slots=True)
class Guest:
    """One domain that is a gang process, as last read."""

    domain: Any
    about: ProcessDomain
    state: int
    reason: int
    cpu_s: float

    @property
    def uuid(self) -> str:
        """The uuid of the domain."""
        return str(self.domain.UUIDString())

    @property
    def is_off(self) -> bool:
        """Whether the domain has ended."""
        return self.state in _OFF

    def is_paused(self, reason: int) -> bool:
        """Return whether the domain is paused for this reason."""
        return self.state == libvirt.VIR_DOMAIN_PAUSED and self.reason == reason

    @property
    def end(self) -> tuple[Phase, str]:
        """The final phase of a domain that has ended, and the reason if it has failed."""
        if self.reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN:
            return Phase.EXITED, ""
        return Phase.FAILED, _ENDS.get(self.reason, f"its guest has ended for an unknown reason ({self.reason})")


class ProcessGuests:
    """The gang processes that are guests of one libvirtd. Not thread-safe."""

    def __init__(self, connection: LibvirtConnection, tiers: LibvirtTiers) -> None:
        self._libvirt = connection
        self._tiers = tiers
        #: Metadata of domains by uuid and libvirt ID, which is new at each start; None = not a gang process.
        self._abouts: dict[tuple[str, int], ProcessDomain | None] = {}
        self._meters: dict[Key, Meter] = {}
        self._cpu_s: dict[Key, float] = {}
        #: The tier of each guest by uuid, as set or read, and when tiers were last read.
        self._tier_of: dict[str, Tier | None] = {}
        self._read_at = float("-inf")

    # Observed state -------------------------------------------------------------------------------------------------

    def find(self) -> dict[Key, Guest]:
        """Return all gang processes, including ended ones whose domain libvirt still has."""
        found = {}
        abouts: dict[tuple[str, int], ProcessDomain | None] = {}
        for domain, stats in self._libvirt.call(lambda made: made.getAllDomainStats(_STATS, _NOWAIT)):
            run = domain.UUIDString(), domain.ID()
            try:
                about = abouts[run] = self._abouts[run] if run in self._abouts else self._about(domain)
            except NotFound:
                continue
            except InvalidInput as error:
                LOG.warning("ignoring domain %s: %s", domain.name(), error)
                about = abouts[run] = None
            if about is not None:
                state = stats.get("state.state", libvirt.VIR_DOMAIN_NOSTATE)
                cpu_s = 0.0 if state in _OFF else self._cpu_time_s(domain)
                if 0.0 < cpu_s < about.before_s:  # it was rebooted in a new QEMU, whose count starts at 0
                    about = abouts[run] = replace(about, before_s=0.0)
                    self.mark(run[0], about)
                used_s = max(cpu_s - about.before_s, 0.0)
                found[about.key] = Guest(domain, about, state, stats.get("state.reason", 0), used_s)
        self._abouts = abouts
        for memory in (self._meters, self._cpu_s):
            for key in memory.keys() - found.keys():
                del memory[key]
        return found

    def _cpu_time_s(self, domain: Any) -> float:
        """Return the CPU time of a guest, from its control group; 0 if it has just ended."""
        try:
            return float(self.ask(lambda _: domain.getCPUStats(True))[0]["cpu_time"]) / _NS_PER_S
        except (NotFound, Conflict):
            return 0.0

    def _about(self, domain: Any) -> ProcessDomain | None:
        """Return the metadata of a domain; None if it is not a gang process. Raises NotFound if it is gone."""

        def read(_: object) -> str | None:
            try:
                return str(domain.metadata(_ELEMENT, PROCESS_URI, 0))
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                    return None
                raise

        xml = self._libvirt.call(read)
        return None if xml is None else ProcessDomain.from_element(xml)

    def read_tiers(self, now_s: float) -> None:
        """Read the tiers of all guests, if the last read is more than REREAD_S ago."""
        if now_s - self._read_at > REREAD_S:
            self._read_at = now_s
            self._tier_of = {guest.instance: guest.tier for guest in self._tiers.guests()}

    def tier(self, guest: Guest) -> Tier | None:
        """Return the last known tier of a guest, or the one it was launched in; None = it is in none yet."""
        return self._tier_of.get(guest.uuid, guest.about.tier)

    def running(self, guest: Guest, phase: Phase, reason: str, now_s: float, saved: str = "") -> Running:
        """Return the report of a process that is in the given phase."""
        key, about = guest.about.key, guest.about
        if not guest.is_off:
            self._cpu_s[key] = max(guest.cpu_s, self._cpu_s.get(key, 0.0))
        cpu_s = self._cpu_s.get(key, 0.0)
        progress = self._meters.setdefault(key, Meter()).measure(about.carried_s + cpu_s / about.cpu_usage, now_s)
        if not guest.is_off and guest.uuid not in self._tier_of:
            self._read_at = float("-inf")  # the guest is new to this agent: read tiers at the next call
        return Running(
            phase=phase,
            processor=about.processor,
            tier=about.tier if guest.is_off else self.tier(guest),
            done_s=progress.done_s if phase is Phase.RUNNING else about.carried_s + cpu_s / about.cpu_usage,
            rate=progress.rate if phase is Phase.RUNNING else 0.0,
            progress_at=progress.at if phase is Phase.RUNNING else now_s,
            cpu_s=cpu_s,
            saved=saved,
            reason=reason,
        )

    # Commands -------------------------------------------------------------------------------------------------------

    def mark(self, uuid: str, about: ProcessDomain) -> bool:
        """Mark a domain created by another program as a gang process; False if it does not exist yet."""
        try:
            domain = self._libvirt.lookup(uuid)
            active = libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.ID() >= 0 else 0
            element = ElementTree.tostring(about.to_element(), encoding="unicode")
            where = libvirt.VIR_DOMAIN_AFFECT_CONFIG | active
            self.ask(lambda _: domain.setMetadata(_ELEMENT, element, "fpga_pool_process", PROCESS_URI, where))
        except (NotFound, Conflict) as error:  # the domain is starting or ending: the caller retries
            LOG.debug("process %s: %s", about.key, error)
            return False
        self._abouts = {run: read for run, read in self._abouts.items() if run[0] != uuid}
        return True

    def cpu_time_s(self, guest: Guest) -> float:
        """Return the CPU time that a guest has used since it started, including the time as an earlier process."""
        return guest.cpu_s + guest.about.before_s

    def refuse_taken(self, guests: dict[Key, Guest], processor: int, tier: Tier) -> None:
        """Raise Conflict if a process that has not ended occupies this tier of the processor."""
        for other in guests.values():
            if not other.is_off and (other.about.processor, self.tier(other)) == (processor, tier):
                raise Conflict(f"processor {processor}: process {other.about.key} is in its {tier}")

    def place(self, domain: Any, about: ProcessDomain) -> None:
        """Pin a started guest and set its tier. Raises Conflict if it runs and cannot be placed."""
        uuid = domain.UUIDString()
        try:
            self._tiers.place(uuid, about.tier, [about.processor])
        except NotFound as error:
            if not self._ends(domain):
                raise Conflict(str(error)) from error
            LOG.info("process %s: ended immediately", about.key)
            return
        self._tier_of[uuid] = about.tier

    def _ends(self, domain: Any) -> bool:
        """Return whether a guest that could not be placed has ended; wait END_SEEN_S for libvirt to notice."""
        until_s = time.monotonic() + END_SEEN_S
        try:
            while self.ask(lambda _: domain.isActive()):
                if time.monotonic() > until_s:
                    return False
                time.sleep(END_SEEN_S / 20)
        except NotFound:
            LOG.debug("domain %s: gone", domain.name())
        return True

    def is_placed(self, guest: Guest) -> bool:
        """Return whether a guest is in a tier."""
        return self._tier_of.get(guest.uuid) is not None

    def change_tier(self, guest: Guest, tier: Tier) -> None:
        """Move a placed guest to another tier."""
        self._tiers.set_tiers({guest.uuid: tier})
        self._tier_of[guest.uuid] = tier

    def release(self, guest: Guest) -> None:
        """Restore the pins and the priority that a guest had before it was placed."""
        with contextlib.suppress(NotFound):
            self._tiers.release(guest.uuid)
        self._tier_of.pop(guest.uuid, None)

    def destroy(self, guest: Guest) -> None:
        """Destroy a guest immediately; ignored if it has ended or libvirt refuses."""
        self.gone(guest.domain.destroy)
        self.forget(guest.uuid)

    def forget(self, uuid: str) -> None:
        """Forget the tier of a guest that is gone."""
        self._tier_of.pop(uuid, None)

    def gone(self, act: Callable[[], object]) -> None:
        """Perform an action that fails if it was performed before; ignore that failure."""
        with contextlib.suppress(NotFound, Conflict):
            self.ask(lambda _: act())

    def ask(self, work: Callable[[Any], Any]) -> Any:
        """Call libvirt. Raises Conflict if it refuses, ServiceUnavailable if it does not respond."""
        try:
            return self._libvirt.call(work)
        except ServiceUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, libvirt.libvirtError) and cause.get_error_domain() not in _LOST:
                raise Conflict(str(cause)) from error
            raise
