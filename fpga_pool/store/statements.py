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
from fpga_pool.model.objects.pool import ACTIVE_JOBS, NEVER, Batch, Host, Job, JobState, Lease, Scheduler, Shard, Slot
from fpga_pool.store.tables.mapping import PLACES, columns, table
from fpga_pool.store.tables.models import TimeModelRow

_JOBS, _BATCHES = table(Job).c, table(Batch).c


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
JOB_SUMMARIES = select(*without_stories(Job)).where(table(Job).c.uuid.in_(bindparam("keys", expanding=True)))


@cache
def jobs_of_batch(*, in_states: bool, after: int | None) -> Select[Any]:
    """Return the query for the jobs of `batch`, by index, without their histories.

    Only those in one of `states`, and, if shards were seen before, only those that have changed since: of the shard
    `shard_0` after the generation `seen_0`, and so on, and all of shards that are not among `seen`.
    """
    jobs = table(Job).c
    found = select(*without_stories(Job)).where(jobs.batch_uuid == bindparam("batch"))
    if in_states:
        found = found.where(jobs.state.in_(bindparam("states", expanding=True)))
    if after is not None:
        newer = [
            (jobs.shard == bindparam(f"shard_{place}")) & (jobs.changed_in > bindparam(f"seen_{place}"))
            for place in range(after)
        ]
        found = found.where(or_(*newer, jobs.shard.not_in(bindparam("seen", expanding=True))))
    return found.order_by(jobs.index)


@cache
def active_jobs(*, scoped: bool, on: str) -> Select[Any]:
    """Return the query for the jobs in a state of ACTIVE_JOBS, whose column `on` (if one is named) is `place`."""
    jobs = table(Job).c
    where = [jobs[on] == bindparam("place")] if on else []
    active = all_of(Job).where(jobs.state.in_(ACTIVE_JOBS), *_within(jobs.shard, scoped=scoped), *where)
    return active.order_by(jobs.slot, jobs.order, jobs.uuid)


#: The jobs in state RESULT_HELD on `host`, oldest first.
HELD_RESULTS = (
    all_of(Job)
    .where(_JOBS.state == JobState.RESULT_HELD, _JOBS.host == bindparam("host"))
    .order_by(_JOBS.finished_at, _JOBS.uuid)
)


@cache
def living_hosts(*, scoped: bool) -> Select[Any]:
    """Return the query for name, agent, start and last heartbeat of the hosts that live."""
    hosts = table(Host).c
    query = select(hosts.name, hosts.agent_id, hosts.boot, hosts.beat)
    return query.where(hosts.alive, *_within(hosts.shard, scoped=scoped))


@cache
def exhausted_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state PENDING with at least `attempts` attempts that count."""
    jobs = table(Job).c
    pending = all_of(Job).where(jobs.state == JobState.PENDING, *_within(jobs.shard, scoped=scoped))
    return pending.where(jobs.attempt - jobs.excused >= bindparam("attempts")).order_by(jobs.uuid)


@cache
def overdue_inputs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose planned transfer was over before `due_before`.

    Only those with inputs of more than `above_bytes`.
    """
    jobs = table(Job).c
    waiting = all_of(Job).where(jobs.state == JobState.WAITING_INPUT, *_within(jobs.shard, scoped=scoped))
    late = waiting.where(jobs.input_due_at < bindparam("due_before"), jobs.input_bytes > bindparam("above_bytes"))
    return late.order_by(jobs.uuid)


@cache
def inputs_due(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose planned transfer is not over by `due_after`."""
    jobs = table(Job).c
    waiting = all_of(Job).where(jobs.state == JobState.WAITING_INPUT, *_within(jobs.shard, scoped=scoped))
    return waiting.where(jobs.input_due_at > bindparam("due_after")).order_by(jobs.uuid)


@cache
def astray(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs in state WAITING_INPUT whose inputs do not move as planned."""
    jobs = table(Job).c
    waiting = all_of(Job).where(jobs.state == JobState.WAITING_INPUT, *_within(jobs.shard, scoped=scoped))
    return waiting.where(jobs.moved_bytes.is_not(None)).order_by(jobs.uuid)


@cache
def among(cls: type, column: str) -> Select[Any]:
    """Return the query for those of `values` that a column holds."""
    found = table(cls).c[column]
    return select(found).where(found.in_(bindparam("values", expanding=True)))


def _within(column: Column[str], *, scoped: bool) -> list[ColumnElement[bool]]:
    """Return what limits a list to the shard `scope`, if anything does."""
    return [column == bindparam("scope")] if scoped else []


#: All hosts, by name.
ALL_HOSTS = all_of(Host).order_by(table(Host).c.name)


@cache
def slots(*, scoped: bool, of_host: bool) -> Select[Any]:
    """Return the query for the slots (of `host`), by name."""
    columns = table(Slot).c
    on_host = [columns.host == bindparam("host")] if of_host else []
    return all_of(Slot).where(*_within(columns.shard, scoped=scoped), *on_host).order_by(columns.name)


#: Name and generation of every shard.
SHARD_GENERATIONS = select(table(Shard).c.name, table(Shard).c.pool_generation)


@cache
def pending_batches(*, scoped: bool) -> Select[Any]:
    """Return the query for age, uuid, policy and one function of each batch that has such a job in state PENDING.

    Not of those that are withheld.  And how many such jobs there are, and the bytes of their largest input.
    """
    jobs, batches = table(Job), table(Batch)
    age, rank = (batches.c.created_at, batches.c.uuid), (batches.c.priority, batches.c.deadline_at)
    asked = batches.c.policy, jobs.c.function
    found = select(*age, *asked, func.count(), func.max(jobs.c.input_bytes))
    found = found.select_from(jobs.join(batches, batches.c.uuid == jobs.c.batch_uuid))
    pending = found.where(jobs.c.state == JobState.PENDING, *_within(jobs.c.shard, scoped=scoped))
    pending = pending.where(batches.c.held.is_(False), batches.c.waits.is_(False))
    return pending.group_by(*age, *rank, *asked).order_by(
        batches.c.priority.desc(), func.coalesce(batches.c.deadline_at, NEVER), *age
    )


#: The batches that wait for others, oldest first, each with these.
WAITING_BATCHES = (
    select(_BATCHES.uuid, _BATCHES.waits_for)
    .where(_BATCHES.waits.is_(True))
    .order_by(_BATCHES.created_at, _BATCHES.uuid)
)


#: Uuid and state of the batches whose uuids are among `keys`.
BATCH_STATES = select(_BATCHES.uuid, _BATCHES.state).where(_BATCHES.uuid.in_(bindparam("keys", expanding=True)))


@cache
def policies_at_work(*, scoped: bool) -> Select[Any]:
    """Return the query for the policies of batches with jobs that wait or are under way."""
    jobs, batches = table(Job), table(Batch)
    found = select(batches.c.policy).select_from(jobs.join(batches, batches.c.uuid == jobs.c.batch_uuid))
    at_work = jobs.c.state.in_({JobState.PENDING, *ACTIVE_JOBS})
    return found.where(at_work, *_within(jobs.c.shard, scoped=scoped)).distinct()


@cache
def newest_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs of batches of one of `policies` that were created `since` then, newest first."""
    jobs, batches = table(Job).c, table(Batch)
    found = all_of(Job).join(batches, batches.c.uuid == jobs.batch_uuid)
    wanted = batches.c.policy.in_(bindparam("policies", expanding=True)), batches.c.created_at >= bindparam("since")
    newest = batches.c.created_at.desc(), jobs.batch_uuid.desc(), jobs.index.desc()
    return found.where(*wanted, *_within(jobs.shard, scoped=scoped)).order_by(*newest)


@cache
def pending_jobs(*, scoped: bool) -> Select[Any]:
    """Return the query for the jobs of `batch` in state PENDING, by index."""
    jobs = table(Job).c
    pending = all_of(Job).where(jobs.batch_uuid == bindparam("batch"), jobs.state == JobState.PENDING)
    return pending.where(*_within(jobs.shard, scoped=scoped)).order_by(jobs.index)


def _planned_end() -> ColumnElement[float]:
    jobs = table(Job).c
    return func.coalesce(jobs.dispatched_at, 0.0) + func.coalesce(jobs.end_s, 0.0)


@cache
def planned_end() -> Select[Any]:
    """Return the query for the planned end of the last active job of `batch`."""
    jobs = table(Job).c
    return select(func.max(_planned_end())).where(jobs.batch_uuid == bindparam("batch"), jobs.state.in_(ACTIVE_JOBS))


@cache
def backlogs(*, scoped: bool) -> Select[Any]:
    """Return the query for slot, end, end of the transfers and last order of the active jobs of each slot."""
    jobs = table(Job).c
    ends = _planned_end()
    due_at = case((jobs.state == JobState.WAITING_INPUT, jobs.input_due_at), else_=0.0)
    found = select(jobs.slot, func.max(ends), func.max(due_at), func.max(jobs.order))
    active = found.where(jobs.state.in_(ACTIVE_JOBS), *_within(jobs.shard, scoped=scoped))
    return active.group_by(jobs.slot).order_by(jobs.slot)


@cache
def overdue(*, scoped: bool) -> Select[Any]:
    """Return the query for uuid and time of the active jobs that were to have begun, or ended, before `due_before`."""
    jobs = table(Job).c
    due_s = case((jobs.state == JobState.RUNNING, jobs.end_s), else_=jobs.start_s)
    due_at = func.coalesce(jobs.dispatched_at, 0.0) + func.coalesce(due_s, 0.0)
    active = select(jobs.uuid, due_at).where(jobs.state.in_(ACTIVE_JOBS), *_within(jobs.shard, scoped=scoped))
    return active.where(due_at < bindparam("due_before"))


#: The leases in force on the slots whose names are among `keys`.
LEASES_ON_SLOTS = all_of(Lease).where(table(Lease).c.held_slot.in_(bindparam("keys", expanding=True)))


@cache
def leases_on_host() -> Select[Any]:
    """Return the leases in force on the slots of one host."""
    leases, slot_columns = table(Lease).c, table(Slot).c
    held = all_of(Lease).join(table(Slot), slot_columns.name == leases.held_slot)
    return held.where(slot_columns.host == bindparam("host")).order_by(leases.slot)


@cache
def held_leases(*, scoped: bool) -> Select[Any]:
    """Return the query for the leases in force, by slot."""
    leases, slot_columns = table(Lease).c, table(Slot).c
    held = all_of(Lease).join(table(Slot), slot_columns.name == leases.held_slot)
    return held.where(*_within(slot_columns.shard, scoped=scoped)).order_by(leases.held_slot)


@cache
def leases_of_holders(*, scoped: bool) -> Select[Any]:
    """Return the query for the leases in force whose holders are among `keys`."""
    return held_leases(scoped=scoped).where(table(Lease).c.holder.in_(bindparam("keys", expanding=True)))


#: Uuid and generation of the jobs whose uuids are among `keys`.
JOB_GENERATIONS = select(_JOBS.uuid, _JOBS.generation).where(_JOBS.uuid.in_(bindparam("keys", expanding=True)))


@cache
def slots_with_jobs() -> Select[Any]:
    """Return the query for those of `slots` that have a job in one of `states`."""
    jobs = table(Job)
    listed = jobs.c.slot.in_(bindparam("slots", expanding=True))
    return select(jobs.c.slot).where(listed, jobs.c.state.in_(bindparam("states", expanding=True))).distinct()


#: Function, board and coefficients of the refitted time models.
TIME_MODELS = select(TimeModelRow.function, TimeModelRow.board, TimeModelRow.a_s, TimeModelRow.b_s_per_byte)


@cache
def outbox() -> Select[Any]:
    """Return the query for the commands of `of_shard` that wait for other hosts than those `but_for`.

    Of each host the `per_host` oldest, and of all hosts `most` of these: the oldest of each host before the second of
    any.  They come in the order of their commits, with their actions as they are stored.
    """
    commands = table(Command).c
    rank = func.row_number().over(partition_by=commands.host, order_by=commands.position).label("rank_of_host")
    others = commands.host.not_in(bindparam("but_for", expanding=True))
    ranked = select(commands.position, rank).where(commands.shard == bindparam("of_shard"), others).subquery()
    first = select(ranked.c.position).where(ranked.c.rank_of_host <= bindparam("per_host"))
    chosen = first.order_by(ranked.c.rank_of_host, ranked.c.position).limit(bindparam("most")).subquery()
    shown = [type_coerce(column, Text) if column is commands.action else column for column in columns(Command)]
    return select(*shown).join(chosen, chosen.c.position == commands.position).order_by(commands.position)


@cache
def shard_lock(*, fenced: bool) -> Update:
    """Return the statement that counts `changes` of `of_shard`, and locks it; if `of_owner` owns it in `of_epoch`."""
    shards = table(Shard)
    owned = (shards.c.owner == bindparam("of_owner")) & (shards.c.epoch == bindparam("of_epoch"))
    this = update(shards).where(shards.c.name == bindparam("of_shard"), *([owned] if fenced else []))
    return this.values(pool_generation=shards.c.pool_generation + bindparam("changes", type_=BigInteger))


@cache
def shard_renewal() -> Update:
    """Return the statement by which `of_owner`, which owns `of_shard` in `of_epoch`, shows at `now` that it lives."""
    shards = table(Shard)
    owned = (shards.c.owner == bindparam("of_owner")) & (shards.c.epoch == bindparam("of_epoch"))
    this = update(shards).where(shards.c.name == bindparam("of_shard"), owned)
    return this.values(renewed_at=bindparam("now"), generation=shards.c.generation + 1)


@cache
def sign_of_life() -> Update:
    """Return the statement by which `of_scheduler` shows at `now` that it lives."""
    schedulers = table(Scheduler)
    this = update(schedulers).where(schedulers.c.name == bindparam("of_scheduler"))
    return this.values(heard_at=bindparam("now"), generation=schedulers.c.generation + 1)
