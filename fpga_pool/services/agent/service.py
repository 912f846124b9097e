"""The agent of one host: its threads, and what ends them."""

import logging
import ssl
import threading
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.dataplane.server import DataServer
from fpga_pool.drivers.slots.base import SlotAddress, SlotDriver
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.messages import Command, Heartbeat, ObservedJob, Outcome
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.agent.jobs import JobTable
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.agent.slot_worker import SlotWorker
from fpga_pool.services.agent.streams import Streams
from fpga_pool.services.clock import Clock
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)

#: Reports sent in one call.
REPORTS = 200


class AgentService:
    """Slots, data port, journal and heartbeats of one host.  `start` and `stop` are called once each."""

    def __init__(
        self,
        settings: AgentSettings,
        driver: SlotDriver,
        library: BitstreamLibrary,
        scheduler: SchedulerAPI,
        token_key: Ed25519PublicKey,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self._boot_id = str(uuid.uuid4())
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._journal = Journal(settings.state_dir / "journal.sqlite")
        self.jobs = JobTable(self._journal, settings.state_dir, clock)
        self._server = DataServer(
            Streams(self.jobs),
            self._journal,
            host=settings.host,
            public_key=token_key,
            bind_address=settings.data_address,
            bind_port=settings.data_port,
            ssl_context=ssl_context,
            ingress_bps=settings.ingress_bps,
            clock=clock,
        )
        self._port = settings.data_port
        self._tls = ssl_context is not None
        self._reports_at_once = REPORTS
        self.slots = {
            worker.name: worker
            for card in driver.inventory()
            for slot in card.slots
            for worker in [
                SlotWorker(
                    f"{settings.host}/{card.serial}/{slot.region}",
                    SlotAddress(card.serial, slot.region),
                    card.board,
                    slot.kind,
                    driver,
                    library,
                    self.jobs,
                    settings,
                    clock,
                )
            ]
        }
        #: A heartbeat that says "all is reported" must not be overtaken by a later report.
        self._heartbeat_first = threading.Lock()
        self._reporting = Loop(f"report-{settings.host}", self._report, settings.heartbeat_s)
        self._beating = Loop(f"beat-{settings.host}", self._beat, settings.heartbeat_s)
        self.jobs.on_report = self._reporting.wake

    def start(self) -> None:
        """Take up what the journal holds, open the data port, begin."""
        self.jobs.restore()
        _, self._port = self._server.start()
        for worker in self.slots.values():
            worker.start()
        self._reporting.start()
        self._beating.start()

    def stop(self) -> None:
        """Let running jobs end (bounded), tell what can be told, close the port; the journal keeps the rest."""
        self._beating.stop()
        for worker in self.slots.values():
            worker.drain()
        drained_by_s = self._clock() + self.settings.drain_timeout_s
        for worker in self.slots.values():
            worker.join(max(drained_by_s - self._clock(), 0.0))
        self._server.stop()
        self._reporting.stop()
        while self._report():
            pass  # what the last jobs left to tell
        self._journal.close()

    def execute(self, commands: list[Command]) -> list[Outcome]:
        """Execute commands in order; each is in the journal before its outcome is told."""
        with self.jobs.changed, self._journal.together():
            outcomes = [self._execute(command) for command in commands]
        for worker in self.slots.values():
            worker.stop_if_withdrawn()
        return outcomes

    def _execute(self, command: Command) -> Outcome:
        if command.host == self.settings.host and command.slot in self.slots:
            return self.jobs.execute(command)
        reason = f"no slot {command.slot} on host {self.settings.host}"
        return Outcome(command=command.id, outcome="refused", reason=reason)

    def counters(self) -> dict[str, int]:
        """Return what the data port counted."""
        return self._server.counters()

    def heartbeat(self) -> Heartbeat:
        """Return the full observed state of this host, all of it at one moment."""
        with self.jobs.changed:
            return self._heartbeat()

    def _heartbeat(self) -> Heartbeat:
        settings = self.settings
        return Heartbeat(
            host=settings.host,
            boot_id=self._boot_id,
            at=self._clock(),
            egress_bps=settings.egress_bps,
            ingress_bps=settings.ingress_bps,
            data_address=settings.data_address,
            data_port=self._port,
            slots=tuple(worker.observed(self._journal.fence(name)) for name, worker in self.slots.items()),
            jobs=tuple(
                ObservedJob(job=job.uuid, attempt=job.assignment.attempt, slot=job.slot) for job in self.jobs.all()
            ),
            unreported=self._journal.unreported(),
            data_tls=self._tls,
            refused_streams=self._server.refused(),
        )

    def _beat(self) -> bool:
        now_s = self._clock()
        self.jobs.expire(now_s - self.settings.retention_s)
        self._journal.forget_tokens(now_s)
        try:
            with self._heartbeat_first:
                self._scheduler.heartbeat(self.heartbeat())
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning("host %s: heartbeat not taken: %s", self.settings.host, error)
        return False

    def _report(self) -> bool:
        """Hand over the oldest reports; they stay in the journal until they are committed."""
        with self._heartbeat_first:
            last, reports = self._journal.reports(self._reports_at_once)
        if not reports:
            return False
        try:
            self._scheduler.report(self.settings.host, reports)
            self._reports_at_once = REPORTS
        except InvalidInput as error:
            if len(reports) > 1:
                self._reports_at_once = 1  # to find the one that cannot be read, and lose no other
                return True
            LOG.error("host %s: dropped %s, which the scheduler cannot read: %s", self.settings.host, reports[0], error)  # noqa: TRY400
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning("host %s: reports not taken, they wait: %s", self.settings.host, error)
            return False
        self._journal.taken(last)
        return True
