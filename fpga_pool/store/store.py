"""The store of the pool: transactions fenced by the epoch of a shard's owner, the outbox, and ownership of shards."""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Update, case, delete, func, insert, literal, select, tuple_, update

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.codec import from_text, to_text
from fpga_pool.model.exceptions import Conflict, DuplicateId, ServiceUnavailable, StaleEpoch
from fpga_pool.model.messages.agents import Command, ObservedFlow
from fpga_pool.model.messages.counters import HostCounters, HostLoad
from fpga_pool.model.objects.hosts import Enrolment
from fpga_pool.model.objects.pool import Job, JobState, Scheduler, Shard
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.store import columns, engine, statements
from fpga_pool.store.designs import finish
from fpga_pool.store.engine import translated
from fpga_pool.store.memory import Memory
from fpga_pool.store.migrations import schema
from fpga_pool.store.reads import Reads, chunks
from fpga_pool.store.statements import END_STALLED, SHARD_RENEWAL, all_of, by_key, outbox, shard_lock, sign_of_life
from fpga_pool.store.tables import ENROLMENTS, HOSTS, SHARDS, TIME_MODELS, command_from, from_columns, to_columns
from fpga_pool.store.transaction import NO_SHARD, SqlReading, SqlTransaction, insertion, removal


class LastBeat(NamedTuple):
    """The part of a heartbeat that is stored without a comparison: agent and its start, number, flows, counters."""

    agent_id: str
    boot: int
    beat: int
    flows: tuple[ObservedFlow, ...]
    counters: HostCounters | None


def _last_beats(last: Mapping[str, LastBeat], now_s: float) -> Update:
    """Return the statement that stores the last heartbeats, by host, unless later ones are stored."""
    columns, beats = HOSTS.c, last.items()

    def of_host(column: Any, values: Mapping[str, Any], otherwise: Any) -> Any:
        found = {host: literal(value, column.type) for host, value in values.items()}
        return case(found, value=columns.name, else_=otherwise) if found else otherwise

    said = tuple_(columns.name, columns.agent_id, columns.boot).in_([(host, *one[:2]) for host, one in beats])
    beat = of_host(columns.beat, {host: one.beat for host, one in beats}, 0)
    moved, none = {host: one.flows for host, one in beats if one.flows}, literal((), columns.flows.type)
    measured = {host: to_text(one.counters) for host, one in beats if one.counters is not None}
    later = update(HOSTS).where(columns.name.in_(last), said, columns.beat <= beat)
    flows, counters = of_host(columns.flows, moved, none), of_host(columns.counters, measured, columns.counters)
    return later.values(beat=beat, heard_at=now_s, flows=flows, counters=counters)


def _fence(connection: Connection, shard: str, owner: str, epoch: int, *, changes: int = 0) -> int:
    """Lock the shard for this transaction and add `changes` to its generation; return the generation.

    Raises StaleEpoch if another one owns the shard.
    """
    owned = {"of_shard": shard, "of_owner": owner, "of_epoch": epoch, "changes": changes}
    locked = connection.execute(shard_lock(connection.dialect.name, fenced=True), owned)
    # MariaDB returns it as the last insert id; SQLite counts rows only when they are read.
    generations: list[int] = list(locked.scalars()) if locked.returns_rows else [locked.lastrowid][: locked.rowcount]
    if not generations:
        raise _stale(shard, owner, epoch)
    return generations[0]


def _stale(shard: str, owner: str, epoch: int) -> StaleEpoch:
    return StaleEpoch(f"shard {shard}: {owner} does not own it in epoch {epoch}")


def _lock(connection: Connection, shard: str) -> Shard:
    """Lock the shard for this transaction and increment its generation, regardless of its owner; return it."""
    lock = shard_lock(connection.dialect.name, fenced=False)
    connection.execute(lock, {"of_shard": shard, "changes": 1}).close()
    return Reads(connection, "").shard_named(shard)


class Store:
    """Objects of the pool in one database, given by its SQLAlchemy URL."""

    def __init__(self, connection: str, **engine_options: Any) -> None:
        self.engine = engine.connect(connection, **engine_options)
        self._snapshots = engine.snapshots_of(self.engine)
        self._single_reads = engine.single_reads_of(self.engine)
        self._memory = Memory()
        #: By shard: its owner and epoch as they were read last.
        self._owners: dict[str, tuple[str, int]] = {}
        #: By shard: the lock that a thread holds while it changes the shard.
        self._turns: dict[str, threading.Lock] = {}

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def trace_statements(self) -> None:
        """Report each statement of a traced request as a span of OSProfiler, which must be installed."""
        from osprofiler.sqlalchemy import add_tracing

        add_tracing(sqlalchemy, self.engine, "db")

    # Schema ----------------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Upgrade the schema to the version of this code, if it is older."""
        with translated():
            schema.migrate(self.engine)

    def check_schema(self) -> None:
        """Raise ServiceUnavailable, with advice, if the schema is older or newer than the code."""
        with translated(), self.engine.connect() as connection:
            schema.check_schema(connection)

    def schema_version(self) -> str:
        """Return the revision of the schema; "" before the first migration."""
        with translated(), self.engine.connect() as connection:
            return schema.schema_version(connection)

    # Transactions ----------------------------------------------------------------------------------------------

    @contextmanager
    def admission(self) -> Iterator[SqlTransaction]:
        """Begin a transaction that reads the whole pool and adds to it, but does not change objects of a shard."""
        with self._writing() as connection:
            tx = SqlTransaction(connection, NO_SHARD, self._memory)
            yield tx
            finish(tx)

    @contextmanager
    def transaction(self, shard: str, owner: str | None = None, epoch: int = 0) -> Iterator[SqlTransaction]:
        """Begin a transaction on a shard, which is committed at the end, or rolled back if an error is raised.

        Transactions on a shard are serialised. A scheduler that commits earlier decisions passes itself as the owner:
        StaleEpoch if it has lost the shard. Without an owner (a request) the transaction acts for the present one. A
        transaction without changes leaves the generation of the shard as it is. NotFound if the shard does not exist.
        """
        with self._turn(shard), self._writing() as connection:
            tx = SqlTransaction(connection, self._take(connection, shard, owner, epoch), self._memory)
            yield tx
            finish(tx)
            if not tx.has_written and (begun := connection.get_transaction()) is not None:
                begun.rollback()  # nothing is written to the disk, and caches stay valid
        if tx.has_written:
            self._memory.follow(shard, tx.shard.pool_generation, tx.committed())

    def _take(self, connection: Connection, shard: str, owner: str | None, epoch: int) -> Shard:
        """Lock a shard and increment its generation; return it as it was, with the fields that transactions use."""
        if owner is None:
            with contextlib.suppress(KeyError, StaleEpoch):  # owner not known, or changed since
                return self._take(connection, shard, *self._owners[shard])
            found = _lock(connection, shard)
            owner, epoch, generation = found.owner, found.epoch, found.pool_generation
            self._owners[shard] = owner, epoch
        else:
            generation = _fence(connection, shard, owner, epoch, changes=1)
        return replace(NO_SHARD, name=shard, owner=owner, epoch=epoch, pool_generation=generation - 1)

    @contextmanager
    def reading(self, shard: str | None = None) -> Iterator[SqlReading]:
        """Begin a transaction that reads a consistent snapshot of the database and changes nothing.

        With `shard`, the reader knows the generation of this shard, and lists only its slots, jobs and leases.
        """
        with translated(), self._snapshots.connect() as connection:
            tx = SqlReading(connection, shard or "", self._memory if shard else None)
            yield tx
            learned = tx.learned() if shard else None
        if shard and learned is not None:
            self._memory.learn(shard, learned)

    @contextmanager
    def single_reads(self, *, aged: bool = False) -> Iterator[SqlReading]:
        """Begin to read without a transaction: each statement is consistent, but two may read different states.

        With `aged`, hosts, slots and jobs may be as they were when this process read them last.
        """
        with translated(), self._single_reads.connect() as connection:
            yield SqlReading(connection, "", remembered=self._memory.at(None) if aged else None)

    def pool_columns(self, seen: Mapping[str, int] | None = None, *, count: bool = True) -> PoolColumns:
        """Return the whole pool, or what changed after the generations `seen` with the total numbers (`count`)."""
        if seen:
            with translated(), self._single_reads.connect() as connection:
                changes = columns.read_changes(connection, seen, count=count)
            if changes is not None:
                return changes
        with translated(), self._snapshots.connect() as connection:
            return columns.read(connection, seen or {}, count=count)

    def changed_jobs(
        self, batch_uuid: str, *, states: Collection[JobState] = (), changed_after: Mapping[str, int] | None = None
    ) -> tuple[Sequence[Job], dict[str, int]]:
        """Return the jobs of a batch as `Reads.batch_job_summaries`, and the generations of their shards.

        The generations are read before the jobs, without a transaction around both: changes that are committed between
        the two reads are returned now, and again by the next call with these generations.
        """
        with translated(), self._single_reads.connect() as connection:
            reads = Reads(connection, "")
            seen = reads.generations()
            if changed_after is not None:
                if seen == changed_after:
                    return [], seen
                changed_after = {shard: at for shard, at in changed_after.items() if shard in seen}
            return reads.batch_job_summaries(batch_uuid, states=states, changed_after=changed_after), seen

    def note_alive(self, beats: Mapping[str, LastBeat], now_s: float) -> None:
        """Store the last heartbeats of hosts that report no changes; counters stay unless there are newer ones."""
        with self._writing() as connection:
            for some in chunks(sorted(beats)):
                connection.execute(_last_beats({host: beats[host] for host in some}, now_s))

    def counters(self, host: str | None = None) -> list[HostLoad]:
        """Return the last measurements of all living hosts, or of one of them, by name."""
        asked = select(HOSTS.c.name, HOSTS.c.counters).where(HOSTS.c.alive, HOSTS.c.counters != "")
        asked = asked.order_by(HOSTS.c.name) if host is None else asked.where(HOSTS.c.name == host)
        with translated(), self._single_reads.connect() as connection:
            return [
                HostLoad(host=name, counters=from_text(HostCounters, text)) for name, text in connection.execute(asked)
            ]

    def flows(self) -> list[ObservedFlow]:
        """Return the flows of arriving inputs in the last heartbeats of all living hosts."""
        asked = select(HOSTS.c.flows).where(HOSTS.c.alive, HOSTS.c.flows != ())
        with translated(), self._single_reads.connect() as connection:
            return [flow for (flows,) in connection.execute(asked) for flow in flows]

    # Sessions, shards ------------------------------------------------------------------------------------------

    @property
    def ends_stalled_sessions(self) -> bool:
        """Whether `end_stalled_sessions` has to be called; other databases end such sessions themselves."""
        return self.engine.dialect.name == "postgresql"

    def end_stalled_sessions(self) -> list[int]:
        """End the sessions of fpga_pool whose clients stall within a transaction; return their process ids."""
        with translated(), self._single_reads.connect() as connection:
            stalled = connection.execute(END_STALLED, {"longest_s": engine.IDLE_TRANSACTION_TIMEOUT_S})
            return [number for number, ended in stalled if ended]

    def ensure_shards(self, names: Collection[str], now_s: float) -> None:
        """Create these shards, without owners, if they do not exist."""
        for name in names:
            with contextlib.suppress(DuplicateId), self._writing() as connection:
                if connection.execute(by_key(Shard), {"key": name}).first() is None:
                    new = Shard(name=name, owner="", epoch=0, renewed_at=now_s)
                    connection.execute(insertion(Shard), to_columns(new))

    def acquire_shard(self, name: str, owner: str, now_s: float, expired: Shard | None = None) -> Shard:
        """Make `owner` the owner of a shard, in a new epoch.

        The shard must have no owner, be owned by `owner` from before a restart, or be unchanged since `expired`, which
        the caller has read so long ago that the owner must be dead. Otherwise Conflict names the owner.
        """
        with self._writing() as connection:
            found = Reads(connection, "").shard_named(name, lock=True)
            unrenewed = expired is not None and (found.epoch, found.generation) == (expired.epoch, expired.generation)
            if found.owner not in ("", owner) and not unrenewed:
                raise Conflict(f"shard {name}: {found.owner} owns it (epoch {found.epoch})")
            epoch, generation = found.epoch + 1, found.generation + 1
            taken = replace(found, owner=owner, epoch=epoch, renewed_at=now_s, generation=generation)
            connection.execute(update(SHARDS).where(SHARDS.c.name == name).values(to_columns(taken)))
            return taken

    def renew_shard(self, shard: Shard, now_s: float) -> None:
        """Record that the owner of a shard lives; raises StaleEpoch if it has lost the shard."""
        with self._writing() as connection:
            owned = {"of_shard": shard.name, "of_owner": shard.owner, "of_epoch": shard.epoch, "now": now_s}
            if not connection.execute(SHARD_RENEWAL, owned).rowcount:
                raise _stale(shard.name, shard.owner, shard.epoch)

    def release_shard(self, shard: Shard) -> None:
        """Release the shard for another owner; no effect if it has been lost already."""
        with self._writing() as connection:
            mine = SHARDS.c.name == shard.name, SHARDS.c.owner == shard.owner, SHARDS.c.epoch == shard.epoch
            connection.execute(update(SHARDS).where(*mine).values(owner=""))

    def beat(self, name: str, now_s: float, cls: type = Scheduler) -> None:
        """Record that a process (a Scheduler or an ApiProcess) lives."""
        with self._writing() as connection:
            if not connection.execute(sign_of_life(cls), {"of_process": name, "now": now_s}).rowcount:
                connection.execute(insertion(cls), to_columns(cls(name=name, heard_at=now_s)))

    def forget(self, cls: type, *names: str) -> None:
        """Remove processes that have ended."""
        with self._writing() as connection:
            connection.execute(removal(cls), {"keys": names})

    def enrolments(self) -> list[Enrolment]:
        """Return the enrolments of all hosts, by name."""
        with translated(), self._single_reads.connect() as connection:
            rows = connection.execute(all_of(Enrolment).order_by(ENROLMENTS.c.host))
            return [from_columns(Enrolment, row) for row in rows]

    def host_keys(self) -> dict[str, str]:
        """Return the key of each host that has one."""
        with translated(), self._single_reads.connect() as connection:
            return dict(connection.execute(statements.HOST_KEYS).tuples().all())

    def change_enrolment(
        self, host: str, change: Callable[[Enrolment | None, int], Enrolment | None]
    ) -> tuple[Enrolment | None, Enrolment | None]:
        """Replace the enrolment of a host by the result of `change`; return it before and after.

        `change` gets the enrolment, or None, and the number of hosts without a key; it returns None to remove the
        enrolment.
        """
        this = ENROLMENTS.c.host == host
        with self._writing() as connection:
            row = connection.execute(by_key(Enrolment, lock=True), {"key": host}).one_or_none()
            before = None if row is None else from_columns(Enrolment, row)
            without_key = select(func.count()).select_from(ENROLMENTS).where(ENROLMENTS.c.key == "")
            after = change(before, connection.execute(without_key).scalar_one())
            if after is None:
                connection.execute(delete(ENROLMENTS).where(this))
            elif before is None:
                connection.execute(insertion(Enrolment), to_columns(after))
            elif after != before:
                connection.execute(update(ENROLMENTS).where(this).values(to_columns(after)))
            return before, after

    # Outbox ----------------------------------------------------------------------------------------------------

    def undelivered(
        self,
        shard: str,
        limit: int,
        *,
        per_host: int | None = None,
        but_for: Collection[str] = (),
        acknowledged: Collection[str] = (),
    ) -> list[Command]:
        """Return the oldest commands of the outbox, in the order of their commits.

        Those for the hosts `but_for` and those with ids in `acknowledged` are left out; at most `per_host` are returned
        for each host. If there are more than `limit`, the oldest of each host are preferred. A command that this
        version cannot read is logged and replaced by one without effect.
        """
        wanted = {"of_shard": shard, "but_for": list(but_for), "acknowledged": list(acknowledged)}
        per_host = min(per_host or limit, limit)
        with translated(), self._single_reads.connect() as connection:
            rows = connection.execute(outbox(fairly=False), wanted | {"most": per_host + 1}).all()
            if len(rows) > per_host:
                rows = connection.execute(outbox(fairly=True), wanted | {"per_host": per_host, "most": limit}).all()
            return [command_from(row) for row in rows]

    def delivered(self, shard: str, owner: str, epoch: int, ids: Collection[str]) -> None:
        """Remove commands that agents have acknowledged.

        Raises StaleEpoch if the owner was replaced: its commands may have been refused, and stay for the new owner.
        """
        with self._writing() as connection:
            _fence(connection, shard, owner, epoch)
            for chunk in chunks(list(ids)):
                connection.execute(removal(Command), {"keys": chunk})

    # Time models -----------------------------------------------------------------------------------------------

    def save_time_model(self, function: str, board: str, model: TimeModel, samples: int, now_s: float) -> None:
        """Store a refitted time model, which replaces the previous one."""
        fit = {"a_s": model.a_s, "b_s_per_byte": model.b_s_per_byte, "samples": samples, "fitted_at": now_s}
        this = (TIME_MODELS.c.function == function) & (TIME_MODELS.c.board == board)
        with self._writing() as connection:
            if not connection.execute(update(TIME_MODELS).where(this).values(fit)).rowcount:
                connection.execute(insert(TIME_MODELS), {"function": function, "board": board, **fit})

    @contextmanager
    def _turn(self, shard: str) -> Iterator[None]:
        """Let one thread after the other change a shard.

        The database would serialise them as well. But if this process stalls or is cut off, each session that waits in
        the database would get the lock in turn, and keep it until the database ends the session.
        """
        turn = self._turns.setdefault(shard, threading.Lock())
        if not turn.acquire(timeout=engine.BUSY_TIMEOUT_S):
            raise ServiceUnavailable(engine.BUSY)
        try:
            yield
        finally:
            turn.release()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Begin a transaction, and commit it at the end or roll it back; translate database errors."""
        with translated(), self.engine.begin() as connection:
            yield connection


# Enrolment, within a transaction that applies a message of an agent ----------------------------------------------


def confirm_place(connection: Connection, host: str, address: str, node: str) -> None:
    """Store the data address and the provider of a host if it has none yet."""
    without = ENROLMENTS.c.host == host, ENROLMENTS.c.data_address == ""
    connection.execute(update(ENROLMENTS).where(*without).values(data_address=address, node=node))
