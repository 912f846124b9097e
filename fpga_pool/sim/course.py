"""Transfers of inputs and durations of computations in a simulated pool, which agents do not decide."""

from collections.abc import Callable, Mapping, Sequence

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.messages.agents import AssignJob, InputSource, Report
from fpga_pool.model.objects.pool import CPU, Job
from fpga_pool.model.objects.progress import moved_bytes, planned_bytes
from fpga_pool.model.rules.batch.planning import known_time_models
from fpga_pool.model.rules.pipeline.edges import input_sources, is_intermediate
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.store import MemoryStore

#: Pause of an agent before it asks again for a result of a host that does not answer.
RETRY_S = 1.0


class Course:
    """Surroundings of the agents of a simulated pool.

    `actual` says how long a computation really takes, of (job, estimated seconds); `sends_late` how many seconds after
    its time a client begins to send the input of a job; `is_present` whether a host answers.
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
        #: When the client of an attempt begins to send, as (job, attempt).
        self._sends_at: dict[tuple[str, int], float] = {}

    def arrives_at(self, assignment: AssignJob) -> float:
        job = self._job(assignment)
        begun_at = job.dispatched_at or 0.0
        if assignment.sources:
            if not all(self._is_present(source.host) for source in assignment.sources):
                return self._engine.now_s + RETRY_S
            return begun_at + sum(self._copy_s(source, job.host) for source in assignment.sources)
        moved_s = job.transfer[-1].end_s if job.transfer else self._unplanned_s(job)
        return begun_at + moved_s + self._behind_s(job)

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

    def _unplanned_s(self, job: Job) -> float:
        """Return how long an input takes that moves without a plan, alone on its way."""
        if job.requester == job.host or job.requester not in self._hosts:
            return 0.0
        sender, receiver = self._hosts[job.requester], self._hosts[job.host]
        return 8.0 * job.input_bytes / min(sender.egress_bps, receiver.ingress_bps)

    def _copy_s(self, source: InputSource, host: str) -> float:
        """Return how long a result takes to another host, alone on its way."""
        if source.host == host:
            return 0.0
        return 8.0 * source.result_bytes / min(self._hosts[source.host].egress_bps, self._hosts[host].ingress_bps)

    def _behind_s(self, job: Job) -> float:
        """Return by how much an input is later than its plan; one for what is left of it is followed as it is."""
        if job.transfer and planned_bytes(job.transfer) < 0.999 * job.input_bytes:
            return 0.0
        begins_at = (job.dispatched_at or 0.0) + (job.transfer[0].begin_s if job.transfer else 0.0)
        sends_at = self._sends_at.setdefault((job.uuid, job.attempt), begins_at + self._sends_late(job.uuid))
        return max(sends_at - begins_at, 0.0)
