"""Hosts of a simulated pool, with cards and with processors for gangs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.messages.agents import AssignJob, Command, InputSource, ObservedSlot, Report
from fpga_pool.model.messages.gangs import GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.objects.pool import CPU, Job
from fpga_pool.model.objects.progress import moved_bytes, planned_bytes
from fpga_pool.model.rules.batch.planning import known_time_models
from fpga_pool.model.rules.pipeline.edges import input_sources, is_intermediate
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.gangs.host import GangHost, Guests, GuestTimes
from fpga_pool.sim.store import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """One host as the pool would observe it at the start."""

    name: str
    egress_bps: float
    ingress_bps: float
    slots: tuple[ObservedSlot, ...]
    #: Number of processors for gangs.
    gang_processors: int = 0


class GangHosts:
    """Hosts with processors for gangs; reports of their agents are forwarded without delay."""

    def __init__(
        self,
        processors: Mapping[str, int],
        engine: Engine,
        times: GuestTimes,
        report: Callable[[str, Sequence[GangReport]], None],
    ) -> None:
        """`processors` is the number of processors by host."""
        self._engine, self._report = engine, report
        self._guests = Guests(times)
        self._hosts = {
            host: GangHost(host, range(count), self._guests) for host, count in processors.items() if count
        }  # fmt: skip
        self._away: set[str] = set()
        #: Time of the next guest event on the agenda.
        self._next_s = math.inf

    def takes(self, command: Command) -> bool:
        """Return whether a command is about a processor of a host."""
        host = self._hosts.get(command.host)
        return host is not None and host.takes(command.slot)

    def execute(self, host: str, commands: Sequence[Command]) -> None:
        """Execute commands as the agent of a host."""
        self._guests.pass_to(self._engine.now_s)
        for command in commands:
            self._hosts[host].execute(command)
        self._work()

    def observed(self, host: str) -> tuple[tuple[ObservedProcessor, ...], tuple[ObservedProcess, ...]]:
        """Return a host's processors for gangs and the processes on them, for a heartbeat."""
        if host not in self._hosts:
            return (), ()
        self._guests.pass_to(self._engine.now_s)
        processes = self._hosts[host].observed()
        self._work()
        return self._hosts[host].observed_processors(), processes

    def vanish(self, host: str) -> None:
        """Power off a host; its guests are lost."""
        self._guests.pass_to(self._engine.now_s)
        self._guests.power_off(host)
        self._away.add(host)
        self._work()

    def come_back(self, host: str) -> None:
        """Restart the agent of a host."""
        self._away.discard(host)
        if host in self._hosts:
            self._hosts[host].restart()
            self._work()

    def _work(self) -> None:
        """Do all work that is pending now, report it, and schedule the next event."""
        for name, host in self._hosts.items():
            if name in self._away:
                continue
            host.work()
            if host.reports:
                numbers, reports = zip(*host.reports, strict=True)
                host.taken(numbers[-1])
                self._report(name, reports)
        next_s = self._guests.next_s()
        if next_s != self._next_s:
            self._next_s = next_s
            if next_s < math.inf:
                self._engine.at(next_s, partial(self._poll, next_s))

    def _poll(self, at_s: float) -> None:
        if at_s == self._next_s:
            self._next_s = math.inf
            self._guests.pass_to(self._engine.now_s)
            self._work()


#: Pause of an agent before it requests a result again from a host that does not answer.
RETRY_S = 1.0


# ---- Transfers of inputs and durations of computations, which agents do not determine


class Course:
    """Surroundings of the agents of a simulated pool.

    `actual(job, estimated_s)` returns the actual duration of a computation in seconds; `sends_late(job)` by how many
    seconds a client begins to send an input later than planned; `is_present(host)` whether a host answers.
    """

    def __init__(
        self,
        engine: Engine,
        store: MemoryStore,
        catalogue: Catalogue,
        hosts: Mapping[str, SimulatedHost],
        report: Callable[[str, Sequence[Report]], None],
        actual: Callable[[str, float], float],
        sends_late: Callable[[str], float],
        is_present: Callable[[str], bool],
    ) -> None:
        self._engine, self._store, self._catalogue, self._hosts = engine, store, catalogue, hosts
        self._models: Mapping[tuple[str, str], TimeModel] = known_time_models(catalogue, store.time_models)
        self._actual, self._sends_late, self._is_present = actual, sends_late, is_present
        #: See Surroundings.
        self.report = report
        #: By (job, attempt): when the client begins to send the input.
        self._sends_at: dict[tuple[str, int], float] = {}
        #: By (job, attempt): when the input begins, or began, to arrive.
        self._began_at: dict[tuple[str, int], float] = {}

    def arrives_at(self, assignment: AssignJob) -> float:
        job = self._job(assignment)
        begun_at = job.dispatched_at or 0.0
        if assignment.sources:
            if not all(self._is_present(source.host) for source in assignment.sources):
                return self._engine.now_s + RETRY_S
            copied_s = sum(self._copy_s(source, job.host) for source in assignment.sources)
            if copied_s > 0.0:
                self._note_begin(job, begun_at)
            return begun_at + copied_s
        moved_s = job.transfer[-1].end_s if job.transfer else self._unplanned_s(job)
        behind_s = self._behind_s(job)
        if moved_s > 0.0 and job.input_bytes > SMALL_INPUT_BYTES:
            self._note_begin(job, begun_at + (job.transfer[0].begin_s if job.transfer else 0.0) + behind_s)
        return begun_at + moved_s + behind_s

    def input_age_s(self, assignment: AssignJob) -> float | None:
        began_at = self._began_at.get((assignment.job, assignment.attempt))
        return None if began_at is None else self._engine.now_s - began_at

    def lost_source(self, assignment: AssignJob) -> str:
        if assignment.sources:
            try:
                with self._store.reading() as tx:
                    job = tx.job(assignment.job)
                    input_sources(tx, job.uuid, job.host, assignment.attempt)
            except Conflict as error:
                return str(error)
        return ""

    def is_fetched(self, job: str) -> bool:
        with self._store.reading() as tx:
            return not is_intermediate(tx, tx.job(job))

    def received_bytes(self, assignment: AssignJob) -> int:
        job = self._job(assignment)
        since_s = self._engine.now_s - (job.dispatched_at or 0.0)
        return int(moved_bytes(job.transfer, job.input_bytes, since_s - self._behind_s(job)))

    def seconds(self, assignment: AssignJob, board: str) -> float:
        model = self._models.get((assignment.function, board))
        if board == CPU:
            model = self._catalogue.function(assignment.function).cpu_time
        estimated_s = model.seconds(assignment.input_bytes) if model is not None else assignment.expected_s
        return self._actual(assignment.job, estimated_s)

    def _job(self, assignment: AssignJob) -> Job:
        with self._store.reading() as tx:
            return tx.job(assignment.job)

    def _note_begin(self, job: Job, at: float) -> None:
        """Record when an input begins to arrive; once it has begun, a change of its plan does not change the time."""
        if self._began_at.get((job.uuid, job.attempt), math.inf) > self._engine.now_s:
            self._began_at[job.uuid, job.attempt] = at

    def _unplanned_s(self, job: Job) -> float:
        """Return the seconds that an input without a planned transfer takes if nothing else uses the links."""
        if job.requester == job.host or job.requester not in self._hosts:
            return 0.0
        sender, receiver = self._hosts[job.requester], self._hosts[job.host]
        return 8.0 * job.input_bytes / min(sender.egress_bps, receiver.ingress_bps)

    def _copy_s(self, source: InputSource, host: str) -> float:
        """Return the seconds that a result takes to another host if nothing else uses the links."""
        if source.host == host:
            return 0.0
        return 8.0 * source.result_bytes / min(self._hosts[source.host].egress_bps, self._hosts[host].ingress_bps)

    def _behind_s(self, job: Job) -> float:
        """Return by how many seconds an input lags its plan; 0 if the plan is only for the rest of the input."""
        if job.transfer and planned_bytes(job.transfer) < 0.999 * job.input_bytes:
            return 0.0
        begins_at = (job.dispatched_at or 0.0) + (job.transfer[0].begin_s if job.transfer else 0.0)
        sends_at = self._sends_at.setdefault((job.uuid, job.attempt), begins_at + self._sends_late(job.uuid))
        return max(sends_at - begins_at, 0.0)
