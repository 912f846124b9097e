"""Processes of gangs as libvirt guests, each on its pCPU, in the tier that the tier driver assigns.

A guest powers off when its work is done; any other end is a failure.  Metadata in its domain identify the process.  The
domain is made persistent once it runs, so that libvirt remembers how it ended.  A process resumes on another host from
its memory, which is saved in a directory shared by the hosts.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.runners.domain import (
    Consoles,
    Machine,
    ProcessDomain,
    Runner,
    SavedMemory,
    find_image,
    moved_domain,
    new_domain,
)
from fpga_pool.drivers.runners.process_guests import Guest, ProcessGuests
from fpga_pool.drivers.tiers.cgroups import foreground_shares
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec, Running
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

LOG = logging.getLogger(__name__)

_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
#: Data that libvirt may keep with a domain and that must be removed with it, else it refuses to undefine the domain.
_WITH_ALL = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
#: Interval between removals of old saved memories and consoles, in seconds.
SWEEP_S = 600.0
#: Time within which a save in progress must end after its guest was destroyed, in seconds.
SAVE_END_S = 60.0


class LibvirtRunner(Runner):
    """The gang processes that are guests of one libvirtd."""

    def __init__(
        self,
        guests: ProcessGuests,
        machine: Machine,
        saved: SavedMemory,
        images: Path,
        default_image: str,
        clock: Callable[[], float],
    ) -> None:
        self._guests = guests
        self._machine = machine
        self._saved = saved
        self._images, self._default_image = images, default_image
        self._clock = clock
        self._swept_at = float("-inf")
        #: Threads that save guests, and reasons why saving failed, by process.
        self._saving: dict[Key, threading.Thread] = {}
        self._unsaved: dict[Key, str] = {}

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:  # noqa: ARG003
        group = conf.runner_libvirt
        directories = {name: Path(getattr(group, name)) for name in ("images", "saved", "consoles")}
        for name, directory in directories.items():
            if getattr(group, name) and not directory.is_dir():
                raise InvalidInput(f"[runner_libvirt] {name}: {directory} is not a directory")
        if not os.access(directories["saved"], os.W_OK):
            raise InvalidInput(f"[runner_libvirt] saved: {directories['saved']} is not writable")
        uri = conf.agent.libvirt_uri
        machine = Machine(
            virt_type=group.virt_type,
            memory_mib=group.memory_mib,
            cpu_model=group.cpu_model,
            bridge=group.bridge,
            start_shares=foreground_shares(),
            consoles=Consoles(directories["consoles"], group.keep_consoles_s) if group.consoles else None,
        )
        tiers = LibvirtTiers(uri, Path(conf.tiers.libvirt_pid_dir), of_gangs=True)
        saved = SavedMemory(directories["saved"], group.keep_saved_s)
        guests = ProcessGuests(LibvirtConnection(uri), tiers)
        return cls(guests, machine, saved, directories["images"], group.default_image, clock)

    # Observed state -------------------------------------------------------------------------------------------------

    def observe(self) -> dict[Key, Running]:
        now_s = self._clock()
        guests = self._find()
        if now_s - self._swept_at > SWEEP_S:
            self._swept_at = now_s
            self._sweep(guests)
        self._guests.read_tiers(now_s)
        return {key: self._running(guest, now_s) for key, guest in guests.items()}

    def _sweep(self, guests: Iterable[Key]) -> None:
        if self._machine.consoles is not None:
            try:
                swept = self._machine.consoles.sweep(guests)
            except OSError as error:
                LOG.warning("cannot remove old console files: %s", error)
            else:
                LOG.log(logging.INFO if swept else logging.DEBUG, "old consoles: removed %s", swept)
        for name in self._saved.sweep():
            LOG.warning("saved memory %s: removed, as no process was resumed from it in time", name)

    def _find(self) -> dict[Key, Guest]:
        found = self._guests.find()
        for key in self._unsaved.keys() - found.keys():
            del self._unsaved[key]
        return found

    def _running(self, guest: Guest, now_s: float) -> Running:
        phase, reason = self._phase(guest)
        saved = str(guest.about.key) if phase is Phase.SAVED else ""
        return self._guests.running(guest, phase, reason, now_s, saved)

    def _phase(self, guest: Guest) -> tuple[Phase, str]:
        """Return the phase of a guest, and the reason if it has failed."""
        key = guest.about.key
        saving = self._saving.get(key)
        if saving is not None and saving.is_alive():
            return Phase.SAVING, ""
        if not guest.is_off:
            self._saving.pop(key, None)
            if key in self._unsaved:
                return Phase.FAILED, f"its memory cannot be saved: {self._unsaved[key]}"
            by_former_agent = guest.is_paused(libvirt.VIR_DOMAIN_PAUSED_SAVE)
            return Phase.SAVING if by_former_agent else Phase.RUNNING, ""
        if self._is_whole(key):
            return Phase.SAVED, ""
        return guest.end

    def _is_whole(self, key: Key) -> bool:
        """Return whether a process has a completely saved memory, which libvirt marks at the end of a save."""
        file = self._saved.file(str(key))
        if not file.exists():
            return False
        try:
            self._guests.ask(lambda made: made.saveImageGetXMLDesc(str(file)))
        except Conflict:
            return False
        return True

    # Commands -------------------------------------------------------------------------------------------------------

    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        guests = self._find()
        about = ProcessDomain.launched(spec, processor, tier)
        if spec.key in guests:
            self._settle(guests[spec.key].domain, about)
            return
        self._guests.refuse_taken(guests, processor, tier)
        self._unsaved.pop(spec.key, None)
        if spec.saved:
            file = str(self._saved.file(spec.saved))
            saved = self._guests.ask(lambda made: made.saveImageGetXMLDesc(file))
            uuid, description = moved_domain(saved, about, self._machine)
            self._guests.ask(lambda made: made.restoreFlags(file, description, 0))
            domain = self._guests.ask(lambda made: made.lookupByUUIDString(uuid))
        else:
            image = find_image(self._images, spec.image or self._default_image)
            description = new_domain(spec, about, image, self._machine)
            domain = self._guests.ask(lambda made: made.createXML(description))
        self._settle(domain, about)

    def _settle(self, domain: Any, about: ProcessDomain) -> None:
        """Pin a started guest and make its domain persistent, so that libvirt remembers how it ended."""
        if not self._guests.ask(lambda _: domain.isPersistent()):
            self._guests.ask(lambda made: made.defineXML(domain.XMLDesc(_INACTIVE)))
        self._guests.place(domain, about)

    def set_tier(self, key: Key, tier: Tier) -> None:
        guest = self._known(key)
        if guest.is_off:
            return
        if not self._guests.is_placed(guest):  # a former agent was killed before it had placed the guest completely
            self._settle(guest.domain, replace(guest.about, tier=tier))
            return
        self._guests.change_tier(guest, tier)

    def save(self, key: Key) -> None:
        # libvirt completes the save even if this agent is killed.
        guest = self._known(key)
        if guest.is_off or key in self._saving or self._phase(guest)[0] is not Phase.RUNNING:
            return
        thread = threading.Thread(target=self._save, args=[key, guest.domain], name=f"save-{key}", daemon=True)
        self._saving[key] = thread
        thread.start()

    def _save(self, key: Key, domain: Any) -> None:
        file = self._saved.file(str(key))
        try:
            self._guests.ask(lambda _: domain.saveFlags(str(file), None, 0))
            LOG.info("process %s: saved", key)
        except (Conflict, ServiceUnavailable, NotFound) as error:
            LOG.warning("process %s: not saved: %s", key, error)
            self._unsaved[key] = str(error)

    def end(self, key: Key) -> None:
        self._remove(key)
        self._saved.remove(str(key))

    def leave(self, key: Key) -> None:
        self._remove(key)

    def discard(self, saved: str) -> None:
        self._saved.remove(saved)

    def _remove(self, key: Key) -> None:
        guest = self._find().get(key)
        if guest is not None:
            if not guest.is_off:
                self._guests.gone(guest.domain.destroy)
            self._guests.gone(lambda: guest.domain.undefineFlags(_WITH_ALL))
            self._guests.forget(guest.uuid)
        thread = self._saving.get(key)
        if thread is not None:
            thread.join(SAVE_END_S)
            if thread.is_alive():
                raise ServiceUnavailable(f"process {key}: its guest is destroyed, as saving it does not end")
            self._saving.pop(key, None)
        if key in self._find():
            raise ServiceUnavailable(f"process {key}: its guest does not end")

    def _known(self, key: Key) -> Guest:
        guest = self._find().get(key)
        if guest is None:
            raise NotFound(f"no process {key} on this host")
        return guest
