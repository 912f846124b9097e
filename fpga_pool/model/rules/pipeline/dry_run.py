"""Dry run of a pipeline that is not stored: all decisions until its end, by the same rules that plan pipelines."""

import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.plans import PlannedPart, PlannedPipeline
from fpga_pool.model.objects.pool import CPU, PIPELINE_POLICY, Batch, Job, JobState, Slot, SlotState
from fpga_pool.model.rules.batch.planning import TimeModels, known_time_models
from fpga_pool.model.rules.pipeline.family import PipelineView, Steps
from fpga_pool.model.rules.pipeline.outlook import pipeline_outlook
from fpga_pool.model.rules.shared.dry_runs import DryRunContext, pending_batch, supposed
from fpga_pool.model.transaction import Backlog, Transaction
from fpga_pool.model.values import changed, shared

#: Maximum duration of a dry run in seconds of real time; each decision considers all subtasks and slots of the shard.
LONGEST_S = 2.0


def plan_pipeline(batch: Batch, jobs: Sequence[Job], context: DryRunContext) -> PlannedPipeline:
    """Return the plan for a pipeline made by `admission.admit_pipeline`."""
    shard, catalogue, now_s = jobs[0].shard, context.catalogue, context.now_s
    with context.reading(shard) as tx:
        course = _Course(tx, batch, jobs, context)
        models = known_time_models(catalogue, tx.time_models())
        best_s = _longest_path_s(jobs, tx.slots(), catalogue, models, context.settings.max_input_bytes)
    parts = course.run()
    begins_s = [part.start_s for part in parts if part.start_s is not None]
    ends_s = [part.end_s for part in parts if part.end_s is not None]
    reason, expected_at = "", now_s + min(begins_s) if begins_s else None
    if len(ends_s) < len(parts):
        with context.reading(shard) as tx:
            found = pipeline_outlook(course.supposing(tx), batch, course.jobs, catalogue, now_s)
        cut = "only its first subtasks are planned: a plan of all would take too long" if course.is_cut else ""
        reason = "; ".join(filter(None, (course.refused, cut))) or found.pending_reason
        expected_at = expected_at or found.expected_at
    complete = len(ends_s) == len(parts)
    return PlannedPipeline(
        subtasks=batch.jobs,
        input_bytes=batch.input_bytes,
        dispatched_at=now_s if ends_s else None,
        planned_makespan_s=max(ends_s) if complete else None,
        lower_bound_s=best_s,
        pending_reason=reason,
        expected_at=expected_at,
        ends_at=now_s + max(ends_s) if complete else None,
        subtask_list=parts,
    )


class _Course:
    """Simulates a shard while a pipeline runs, assuming that everything begins and ends as planned.

    Subtasks of other pipelines that are ready now get their places in the same decision as those of this one.
    """

    def __init__(self, tx: Transaction, batch: Batch, jobs: Sequence[Job], context: DryRunContext) -> None:
        self._batch, self._context, self._began_s = batch, context, context.timer()
        #: Simulated time in seconds from the present, as all times here except those of backlogs.
        self._at_s = 0.0
        pending = {uuid: one for uuid, one in tx.pending_batches().items() if one.policy == PIPELINE_POLICY}
        self._pending = pending | {batch.uuid: pending_batch(batch, jobs)}
        #: Jobs by batch and uuid.
        self._jobs = {uuid: {job.uuid: job for job in tx.batch_jobs(uuid)} for uuid in pending}
        self._jobs[batch.uuid] = {job.uuid: job for job in jobs}
        self._slots = {slot.name: slot for slot in tx.slots()}
        self._backlogs = {backlog.slot: backlog for backlog in tx.backlogs()}
        self._leases, self._hosts, self._models = tx.leases(), tx.hosts(), tx.time_models()
        #: (End, uuid) of the jobs of the pipeline, as a heap; and by slot, (begin, end, function) of all placed jobs.
        self._ends: list[tuple[float, str]] = []
        self._begins: dict[str, list[tuple[float, float, str]]] = {}
        self._parts = {job.uuid: PlannedPart(**shared(job, PlannedPart)) for job in jobs}
        #: Whether planning was stopped early because it took too long.
        self.is_cut = False
        #: Why a subtask, named in the text, would fail once the results of its predecessors are complete.
        self.refused = ""
        self._tx = self.supposing(tx)

    @property
    def jobs(self) -> list[Job]:
        """The subtasks of the pipeline at the simulated time, by index."""
        return list(self._jobs[self._batch.uuid].values())

    def supposing(self, tx: Transaction) -> Transaction:
        """Return a transaction that reads the shard as it is at the simulated time."""
        return supposed(
            tx,
            pending_batches=lambda: self._pending,
            batch=lambda _: self._batch,
            batch_jobs=lambda uuid: list(self._jobs[uuid].values()),
            planned_end=lambda _: None,
            slots=lambda: list(map(self._slot_now, self._slots.values())),
            backlogs=lambda: [one for one in self._backlogs.values() if self._is_open(one)],
            leases=lambda: self._leases,
            hosts=lambda: self._hosts,
            time_models=lambda: self._models,
        )

    def run(self) -> tuple[PlannedPart, ...]:
        """Return the subtasks by index, with their places; subtasks that get none have no place."""
        family = self._context.families().pipelines
        while True:
            decided = self._context.decide(family, self._reading, self._context.now_s + self._at_s)
            if decided is not None and decided[1].wanted is not None:
                self._place(decided[0].view, decided[1].wanted)
            if not self._ends:
                break
            if self._context.timer() - self._began_s > LONGEST_S:
                self.is_cut = True
                break
            self._at_s = self._ends[0][0]
            while self._ends and self._ends[0][0] == self._at_s:
                self._complete(heapq.heappop(self._ends)[1])
        return tuple(self._parts.values())

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        yield self._tx

    def _place(self, view: PipelineView, wanted: Steps) -> None:
        for place in wanted.placed:
            ready = view.ready[place.subtask]
            job = ready.job
            if reason := ready.refused(self._context.settings):
                self._keep(changed(job, state=JobState.FAILED))
                if job.uuid in self._parts and not self.refused:
                    self.refused = f"subtask {job.name} would fail: {reason}"
                continue
            begin_s = self._at_s + place.start_s
            end_s = begin_s + place.work_s
            loads = self._loads(place.place, job.function)
            self._keep(changed(job, state=JobState.WAITING_INPUT, host=place.host, slot=place.place))
            last = self._backlogs.get(place.place)
            self._backlogs[place.place] = Backlog(
                slot=place.place,
                free_at=max(self._context.now_s + end_s, last.free_at if last else 0.0),
                inputs_due_at=0.0,
                last_order=last.last_order + 1 if last else 0,
            )
            self._begins.setdefault(place.place, []).append((begin_s, end_s, job.function))
            if job.uuid in self._parts:
                heapq.heappush(self._ends, (end_s, job.uuid))
                self._parts[job.uuid] = changed(
                    self._parts[job.uuid],
                    host=place.host,
                    slot=place.place,
                    start_s=begin_s,
                    end_s=end_s,
                    loads=loads,
                )

    def _complete(self, uuid: str) -> None:
        own = self._jobs[self._batch.uuid]
        job = own[uuid]
        read = [own[one].result_bytes or 0 for one in job.predecessors]
        size = self._context.catalogue.functions[job.function].result_size
        result_bytes = 0 if size is None else size.bytes(sum(read) if read else job.input_bytes)
        self._keep(changed(job, state=JobState.RESULT_HELD, result_bytes=result_bytes))

    def _keep(self, job: Job) -> None:
        self._jobs[job.batch_uuid][job.uuid] = job

    def _is_open(self, backlog: Backlog) -> bool:
        """Return whether a slot still has work at the simulated time; at the present, late work counts too."""
        return self._at_s == 0.0 or backlog.free_at > self._context.now_s + self._at_s

    def _loads(self, name: str, function: str) -> bool:
        """Return whether a slot would have to load the function after the work that is placed on it."""
        queued = self._begins.get(name)
        before = queued[-1][2] if queued else self._slots[name].function
        return self._slots[name].kind != CPU and before != function

    def _slot_now(self, slot: Slot) -> Slot:
        begun = next((one for one in reversed(self._begins.get(slot.name, [])) if one[0] <= self._at_s), None)
        if begun is not None:
            _, end_s, function = begun
            return changed(slot, state=SlotState.BUSY if end_s > self._at_s else SlotState.READY, function=function)
        backlog = self._backlogs.get(slot.name)
        if slot.state is SlotState.BUSY and backlog is not None and not self._is_open(backlog):
            return changed(slot, state=SlotState.READY)
        return slot


def _longest_path_s(
    jobs: Sequence[Job], slots: Sequence[Slot], catalogue: Catalogue, models: TimeModels, max_input_bytes: int
) -> float | None:
    """Return the minimum time of the longest path, without transfers, loads and queues; None = it cannot complete.

    It cannot complete if no slot can compute one of the subtasks, or if results are too large to be read.  Indices
    follow the edges: a predecessor comes before its dependents.
    """
    kinds = {(slot.board, slot.kind) for slot in slots}
    cpus = any(slot.kind == CPU for slot in slots)
    ends_s: dict[str, float] = {}
    results: dict[str, int] = {}
    for job in jobs:
        input_bytes = sum(results[one] for one in job.predecessors) if job.predecessors else job.input_bytes
        if input_bytes > max_input_bytes:
            return None
        function = catalogue.functions[job.function]
        results[job.uuid] = 0 if function.result_size is None else function.result_size.bytes(input_bytes)
        seconds = [
            models[job.function, board].seconds(input_bytes)
            for board, kind in kinds
            if (job.function, board) in models and catalogue.fits(job.function, board, kind)
        ]
        if cpus and function.cpu_time is not None:
            seconds.append(function.cpu_time.seconds(input_bytes))
        begin_s = max((ends_s[one] for one in job.predecessors), default=0.0)
        ends_s[job.uuid] = begin_s + min(seconds, default=math.inf)
    longest_s = max(ends_s.values())
    return longest_s if math.isfinite(longest_s) else None
