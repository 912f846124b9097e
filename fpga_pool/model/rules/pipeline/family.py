"""Pipelines in the planning cycle: place subtasks whose inputs are complete, and compute lost results again."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.cluster.policies import EarliestHost, HostsView, HostUnit, Option, Placed
from fpga_pool.core.cluster.slowdown import Companions
from fpga_pool.core.cluster.views import ACCELERATOR, Subtask, Unit
from fpga_pool.core.cluster.views import CPU as CPU_UNIT
from fpga_pool.core.policy import PolicyState
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import CycleSnapshot, Decision, Outcome
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import GaveUp, Planned, ResultLost
from fpga_pool.model.messages.agents import InputSource
from fpga_pool.model.objects.pool import CPU, PIPELINE_POLICY, BatchState, Host, Job, Slot, SlotState
from fpga_pool.model.rules.batch.placing import held_by_others, least_scarce_first, usable, withdraw_from_former_host
from fpga_pool.model.rules.batch.planning import TimeModels, known_time_models
from fpga_pool.model.rules.pipeline.edges import lost, ready
from fpga_pool.model.rules.shared.changes import change_job, grant_pool_leases
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A pending job whose input is complete, either at a client or as the results of its predecessors."""

    job: Job
    predecessors: tuple[Job, ...]
    #: Whether other jobs read its result.
    kept: bool

    @property
    def input_bytes(self) -> int:
        """Size of its input."""
        if not self.predecessors:
            return self.job.input_bytes
        return sum(job.result_bytes or 0 for job in self.predecessors)

    def refused(self, settings: PoolSettings) -> str:
        """Return why the job cannot be computed given the size of its input; "" = it can."""
        if self.input_bytes <= settings.max_input_bytes:
            return ""
        return f"the results of its predecessors are {self.input_bytes} bytes, more than the pool takes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """The subtasks of a shard's pipelines for which something can be done now."""

    ready: tuple[Ready, ...]
    #: Complete jobs that have to compute again.
    lost: tuple[Job, ...]
    question: HostsView


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The decision of one cycle: subtasks to place, and complete jobs to compute again."""

    placed: Sequence[Placed]
    lost: tuple[Job, ...]


class PipelineFamily:
    """Gives the subtasks of pipelines their places, each when its predecessors are complete.

    Parameters
    ----------
    catalogue, settings
        The catalogue in force and the limits.
    policy
        Chooses hosts, and units within them.

    """

    name = "pipeline"

    def __init__(self, catalogue: Catalogue, settings: PoolSettings, policy: EarliestHost) -> None:
        self.catalogue = catalogue
        self._settings = settings
        self._policy = policy
        #: Whether subtasks wait, so that the completion of a predecessor is worth another cycle.
        self.waits = False

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[PipelineView] | None:
        """Read the pipelines with pending jobs, and the places for the jobs whose inputs are complete."""
        pending = [uuid for uuid, batch in tx.pending_batches().items() if batch.policy == PIPELINE_POLICY]
        self.waits = bool(pending)
        if not pending:
            return None
        hosts = {host.name: host for host in tx.hosts()}
        living = {host.name for host in hosts.values() if host.alive}
        waiting: list[Ready] = []
        gone: list[Job] = []
        for jobs in map(tx.batch_jobs, pending):
            by_uuid = {job.uuid: job for job in jobs}
            read = {uuid for job in jobs for uuid in job.predecessors}
            gone += lost(jobs, living)
            waiting += [
                Ready(
                    job=job,
                    predecessors=tuple(by_uuid[uuid] for uuid in job.predecessors),
                    kept=job.uuid in read,
                )
                for job in ready(jobs, living)
                if job.counted_attempts < self._settings.max_attempts and job.function in self.catalogue.functions
            ]
        if not waiting and not gone:
            return None
        question = _Options(tx, self.catalogue, hosts, now_s).question(waiting)
        view = PipelineView(ready=tuple(waiting), lost=tuple(gone), question=question)
        return CycleSnapshot(view=view, policy=self._policy, now_s=now_s)

    def decide(
        self, snapshot: CycleSnapshot[PipelineView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[Steps]:
        """Let the policy choose places for the ready jobs."""
        placed = self._policy.decide(snapshot.view.question, state, snapshot.now_s, rng)
        steps = Steps(placed=placed, lost=snapshot.view.lost)
        return Decision(wanted=steps if placed or snapshot.view.lost else None)

    def commit(self, tx: Transaction, snapshot: CycleSnapshot[PipelineView], wanted: Steps, now_s: float) -> Outcome:
        """Place the jobs that are still ready, and make the jobs whose results are lost pending again."""
        again = [
            change_job(tx, job, ResultLost(reason=f"its result on host {job.host} is lost, and is needed"), now_s)
            for job in tx.unchanged(wanted.lost)
        ]
        placed = self._place(tx, snapshot.view, wanted.placed, now_s)
        details = tuple(f"job {job.uuid}: {job.reason}; it is computed again" for job in again)
        summary = f"of {len(snapshot.view.ready)} ready subtasks {len(placed)} placed by {snapshot.policy.name}"
        return Outcome(
            changed=bool(placed or again), again=bool(again), placed=tuple(placed), details=details, summary=summary
        )

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Job]:
        """Return the jobs with these uuids that exist."""
        return tx.jobs(uuids)

    def _place(self, tx: Transaction, view: PipelineView, wanted: Sequence[Placed], now_s: float) -> list[Job]:
        concerned = [view.ready[place.subtask] for place in wanted]
        read = [job for one in concerned for job in (one.job, *one.predecessors)]
        same = {job.uuid for job in tx.unchanged(read)}
        foreign = held_by_others(tx.leases(slots={place.place for place in wanted}))
        possible = []
        for place, one in zip(wanted, concerned, strict=True):
            slot = tx.slot(place.place)
            if not same.issuperset([one.job.uuid, *(job.uuid for job in one.predecessors)]):
                continue
            if not all(tx.host(job.host).alive for job in one.predecessors):
                continue
            if reason := one.refused(self._settings):
                change_job(tx, one.job, GaveUp(code="fpga_pool.input_too_large", reason=reason), now_s)
            elif usable(slot, tx.host(slot.host), foreign):
                possible.append((place, one))
        grant_pool_leases(tx, [place.place for place, _ in possible], now_s)
        last = {backlog.slot: backlog.last_order for backlog in tx.backlogs()}
        placed = []
        for place, one in possible:
            last[place.place] = order = last.get(place.place, -1) + 1
            placed.append(_placed(tx, place, one, order, now_s))
        return placed


def _placed(tx: Transaction, place: Placed, one: Ready, order: int, now_s: float) -> Job:
    withdraw_from_former_host(tx, one.job, place.host)
    batch = tx.batch(one.job.batch_uuid)
    if batch.state is BatchState.PENDING:
        tx.save(BATCH.transition(batch, BatchBegun(dispatched_at=now_s), now_s)[0])
    event = Planned(
        host=place.host,
        slot=place.place,
        order=order,
        dispatched_at=now_s,
        start_s=place.start_s,
        end_s=place.start_s + place.work_s,
        transfer=(),
        sources=tuple(
            InputSource(
                job=job.uuid,
                attempt=job.attempt,
                host=job.host,
                result_bytes=job.result_bytes or 0,
                result_sha256=job.result_sha256,
            )
            for job in one.predecessors
        ),
        kept=one.kept,
    )
    return change_job(tx, one.job, event, now_s)


class _Options:
    """The places of a shard in the form of `core.cluster.policies`, shared by all subtasks of one decision."""

    def __init__(self, tx: Transaction, catalogue: Catalogue, hosts: Mapping[str, Host], now_s: float) -> None:
        self._catalogue, self._hosts = catalogue, hosts
        self._models: TimeModels = known_time_models(catalogue, tx.time_models())
        self._free_s = {backlog.slot: max(backlog.free_at - now_s, 0.0) for backlog in tx.backlogs()}
        leases = tx.leases()
        foreign = held_by_others(leases)
        #: By host and card: (function, slot) of the slots that compute.
        self._computing: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        self._slots: defaultdict[str, list[Slot]] = defaultdict(list)
        workers: defaultdict[str, list[Slot]] = defaultdict(list)
        slots = tx.slots()
        for slot in slots:
            if slot.state is SlotState.BUSY and slot.kind != CPU:
                self._computing[slot.host, slot.card].append((slot.function, slot.name))
        for slot in least_scarce_first(slots, catalogue, leases):
            if usable(slot, hosts[slot.host], foreign):
                (workers if slot.kind == CPU else self._slots)[slot.host].append(slot)
        self._accelerators = {
            slot.name: HostUnit(unit=self._unit(ACCELERATOR, [slot]), places=[slot.name])
            for slots in self._slots.values()
            for slot in slots
        }
        self._workers = {
            host: HostUnit(
                unit=self._unit(CPU_UNIT, slots),
                places=sorted((slot.name for slot in slots), key=lambda name: (self._free_s.get(name, 0.0), name)),
            )
            for host, slots in workers.items()
        }

    def _unit(self, kind: int, slots: Sequence[Slot]) -> Unit:
        busy = [self._free_s[slot.name] for slot in slots if slot.name in self._free_s]
        return Unit(
            kind=kind, places=len(slots), memory_gb=np.inf, backlog_s=sum(busy), running=[_OTHER_WORK] * len(busy)
        )

    def question(self, waiting: Sequence[Ready]) -> HostsView:
        """Return the options of each subtask; options share their units."""
        return HostsView(options=[list(self._options(one)) for one in waiting])

    def _options(self, one: Ready) -> Iterator[Option]:
        """Yield the options of a subtask: for each host, its CPU pool with the slots of each kind of board."""
        function, name = self._catalogue.functions[one.job.function], one.job.function
        for host in sorted({*self._slots, *self._workers}):
            workers = self._workers.get(host, _NO_WORKERS)
            cpu_s = np.inf
            if function.cpu_time is not None and workers.places:
                cpu_s = function.cpu_time.seconds(one.input_bytes)
            by_board: defaultdict[str, list[Slot]] = defaultdict(list)
            for slot in self._slots[host]:
                if (name, slot.board) in self._models and self._catalogue.fits(name, slot.board, slot.kind):
                    by_board[slot.board].append(slot)
            if not by_board and np.isfinite(cpu_s):
                by_board[""] = []
            for board, slots in by_board.items():
                yield Option(
                    host=host,
                    units=[workers, *(self._accelerators[slot.name] for slot in slots)],
                    estimate_s=(cpu_s, self._models[name, board].seconds(one.input_bytes) if board else np.inf),
                    load_s=[0.0, *(self._load_s(slot, name) for slot in slots)],
                    input_s=self._input_s(one, host),
                    function=name,
                    beside=[(), *map(self._beside, slots)],
                )

    def _beside(self, slot: Slot) -> Companions:
        return tuple(
            sorted(function for function, other in self._computing[slot.host, slot.card] if other != slot.name)
        )

    def _load_s(self, slot: Slot, function: str) -> float:
        if slot.function == function and slot.name not in self._free_s:
            return 0.0
        return self._catalogue.boards[slot.board].load_s(slot.kind)

    def _input_s(self, one: Ready, host: str) -> float:
        """Return the transfer time of the input to a host; parts that are already there take no time."""
        kept = one.job.host == host and one.job.attempt > 0
        if kept:
            return 0.0
        parts = [(job.host, job.result_bytes or 0) for job in one.predecessors]
        parts = parts or [(one.job.requester, one.job.input_bytes)]
        ingress_bps = self._hosts[host].ingress_bps
        # The egress of a server is ignored: it is the same for all places, so it does not affect the choice.
        egress_bps = {source: self._hosts[source].egress_bps for source, _ in parts if source in self._hosts}
        return sum(
            8 * size / min(egress_bps.get(source, np.inf), ingress_bps) for source, size in parts if source != host
        )


#: A subtask that represents other work on a place: policies only count it.
_OTHER_WORK = Subtask(
    task=-1, step=0, type=-1, estimate_s=(np.inf, np.inf), memory_gb=0.0, accelerator_memory_gb=0.0, ready_s=0.0
)
_NO_WORKERS = HostUnit(unit=Unit(kind=CPU_UNIT, places=0, memory_gb=np.inf), places=[])
