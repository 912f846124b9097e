"""Statements that are built only once, because building one takes longer than executing it.

A statement that is reused also stays in SQLAlchemy's cache of compiled statements.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.pool import ACTIVE_JOBS, NEVER, Host, Job, JobState, Lease, Scheduler, Shard, Slot
from fpga_pool.store.tables import (
    BATCHES,
    COMMANDS,
    DESIGNS,
    ENROLMENTS,
    HOSTS,
    JOBS,
    LEASES,
    PLACES,
    SCHEDULERS,
    SERVERS,
    SHARDS,
    SLOTS,
    TIME_MODELS,
    columns,
    table,
)


class Scoped(NamedTuple):
    """A query on the shard `scope`, and the same query on the whole pool."""

    of_shard: Select[Any]
    of_pool: Select[Any]


def scoped(query: Select[Any], shard: ColumnElement[str]) -> Scoped:
    """Return a query for one shard and for the whole pool; `shard` is the column with the name of the shard."""
    return Scoped(query.where(shard == bindparam("scope")), query)


def _among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a column has one of the values of the parameter `name`."""
    return column.in_(bindparam(name, expanding=True))


@cache
def all_of(cls: type) -> Select[Any]:
    """Return the query for all values of a class, to which conditions can be added."""
    return select(*columns(cls))


def beyond(
    order: Sequence[ColumnElement[Any]], place: Sequence[Any], *, descending: bool
) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that rows come after a place in the order of one or two columns.

    With a comparison of row values, MariaDB would also read all rows before the place; the first of the two conditions
    allows it to use the index.
    """
    pairs = list(zip(order, place, strict=True))
    (first, at), *_ = pairs
    strictly = [column < value if descending else column > value for column, value in pairs]
    if len(pairs) == 1:
        return (strictly[0],)
    return (first <= at if descending else first >= at), or_(strictly[0], and_(first == at, strictly[1]))


@cache
def by_key(cls: type, *, lock: bool = False) -> Select[Any]:
    """Return the query for the value whose key is `key`; with `lock`, its row is locked until the transaction ends."""
    query = all_of(cls).where(table(cls).c[PLACES[cls].key] == bindparam("key"))
    return query.with_for_update() if lock else query


@cache
def by_keys(cls: type, *, lock: bool = False) -> Select[Any]:
    """Return the query for the values whose keys are among `keys`; `lock` as in `by_key`."""
    query = all_of(cls).where(_among(table(cls).c[PLACES[cls].key], "keys"))
    return query.with_for_update() if lock else query


@cache
def among(cls: type, column: str) -> Select[Any]:
    """Return the query for the values among `values` that exist in a column."""
    return select(table(cls).c[column]).where(_among(table(cls).c[column], "values"))


# ---- Jobs and batches


@cache
def _without_histories(cls: type) -> tuple[Column[Any] | ColumnElement[Any], ...]:
    """Return the columns of a class with an empty history, so that the stored histories are not read."""
    history = table(cls).c.history
    return tuple(
        type_coerce(literal_column("'[]'"), history.type) if column is history else column for column in columns(cls)
    )


#: The jobs whose uuids are among `keys`, without their histories.
JOB_SUMMARIES = select(*_without_histories(Job)).where(_among(JOBS.c.uuid, "keys"))


@cache
def jobs_of_batch(*, in_states: bool, after: int | None) -> Select[Any]:
    """Return the query for the jobs of `batch`, by index, without their histories.

    With `in_states`, only jobs in one of `states`.  If `after` shards were seen before, only jobs that have changed
    since: those of the shard `shard_0` after the generation `seen_0`, and so on, and all of shards not among `seen`.
    """
    found = select(*_without_histories(Job)).where(JOBS.c.batch_uuid == bindparam("batch"))
    if in_states:
        found = found.where(_among(JOBS.c.state, "states"))
    if after is not None:
        newer = [
            (JOBS.c.shard == bindparam(f"shard_{place}")) & (JOBS.c.changed_in > bindparam(f"seen_{place}"))
            for place in range(after)
        ]
        found = found.where(or_(*newer, JOBS.c.shard.not_in(bindparam("seen", expanding=True))))
    return found.order_by(JOBS.c.index)


_ACTIVE = JOBS.c.state.in_(ACTIVE_JOBS)
_IN_ORDER = all_of(Job).where(_ACTIVE).order_by(JOBS.c.slot, JOBS.c.order, JOBS.c.uuid)
#: The jobs in a state of ACTIVE_JOBS: all (""), or those whose column of this name has the value `place`.
ACTIVE = {
    "": scoped(_IN_ORDER, JOBS.c.shard),
    **{on: scoped(_IN_ORDER.where(JOBS.c[on] == bindparam("place")), JOBS.c.shard) for on in ("slot", "host", "flow")},
}
#: Any jobs in a state of ACTIVE_JOBS, `most` at most.
SOME_ACTIVE = scoped(all_of(Job).where(_ACTIVE).limit(bindparam("most", type_=Integer)), JOBS.c.shard)
#: The jobs in state RESULT_HELD on `host`, oldest first.
HELD_RESULTS = (
    all_of(Job)
    .where(JOBS.c.state == JobState.RESULT_HELD, JOBS.c.host == bindparam("host"))
    .order_by(JOBS.c.finished_at, JOBS.c.uuid)
)
_PENDING = all_of(Job).where(JOBS.c.state == JobState.PENDING)
#: Pending jobs with at least `attempts` counted attempts.
EXHAUSTED_JOBS = scoped(
    _PENDING.where(JOBS.c.attempt - JOBS.c.excused >= bindparam("attempts")).order_by(JOBS.c.uuid), JOBS.c.shard
)
PENDING_FUNCTIONS = (
    select(JOBS.c.function).where(JOBS.c.batch_uuid == bindparam("batch"), JOBS.c.state == JobState.PENDING).distinct()
)
PENDING_JOBS = scoped(_PENDING.where(_among(JOBS.c.batch_uuid, "batches")), JOBS.c.shard)
_WAITING = all_of(Job).where(JOBS.c.state == JobState.WAITING_INPUT).order_by(JOBS.c.uuid)
#: Jobs in state WAITING_INPUT: those whose planned transfer ended before `due_before`, with inputs of more than
#: `above_bytes`; those whose planned transfer ends after `due_after`; those whose inputs do not move as planned.
OVERDUE_INPUTS = scoped(
    _WAITING.where(JOBS.c.input_due_at < bindparam("due_before"), JOBS.c.input_bytes > bindparam("above_bytes")),
    JOBS.c.shard,
)
INPUTS_DUE = scoped(_WAITING.where(JOBS.c.input_due_at > bindparam("due_after")), JOBS.c.shard)
ASTRAY = scoped(_WAITING.where(JOBS.c.moved_bytes.is_not(None)), JOBS.c.shard)
#: Uuid and generation of the jobs whose uuids are among `keys`.
JOB_GENERATIONS = select(JOBS.c.uuid, JOBS.c.generation).where(_among(JOBS.c.uuid, "keys"))
#: The slots among `slots` that have a job in one of `states`.
SLOTS_WITH_JOBS = select(JOBS.c.slot).where(_among(JOBS.c.slot, "slots"), _among(JOBS.c.state, "states")).distinct()

_DISPATCHED_AT = func.coalesce(JOBS.c.dispatched_at, 0.0)
_ENDS_AT = _DISPATCHED_AT + func.coalesce(JOBS.c.end_s, 0.0)
#: The planned end of the last active job of `batch`.
PLANNED_END = select(func.max(_ENDS_AT)).where(JOBS.c.batch_uuid == bindparam("batch"), _ACTIVE)
_INPUT_DUE_AT = case((JOBS.c.state == JobState.WAITING_INPUT, JOBS.c.input_due_at), else_=0.0)
#: Slot, last planned end, last planned end of input transfers, and last order of the active jobs of each slot.
BACKLOGS = scoped(
    select(JOBS.c.slot, func.max(_ENDS_AT), func.max(_INPUT_DUE_AT), func.max(JOBS.c.order))
    .where(_ACTIVE)
    .group_by(JOBS.c.slot)
    .order_by(JOBS.c.slot),
    JOBS.c.shard,
)
_NEXT_AT = _DISPATCHED_AT + func.coalesce(
    case((JOBS.c.state == JobState.RUNNING, JOBS.c.end_s), else_=JOBS.c.start_s), 0.0
)
#: Uuid and time of the active jobs that were planned to begin or end before `due_before` and have not.
OVERDUE = scoped(select(JOBS.c.uuid, _NEXT_AT).where(_ACTIVE, bindparam("due_before") > _NEXT_AT), JOBS.c.shard)

_OF_BATCHES = JOBS.join(BATCHES, BATCHES.c.uuid == JOBS.c.batch_uuid)
_AGE, _RANK = (BATCHES.c.created_at, BATCHES.c.uuid), (BATCHES.c.priority, BATCHES.c.deadline_at)
_ASKED = BATCHES.c.policy, JOBS.c.function
#: For each batch that is not withheld and each function of its jobs in state PENDING: creation time and uuid of the
#: batch, policy, function, number of such jobs, and the size of their largest input.
PENDING_BATCHES = scoped(
    select(*_AGE, *_ASKED, func.count(), func.max(JOBS.c.input_bytes))
    .select_from(_OF_BATCHES)
    .where(JOBS.c.state == JobState.PENDING, BATCHES.c.held.is_(False), BATCHES.c.waits.is_(False))
    .group_by(*_AGE, *_RANK, *_ASKED)
    .order_by(BATCHES.c.priority.desc(), func.coalesce(BATCHES.c.deadline_at, NEVER), *_AGE),
    JOBS.c.shard,
)
#: The batches that wait for others, oldest first, each with those that it waits for.
WAITING_BATCHES = (
    select(BATCHES.c.uuid, BATCHES.c.waits_for)
    .where(BATCHES.c.waits.is_(True))
    .order_by(BATCHES.c.created_at, BATCHES.c.uuid)
)
#: Uuid and state of the batches whose uuids are among `keys`.
BATCH_STATES = select(BATCHES.c.uuid, BATCHES.c.state).where(_among(BATCHES.c.uuid, "keys"))
#: The policies of batches with pending or active jobs.
POLICIES_AT_WORK = scoped(
    select(BATCHES.c.policy)
    .select_from(_OF_BATCHES)
    .where(JOBS.c.state.in_({JobState.PENDING, *ACTIVE_JOBS}))
    .distinct(),
    JOBS.c.shard,
)
#: The `most` newest jobs of batches with one of `policies` that were created at `since` or later.
NEWEST_JOBS = scoped(
    all_of(Job)
    .join(BATCHES, BATCHES.c.uuid == JOBS.c.batch_uuid)
    .where(_among(BATCHES.c.policy, "policies"), BATCHES.c.created_at >= bindparam("since"))
    .order_by(BATCHES.c.created_at.desc(), JOBS.c.batch_uuid.desc(), JOBS.c.index.desc())
    .limit(bindparam("most")),
    JOBS.c.shard,
)

# ---- Hosts, slots and leases

#: All shards, and all schedulers, by name.
ALL_SHARDS = all_of(Shard).order_by(SHARDS.c.name)
ALL_SCHEDULERS = all_of(Scheduler).order_by(SCHEDULERS.c.name)
#: All hosts, by name; name, agent, number of starts and last heartbeat of living hosts, and whether their agents still
#: have an accepted key.
ALL_HOSTS = all_of(Host).order_by(HOSTS.c.name)
_IS_ENROLLED = exists().where(ENROLMENTS.c.host == HOSTS.c.name, ENROLMENTS.c.key != "")
LIVING_HOSTS = scoped(
    select(HOSTS.c.name, HOSTS.c.agent_id, HOSTS.c.boot, HOSTS.c.beat, _IS_ENROLLED).where(HOSTS.c.alive),
    HOSTS.c.shard,
)
#: Names of lost hosts.
LOST_HOSTS = select(HOSTS.c.name).where(~HOSTS.c.alive)
#: Enrolled hosts whose address and provider have not been set by a heartbeat yet.
UNCONFIRMED_HOSTS = select(ENROLMENTS.c.host).where(ENROLMENTS.c.key != "", ENROLMENTS.c.data_address == "")
#: Numbers of slots by board and kind; all slots, and those of `host`, by name.
SLOT_COUNTS = select(SLOTS.c.board, SLOTS.c.kind, func.count()).group_by(SLOTS.c.board, SLOTS.c.kind)
ALL_SLOTS = scoped(all_of(Slot).order_by(SLOTS.c.name), SLOTS.c.shard)
SLOTS_OF_HOST = scoped(ALL_SLOTS.of_pool.where(SLOTS.c.host == bindparam("host")), SLOTS.c.shard)
#: Servers by name: of `host`, and with `uuids`.
SERVERS_OF_HOST = all_of(Server).where(SERVERS.c.host == bindparam("host")).order_by(SERVERS.c.name)
SERVERS_NAMED = all_of(Server).where(_among(SERVERS.c.uuid, "uuids")).order_by(SERVERS.c.name)
#: The leases in force on the slots whose names are among `keys`.
LEASES_ON_SLOTS = all_of(Lease).where(_among(LEASES.c.held_slot, "keys"))
_HELD = all_of(Lease).join(SLOTS, SLOTS.c.name == LEASES.c.held_slot)
#: The leases in force: on the slots of `host`, on all slots, of the holders among `keys`.
LEASES_ON_HOST = _HELD.where(SLOTS.c.host == bindparam("host")).order_by(LEASES.c.slot)
HELD_LEASES = scoped(_HELD.order_by(LEASES.c.held_slot), SLOTS.c.shard)
LEASES_OF_HOLDERS = scoped(HELD_LEASES.of_pool.where(_among(LEASES.c.holder, "keys")), SLOTS.c.shard)
#: Function, board and coefficients of the refitted time models.
FITS = select(TIME_MODELS.c.function, TIME_MODELS.c.board, TIME_MODELS.c.a_s, TIME_MODELS.c.b_s_per_byte)
REFITS = (
    select(TIME_MODELS.c.board, TIME_MODELS.c.samples, TIME_MODELS.c.fitted_at)
    .where(TIME_MODELS.c.function == bindparam("function"))
    .order_by(TIME_MODELS.c.board)
)

#: Name and key of every host that has a key.
HOST_KEYS = select(ENROLMENTS.c.host, ENROLMENTS.c.key).where(ENROLMENTS.c.key != "")

# ---- Designs

#: The functions of the designs in one of `states`.
DESIGN_FUNCTIONS = select(DESIGNS.c.function).where(_among(DESIGNS.c.state, "states")).order_by(DESIGNS.c.function)


@cache
def designs(*, of_project: bool) -> Select[Any]:
    """Return the query for the designs in one of `states`, by function: those of `project` and public ones, or all."""
    found = all_of(Design).where(_among(DESIGNS.c.state, "states")).order_by(DESIGNS.c.function)
    return (
        found.where(or_(DESIGNS.c.project_id == bindparam("project"), DESIGNS.c.public.is_(True)))
        if of_project
        else found
    )


# ---- Sessions, the outbox, shards and schedulers

#: Ends the sessions of this application that have been idle in a transaction for `longest_s` in PostgreSQL, whose own
#: timeout does not apply in the middle of a pipeline, nor after the flush at the end of psycopg's `executemany`.
END_STALLED = text("""
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = current_setting('application_name') AND datname = current_database() AND usename = current_user
AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
AND clock_timestamp() - state_change > make_interval(secs => :longest_s)
""")


@cache
def outbox(*, fairly: bool) -> Select[Any]:
    """Return the query for commands of `of_shard`, except `acknowledged` ones and those for the hosts `but_for`.

    It selects the `most` oldest ones.  With `fairly`, which takes three times as long, it selects the `per_host` oldest
    of each host, and of these `most` in total, with the oldest of every host before the second of any.  The result is
    in the order of the commits, with the actions as stored.
    """
    shown = [type_coerce(column, Text) if column is COMMANDS.c.action else column for column in columns(Command)]
    wanted = (
        COMMANDS.c.shard == bindparam("of_shard"),
        COMMANDS.c.host.not_in(bindparam("but_for", expanding=True)),
        COMMANDS.c.id.not_in(bindparam("acknowledged", expanding=True)),
    )
    if not fairly:
        oldest = select(*shown).where(*wanted)
        return oldest.order_by(COMMANDS.c.position).limit(bindparam("most"))
    rank = func.row_number().over(partition_by=COMMANDS.c.host, order_by=COMMANDS.c.position).label("rank_of_host")
    ranked = select(COMMANDS.c.position, rank).where(*wanted).subquery()
    first = select(ranked.c.position).where(ranked.c.rank_of_host <= bindparam("per_host"))
    chosen = first.order_by(ranked.c.rank_of_host, ranked.c.position).limit(bindparam("most")).subquery()
    return select(*shown).join(chosen, chosen.c.position == COMMANDS.c.position).order_by(COMMANDS.c.position)


#: Name and generation of every shard.
SHARD_GENERATIONS = select(SHARDS.c.name, SHARDS.c.pool_generation)
_OWNED = (SHARDS.c.owner == bindparam("of_owner")) & (SHARDS.c.epoch == bindparam("of_epoch"))
_THIS_SHARD = update(SHARDS).where(SHARDS.c.name == bindparam("of_shard"))


@cache
def shard_lock(dialect: str, *, fenced: bool) -> Update:
    """Return the statement that adds `changes` to the generation of `of_shard`, and so locks the shard.

    If `fenced`, it does so only if `of_owner` owns the shard in `of_epoch`.  It returns the generation as a row, or in
    MariaDB, whose updates return no rows, as the last insert id.
    """
    this = _THIS_SHARD.where(*([_OWNED] if fenced else []))
    counted = SHARDS.c.pool_generation + bindparam("changes", type_=BigInteger)
    if dialect == "mysql":
        return this.values(pool_generation=func.last_insert_id(counted))
    return this.values(pool_generation=counted).returning(SHARDS.c.pool_generation)


#: Locks all shards in the order of their names, which avoids deadlocks; an update would lock them in the order of rows.
EVERY_SHARD_LOCKED = select(SHARDS.c.name).order_by(SHARDS.c.name).with_for_update()
#: Increments the generations of all shards after a change of objects that belong to no shard: designs.
EVERY_SHARD_CHANGED = update(SHARDS).values(pool_generation=SHARDS.c.pool_generation + 1)
#: Renews the ownership of `of_shard` at `now`, if `of_owner` owns it in `of_epoch`.
SHARD_RENEWAL = _THIS_SHARD.where(_OWNED).values(renewed_at=bindparam("now"), generation=SHARDS.c.generation + 1)


@cache
def sign_of_life(cls: type) -> Update:
    """Return the statement that records a sign of life of `of_process`, a process of a class, at `now`."""
    known = table(cls)
    alive = update(known).where(known.c.name == bindparam("of_process"))
    return alive.values(heard_at=bindparam("now"), generation=known.c.generation + 1)
