"""Statements that are built once: building one takes longer than running it.

A statement that is kept also keeps its place in SQLAlchemy's cache of compiled ones.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    Text,
    Update,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    type_coerce,
    update,
)

from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.pool import ACTIVE_JOBS, NEVER, Host, Job, JobState, Lease, Slot
from fpga_pool.store.tables import (
    BATCHES,
    COMMANDS,
    HOSTS,
    JOBS,
    LEASES,
    PLACES,
    SCHEDULERS,
    SHARDS,
    SLOTS,
    TIME_MODELS,
    columns,
    table,
)


@cache
def all_of(cls: type) -> Select[Any]:
    """Return the query for all values of a class, to be narrowed."""
    return select(*columns(cls))


@cache
def by_key(cls: type, *, lock: bool = False) -> Select[Any]:
    """Return the query for the value whose key is `key`; `lock` keeps others from it until the transaction ends."""
    query = all_of(cls).where(table(cls).c[PLACES[cls].key] == bindparam("key"))
    return query.with_for_update() if lock else query


@cache
def by_keys(cls: type) -> Select[Any]:
    """Return the query for the values whose keys are among `keys`."""
    return all_of(cls).where(table(cls).c[PLACES[cls].key].in_(bindparam("keys", expanding=True)))


@cache
def without_stories(cls: type) -> tuple[Column[Any] | ColumnElement[Any], ...]:
    """Return the columns of a class, and in the place of its history an empty one, which costs nothing to read."""
    history = table(cls).c.history
    return tuple(
        type_coerce(literal_column("'[]'"), history.type) if column is history else column for column in columns(cls)
    )


#: The jobs whose uuids are among `keys`, without their histories.
JOB_SUMMARIES = select(*without_stories(Job)).where(JOBS.c.uuid.in_(bindparam("keys", expanding=True)))


@cache
def jobs_of_batch(*, in_states: bool, after: int | None) -> Select[Any]:
    """Return the query for the jobs of `batch`, by index, without their histories.

    Only those in one of `states`, and, if shards were seen before, only those that have changed since: of the shard
    `shard_0` after the generation `seen_0`, and so on, and all of shards that are not among `seen`.
    """
    found = select(*without_stories(Job)).where(JOBS.c.batch_uuid == bindparam("batch"))
    if in_states:
        found = found.where(JOBS.c.state.in_(bindparam("states", expanding=True)))
    if after is not None:
        newer = [
            (JOBS.c.shard == bindparam(f"shard_{place}")) & (JOBS.c.changed_in > bindparam(f"seen_{place}"))
            for place in range(after)
        ]
        found = found.where(or_(*newer, JOBS.c.shard.not_in(bindparam("seen", expanding=True))))
    return found.order_by(JOBS.c.index)


@cache
def active_jobs(*, scoped: bool, on: str) -> Select[Any]:
    """Return the query for the jobs in a state of ACTIVE_JOBS, whose column `on` (if one is named) is `place`."""
    where = [JOBS.c[on] == bindparam("place")] if on else []
    active = all_of(Job).where(JOBS.c.state.in_(ACTIVE_JOBS), *_within(JOBS.c.shard, scoped=scoped), *where)
    return active.order_by(JOBS.c.slot, JOBS.c.order, JOBS.c.uuid)


#: The jobs in state RESULT_HELD on `host`, oldest first.
HELD_RESULTS = (
    all_of(Job)
    .where(JOBS.c.state == JobState.RESULT_HELD, JOBS.c.host == bindparam("host"))
    .order_by(JOBS.c.finished_at, JOBS.c.uuid)
)


@cache
def living_hosts(*, scoped: bool) -> Select[Any]:
    """Return the query for name, agent, start and last heartbeat of the hosts that live."""
    query = select(HOSTS.c.name, HOSTS.c.agent_id, HOSTS.c.boot, HOSTS.c.beat)
    return query.where(HOSTS.c.alive, *_within(HOSTS.c.shard, scoped=scoped))


@cache
def exhausted_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state PENDING with at least `attempts` attempts that count."""
    pending = all_of(Job).where(JOBS.c.state == JobState.PENDING, *_within(JOBS.c.shard, scoped=scoped))
    return pending.where(JOBS.c.attempt - JOBS.c.excused >= bindparam("attempts")).order_by(JOBS.c.uuid)


@cache
def overdue_inputs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose planned transfer was over before `due_before`.

    Only those with inputs of more than `above_bytes`.
    """
    waiting = all_of(Job).where(JOBS.c.state == JobState.WAITING_INPUT, *_within(JOBS.c.shard, scoped=scoped))
    late = waiting.where(JOBS.c.input_due_at < bindparam("due_before"), JOBS.c.input_bytes > bindparam("above_bytes"))
    return late.order_by(JOBS.c.uuid)


@cache
def inputs_due(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose planned transfer is not over by `due_after`."""
    waiting = all_of(Job).where(JOBS.c.state == JobState.WAITING_INPUT, *_within(JOBS.c.shard, scoped=scoped))
    return waiting.where(JOBS.c.input_due_at > bindparam("due_after")).order_by(JOBS.c.uuid)


@cache
def astray(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose inputs do not move as planned."""
    waiting = all_of(Job).where(JOBS.c.state == JobState.WAITING_INPUT, *_within(JOBS.c.shard, scoped=scoped))
    return waiting.where(JOBS.c.moved_bytes.is_not(None)).order_by(JOBS.c.uuid)


@cache
def among(cls: type, column: str) -> Select[Any]:
    """Return the query for those of `values` that a column holds."""
    found = table(cls).c[column]
    return select(found).where(found.in_(bindparam("values", expanding=True)))


def _within(column: Column[str], *, scoped: bool) -> list[ColumnElement[bool]]:
    """Return what limits a list to the shard `scope`, if anything does."""
    return [column == bindparam("scope")] if scoped else []


#: All hosts, by name.
ALL_HOSTS = all_of(Host).order_by(HOSTS.c.name)


@cache
def slots(*, scoped: bool, of_host: bool) -> Select[Any]:
    """Return the query for the slots (of `host`), by name."""
    on_host = [SLOTS.c.host == bindparam("host")] if of_host else []
    return all_of(Slot).where(*_within(SLOTS.c.shard, scoped=scoped), *on_host).order_by(SLOTS.c.name)


#: Name and generation of every shard.
SHARD_GENERATIONS = select(SHARDS.c.name, SHARDS.c.pool_generation)


@cache
def pending_batches(*, scoped: bool) -> Select[Any]:
    """Return the query for age, uuid, policy and one function of each batch that has such a job in state PENDING.

    Not of those that are withheld.  And how many such jobs there are, and the bytes of their largest input.
    """
    age, rank = (BATCHES.c.created_at, BATCHES.c.uuid), (BATCHES.c.priority, BATCHES.c.deadline_at)
    asked = BATCHES.c.policy, JOBS.c.function
    found = select(*age, *asked, func.count(), func.max(JOBS.c.input_bytes))
    found = found.select_from(JOBS.join(BATCHES, BATCHES.c.uuid == JOBS.c.batch_uuid))
    pending = found.where(JOBS.c.state == JobState.PENDING, *_within(JOBS.c.shard, scoped=scoped))
    pending = pending.where(BATCHES.c.held.is_(False), BATCHES.c.waits.is_(False))
    return pending.group_by(*age, *rank, *asked).order_by(
        BATCHES.c.priority.desc(), func.coalesce(BATCHES.c.deadline_at, NEVER), *age
    )


#: The batches that wait for others, oldest first, each with these.
WAITING_BATCHES = (
    select(BATCHES.c.uuid, BATCHES.c.waits_for)
    .where(BATCHES.c.waits.is_(True))
    .order_by(BATCHES.c.created_at, BATCHES.c.uuid)
)


#: Uuid and state of the batches whose uuids are among `keys`.
BATCH_STATES = select(BATCHES.c.uuid, BATCHES.c.state).where(BATCHES.c.uuid.in_(bindparam("keys", expanding=True)))


@cache
def policies_at_work(*, scoped: bool) -> Select[Any]:
    """Return the query for the policies of batches with jobs that wait or are under way."""
    found = select(BATCHES.c.policy).select_from(JOBS.join(BATCHES, BATCHES.c.uuid == JOBS.c.batch_uuid))
    at_work = JOBS.c.state.in_({JobState.PENDING, *ACTIVE_JOBS})
    return found.where(at_work, *_within(JOBS.c.shard, scoped=scoped)).distinct()


@cache
def newest_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs of batches of one of `policies` that were created `since` then, newest first."""
    found = all_of(Job).join(BATCHES, BATCHES.c.uuid == JOBS.c.batch_uuid)
    wanted = BATCHES.c.policy.in_(bindparam("policies", expanding=True)), BATCHES.c.created_at >= bindparam("since")
    newest = BATCHES.c.created_at.desc(), JOBS.c.batch_uuid.desc(), JOBS.c.index.desc()
    return found.where(*wanted, *_within(JOBS.c.shard, scoped=scoped)).order_by(*newest)


@cache
def pending_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs of `batch` in state PENDING, by index."""
    pending = all_of(Job).where(JOBS.c.batch_uuid == bindparam("batch"), JOBS.c.state == JobState.PENDING)
    return pending.where(*_within(JOBS.c.shard, scoped=scoped)).order_by(JOBS.c.index)


def _planned_end() -> ColumnElement[float]:
    return func.coalesce(JOBS.c.dispatched_at, 0.0) + func.coalesce(JOBS.c.end_s, 0.0)


@cache
def planned_end() -> Select[Any]:
    """Return the query for the planned end of the last active job of `batch`."""
    return select(func.max(_planned_end())).where(
        JOBS.c.batch_uuid == bindparam("batch"), JOBS.c.state.in_(ACTIVE_JOBS)
    )


@cache
def backlogs(*, scoped: bool) -> Select[Any]:
    """Return the query for slot, end, end of the transfers and last order of the active jobs of each slot."""
    ends = _planned_end()
    due_at = case((JOBS.c.state == JobState.WAITING_INPUT, JOBS.c.input_due_at), else_=0.0)
    found = select(JOBS.c.slot, func.max(ends), func.max(due_at), func.max(JOBS.c.order))
    active = found.where(JOBS.c.state.in_(ACTIVE_JOBS), *_within(JOBS.c.shard, scoped=scoped))
    return active.group_by(JOBS.c.slot).order_by(JOBS.c.slot)


@cache
def overdue(*, scoped: bool) -> Select[Any]:
    """Return the query for uuid and time of the active jobs that were to have begun, or ended, before `due_before`."""
    due_s = case((JOBS.c.state == JobState.RUNNING, JOBS.c.end_s), else_=JOBS.c.start_s)
    due_at = func.coalesce(JOBS.c.dispatched_at, 0.0) + func.coalesce(due_s, 0.0)
    active = select(JOBS.c.uuid, due_at).where(JOBS.c.state.in_(ACTIVE_JOBS), *_within(JOBS.c.shard, scoped=scoped))
    return active.where(due_at < bindparam("due_before"))


#: The leases in force on the slots whose names are among `keys`.
LEASES_ON_SLOTS = all_of(Lease).where(LEASES.c.held_slot.in_(bindparam("keys", expanding=True)))


@cache
def leases_on_host() -> Select[Any]:
    """Return the leases in force on the slots of one host."""
    held = all_of(Lease).join(SLOTS, SLOTS.c.name == LEASES.c.held_slot)
    return held.where(SLOTS.c.host == bindparam("host")).order_by(LEASES.c.slot)


@cache
def held_leases(*, scoped: bool) -> Select[Any]:
    """Return the query for the leases in force, by slot."""
    held = all_of(Lease).join(SLOTS, SLOTS.c.name == LEASES.c.held_slot)
    return held.where(*_within(SLOTS.c.shard, scoped=scoped)).order_by(LEASES.c.held_slot)


@cache
def leases_of_holders(*, scoped: bool) -> Select[Any]:
    """Return the query for the leases in force whose holders are among `keys`."""
    return held_leases(scoped=scoped).where(LEASES.c.holder.in_(bindparam("keys", expanding=True)))


#: Uuid and generation of the jobs whose uuids are among `keys`.
JOB_GENERATIONS = select(JOBS.c.uuid, JOBS.c.generation).where(JOBS.c.uuid.in_(bindparam("keys", expanding=True)))


@cache
def slots_with_jobs() -> Select[Any]:
    """Return the query for those of `slots` that have a job in one of `states`."""
    listed = JOBS.c.slot.in_(bindparam("slots", expanding=True))
    return select(JOBS.c.slot).where(listed, JOBS.c.state.in_(bindparam("states", expanding=True))).distinct()


#: Function, board and coefficients of the refitted time models.
FITS = select(TIME_MODELS.c.function, TIME_MODELS.c.board, TIME_MODELS.c.a_s, TIME_MODELS.c.b_s_per_byte)


@cache
def outbox() -> Select[Any]:
    """Return the query for the commands of `of_shard` that wait for other hosts than those `but_for`.

    Of each host the `per_host` oldest, and of all hosts `most` of these: the oldest of each host before the second of
    any.  They come in the order of their commits, with their actions as they are stored.
    """
    rank = func.row_number().over(partition_by=COMMANDS.c.host, order_by=COMMANDS.c.position).label("rank_of_host")
    others = COMMANDS.c.host.not_in(bindparam("but_for", expanding=True))
    ranked = select(COMMANDS.c.position, rank).where(COMMANDS.c.shard == bindparam("of_shard"), others).subquery()
    first = select(ranked.c.position).where(ranked.c.rank_of_host <= bindparam("per_host"))
    chosen = first.order_by(ranked.c.rank_of_host, ranked.c.position).limit(bindparam("most")).subquery()
    shown = [type_coerce(column, Text) if column is COMMANDS.c.action else column for column in columns(Command)]
    return select(*shown).join(chosen, chosen.c.position == COMMANDS.c.position).order_by(COMMANDS.c.position)


@cache
def shard_lock(*, fenced: bool) -> Update:
    """Return the statement that counts `changes` of `of_shard`, and locks it; if `of_owner` owns it in `of_epoch`."""
    owned = (SHARDS.c.owner == bindparam("of_owner")) & (SHARDS.c.epoch == bindparam("of_epoch"))
    this = update(SHARDS).where(SHARDS.c.name == bindparam("of_shard"), *([owned] if fenced else []))
    return this.values(pool_generation=SHARDS.c.pool_generation + bindparam("changes", type_=BigInteger))


@cache
def shard_renewal() -> Update:
    """Return the statement by which `of_owner`, which owns `of_shard` in `of_epoch`, shows at `now` that it lives."""
    owned = (SHARDS.c.owner == bindparam("of_owner")) & (SHARDS.c.epoch == bindparam("of_epoch"))
    this = update(SHARDS).where(SHARDS.c.name == bindparam("of_shard"), owned)
    return this.values(renewed_at=bindparam("now"), generation=SHARDS.c.generation + 1)


@cache
def sign_of_life() -> Update:
    """Return the statement by which `of_scheduler` shows at `now` that it lives."""
    this = update(SCHEDULERS).where(SCHEDULERS.c.name == bindparam("of_scheduler"))
    return this.values(heard_at=bindparam("now"), generation=SCHEDULERS.c.generation + 1)
