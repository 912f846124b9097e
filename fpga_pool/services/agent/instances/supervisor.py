"""Supervision of an instance's slots, from the hook's request before it starts until it ends, and of all taps."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from fpga_pool.drivers.egress.base import EgressDriver
from fpga_pool.drivers.guests.domain import Domain, GuestDriver
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, ServiceUnavailable
from fpga_pool.model.messages.agents import MOST_SERVERS, ObservedServer
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.agent.instances.channel import ChannelLimits, GuestChannel
from fpga_pool.services.agent.instances.slots import GuestUse, HoldTable
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)

#: Interval of checks of an instance without events.
POLL_S = 5.0
#: A machine that does not run this long after its start was allowed has failed to start.
START_S = 120.0

#: While the scheduler, or Placement behind it, does not answer, the claim of slots is repeated at this interval, for
#: this share of the time that a start may take.
CLAIM_AGAIN_S, CLAIM_SHARE = 1.0, 0.5


def _asking(patience_s: float) -> Retrying:
    """Return a decorator that, for `patience_s`, retries calls to services that do not respond."""
    return Retrying(
        retry=retry_if_exception_type((ServiceUnavailable, MessagingError)),
        wait=wait_fixed(CLAIM_AGAIN_S),
        stop=stop_after_delay(patience_s),
        reraise=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Components that the supervisors of all instances of a host share."""

    host: str
    agent_id: str
    scheduler: SchedulerAPI
    driver: GuestDriver
    holds: HoldTable
    #: By slot, the use of the slot by its guest.
    guests: dict[str, GuestUse]
    scratch: Path
    limits: ChannelLimits
    #: How long a start may wait for its slots.
    prepare_s: float


class InstanceSupervisor:
    """Follows one instance in its own thread.

    Actions follow from the current state of the hypervisor, not from its events: an event only triggers a check. No
    lock is held while the hypervisor is queried, as it does not answer about a machine whose start waits for the hook.
    """

    def __init__(self, instance: str, parts: Parts, on_end: Callable[[str], bool]) -> None:
        self.instance = instance
        self._parts = parts
        #: Returns whether this supervisor may end because nothing is left to do.
        self._on_end = on_end
        #: By slot, the PCI function through which guests drive it themselves; others are served by a channel.
        self._functions = {
            slot: guest.virtual_function for slot, guest in parts.guests.items() if guest.virtual_function
        }
        self._lock = threading.Lock()
        #: Number of starts; observations from before a start are not valid after it.
        self._starts = 0
        self._starting_until_s = 0.0
        #: Whether the machine runs, as far as is known, and whether the scheduler may have given it slots.
        self._runs = True
        self._claimed = True
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._channels: dict[int, GuestChannel] = {}
        #: Slots of the instance that are no longer on this host, e.g. because their card was removed.
        self._lost: list[str] = []
        #: Warnings that were logged since the instance was last seen with its slots.
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"instance-{instance}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check the instance now."""
        self._wake.set()

    def close(self) -> None:
        """Stop; the instance keeps its slots and its ports."""
        self._ending.set()
        self._wake.set()
        self._thread.join()
        self._close_channels()

    def begin(self) -> None:
        """Note that the machine is about to start, which invalidates earlier observations."""
        self._starts += 1
        self._starting_until_s = time.monotonic() + self._parts.prepare_s + START_S

    def prepare(self, domain: Domain) -> None:
        """Prepare the slots of an instance before it starts; raise an error with the reason if it must not start."""
        patience_s = self._parts.prepare_s
        with self._lock:
            try:
                if not self._functions:  # a machine without channels need not support them
                    self._parts.driver.check(domain)
                until_s = time.monotonic() + patience_s
                slots = _asking(patience_s * CLAIM_SHARE)(self._claim, domain)
                if self._functions and not self._functions.keys() >= set(slots):
                    self._parts.driver.check(domain)
                self._parts.holds.wait_ready(self.instance, slots, until_s - time.monotonic())
            except BaseException:
                self._starting_until_s = 0.0
                self._wake.set()  # to release the claimed slots
                raise
            self._starting_until_s = time.monotonic() + START_S
        LOG.info("instance %s: start allowed with %s", self.instance, ", ".join(slots))

    def ended(self) -> None:
        """Note that the machine has ended, or did not start."""
        self._starting_until_s = 0.0
        self._wake.set()

    @property
    def starts(self) -> bool:
        """Whether the machine is about to start."""
        return time.monotonic() < self._starting_until_s

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do for the instance."""
        return not (self.starts or self._runs or self._claimed or self._parts.holds.slots_of(self.instance))

    # The thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            try:
                self._inspect()
            except (FpgaPoolError, MessagingError) as error:
                self._warn(str(error))
            except Exception:
                LOG.exception("instance %s: cannot be supervised now", self.instance)
            if self._on_end(self.instance):
                self._close_channels()
                return
            self._wake.wait(POLL_S)

    def _warn(self, what: str) -> None:
        """Log a lasting condition once, not at every check."""
        if what not in self._warned:
            LOG.warning("instance %s: %s", self.instance, what)
        self._warned.add(what)

    def _inspect(self) -> None:
        starts = self._starts
        domain = self._parts.driver.find(self.instance)
        self._runs = domain is not None and domain.request is not None
        if domain is not None and self._runs:
            if starts == self._starts:
                self._starting_until_s = 0.0
            self._serve(domain)
            return
        self._close_channels()
        with self._lock:
            if starts == self._starts and not self.starts:
                self._release()

    def _release(self) -> None:
        """Release the slots of the instance; the agent receives a command for each slot.

        The call names the current leases, so that a delayed execution does not release those of a later start.
        """
        parts = self._parts
        if not self._claimed and not parts.holds.slots_of(self.instance):
            return
        leases = parts.scheduler.instance_leases(parts.host).get(self.instance, [])
        self._claimed = bool(leases)
        if leases:
            LOG.info("instance %s: not running here; its slots are released", self.instance)
            held = {lease.uuid: lease.generation for lease in leases}
            parts.scheduler.release_slots(parts.host, parts.agent_id, held)
            self._wake.set()  # to check that none is left

    def _claim(self, domain: Domain) -> list[str]:
        parts = self._parts
        assert domain.request is not None  # noqa: S101
        self._claimed = True
        slots = parts.scheduler.claim_slots(
            parts.host, parts.agent_id, self.instance, domain.project_id, domain.request
        )
        return sorted(slot.name for slot in slots)

    # Ports ------------------------------------------------------------------------------------------------------

    def _serve(self, domain: Domain) -> None:
        """Serve a channel, or pass through a PCI function, for each slot of the instance, and remove all others."""
        slots = self._parts.holds.slots_of(self.instance)
        if not slots:
            self._warn("running without slots; claiming them")
            slots = self._claim(domain)
        else:
            self._warned.clear()
        for number, channel in list(self._channels.items()):
            if slots[number : number + 1] != [channel.slot]:
                self._channels.pop(number).close()
        self._pass_functions(domain, slots)
        self._note_lost([slot for slot in slots if slot not in self._parts.guests])
        served = {
            number: slot
            for number, slot in enumerate(slots)
            if slot in self._parts.guests and slot not in self._functions
        }
        for number in domain.ports.keys() - served.keys():
            LOG.info("instance %s: port %d detached", self.instance, number)
            self._parts.driver.detach(domain, number)
        domain = self._with_ports(domain, served)
        for number, slot in served.items():
            if number not in self._channels:
                self._channels[number] = self._channel(domain, number, slot)

    def _note_lost(self, slots: list[str]) -> None:
        """Log the slots of the instance that this host no longer has, when they change."""
        if slots and slots != self._lost:
            LOG.error("instance %s: has lost %s, which this host no longer has", self.instance, ", ".join(slots))
        self._lost = slots

    def _pass_functions(self, domain: Domain, slots: Sequence[str]) -> None:
        """Attach the PCI functions of the instance's slots to its machine, after all others are detached.

        The function of a slot that is not ready is not attached, because the slot may not be scrubbed yet.
        """
        driver = self._parts.driver
        wanted = {number: self._functions[slot] for number, slot in enumerate(slots) if slot in self._functions}
        for number, address in domain.functions.items():
            if wanted.get(number) != address:
                LOG.info("instance %s: function %s detached", self.instance, address)
                self._plug(partial(driver.detach_function, domain, number, address))
        for number, address in wanted.items():
            if number not in domain.functions and self._may_use(slots[number]):
                LOG.info("instance %s: function %s attached", self.instance, address)
                self._plug(partial(driver.attach_function, domain, number, address))

    def _may_use(self, slot: str) -> bool:
        """Return whether a slot is ready for this instance; that may change while functions are detached."""
        hold = self._parts.holds.of(slot)
        return hold is not None and hold.ready and hold.action.instance == self.instance

    def _plug(self, act: Callable[[], None]) -> None:
        """Attach or detach a function; a failure, e.g. because its guest keeps it, is retried at the next check."""
        try:
            act()
        except FpgaPoolError as error:
            LOG.warning("instance %s: %s", self.instance, error)

    def _with_ports(self, domain: Domain, numbers: Iterable[int]) -> Domain:
        """Attach the missing ones of these ports, and return the domain with all of them."""
        for number in numbers:
            if number not in domain.ports:
                self._parts.driver.attach(domain, number)
                LOG.info("instance %s: port %d attached", self.instance, number)
                domain = self._parts.driver.find(self.instance) or domain
        return domain

    def _channel(self, domain: Domain, number: int, slot: str) -> GuestChannel:
        parts = self._parts
        return GuestChannel(
            self.instance,
            slot,
            parts.guests[slot],
            partial(parts.driver.connect, domain, number),
            parts.scratch / f"guest-{slot.replace('/', '-')}",
            parts.limits,
        )

    def _close_channels(self) -> None:
        while self._channels:
            self._channels.popitem()[1].close()


# ---- Servers and the taps through which they send


class Taps:
    """Observes the running machines, after changes and every few seconds, as ports come and go without events.

    Its thread may wait for the hypervisor as long as a start waits for slots; meanwhile the last observation is used.
    """

    def __init__(self, running: Callable[[], Sequence[Domain]], egress: EgressDriver | None, egress_bps: float) -> None:
        self._running = running
        self._egress = egress
        #: Limit of the host, bits per second, for servers whose ports have no lower limit.
        self._egress_bps = egress_bps
        self._inspecting = Loop("taps", self._inspect, POLL_S)
        self.start, self.stop, self.wake = self._inspecting.start, self._inspecting.stop, self._inspecting.wake
        self._observed: tuple[ObservedServer, ...] | None = None

    def observed(self) -> tuple[ObservedServer, ...] | None:
        """Return the servers as they were last observed; None before the first observation."""
        return self._observed

    def _inspect(self) -> bool:
        try:
            self._note([domain for domain in self._running() if domain.taps and domain.project_id])
        except (FpgaPoolError, OSError) as error:
            LOG.warning("taps: %s", error)
        return False

    def _note(self, domains: Sequence[Domain]) -> None:
        taps = {
            (domain.instance, address): tap.device
            for domain in domains
            for tap in domain.taps
            for address in tap.addresses
        }
        held = self._egress.follow(taps) if self._egress is not None else frozenset[str]()
        if len(domains) > MOST_SERVERS:
            LOG.warning("taps: of %d servers %d are reported", len(domains), MOST_SERVERS)
        found = sorted(domains, key=lambda domain: domain.instance)[:MOST_SERVERS]
        self._observed = tuple(filter(None, (self._server(domain, held) for domain in found)))

    def _server(self, domain: Domain, held: Collection[str]) -> ObservedServer | None:
        """Return the report about a server; None if its ids are not those of a server of Nova."""
        plain = {
            "uuid": domain.instance,
            "project_id": domain.project_id,
            "egress_bps": min(self._egress_bps, sum(tap.limit_bps for tap in domain.taps)),
            "held": all(tap.device in held for tap in domain.taps),
        }
        try:
            server: ObservedServer = read(ObservedServer, plain, f"domain {domain.name}")
        except InvalidInput as error:
            LOG.debug("taps: %s", error)
            return None
        return server
