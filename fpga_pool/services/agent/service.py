"""The agent of one host: it starts and stops the threads and connects the components."""

import itertools
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.drivers.egress.base import EgressDriver
from fpga_pool.drivers.host_meter import HostMeter
from fpga_pool.drivers.runners.domain import Runner
from fpga_pool.drivers.slots.base import SlotAddress, SlotDriver
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.agent.coalescing import coalesced
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.exceptions import FpgaPoolError, HostTaken, InvalidInput, NotEnrolled, StorageFull, Unauthenticated
from fpga_pool.model.messages import agents as messages
from fpga_pool.model.messages.agents import Command, Heartbeat, ObservedSlot, Outcome, ReleaseFlow, ShapeFlow
from fpga_pool.model.messages.requests import SourceTicket
from fpga_pool.model.objects.links import SlotLinks
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import shared
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, Refusals
from fpga_pool.services.agent.designs import Designs
from fpga_pool.services.agent.gatherer import Gatherer
from fpga_pool.services.agent.heartbeats import Heartbeats
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.metrics import agent_samples
from fpga_pool.services.agent.processes import Processes
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.agent.shaper import FlowShaper
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.services.agent.slot_worker import SlotWorker, moved_bytes, remove_scratch
from fpga_pool.services.agent.streams import Streams
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.loop import Loop
from fpga_pool.transfer.server import DataServer

LOG = logging.getLogger(__name__)

#: Interval at which running jobs are checked for stop requests and for their time limits.
WATCH_S = 0.2
#: Interval of loops that are woken when there is work.
IDLE_S = 30.0
#: Largest number of reports in one call.
REPORTS = 600
#: Events within the first time are recorded, or reported, together. A call that takes longer is followed by a pause of
#: the same length, at most the second time, so that a busy scheduler gets fewer and larger calls.
TOGETHER_S, LONGEST_PAUSE_S = 0.005, 0.2


class AgentService:
    """Slots, data port, journal and heartbeats of one host.  `start` and `stop` are called once each."""

    def __init__(
        self,
        settings: AgentSettings,
        driver: SlotDriver,
        library: BitstreamLibrary,
        scheduler: SchedulerAPI,
        token_keys: Sequence[Ed25519PublicKey],
        clock: SteadyClock,
        ssl_context: ssl.SSLContext | None = None,
        egress: EgressDriver | None = None,
        cpu: SlotDriver | None = None,
        runner: Runner | None = None,
        peer_tls: ssl.SSLContext | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._scheduler = scheduler
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._journal = Journal(settings.state_dir / "journal.sqlite")
        self.agent_id, self._boot = self._journal.identify()
        self._beats = itertools.count(1)
        self._shaper = FlowShaper(egress, self._journal, clock) if egress is not None else None
        self.refusals = Refusals()
        drivers = [cards for cards in (driver, cpu) if cards is not None]
        parameters = AgentParameters(**shared(settings, AgentParameters))
        self._machine = Agent(settings.host, _slots(settings.host, drivers), parameters)
        self.jobs = AgentShell(self._machine, self._journal, settings.state_dir, clock)
        self._gatherer = Gatherer(settings.host, self.jobs, self._source_tickets, peer_tls)
        self.jobs.gather = self._gatherer.gather
        self.processes: Processes | None = None
        if runner is not None:
            numbers, changed = settings.gang_processors, self.jobs.changed
            self.processes = Processes(settings.host, numbers, runner, self._journal, clock, changed)
        self._server = DataServer(
            Streams(self.jobs),
            self._journal,
            host=settings.host,
            public_keys=token_keys,
            bind_address=settings.data_bind_address or settings.data_address,
            bind_port=settings.data_port,
            ssl_context=ssl_context,
            ingress_bps=settings.ingress_bps,
            clock=clock,
        )
        instruments = instruments or Instruments()
        instruments.read(lambda: agent_samples(self))
        remove_scratch(settings.state_dir / "scratch")
        self._port, self._tls = settings.data_port, ssl_context is not None
        self._reports_at_once = REPORTS
        designs = Designs(settings.state_dir / "designs", scheduler, token_keys, settings.host, self.agent_id)
        self.slots = {
            name: SlotWorker(
                name,
                SlotAddress(card.serial, slot.region),
                card.board,
                slot.kind,
                cards,
                library,
                self.jobs,
                settings.state_dir / "scratch",
                instruments,
                designs,
            )
            for cards in drivers
            for card in cards.inventory()
            for slot in card.slots
            for name in [f"{settings.host}/{card.serial}/{slot.region}"]
        }
        self.meter = HostMeter(settings.guest_pids, lambda: moved_bytes(self.slots.values()))
        self._watching = Loop(f"watch-{settings.host}", self._watch, IDLE_S)
        for worker in self.slots.values():
            worker.on_run = self._watching.wake
        self.jobs.progress = lambda slot: self.slots[slot].progress()
        self.jobs.wake = lambda slot: self.slots[slot].wake()
        self.jobs.stop = lambda slot, job, attempt: self.slots[slot].stop(job, attempt)
        self.heartbeats = Heartbeats(scheduler, self.heartbeat, self.meter, clock, settings.heartbeat_s)
        #: Whether the scheduler has not accepted the last reports.
        self._repeats = False
        self._reporting = Loop(
            f"report-{settings.host}", self._report, lambda: settings.heartbeat_s if self._repeats else IDLE_S
        )
        self._beating = Loop(f"beat-{settings.host}", self._beat, self.heartbeats.pause_s)
        #: Called with True when this agent becomes the one that represents its host, with False when another one does.
        self.on_speaking: Callable[[bool], object] = lambda _: None
        self._speaks = False
        #: Returns the virtual machines of this host that may be requesters.
        self.servers: Callable[[], tuple[messages.ObservedServer, ...] | None] = tuple
        self.jobs.on_report = self._reporting.wake
        self._ganging = self._gang_loop()
        self._call_took_s = 0.0
        self._recording = Loop(f"record-{settings.host}", self._record, IDLE_S)
        self.jobs.on_end = self._recording.wake

    def _gang_loop(self) -> Loop | None:
        if self.processes is None:
            return None
        self.processes.on_report = self._reporting.wake
        return Loop(f"gangs-{self.settings.host}", self.processes.step, self.processes.pause_s)

    def start(self) -> None:
        """Restore the state from the journal, open the data port and start the threads."""
        self.jobs.restore()
        if self._shaper is not None:
            self._shaper.start()
        _, self._port = self._server.start()
        self._beat()  # sets the clock to pool time before anything else happens here, if a scheduler answers
        for worker in self.slots.values():
            worker.start()
        for loop in (self._recording, self._watching, self._reporting, self._beating, self._ganging):
            if loop is not None:
                loop.start()

    def drain(self) -> None:
        """Start nothing new, and wait for running jobs, at most `drain_timeout_s`; commands are still executed.

        Gang processes continue, as they are separate guests.
        """
        self._beating.stop()
        if self._ganging is not None:
            self._ganging.stop()
        for worker in self.slots.values():
            worker.drain()
        drained_by_s = self._clock() + self.settings.drain_timeout_s
        for worker in self.slots.values():
            worker.join(max(drained_by_s - self._clock(), 0.0))

    def stop(self) -> None:
        """Drain, send pending reports and close the data port; the journal keeps the rest and accepts no commands."""
        self.drain()
        self._gatherer.stop()
        self._watching.stop()
        self._recording.stop()
        self.jobs.record_ends()
        self._server.stop()
        self._reporting.stop()
        while self._report():
            pass  # reports of the last jobs
        if self._shaper is not None:
            self._shaper.stop()
        self._journal.close()

    def execute(self, shard: str, epoch: int, commands: list[Command]) -> list[Outcome]:
        """Execute commands of a shard's owner in order; each is in the journal before its outcome is reported.

        Raises StaleEpoch if a later owner of the shard is known.
        """
        outcomes = self.jobs.execute(shard, epoch, commands, [self._elsewhere(command) for command in commands])
        if self._ganging is not None:
            self._ganging.wake()
        return outcomes

    def _source_tickets(self, job: str, attempt: int) -> list[SourceTicket]:
        return self._scheduler.source_tickets(self.settings.host, self.agent_id, job, attempt)

    def _elsewhere(self, command: Command) -> Callable[[], Outcome] | None:
        """Return the executor of a command that is not for a slot; None if the state machine executes or refuses it."""
        if command.host != self.settings.host or command.slot in self.slots:
            return None
        if self.processes is not None and self.processes.takes(command.slot):
            return partial(self.processes.execute, command)
        if self._shaper is not None and isinstance(command.action, ShapeFlow | ReleaseFlow):
            return partial(self._shaper.execute, command, command.action)
        return None

    def counters(self) -> dict[str, int]:
        """Return the counters of the data port."""
        return self._server.counters()

    def observed_slots(self) -> tuple[ObservedSlot, ...]:
        """Return the current state of the slots."""
        with self.jobs.changed:
            return self._machine.observed_slots()

    def unreported(self) -> int:
        """Return the number of reports that wait in the journal."""
        return self._journal.unreported()

    def heartbeat(self) -> Heartbeat:
        """Return the full observed state of this host as a consistent snapshot, without counters."""
        settings = self.settings
        with self.jobs.changed:
            return Heartbeat(
                **shared(settings, Heartbeat) | {"data_port": self._port},
                agent_id=self.agent_id,
                boot=self._boot,
                beat=next(self._beats),
                at=self._clock(),
                slots=self._machine.observed_slots(),
                jobs=self.jobs.observed(),
                processors=self.processes.observed_processors() if self.processes else (),
                processes=self.processes.observed() if self.processes else (),
                unreported=self._journal.unreported(),
                data_tls=self._tls,
                refused_streams=self._server.refused(),
                refused_commands=sum(self.refusals.counts().values()),
                servers=self.servers(),
                flows=self.jobs.flows(),
            )

    def _watch(self) -> bool:
        """Check the running jobs; the check is repeated every WATCH_S while there are any."""
        time.sleep(WATCH_S)
        return sum(worker.watch() for worker in self.slots.values()) > 0

    def _beat(self) -> bool:
        try:
            if not self._speaks:
                self._scheduler.claim(self.settings.host, self.agent_id)
                self._speak(speaks=True)
            if self.heartbeats.send_if_due():
                self._tidy_up()  # nothing expires by a clock that was not confirmed lately
        except NotEnrolled:
            self._enroll()  # logs the result
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning("host %s: heartbeat not accepted: %s", self.settings.host, error)
            if isinstance(error, HostTaken):
                self._speak(speaks=False)
        return False

    def _enroll(self) -> None:
        """Submit the key of this agent; until it is accepted, the host offers no slots and gets no commands."""
        self._speak(speaks=False)
        host, code = self.settings.host, self.settings.enrolment_code
        try:
            try:
                accepted = self._scheduler.enroll(host, code)
            except Unauthenticated as error:
                LOG.warning("%s", error)
                accepted = self._scheduler.enroll(host)
            if accepted:
                LOG.info("host %s is enrolled", host)
            else:
                LOG.warning("host %s waits for approval (fpga-pool-manage host approve)", host)
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning("host %s could not be enrolled: %s", host, error)

    def _speak(self, *, speaks: bool) -> None:
        if speaks != self._speaks:
            self._speaks = speaks
            self.on_speaking(speaks)

    def _record(self) -> bool:
        """Record the ends of jobs in the journal."""
        time.sleep(TOGETHER_S)
        self.jobs.record_ends()
        return False

    def _tidy_up(self) -> None:
        try:
            if self._clock.steady_s >= self.settings.retention_s:  # results with doubtful timestamps are older by now
                self.jobs.expire()
            self._journal.forget_tokens(self._clock())
        except StorageFull as error:  # not fatal: heartbeats continue
            LOG.warning("host %s: %s", self.settings.host, error)

    def _report(self) -> bool:
        """Send the oldest reports; they stay in the journal until the scheduler has committed them."""
        time.sleep(min(max(TOGETHER_S, self._call_took_s), LONGEST_PAUSE_S))
        self.jobs.await_receipts()
        self._repeats = False
        with self.heartbeats.turn:
            reports = self._journal.reports(self._reports_at_once)
        if not reports:
            return False
        asked_s = time.monotonic()
        try:
            self._scheduler.report(self.settings.host, self.agent_id, coalesced(reports))
            self._reports_at_once = REPORTS
        except InvalidInput as error:
            if len(reports) > 1:
                self._reports_at_once = 1  # to find the unreadable one without losing others
                return True
            dropped = reports[0][1]
            LOG.error("host %s: dropped %s, which the scheduler cannot read: %s", self.settings.host, dropped, error)  # noqa: TRY400
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning("host %s: reports not accepted, to be sent again: %s", self.settings.host, error)
            self._repeats = True
            return False
        finally:
            self._call_took_s = time.monotonic() - asked_s
        self._journal.taken(reports[-1][0])
        return True


def _slots(host: str, drivers: Iterable[SlotDriver]) -> list[ObservedSlot]:
    """Return the slots of a host with their fixed attributes, as empty slots."""
    return [
        ObservedSlot(
            slot=f"{host}/{card.serial}/{slot.region}",
            card=card.serial,
            region=slot.region,
            board=card.board,
            kind=slot.kind,
            state=SlotState.EMPTY,
            links=str(SlotLinks(card=card.links, slots=len(card.slots), position=position)),
        )
        for cards in drivers
        for card in cards.inventory()
        for position, slot in enumerate(card.slots)
    ]
