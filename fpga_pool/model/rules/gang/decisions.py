"""The view of one shard's gangs for their policy, and the commit of its decisions."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.gangs.gangs import Gangs, How, Move
from fpga_pool.core.gangs.reservation import outlook
from fpga_pool.core.gangs.tiers import BEHIND, IN_FRONT, NOBODY, QUEUED, Tiers
from fpga_pool.core.policy import GangPolicy
from fpga_pool.model.flavor import Tier
from fpga_pool.model.lifecycle.gang import (
    GangGaveUp,
    Killed,
    MoveBegun,
    StartedBehind,
    StartedInFront,
    Swapped,
)
from fpga_pool.model.lifecycle.process import PROCESS, SaveRequested, StopRequested, TierChanged
from fpga_pool.model.messages.requests import GangDetail
from fpga_pool.model.objects.gangs import (
    ENDED_GANGS,
    PLACED_GANGS,
    Gang,
    GangState,
    Process,
    Processor,
    place_of,
    process_uuid,
)
from fpga_pool.model.rules.gang.changes import (
    begin_migration,
    begin_trial,
    change_gang,
    change_process,
    end_trial,
    end_trials_behind,
    reserve,
    settle_gang,
)
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

#: Moves to the background; all others lead to the foreground.
TO_BACKGROUND = frozenset({How.START_BEHIND, How.TRY})
_CORE_TIER = {Tier.FOREGROUND: IN_FRONT, Tier.BACKGROUND: BEHIND}


@dataclass(frozen=True, slots=True)
class Seen:
    """The foreground and the queue at the last decision of the policy.

    Section 2.2 of the paper: gangs are brought to the foreground when a gang arrives or leaves the foreground.
    """

    #: Processors that gangs may get, and processors whose foreground was taken.
    usable: frozenset[str]
    taken: frozenset[str]
    #: Gangs that did not run, and the head of the queue; None = the queue was empty.
    queue: frozenset[str]
    head: str | None


@dataclass(frozen=True, slots=True, eq=False)
class GangView:
    """The policy's view, and the objects that its indices refer to."""

    tiers: Tiers
    #: Gangs in order of arrival, as read.
    gangs: tuple[Gang, ...]
    processors: tuple[Processor, ...]
    #: Waiting gangs that are left out of the view because they cannot be placed, each with the reason.
    left_out: tuple[tuple[Gang, str], ...]
    #: Names of the processors that gangs may get.
    usable: frozenset[str]
    now_s: float

    @property
    def trials_over(self) -> bool:
        """Whether the time of a trial is up, so that `end_trials` would end it."""
        return any(_is_over(gang, self.now_s) for gang in self.gangs)

    def seen(self, put_off: Iterable[Move] = ()) -> Seen:
        """Return the state to remember; gangs of moves that were `put_off` count as queued."""
        waiting = {move.gang for move in put_off}
        tiers, names = self.tiers, [processor.name for processor in self.processors]
        queue = [gang.uuid for index, gang in enumerate(self.gangs) if tiers.tier[index] == QUEUED or index in waiting]
        return Seen(
            usable=self.usable,
            taken=frozenset(name for name, holder in zip(names, tiers.front.tolist(), strict=True) if holder != NOBODY),
            queue=frozenset(queue),
            head=self.gangs[tiers.queue.rows[0]].uuid if len(tiers.queue) else None,
        )

    def has_news_since(self, seen: Seen) -> bool:
        """Return whether a gang has arrived, or the foreground or the head has changed other than by a move."""
        now = self.seen()
        in_queue = {self.gangs[index].uuid for index in self.tiers.queue.present()}
        return (
            now.usable != seen.usable
            or bool(seen.taken - now.taken)
            or bool(now.queue - seen.queue)
            or (seen.head is not None and seen.head not in in_queue)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOutlook:
    """Pending reason and expected start of a gang that is not in the foreground."""

    gang: str
    reason: str
    #: When it is expected to be in the foreground, by the estimates of all gangs, UTC seconds; None = unknown.
    expected_at: float | None


def gang_view(
    tx: Transaction, settings: PoolSettings, policy: GangPolicy, now_s: float, seen: Seen | None = None
) -> GangView | None:
    """Return the gangs and processors of the shard as a view for a policy; None = no gang is open.

    `seen` is the state at the last decision; None = unknown.
    """
    open_gangs = [gang for gang in tx.open_gangs() if not gang.cancel_requested]
    if not open_gangs:
        return None
    processes = tx.processes()
    attempts = {gang.uuid: gang.attempt for gang in open_gangs if gang.state in PLACED_GANGS}
    theirs = [process for process in processes if attempts.get(process.gang_uuid) == process.attempt]
    usable = _usable(tx)
    in_use = {process.processor for process in theirs}
    processors = [processor for processor in tx.processors() if processor.name in usable | in_use]
    left_out = [(gang, why) for gang in open_gangs if (why := _hopeless(gang, len(usable), settings))]
    out = {gang.uuid for gang, _ in left_out}
    gangs = [gang for gang in open_gangs if gang.uuid not in out]
    tiers = Tiers(
        len(processors),
        Gangs(
            width=np.array([gang.processes for gang in gangs], np.int64),
            estimate_s=np.array([gang.runtime_s for gang in gangs]),
            usage=np.array([gang.cpu_usage for gang in gangs]),
        ),
        migration_s=settings.gang_migration_s,
        patience=policy.patience,
        predicted_s=np.array([gang.expected_s or gang.runtime_s for gang in gangs]) if policy.last_runs else None,
        trial_s=policy.trial_s,
        in_service=len(usable),
    )
    _fill(tiers, gangs, processors, processes, now_s)
    _withhold(tiers, [index for index, processor in enumerate(processors) if processor.name not in usable])
    view = GangView(tiers, tuple(gangs), tuple(processors), tuple(left_out), usable, now_s)
    tiers.news_in_front = seen is None or view.has_news_since(seen)
    return view


def _usable(tx: Transaction) -> frozenset[str]:
    """Return the names of the processors that gangs may get: those offered by hosts that are alive."""
    alive = {host.name for host in tx.hosts() if host.alive}
    return frozenset(processor.name for processor in tx.processors() if processor.offered and processor.host in alive)


def _withhold(tiers: Tiers, processors: Iterable[int]) -> None:
    """Block the free tiers of processors that are not usable, so that only the gangs already there keep them."""
    for processor in processors:
        for tier, holders in ((IN_FRONT, tiers.front), (BEHIND, tiers.behind)):
            if holders[processor] == NOBODY:
                tiers.block(processor, tier)


def _hopeless(gang: Gang, processors: int, settings: PoolSettings) -> str:
    if gang.state in PLACED_GANGS:
        return ""
    if gang.failures >= settings.max_attempts:
        return f"failed {gang.failures} times; last: {gang.reason}"
    if gang.processes > processors:
        return f"it needs {gang.processes} processors, the pool has {processors}"
    return ""


def _fill(
    tiers: Tiers, gangs: Sequence[Gang], processors: Sequence[Processor], processes: Sequence[Process], now_s: float
) -> None:
    """Put gangs on their processors in the view, and block the places of other processes, which are to end."""
    number = {processor.name: index for index, processor in enumerate(processors)}
    current: dict[str, list[Process]] = {}
    attempts = {gang.uuid: gang.attempt for gang in gangs if gang.state in PLACED_GANGS}
    for process in processes:
        if attempts.get(process.gang_uuid) == process.attempt:
            current.setdefault(process.gang_uuid, []).append(process)
        elif process.processor in number:
            tiers.block(number[process.processor], _CORE_TIER[process.tier])
    for index, gang in enumerate(gangs):
        tiers.arrive(index, gang.created_at)
        if gang.uuid in current:
            places = sorted(current[gang.uuid], key=lambda process: process.index)
            where = np.array([number[process.processor] for process in places], np.int64)
            if gang.state is GangState.BACKGROUND:
                tiers.apply(Move(index, How.START_BEHIND, where), now_s)
                tiers.done_s[index] = min(process.done_by(now_s) for process in places)
                tiers.correct(index, tiers.done_s[index])
            else:
                tiers.resume(index, where, now_s if gang.ends_at is None else gang.ends_at)
                tiers.gave_way_s[index] = gang.gave_way_s
    tiers.trying = {index for index, gang in enumerate(gangs) if gang.trial_ends_at is not None}


def decided_moves(view: GangView, decide: Callable[[Tiers], Iterator[Move]]) -> list[Move]:
    """Return the moves that the policy makes now, in its order; each is applied to the view."""
    moves = []
    for move in decide(view.tiers):
        view.tiers.apply(move, view.now_s)
        moves.append(move)
    return moves


def end_trials(tx: Transaction, now_s: float) -> list[Gang]:
    """End the trials whose time is up; return their gangs."""
    return [end_trial(tx, gang, now_s) for gang in tx.open_gangs() if _is_over(gang, now_s)]


def without_ended_trials(gangs: Iterable[Gang], now_s: float) -> Iterator[Gang]:
    """Yield the gangs as if the trials whose time is up had ended."""
    for gang in gangs:
        yield changed(gang, trial_ends_at=None) if _is_over(gang, now_s) else gang


def _is_over(gang: Gang, now_s: float) -> bool:
    return gang.trial_ends_at is not None and gang.trial_ends_at <= now_s


def commit_gang_moves(tx: Transaction, view: GangView, moves: Sequence[Move], settings: PoolSettings) -> list[Gang]:
    """Apply the moves in order, up to the first that is no longer possible; return the gangs moved."""
    processes = tx.processes()
    held = {process.held_place for process in processes}
    trials = any(process.exchanged for process in processes)
    usable, trial_s = _usable(tx), view.tiers.trial_s
    moved = []
    for move in moves:
        known = view.gangs[move.gang]
        gang = tx.gang(known.uuid)
        names = [view.processors[index].name for index in move.processors]
        tier = Tier.BACKGROUND if move.how in TO_BACKGROUND else Tier.FOREGROUND
        places = {place_of(name, tier) for name in names}
        if gang.generation != known.generation or places & held or not usable.issuperset(names):
            break
        if move.how is How.SWAP:
            held -= {process.held_place for process in tx.processes(gang=gang.uuid)}
        if tier is Tier.FOREGROUND and trials:
            end_trials_behind(tx, names, view.now_s)
            gang = end_trial(tx, tx.gang(gang.uuid), view.now_s)
        trials |= move.how is How.TRY
        _commit(tx, gang, move.how, names, settings, trial_s, view.now_s)
        held |= places
        moved.append(tx.gang(gang.uuid))
    return moved


def remembered(view: GangView, moves: Sequence[Move], moved: Sequence[Gang]) -> Seen | None:
    """Return the state to remember after a commit; None if a move to the foreground was no longer possible."""
    put_off = moves[len(moved) :]
    return view.seen(put_off) if all(move.how in TO_BACKGROUND for move in put_off) else None


def _commit(
    tx: Transaction,
    gang: Gang,
    how: How,
    names: Sequence[str],
    settings: PoolSettings,
    trial_s: float,
    now_s: float,
) -> None:
    before = {process.index: process for process in tx.processes(gang=gang.uuid) if process.attempt == gang.attempt}
    done_s = [before[index].done_by(now_s) if index in before else 0.0 for index in range(gang.processes)]
    ends_at = now_s + gang.runtime_s
    match how:
        case How.START_BEHIND:
            gang = change_gang(tx, gang, StartedBehind(), now_s)
            reserve(tx, gang, names, Tier.BACKGROUND, [0.0] * len(names), now_s)
        case How.TRY:
            gang = change_gang(tx, gang, StartedBehind(trial_ends_at=now_s + trial_s), now_s)
            reserve(tx, gang, names, Tier.BACKGROUND, [0.0] * len(names), now_s)
            begin_trial(tx, gang, trial_s, now_s)
        case How.START:
            gang = change_gang(tx, gang, StartedInFront(ends_at=ends_at), now_s)
            reserve(tx, gang, names, Tier.FOREGROUND, [0.0] * len(names), now_s)
        case How.SWAP:
            gang = change_gang(tx, gang, Swapped(ends_at=ends_at - min(done_s)), now_s)
            for process in before.values():
                change_process(tx, process, TierChanged(tier=Tier.FOREGROUND), now_s)
        case How.MIGRATE:
            arrives_at = now_s + settings.gang_migration_s
            gang = change_gang(tx, gang, MoveBegun(ends_at=arrives_at + gang.runtime_s - min(done_s)), now_s)
            begin_migration(tx, gang, now_s)
            reserve(tx, gang, names, Tier.FOREGROUND, done_s, now_s)
            _end_all(tx, before.values(), SaveRequested(), now_s)
        case How.RESTART:
            gang = change_gang(tx, gang, Killed(ends_at=ends_at), now_s)
            reserve(tx, gang, names, Tier.FOREGROUND, [0.0] * len(names), now_s)
            _end_all(tx, before.values(), StopRequested(reason="restarts elsewhere"), now_s)
    settle_gang(tx, gang.uuid, now_s)


def _end_all(tx: Transaction, processes: Iterable[Process], event: object, now_s: float) -> None:
    for process in processes:
        if PROCESS.allows(process.state, type(event)):
            change_process(tx, process, event, now_s)


def gang_outlooks(tx: Transaction, settings: PoolSettings, policy: GangPolicy, now_s: float) -> dict[str, GangOutlook]:
    """Return the outlooks of the gangs of the shard that wait for the foreground, by uuid."""
    view = gang_view(tx, settings, policy, now_s)
    return {} if view is None else outlooks_in(view)


def outlooks_in(view: GangView) -> dict[str, GangOutlook]:
    """Return the outlooks of the gangs of a view that wait for the foreground, by uuid."""
    said = [GangOutlook(gang=gang.uuid, reason=why, expected_at=None) for gang, why in view.left_out]
    for found in outlook(view.tiers, view.now_s):
        gang = view.gangs[found.gang]
        reason = f"{found.why.value}; {gang.reason}" if gang.reason else found.why.value
        expected_at = found.begin_s if math.isfinite(found.begin_s) else None
        said.append(GangOutlook(gang=gang.uuid, reason=reason, expected_at=expected_at))
    return {one.gang: one for one in said}


def give_up_gangs(tx: Transaction, settings: PoolSettings, now_s: float) -> list[Gang]:
    """End the gangs that have failed too often and have no processes left; return them."""
    ended = []
    for gang in tx.open_gangs():
        failed = gang.state is GangState.QUEUED and gang.failures >= settings.max_attempts
        if failed and not gang.cancel_requested and not tx.processes(gang=gang.uuid):
            reason = f"given up after {gang.failures} failures; last: {gang.reason}"
            ended.append(change_gang(tx, gang, GangGaveUp(reason=reason), now_s))
    return ended


def gang_detail(tx: Transaction, uuid: str, settings: PoolSettings, policy: GangPolicy, now_s: float) -> GangDetail:
    """Return a gang of the shard with its pending reason, expected start and progress."""
    gang = tx.gang(uuid)
    said = gang_outlooks(tx, settings, policy, now_s).get(uuid) if gang.state not in ENDED_GANGS else None
    processes = gang_attempt(tx, gang)
    return GangDetail(
        gang=gang,
        pending_reason=said.reason if said else "",
        expected_at=said.expected_at if said else None,
        done_s=min((process.done_by(now_s) for process in processes), default=0.0),
        process_list=tuple(processes),
        migration_list=tuple(tx.migrations(uuid)),
    )


def gang_attempt(tx: Transaction, gang: Gang) -> list[Process]:
    """Return the processes of the current or last attempt of a gang; empty if it never had processors."""
    if gang.attempt == 0:
        return []
    return [tx.process(process_uuid(gang.uuid, gang.attempt, index)) for index in range(gang.processes)]
