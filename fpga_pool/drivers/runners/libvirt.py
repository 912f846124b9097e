"""Processes of gangs that are guests of libvirt, each on its pCPU, in the tier that the tier driver gives it.

A guest says that its work is done by powering off; one that ends otherwise has died.  Its domain is ours by its
metadata, which say which process it is, and is made persistent once it runs, so that libvirt remembers how it ended.
A process goes on elsewhere from its memory, saved in a directory that hosts share.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.runners.base import Key, Phase, ProcessSpec, Runner, Running
from fpga_pool.drivers.runners.domain import Machine, ProcessDomain, moved_domain, new_domain
from fpga_pool.drivers.runners.images import SavedMemory, find_image
from fpga_pool.drivers.runners.meter import Meter
from fpga_pool.drivers.tiers.cgroups import foreground_shares
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.drivers.tiers.metadata import PROCESS_URI
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

LOG = logging.getLogger(__name__)

#: For its other statistics, that of CPU time among them, libvirt asks QEMU: one of the background may not answer soon.
_STATS = libvirt.VIR_DOMAIN_STATS_STATE
_NOWAIT = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
#: States of a domain that does not run.
_OFF = (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED)
_ENDS = {
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "its guest was destroyed",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "its guest crashed",
    libvirt.VIR_DOMAIN_SHUTOFF_FAILED: "its guest did not start",
}
#: Errors of these domains are libvirt's, not the guest's.
_LOST = (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE)
#: What libvirt may keep of a domain: what of it is left makes it refuse to forget the domain.
_WITH_ALL = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
_NS_PER_S = 1e9
#: How often tiers that were read are read again, and how often old saved memories are looked for.
REREAD_S, SWEEP_S = 5.0, 600.0
#: How long a save may take to see that its guest was destroyed, and libvirt to see that a guest has ended.
SAVE_END_S, END_SEEN_S = 60.0, 2.0


@dataclass(slots=True)
class _Guest:
    """One domain of ours, as read."""

    domain: Any
    about: ProcessDomain
    state: int
    reason: int
    cpu_s: float

    @property
    def is_off(self) -> bool:
        return self.state in _OFF


class LibvirtRunner(Runner):
    """The processes of gangs of one libvirtd."""

    def __init__(
        self,
        uri: str,
        tiers: LibvirtTiers,
        machine: Machine,
        saved: SavedMemory,
        images: Path,
        default_image: str,
        clock: Callable[[], float],
    ) -> None:
        self._libvirt = LibvirtConnection(uri)
        self._tiers = tiers
        self._machine = machine
        self._saved = saved
        self._images, self._default_image = images, default_image
        self._clock = clock
        #: What domains are, by uuid and number of their start; None = not ours.
        self._abouts: dict[tuple[str, int], ProcessDomain | None] = {}
        self._meters: dict[Key, Meter] = {}
        self._cpu_s: dict[Key, float] = {}
        #: The tier of each guest by uuid, as given or read, and when it was read.
        self._tier_of: dict[str, Tier | None] = {}
        self._read_at = self._swept_at = float("-inf")
        #: Guests that are being saved, and why that has failed, if it has.
        self._saving: dict[Key, threading.Thread] = {}
        self._unsaved: dict[Key, str] = {}

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:  # noqa: ARG003
        """See Runner."""
        group = conf.runner_libvirt
        directories = {name: Path(getattr(group, name)) for name in ("images", "saved", "consoles")}
        for name, directory in directories.items():
            if getattr(group, name) and not directory.is_dir():
                raise InvalidInput(f"[runner_libvirt] {name}: {directory} is no directory")
        if not os.access(directories["saved"], os.W_OK):
            raise InvalidInput(f"[runner_libvirt] saved: {directories['saved']} cannot be written")
        uri = conf.agent.libvirt_uri
        machine = Machine(
            virt_type=group.virt_type,
            memory_mib=group.memory_mib,
            cpu_model=group.cpu_model,
            bridge=group.bridge,
            start_shares=foreground_shares(),
            consoles=directories["consoles"] if group.consoles else None,
        )
        tiers = LibvirtTiers(uri, Path(conf.tiers.libvirt_pid_dir), of_gangs=True)
        saved = SavedMemory(directories["saved"], group.keep_saved_s)
        return cls(uri, tiers, machine, saved, directories["images"], group.default_image, clock)

    # What is --------------------------------------------------------------------------------------------------------

    def observe(self) -> dict[Key, Running]:
        """See Runner."""
        now_s = self._clock()
        if now_s - self._swept_at > SWEEP_S:
            self._swept_at = now_s
            for name in self._saved.sweep():
                LOG.warning("saved memory %s: removed, nobody went on from it", name)
        guests = self._guests()
        if now_s - self._read_at > REREAD_S:
            self._read_at = now_s
            self._tier_of = {guest.instance: guest.tier for guest in self._tiers.guests()}
        return {key: self._running(guest, now_s) for key, guest in guests.items()}

    def _guests(self) -> dict[Key, _Guest]:
        found = {}
        abouts: dict[tuple[str, int], ProcessDomain | None] = {}
        for domain, stats in self._libvirt.call(lambda made: made.getAllDomainStats(_STATS, _NOWAIT)):
            run = domain.UUIDString(), domain.ID()
            try:
                about = abouts[run] = self._abouts[run] if run in self._abouts else self._about(domain)
            except NotFound:
                continue
            except InvalidInput as error:
                LOG.warning("domain %s is left alone: %s", domain.name(), error)
                about = abouts[run] = None
            if about is not None:
                state = stats.get("state.state", libvirt.VIR_DOMAIN_NOSTATE)
                cpu_s = 0.0 if state in _OFF else self._cpu_time_s(domain)
                found[about.key] = _Guest(domain, about, state, stats.get("state.reason", 0), cpu_s)
        self._abouts = abouts
        for memory in (self._meters, self._cpu_s, self._unsaved):
            for key in memory.keys() - found.keys():
                del memory[key]
        return found

    def _cpu_time_s(self, domain: Any) -> float:
        """Return the CPU time of a guest, of its control group; 0 if it has just ended."""
        try:
            return float(self._asked(lambda _: domain.getCPUStats(True))[0]["cpu_time"]) / _NS_PER_S
        except (NotFound, Conflict):
            return 0.0

    def _about(self, domain: Any) -> ProcessDomain | None:
        """Return what a domain says of itself; None if it is not ours, NotFound if it is gone."""

        def read(_: object) -> str | None:
            try:
                return str(domain.metadata(_ELEMENT, PROCESS_URI, 0))
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                    return None
                raise

        xml = self._libvirt.call(read)
        return None if xml is None else ProcessDomain.from_element(xml)

    def _running(self, guest: _Guest, now_s: float) -> Running:
        key, about = guest.about.key, guest.about
        phase, reason = self._phase(guest)
        if not guest.is_off:
            self._cpu_s[key] = max(guest.cpu_s, self._cpu_s.get(key, 0.0))
        cpu_s = self._cpu_s.get(key, 0.0)
        progress = self._meters.setdefault(key, Meter()).look(about.carried_s + cpu_s / about.cpu_usage, now_s)
        uuid = guest.domain.UUIDString()
        if not guest.is_off and uuid not in self._tier_of:
            self._read_at = float("-inf")  # it is new to this agent
        return Running(
            phase=phase,
            processor=about.processor,
            tier=about.tier if guest.is_off else self._tier_of.get(uuid, about.tier),
            done_s=progress.done_s if phase is Phase.RUNNING else about.carried_s + cpu_s / about.cpu_usage,
            rate=progress.rate if phase is Phase.RUNNING else 0.0,
            progress_at=progress.at if phase is Phase.RUNNING else now_s,
            cpu_s=cpu_s,
            saved=str(key) if phase is Phase.SAVED else "",
            reason=reason,
        )

    def _phase(self, guest: _Guest) -> tuple[Phase, str]:
        """Return what a guest does, and why it has failed if it has."""
        key = guest.about.key
        saving = self._saving.get(key)
        if saving is not None and saving.is_alive():
            return Phase.SAVING, ""
        if not guest.is_off:
            self._saving.pop(key, None)
            if key in self._unsaved:
                return Phase.FAILED, f"its memory cannot be saved: {self._unsaved[key]}"
            paused = guest.state == libvirt.VIR_DOMAIN_PAUSED
            by_former_agent = paused and guest.reason == libvirt.VIR_DOMAIN_PAUSED_SAVE
            return Phase.SAVING if by_former_agent else Phase.RUNNING, ""
        if self._is_whole(key):
            return Phase.SAVED, ""
        if guest.reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN:
            return Phase.EXITED, ""
        return Phase.FAILED, _ENDS.get(guest.reason, f"its guest has ended, libvirt does not know how ({guest.reason})")

    def _is_whole(self, key: Key) -> bool:
        """Say whether there is a saved memory of a process, all of it: libvirt marks it as such at the end."""
        file = self._saved.file(str(key))
        if not file.exists():
            return False
        try:
            self._asked(lambda made: made.saveImageGetXMLDesc(str(file)))
        except Conflict:
            return False
        return True

    # What is to be --------------------------------------------------------------------------------------------------

    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        """See Runner."""
        guests = self._guests()
        about = ProcessDomain.launched(spec, processor, tier)
        if spec.key in guests:
            self._settle(guests[spec.key].domain, about)
            return
        for other in guests.values():
            place = other.about.processor, self._tier_of.get(other.domain.UUIDString(), other.about.tier)
            if not other.is_off and place == (processor, tier):
                raise Conflict(f"processor {processor}: process {other.about.key} is in its {tier}")
        self._unsaved.pop(spec.key, None)
        if spec.saved:
            file = str(self._saved.file(spec.saved))
            saved = self._asked(lambda made: made.saveImageGetXMLDesc(file))
            uuid, description = moved_domain(saved, about, self._machine)
            self._asked(lambda made: made.restoreFlags(file, description, 0))
            domain = self._asked(lambda made: made.lookupByUUIDString(uuid))
        else:
            image = find_image(self._images, spec.image or self._default_image)
            description = new_domain(spec, about, image, self._machine)
            domain = self._asked(lambda made: made.createXML(description))
        self._settle(domain, about)

    def _settle(self, domain: Any, about: ProcessDomain) -> None:
        """Give a guest that was started its place, and have libvirt remember it when it has ended."""
        uuid = domain.UUIDString()
        if not self._asked(lambda _: domain.isPersistent()):
            self._asked(lambda made: made.defineXML(domain.XMLDesc(_INACTIVE)))
        try:
            self._tiers.place(uuid, about.tier, [about.processor])
        except NotFound as error:
            if not self._ends(domain):
                raise Conflict(str(error)) from error
            LOG.info("process %s: ended at once", about.key)
            return
        self._tier_of[uuid] = about.tier

    def _ends(self, domain: Any) -> bool:
        """Say whether a guest of which something is missing has ended; libvirt may see that a little later."""
        until_s = time.monotonic() + END_SEEN_S
        try:
            while self._asked(lambda _: domain.isActive()):
                if time.monotonic() > until_s:
                    return False
                time.sleep(END_SEEN_S / 20)
        except NotFound:
            LOG.debug("domain %s: gone", domain.name())
        return True

    def set_tier(self, key: Key, tier: Tier) -> None:
        """See Runner."""
        guest = self._known(key)
        uuid = guest.domain.UUIDString()
        if guest.is_off:
            return
        if self._tier_of.get(uuid) is None:  # a former agent was killed before it had its place, or all of it
            self._settle(guest.domain, replace(guest.about, tier=tier))
            return
        self._tiers.set_tiers({uuid: tier})
        self._tier_of[uuid] = tier

    def save(self, key: Key) -> None:
        """See Runner.  libvirt goes on saving when this process is killed."""
        guest = self._known(key)
        if guest.is_off or key in self._saving or self._phase(guest)[0] is not Phase.RUNNING:
            return
        thread = threading.Thread(target=self._save, args=[key, guest.domain], name=f"save-{key}", daemon=True)
        self._saving[key] = thread
        thread.start()

    def _save(self, key: Key, domain: Any) -> None:
        file = self._saved.file(str(key))
        try:
            self._asked(lambda _: domain.saveFlags(str(file), None, 0))
            LOG.info("process %s: saved", key)
        except (Conflict, ServiceUnavailable, NotFound) as error:
            LOG.warning("process %s: not saved: %s", key, error)
            self._unsaved[key] = str(error)

    def end(self, key: Key) -> None:
        """See Runner."""
        self._remove(key)
        self._saved.remove(str(key))

    def leave(self, key: Key) -> None:
        """See Runner."""
        self._remove(key)

    def discard(self, saved: str) -> None:
        """See Runner."""
        self._saved.remove(saved)

    def _remove(self, key: Key) -> None:
        guest = self._guests().get(key)
        if guest is not None:
            uuid = guest.domain.UUIDString()
            if not guest.is_off:
                self._gone(guest.domain.destroy)
            self._gone(lambda: guest.domain.undefineFlags(_WITH_ALL))
            self._tier_of.pop(uuid, None)
        thread = self._saving.get(key)
        if thread is not None:
            thread.join(SAVE_END_S)
            if thread.is_alive():
                raise ServiceUnavailable(f"process {key}: its guest is destroyed, to save it does not end")
            self._saving.pop(key, None)
        if key in self._guests():
            raise ServiceUnavailable(f"process {key}: its guest does not end")

    def _gone(self, act: Callable[[], object]) -> None:
        """Do what is not possible any more where it is done already."""
        with contextlib.suppress(NotFound, Conflict):
            self._asked(lambda _: act())

    def _known(self, key: Key) -> _Guest:
        guest = self._guests().get(key)
        if guest is None:
            raise NotFound(f"no process {key} on this host")
        return guest

    def _asked(self, work: Callable[[Any], Any]) -> Any:
        """Do something with libvirt; Conflict where it cannot be done, ServiceUnavailable where nobody answers."""
        try:
            return self._libvirt.call(work)
        except ServiceUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, libvirt.libvirtError) and cause.get_error_domain() not in _LOST:
                raise Conflict(str(cause)) from error
            raise
