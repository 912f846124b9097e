"""The tiers service of an agent: it keeps the guests of a host in their tiers and changes tiers while they run.

The desired state is derived from the hypervisor, from `layout.Book`, and from the allocations in Placement; an event
only triggers a comparison.  So guests keep running if the agent is killed at any moment, and the next agent puts them
into their tiers.  `TierEndpoint` implements the calls about tiers of `rpc.agent_api`.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fpga_pool.drivers.tiers.domain import TierDriver, TieredGuest
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.flavor import GuestTier, Tier
from fpga_pool.rpc.transport import TARGET, Context, answers
from fpga_pool.services.agent.tiers.layout import Book, Entry, Place, find_pcpus, rearranged
from fpga_pool.services.loop import Loop

if TYPE_CHECKING:
    from fpga_pool.placement.tiers import TierAccounts

# ---- Usage of pCPUs

#: Shortest interval of measurements; before it has passed, the last usage stays valid.
SHORTEST_S = 1.0
#: Key of the host's pCPUs, in place of a guest.
_PCPUS = ""


class UsageMeter:
    """Keeps the last measurement of each guest and of the pCPUs; one thread measures, any thread may read."""

    def __init__(self, pcpus: Collection[int] = (), now_s: Callable[[], float] = time.monotonic) -> None:
        self._pcpus = tuple(sorted(pcpus))
        self._now_s = now_s
        self._last: dict[str, tuple[float, tuple[float, ...]]] = {}
        self._usage: dict[str, tuple[float, ...]] = {}

    def measure(self, driver: TierDriver, instances: Iterable[str]) -> None:
        """Measure these guests and the pCPUs, and forget all other guests."""
        reads = {instance: partial(driver.cpu_times_s, instance) for instance in instances}
        reads[_PCPUS] = partial(driver.busy_times_s, self._pcpus)
        last: dict[str, tuple[float, tuple[float, ...]]] = {}
        usage: dict[str, tuple[float, ...]] = {}
        for instance, read in reads.items():
            then = self._last.get(instance)
            if then is not None and self._now_s() - then[0] < SHORTEST_S:
                last[instance], usage[instance] = then, self.usage(instance)
                continue
            try:
                now = self._now_s(), read()
            except FpgaPoolError:  # the guest is about to end, or its driver reports the problem elsewhere
                continue
            last[instance] = now
            if then is not None and len(then[1]) == len(now[1]):
                length_s = now[0] - then[0]
                usage[instance] = tuple(
                    min(1.0, max(0.0, after_s - before_s) / length_s)
                    for before_s, after_s in zip(then[1], now[1], strict=True)
                )
        self._last, self._usage = last, usage

    def usage(self, instance: str) -> tuple[float, ...]:
        """Return the share of its pCPU that each vCPU used, 0 to 1; empty if that is not known."""
        return self._usage.get(instance, ())

    def in_use(self) -> dict[int, float]:
        """Return the share of each pCPU that was in use for any purpose, 0 to 1; empty if that is not known."""
        return dict(zip(self._pcpus, self.usage(_PCPUS), strict=False))


LOG = logging.getLogger(__name__)


# ---- Tiers

#: How long a guest that does not run, e.g. because it reboots, keeps its pCPUs if its allocation is not known.
FORGET_S = 600.0
#: Interval at which the reservation of background pCPUs in Placement is updated.
RESERVE_S = 60.0


class Tiers:
    """The tiers of one host.  `start` and `stop` are called once each."""

    def __init__(
        self,
        driver: TierDriver,
        pcpus: Collection[int],
        book: Path,
        accounts: "TierAccounts | None" = None,
        interval_s: float = 5.0,
        *,
        usage_threshold: float,
    ) -> None:
        """Create the service; a pCPU whose usage is at least `usage_threshold` gets no background (1 = any may)."""
        self._driver = driver
        self._usage_threshold = usage_threshold
        #: Number of background pCPUs that are reserved in Placement, and the time of the last update.
        self._reserved, self._reserved_at = 0, float("-inf")
        self._pcpus = frozenset(pcpus)
        self._accounts = accounts
        self._book = Book(book)
        #: Held while the book or a guest is changed, but not while guests are observed, so that swaps need not wait.
        self._lock = threading.Lock()
        #: Number of changes of tiers so far.
        self._changes = 0
        self._guests: dict[str, TieredGuest] = {}
        self._meter = UsageMeter(pcpus)
        self._complaints: dict[str, str] = {}
        self._inspecting = Loop("tiers", self._inspect, interval_s)

    def start(self) -> None:
        """Put every guest into its tier, repair what an earlier agent left unfinished, and then follow the guests."""
        self._inspecting.start()
        self._driver.watch(lambda _: self._inspecting.wake())

    def stop(self) -> None:
        """Stop; guests stay in their tiers."""
        self._inspecting.stop()
        self._driver.close()

    # Requests -----------------------------------------------------------------------------------------------------

    def guests(self) -> list[GuestTier]:
        """Return the guests that are in a tier."""
        in_use = self._meter.in_use()
        with self._lock:
            entries = self._book.entries()
            return [
                GuestTier(
                    instance=instance,
                    name=guest.name,
                    wanted=guest.wanted,
                    tier=entries[instance].place.tier,
                    pcpus=entries[instance].place.pcpus,
                    usage=self._meter.usage(instance),
                    pcpu_usage=tuple(in_use[pcpu] for pcpu in entries[instance].place.pcpus if pcpu in in_use),
                    may_migrate=guest.may_migrate,
                )
                for instance, guest in self._guests.items()
                if instance in entries
            ]

    def set_tiers(self, tiers: Mapping[str, Tier]) -> None:
        """Change the tiers of running guests, all at once; two guests that swap stay on their pCPUs.

        Raises NotFound for a guest that is in no tier here, and Conflict if there is no room, in Placement or on the
        pCPUs. Nothing is changed then.
        """
        with self._lock:
            entries = self._book.entries()
            for instance, tier in tiers.items():
                if instance not in entries or instance not in self._guests:
                    raise NotFound(f"guest {instance}: is not in a tier of this host")
                if tier == Tier.AUTO:
                    raise InvalidInput("tier: auto is only a preference; expected foreground or background")
            self._change({each: tier for each, tier in tiers.items() if entries[each].place.tier != tier})

    def swap(self, first: str, second: str) -> None:
        """Exchange the tiers of two guests."""
        with self._lock:
            entries = self._book.entries()
        try:
            tiers = {first: entries[second].place.tier, second: entries[first].place.tier}
        except KeyError as error:
            raise NotFound(f"guest {error.args[0]}: is not in a tier of this host") from None
        self.set_tiers(tiers)

    def _change(self, tiers: Mapping[str, Tier]) -> None:
        """Change tiers in Placement, in the book and of the guests, in this order, as Placement has the final say."""
        if not tiers:
            return
        self._changes += 1
        entries = self._book.entries()
        places = {instance: entry.place for instance, entry in entries.items()}
        new = rearranged(places, tiers, self._pcpus, self._use())
        if self._accounts is not None:
            if self._reserved and Tier.BACKGROUND in tiers.values():  # it must not block guests of this host
                self._accounts.sync()
                self._reserved, self._reserved_at = 0, time.monotonic()
            self._accounts.exchange(tiers)
        self._book.write(entries | {each: replace(entries[each], place=place) for each, place in new.items()})
        staying = {each: place.tier for each, place in new.items() if place.pcpus == places[each].pcpus}
        self._driver.set_tiers(staying)
        for instance, place in new.items():
            if instance not in staying:
                self._driver.place(instance, place.tier, place.pcpus)

    # Reconciliation -------------------------------------------------------------------------------------------------

    def _inspect(self) -> bool:
        changes = self._changes
        guests = {guest.instance: guest for guest in self._driver.guests()}
        self._meter.measure(self._driver, guests)
        allocated = self._allocated()
        with self._lock:
            if changes != self._changes:
                return True  # the observations are outdated
            self._guests = guests
            self._forget(allocated)
            self._follow(allocated or {})
            for guest in guests.values():
                self._attempt(guest, allocated or {})
            for guest in guests.values():
                if self._accounts is None or guest.instance in (allocated or ()):
                    self._raise(guest)
        return False

    def _allocated(self) -> Mapping[str, Tier] | None:
        """Return the allocations in Placement; None if Placement is not configured or does not answer."""
        if self._accounts is None:
            return None
        if time.monotonic() - self._reserved_at >= RESERVE_S:
            self._reserved, self._reserved_at = self._crowded(), time.monotonic()
        try:
            self._accounts.sync(self._reserved)
            found = self._accounts.tiers()
        except FpgaPoolError as error:
            self._complain("Placement", f"tiers: {error}")
            return None
        self._complaints.pop("Placement", None)
        return found

    def _forget(self, allocated: Mapping[str, Tier] | None) -> None:
        """Remove guests that have ended from the book, so that others can get their pCPUs."""
        now_s, entries = time.time(), self._book.entries()
        kept = {}
        for instance, entry in entries.items():
            if instance in self._guests:
                stale = now_s - entry.seen_s > FORGET_S / 10
                kept[instance] = replace(entry, seen_s=now_s) if stale else entry
            elif instance in allocated if allocated is not None else now_s - entry.seen_s < FORGET_S:
                kept[instance] = entry
            else:
                LOG.info("guest %s: has ended; its pCPUs are free", instance)
        if kept != entries:
            self._book.write(kept)

    def _follow(self, allocated: Mapping[str, Tier]) -> None:
        """Record exchanges that were made in Placement by an agent that ended before it could record them."""
        entries = self._book.entries()
        places = {instance: entry.place for instance, entry in entries.items()}
        tiers = {
            each: allocated[each] for each, place in places.items() if allocated.get(each, place.tier) != place.tier
        }
        if not tiers:
            return
        try:
            new = rearranged(places, tiers, self._pcpus, self._use())
        except Conflict as error:
            self._complain("Placement", f"tiers: the allocations in Placement do not fit: {error}")
            return
        self._book.write(entries | {each: replace(entries[each], place=place) for each, place in new.items()})

    def _attempt(self, guest: TieredGuest, allocated: Mapping[str, Tier]) -> None:
        """Move a guest to its place, unless it is already there."""
        try:
            if guest.wanted is None:
                self._release(guest)
                return
            place = self._place_of(guest, allocated)
            if (guest.tier, guest.pcpus) != (place.tier, place.pcpus):
                self._driver.place(guest.instance, place.tier, place.pcpus)
        except NotFound as error:
            LOG.debug("%s", error)  # ended meanwhile
        except FpgaPoolError as error:
            self._complain(guest.instance, f"guest {guest.name}: not changed: {error}")
        else:
            self._complaints.pop(guest.instance, None)

    def _release(self, guest: TieredGuest) -> None:
        """Restore the state of a guest from before it had a tier, because it does not request one (any more)."""
        self._driver.release(guest.instance)
        self._book.write({each: entry for each, entry in self._book.entries().items() if each != guest.instance})

    def _place_of(self, guest: TieredGuest, allocated: Mapping[str, Tier]) -> Place:
        """Return the place of a guest; its tier is that of the book, else of Placement, else the requested one."""
        entries = self._book.entries()
        entry = entries.get(guest.instance)
        tier: Tier = Tier.FOREGROUND if guest.wanted == Tier.FOREGROUND else Tier.BACKGROUND
        tier = allocated.get(guest.instance, tier) if entry is None else entry.place.tier
        others = {each: other.place for each, other in entries.items() if each != guest.instance}
        if entry is not None and entry.place.tier == tier and self._is_good(entry.place, guest, others.values()):
            return entry.place
        old = () if entry is None else entry.place.pcpus
        try:
            pcpus = find_pcpus(tier, guest.vcpus, self._pcpus, others.values(), self._use(), preferred=old)
        except Conflict:  # guests that do not run now get other pCPUs when they return
            running = [place for each, place in others.items() if each in self._guests]
            pcpus = find_pcpus(tier, guest.vcpus, self._pcpus, running, self._use(), preferred=old)
        place = Place(tier, pcpus)
        self._book.write(entries | {guest.instance: Entry(place=place, seen_s=time.time())})
        return place

    def _is_good(self, place: Place, guest: TieredGuest, others: Collection[Place]) -> bool:
        """Return whether a place is still available."""
        return (
            len(place.pcpus) == guest.vcpus
            and set(place.pcpus) <= self._pcpus
            and not any(other.tier == place.tier and set(other.pcpus) & set(place.pcpus) for other in others)
        )

    def _raise(self, guest: TieredGuest) -> None:
        """Move a guest that requests tier `auto` to the foreground, if there is room for all its vCPUs."""
        entry = self._book.entries().get(guest.instance)
        if guest.wanted != Tier.AUTO or entry is None or entry.place.tier == Tier.FOREGROUND:
            return
        try:
            self._change({guest.instance: Tier.FOREGROUND})
        except Conflict as error:
            LOG.debug("guest %s: stays in the background: %s", guest.name, error)
        except FpgaPoolError as error:
            LOG.warning("guest %s: stays in the background: %s", guest.name, error)

    def _use(self) -> dict[tuple[Tier, int], float]:
        """Return the measured usage of each pCPU by the guest of each tier, by tier and pCPU."""
        found = {}
        for instance, entry in self._book.entries().items():
            for pcpu, share in zip(entry.place.pcpus, self._meter.usage(instance), strict=False):
                found[entry.place.tier, pcpu] = share
        return found

    def _crowded(self) -> int:
        """Return the number of pCPUs with only a foreground whose usage reaches the threshold (section 2.1)."""
        if self._usage_threshold >= 1:
            return 0
        in_use, places = self._meter.in_use(), [entry.place for entry in self._book.entries().values()]
        taken = {tier: {pcpu for place in places if place.tier == tier for pcpu in place.pcpus} for tier in Tier}
        alone = taken[Tier.FOREGROUND] - taken[Tier.BACKGROUND]
        return sum(in_use.get(pcpu, 0.0) >= self._usage_threshold for pcpu in alone)

    def _complain(self, about: str, complaint: str) -> None:
        """Log new problems; the operations are retried at every check."""
        if self._complaints.get(about) != complaint:
            LOG.warning("%s", complaint)
        self._complaints[about] = complaint


# ---- RPC


class TierEndpoint:
    """Lists tiers, and changes them."""

    target = TARGET

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    @answers
    def tiers(self, context: Context) -> list[GuestTier]:
        return self._tiers.guests()

    @answers
    def set_tiers(self, context: Context, tiers: dict[str, Tier]) -> None:
        self._tiers.set_tiers(tiers)
