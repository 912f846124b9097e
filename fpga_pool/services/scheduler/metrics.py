"""Metrics of a scheduler: events that are counted at each commit, and the state of its shards at each scrape."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np

from fpga_pool.core.types import Ints, ints
from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import Instruments, Sample
from fpga_pool.metrics.table import Metric
from fpga_pool.model.cycle import CycleResult
from fpga_pool.model.messages.requests import CardCount, LeaseCount, PoolCounts, SlotCount, WorkCount
from fpga_pool.model.objects.cards import CardState
from fpga_pool.model.objects.pool import ENDED_JOBS, Batch, BatchState, Job, JobState, LeaseKind
from fpga_pool.model.rules.shared.columns import Bools, PoolColumns
from fpga_pool.rpc.transport import Refusals
from fpga_pool.services.clock import Clock
from fpga_pool.services.scheduler.changes import Snapshots
from fpga_pool.services.scheduler.ownership import Ownership
from fpga_pool.store.quotas import OpenKind, OpenWork, open_work, undelivered
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

_METRIC_OF = {OpenKind.JOB: table.JOBS, OpenKind.TASK: table.TASKS, OpenKind.GANG: table.GANGS}


class SchedulerEvents:
    """Counts the committed changes and the planning cycles of a scheduler."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def committed(self, tx: SqlTransaction) -> None:
        """Count the changes of a transaction that was committed."""
        for job, changed_job in tx.changes(Job):
            self._job(job, changed_job)
        for batch, changed_batch in tx.changes(Batch):
            self._batch(batch, changed_batch)

    def cycle(self, result: CycleResult) -> None:
        """Record a planning cycle in which the policy was called."""
        times = result.durations
        steps = {
            "snapshot": times.snapshot_s,
            "decide": times.decide_s,
            "commit": times.commit_s,
            "dispatch": times.dispatch_s,
        }
        for step, seconds in steps.items():
            self._instruments.observe(table.PLANNING, seconds, result.family, step)
        for _ in result.failures:
            self._instruments.count(table.POLICY_FAILURES, result.family)

    def _job(self, before: Job, job: Job) -> None:
        if before.started_at is None and job.started_at is not None:
            self._instruments.observe(table.JOB_WAIT, job.started_at - job.created_at, job.project_id)
        if before.state not in ENDED_JOBS and job.state in ENDED_JOBS:
            # The result is still held for the client, but the job itself is complete.
            state = JobState.COMPLETED if job.state is JobState.RESULT_HELD else job.state
            self._instruments.count(table.JOBS_ENDED, state.value, job.function)
            if job.state is JobState.FAILED:
                self._instruments.count(table.JOB_ERRORS, job.error_code)

    def _batch(self, before: Batch, batch: Batch) -> None:
        if before.state is batch.state or batch.state is not BatchState.COMPLETED:
            return
        if batch.planned_makespan_s and batch.ended_at is not None and batch.dispatched_at is not None:
            makespan_s = batch.ended_at - batch.dispatched_at
            self._instruments.observe(table.MAKESPAN_RATIO, makespan_s / batch.planned_makespan_s, batch.policy)


class SchedulerState:
    """Reads the shards that a scheduler owns, for a scrape.

    Hosts and slots come from the snapshot that the process keeps, and ages from its failure detectors. The database is
    only queried for changes since the snapshot, and for counts of work that has not ended.
    """

    def __init__(
        self, store: Store, snapshots: Snapshots, ownership: Ownership, refusals: Refusals, clock: Clock
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._ownership = ownership
        self._refusals = refusals
        self._clock = clock

    def readers(self) -> list[Callable[[], Iterable[Sample]]]:
        """Return independent readers; if one of them fails, only its own values are missing."""
        return [self.pool, self.ownership, self.queue, self.refusals]

    def pool(self) -> Iterator[Sample]:
        """Read slots, cards and hosts."""
        return pool_samples(self._snapshots.changed_after(None), self._ownership.shards())

    def ownership(self) -> Iterator[Sample]:
        """Read the ages of the schedulers' leases on shards, and of heartbeats."""
        owned = self._ownership.shards()
        for shard, age_s in self._ownership.lease_ages().items():
            yield Sample(table.LEASE_AGE, age_s, (shard,))
            yield Sample(table.SHARD_OWNED, float(shard in owned), (shard,))
        for shard, age_s in self._ownership.heartbeat_ages().items():
            yield Sample(table.HEARTBEAT_AGE, age_s, (shard,))

    def queue(self) -> Iterator[Sample]:
        """Count the work that has not ended, and the undelivered commands."""
        owned = self._ownership.shards()
        with self._store.reading() as tx:
            found = {kind: open_work(tx.connection, kind, owned) for kind in OpenKind}
            commands = dict(undelivered(tx.connection, owned))
        now_s = self._clock()
        for kind, counts in found.items():
            for one in counts:
                yield Sample(_METRIC_OF[kind], one.count, (one.project_id, one.state))
                if kind is OpenKind.JOB and one.state == JobState.PENDING:
                    yield Sample(table.OLDEST_WAIT, max(now_s - one.oldest_at, 0.0), (one.project_id,))
        for shard in owned:
            yield Sample(table.UNDELIVERED, commands.get(shard, 0), (shard,))

    def refusals(self) -> Iterator[Sample]:
        """Read the numbers of refused messages."""
        for code, count in self._refusals.counts().items():
            yield Sample(table.REFUSED_MESSAGES, count, (code,))


def pool_samples(pool: PoolColumns, shards: Iterable[str]) -> Iterator[Sample]:
    """Count the slots, cards and hosts of some shards in a whole snapshot."""
    numbers = [pool.numbers[shard] for shard in shards if shard in pool.numbers]
    mine = np.isin(pool.hosts["shard"], numbers)
    alive = int(np.count_nonzero(pool.hosts["alive"][mine]))
    yield Sample(table.HOSTS, alive, ("alive",))
    yield Sample(table.HOSTS, int(np.count_nonzero(mine)) - alive, ("lost",))
    ours = np.isin(pool.slots["shard"], numbers)
    for words, count in _tally(pool, ours, "board", "state", "function").items():
        yield Sample(table.SLOTS, count, words)
    leases = _tally(pool, ours, "lease")
    for kind in LeaseKind:
        yield Sample(table.LEASED_SLOTS, leases.get((kind.value,), 0), (kind.value,))
    for words, count in _cards(pool, ours).items():
        yield Sample(table.CARDS, count, words)


def pool_counts(pool: PoolColumns) -> PoolCounts:
    """Return the counts of `pool_samples` over all shards, for the API."""
    found: dict[Metric, list[tuple[Any, ...]]] = defaultdict(list)
    for sample in pool_samples(pool, pool.numbers):
        if sample.value:
            found[sample.metric].append((*sample.labels, int(sample.value)))
    hosts = dict(found[table.HOSTS])
    return PoolCounts(
        release=version("fpga_pool"),
        alive_hosts=hosts.get("alive", 0),
        lost_hosts=hosts.get("lost", 0),
        card_list=tuple(CardCount(board=board, state=state, cards=cards) for board, state, cards in found[table.CARDS]),
        slot_list=tuple(
            SlotCount(board=board, state=state, function=function, slots=slots)
            for board, state, function, slots in found[table.SLOTS]
        ),
        lease_list=tuple(LeaseCount(kind=kind, slots=slots) for kind, slots in found[table.LEASED_SLOTS]),
    )


def work_counts(store: Store, project_id: str | None) -> list[WorkCount]:
    """Return the counts of work of a project (None = of all projects) that has not ended."""
    found: dict[tuple[OpenKind, str], list[OpenWork]] = defaultdict(list)
    with store.reading() as tx:
        shards = [shard.name for shard in tx.shards()]
        for kind in OpenKind:
            for one in open_work(tx.connection, kind, shards, project_id):
                found[kind, one.state].append(one)
    return [
        WorkCount(
            kind=kind.value,
            state=state,
            count=sum(one.count for one in several),
            oldest_at=min(one.oldest_at for one in several),
        )
        for (kind, state), several in found.items()
    ]


def _tally(pool: PoolColumns, rows: Bools, *columns: str) -> Mapping[tuple[str, ...], int]:
    """Return how often each combination of words occurs in some columns of some slots."""
    values = [pool.slots[name][rows] for name in columns]
    first, _, counts = _groups(values)
    words = zip(*([pool.words[number] for number in column[first].tolist()] for column in values), strict=True)
    return dict(zip(words, counts.tolist(), strict=True))


def _cards(pool: PoolColumns, rows: Bools) -> Mapping[tuple[Any, CardState], int]:
    """Return the number of cards by board and state; a card is in service while one of its slots is."""
    first, card_of, _ = _groups([pool.slots["host"][rows], pool.slots["card"][rows]])
    usable = np.bincount(card_of, weights=pool.in_service[rows], minlength=len(first)) > 0
    alive = pool.hosts["alive"][pool.slot_host[rows][first]] == 1
    boards = [pool.words[board] for board in pool.slots["board"][rows][first].tolist()]
    counts = Counter(dict.fromkeys(product(set(boards), CardState), 0))
    for board, is_usable, is_alive in zip(boards, usable.tolist(), alive.tolist(), strict=True):
        working = CardState.IN_SERVICE if is_usable else CardState.OUT_OF_SERVICE
        counts[board, working if is_alive else CardState.UNREACHABLE] += 1
    return counts


def _groups(columns: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Group rows that have the same values in all columns.

    Returns the first row of each group (G,), the group of each row (N,), and the size of each group (G,).
    """
    groups = np.zeros_like(columns[0])
    for column in columns:
        _, groups = np.unique(groups * (column.max(initial=0) + 1) + column, return_inverse=True)
    _, first, counts = np.unique(groups, return_index=True, return_counts=True)
    return ints(first), ints(groups), ints(counts)
