"""Changes of gangs and their consequences for the processes, and the other way round."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fpga_pool.model.flavor import Tier
from fpga_pool.model.lifecycle.gang import (
    GANG,
    MIGRATION,
    AllResumed,
    AllSaved,
    Completed,
    Displaced,
    GangCancelled,
    GaveWay,
    MigrationFailed,
    MoveEnded,
    TrialEnded,
)
from fpga_pool.model.lifecycle.process import (
    PROCESS,
    Launched,
    NothingLeftToDo,
    PriorityChanged,
    Released,
    StopRequested,
    Vanished,
)
from fpga_pool.model.objects.gangs import (
    ENDED_GANGS,
    PLACED_GANGS,
    Gang,
    GangState,
    Migration,
    Process,
    ProcessState,
    migration_uuid,
    process_uuid,
)
from fpga_pool.model.rules.shared.changes import send_to
from fpga_pool.model.transaction import Transaction


def change_gang(tx: Transaction, gang: Gang, event: object, now_s: float) -> Gang:
    """Apply `event` to a gang; the caller must change its processes."""
    changed, _ = GANG.transition(gang, event, now_s)
    tx.save(changed)
    return tx.gang(gang.uuid)


def change_process(tx: Transaction, process: Process, event: object, now_s: float) -> Process:
    """Apply `event` to a process, and command its agent."""
    changed, actions = PROCESS.transition(process, event, now_s)
    tx.save(changed)
    for action in actions:
        send_to(tx, tx.processor(changed.processor), action)
    if changed.state is ProcessState.ENDED and changed.cpu_s:
        gang = tx.gang(changed.gang_uuid)
        tx.save(replace(gang, cpu_s=gang.cpu_s + changed.cpu_s))
    return tx.process(process.uuid)


def reserve(
    tx: Transaction, gang: Gang, processors: Sequence[str], tier: Tier, done_s: Sequence[float], now_s: float
) -> None:
    """Reserve places for the processes of a gang's current attempt. Raises Conflict if a place is taken.

    `done_s` is the work that each process has already done, in seconds on a dedicated processor.
    """
    tx.add(
        *(
            Process(
                uuid=process_uuid(gang.uuid, gang.attempt, index),
                gang_uuid=gang.uuid,
                index=index,
                attempt=gang.attempt,
                processor=name,
                host=tx.processor(name).host,
                tier=tier,
                shard=gang.shard,
                done_s=done,
                progress_at=now_s,
                exchanged=gang.trial_ends_at is not None,
            )
            for index, (name, done) in enumerate(zip(processors, done_s, strict=True))
        )
    )


def begin_migration(tx: Transaction, gang: Gang, now_s: float) -> None:
    """Record that a gang is moving to the processors of its current attempt."""
    tx.add(
        Migration(
            uuid=migration_uuid(gang.uuid, gang.attempt),
            gang_uuid=gang.uuid,
            attempt=gang.attempt,
            began_at=now_s,
            shard=gang.shard,
        )
    )


def change_migration(tx: Transaction, gang: Gang, event: object, now_s: float) -> None:
    """Apply `event` to the current migration of a gang."""
    migration = tx.migration(migration_uuid(gang.uuid, gang.attempt))
    tx.save(MIGRATION.transition(migration, event, now_s)[0])


def begin_trial(tx: Transaction, gang: Gang, trial_s: float, now_s: float) -> None:
    """Make the foreground processes on a gang's processors give way to it; its places must be reserved already."""
    places = {process.processor for process in tx.processes(gang=gang.uuid) if process.attempt == gang.attempt}
    others = [process for process in _in_front(tx, places) if process.gang_uuid != gang.uuid]
    for uuid in dict.fromkeys(process.gang_uuid for process in others):
        other = tx.gang(uuid)
        if other.state in PLACED_GANGS:
            change_gang(tx, other, GaveWay(for_s=trial_s), now_s)
    _exchange(tx, others, now_s, exchanged=True)


def end_trial(tx: Transaction, gang: Gang, now_s: float) -> Gang:
    """End the trial of a gang, if it is in one: the foreground processes on its processors get priority again."""
    if gang.trial_ends_at is None:
        return gang
    gang = change_gang(tx, gang, TrialEnded(), now_s)
    own = [process for process in tx.processes(gang=gang.uuid) if process.exchanged]
    _exchange(tx, own, now_s, exchanged=False)
    places = {process.processor for process in own}
    _exchange(tx, [process for process in _in_front(tx, places) if process.exchanged], now_s, exchanged=False)
    return tx.gang(gang.uuid)


def end_trials_behind(tx: Transaction, processors: Iterable[str], now_s: float) -> None:
    """End the trials of gangs on processors that get another foreground gang, because it does not give way to them."""
    names = set(processors)
    trying = {process.gang_uuid for process in tx.processes() if process.processor in names and process.exchanged}
    for uuid in sorted(trying):
        end_trial(tx, tx.gang(uuid), now_s)


def _in_front(tx: Transaction, processors: set[str]) -> list[Process]:
    return [
        process for process in tx.processes() if process.tier is Tier.FOREGROUND and process.processor in processors
    ]


def _exchange(tx: Transaction, processes: Iterable[Process], now_s: float, *, exchanged: bool) -> None:
    for process in processes:
        change_process(tx, process, PriorityChanged(exchanged=exchanged), now_s)


def displace_gang(tx: Transaction, gang: Gang, reason: str, now_s: float, *, lost_host: str = "") -> None:
    """Take a gang off its processors; it can get others once its processes not on `lost_host` have ended."""
    if gang.state in PLACED_GANGS and not gang.cancel_requested:
        if gang.state is GangState.MOVING:
            change_migration(tx, gang, MigrationFailed(reason=reason), now_s)
        change_gang(tx, end_trial(tx, gang, now_s), Displaced(reason=reason), now_s)
    stop_processes(tx, gang, reason, now_s, lost_host=lost_host)
    settle_gang(tx, gang.uuid, now_s)


def stop_processes(tx: Transaction, gang: Gang, reason: str, now_s: float, *, lost_host: str = "") -> None:
    """Stop all processes of a gang; those on a lost host are abandoned."""
    for process in tx.processes(gang=gang.uuid):
        if lost_host and process.host == lost_host:
            change_process(tx, process, Vanished(reason=reason), now_s)
        elif process.state not in (ProcessState.STOPPING, ProcessState.STOPPED):
            change_process(tx, process, StopRequested(reason=reason), now_s)


def settle_gang(tx: Transaction, gang_uuid: str, now_s: float) -> None:
    """Advance a gang after its processes have changed: launch, end its move, complete, or end it if cancelled."""
    gang = _release_stopped(tx, gang_uuid, now_s)
    live = tx.processes(gang=gang_uuid)
    if gang.cancel_requested and gang.state not in ENDED_GANGS and not live:
        change_gang(tx, gang, GangCancelled(), now_s)
    if gang.cancel_requested or gang.state not in PLACED_GANGS:
        return
    older = [process for process in live if process.attempt != gang.attempt]
    if any(process.state is not ProcessState.EXITED for process in older):
        return
    if len(older) == gang.processes:  # the gang completed its work before it could be moved
        _complete(tx, gang, live, now_s)
        return
    _launch(tx, gang, older, now_s)
    states = {process.state for process in tx.processes(gang=gang_uuid)}
    if states == {ProcessState.EXITED}:
        _complete(tx, gang, tx.processes(gang=gang_uuid), now_s)
    elif gang.state is GangState.MOVING and states <= {ProcessState.RUNNING, ProcessState.EXITED}:
        change_migration(tx, gang, AllResumed(), now_s)
        change_gang(tx, gang, MoveEnded(), now_s)


def _release_stopped(tx: Transaction, gang_uuid: str, now_s: float) -> Gang:
    """Free the places of attempts of which all processes have been stopped; return the gang."""
    live = tx.processes(gang=gang_uuid)
    stopping = {process.attempt for process in live if process.state is ProcessState.STOPPING}
    for process in live:
        if process.state is ProcessState.STOPPED and process.attempt not in stopping:
            change_process(tx, process, Released(), now_s)
    return tx.gang(gang_uuid)


def _launch(tx: Transaction, gang: Gang, exited: Sequence[Process], now_s: float) -> None:
    """Launch the reserved processes, except those whose work was done in the former attempt (`exited`)."""
    done = {process.index for process in exited}
    for process in exited:
        change_process(tx, process, Released(), now_s)
    waiting = [process for process in tx.processes(gang=gang.uuid) if process.state is ProcessState.RESERVED]
    for process in waiting:
        event = NothingLeftToDo() if process.index in done else Launched(gang=gang)
        change_process(tx, process, event, now_s)
    if waiting and gang.state is GangState.MOVING:
        change_migration(tx, gang, AllSaved(), now_s)


def _complete(tx: Transaction, gang: Gang, live: Sequence[Process], now_s: float) -> None:
    if gang.state is GangState.MOVING:
        reached = all(process.attempt == gang.attempt for process in live)
        event = AllResumed() if reached else MigrationFailed(reason="its work was done before it could be moved")
        change_migration(tx, gang, event, now_s)
    gang = end_trial(tx, gang, now_s)
    ran_s = max(process.done_s for process in live)
    for process in tx.processes(gang=gang.uuid):
        event_of = Released() if process.state is ProcessState.EXITED else StopRequested(reason="")
        change_process(tx, process, event_of, now_s)
    change_gang(tx, tx.gang(gang.uuid), Completed(ran_s=ran_s), now_s)
