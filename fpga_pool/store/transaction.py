"""One transaction on SQL: `model.transaction.Transaction`, which collects its changes and writes them in bulk.

Objects that were read or saved are kept in memory.  Saved objects are written before the next query on their class or
at the end, with about one statement per table.  No other transaction can change them in the meantime: the writers of a
shard are serialized, and a batch, in which jobs of other shards may be counted, is locked when it is read.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import Connection, delete
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect

from fpga_pool.model.exceptions import Conflict, DuplicateId
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.gangs import Process
from fpga_pool.model.objects.history import NO_CAUSE, HistoryEntry, caused_by
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import Batch, Host, Job, Lease, LeaseState, Run, Shard, Slot
from fpga_pool.model.transaction import Stored
from fpga_pool.model.values import changed
from fpga_pool.store.engine import translated
from fpga_pool.store.memory import Memory, RememberingReads, ShardMemory
from fpga_pool.store.reads import Reads, chunks
from fpga_pool.store.statements import among, by_keys
from fpga_pool.store.tables import COMMANDS, PLACES, RUNS, called, given_in, only, table, to_columns

# ---- Statements that change rows, built once


@cache
def removal(cls: type) -> sa.Delete:
    """Return the statement that removes the values whose keys are among `keys`."""
    return sa.delete(table(cls)).where(table(cls).c[PLACES[cls].key].in_(sa.bindparam("keys", expanding=True)))


@cache
def insertion(cls: type) -> sa.Insert:
    """Return the statement that stores new rows of a class with the given columns; other columns are NULL."""
    return sa.insert(table(cls))


@cache
def change(cls: type, names: tuple[str, ...]) -> sa.Update:
    """Return the statement that changes these columns of the row with `the_key`, if it has `the_generation`."""
    rows = table(cls)
    same = (rows.c[PLACES[cls].key] == sa.bindparam("the_key")) & (rows.c.generation == sa.bindparam("the_generation"))
    values: Any = {name: sa.bindparam(name) for name in names}
    return sa.update(rows).where(same).values(values)


@cache
def bulk_change(dialect: str, cls: type, names: tuple[str, ...]) -> tuple[tuple[str, ...], sa.TextClause]:
    """Return the statement that changes these columns in many rows at once, and the columns that it needs.

    It is an upsert (insert, or update if the key exists), as only this form allows different values for many rows in
    one statement. Each row must have all columns that cannot be NULL.

    Generations are not compared: the rows exist, and the caller holds the lock that serializes their writers.

    SQLAlchemy does not cache such statements; as text with the types of the columns, it is compiled only once.
    """
    rows, key = table(cls), PLACES[cls].key
    _refuse_second_key(rows, key)
    given = tuple(column.name for column in rows.c if column.name in names or not column.nullable)
    statement: Any
    if dialect == "mysql":
        new = mysql.insert(rows)
        statement = new.on_duplicate_key_update({name: new.inserted[name] for name in names})
    else:
        new_row: Any = (postgresql if dialect == "postgresql" else sqlite).insert(rows)
        replacing = {name: new_row.excluded[name] for name in names}
        statement = new_row.on_conflict_do_update(index_elements=[key], set_=replacing)
    compiled = statement.compile(dialect=_with_names(dialect), column_keys=given)
    return given, sa.text(str(compiled)).bindparams(*(sa.bindparam(name, type_=rows.c[name].type) for name in given))


def _refuse_second_key(rows: sa.Table, key: str) -> None:
    """Raise ValueError if another column is unique, as MariaDB would update rows with equal values in that one, too."""
    unique = [[column.name for column in rows.primary_key]]
    unique += [
        [c.name for c in constraint.columns]
        for constraint in rows.constraints
        if type(constraint) is sa.UniqueConstraint
    ]
    unique += [[c.name for c in index.columns] for index in rows.indexes if index.unique]
    if unique != [[key]]:
        raise ValueError(f"{rows.name}: {key} is not its only unique column (there are {unique})")


def _with_names(dialect: str) -> Dialect:
    """Return a dialect that writes parameters in the style that `text` reads."""
    made: Dialect = {"mysql": mysql, "postgresql": postgresql}.get(dialect, sqlite).dialect(paramstyle="named")
    return made


# ---- The transaction

#: Maximum number of rows passed to the driver at once, which may send them in several packets.
ROWS_PER_CALL = 1000
#: Classes with a column `changed_in`, and the fields whose changes update it (empty = any field).
CHANGES_ARE_ASKED_FOR: Mapping[type, tuple[str, ...]] = {Job: (), Slot: (), Host: ("alive", "availability_zone")}


T = TypeVar("T")

#: The shard of a transaction that is not on a shard.
NO_SHARD = Shard(name="", owner="", epoch=0, renewed_at=0.0)


class SqlTransaction(RememberingReads):
    """Reads and writes of one fenced transaction on one shard; a final `flush` writes the remaining changes.

    `add` checks before it writes, so that the transaction remains usable if it raises an error.
    """

    cause = NO_CAUSE

    def __init__(self, connection: Connection, shard: Shard, memory: Memory | None = None) -> None:
        super().__init__(connection, shard.name, memory, shard.pool_generation if shard.name else None)
        self._shard = shard
        self._generation = shard.pool_generation + 1
        #: By class and key: the stored versions of saved objects that are not written yet, in the order of their first
        #: `save`.
        self._saved: dict[type, dict[str, Any]] = {}
        #: By class: keys of saved objects whose `changed_in` is to be updated.
        self._changed: dict[type, set[str]] = {}
        #: Batches of which jobs were saved.
        self.changed_batches: set[str] = set()
        #: By class: objects added in a transaction without a locked shard that are not written yet.
        self._admitted: dict[type, list[Any]] = {}
        self._commands: list[Command] = []
        self._completions: dict[str, Run] = {}
        #: Whether there are changes to commit.
        self.has_written = False

    @property
    def shard(self) -> Shard:
        """The shard that this transaction may change, as it was before, but without the times of renewals."""
        return self._shard

    @property
    def connection(self) -> Connection:
        """The connection, for statements that read or write rows that the transaction has not read."""
        self.has_written = True
        return self._connection

    def batch(self, uuid: str) -> Batch:
        """Return a batch, which is locked because jobs of other shards may be counted in it as well."""
        return self._one(Batch, uuid, lock=True)

    def take_batches(self, uuids: Collection[str]) -> None:
        wanted = sorted(uuid for uuid in uuids if (Batch, uuid) not in self._known)
        for some in chunks(wanted):
            self._all(Batch, by_keys(Batch, lock=True), {"keys": some})

    def add(self, *things: Stored | ChargedLoad) -> None:
        """Store new objects; raises DuplicateId if one exists, Conflict for a lease or process whose place is held.

        If no shard is locked, batches and jobs are written later, with those of other calls, and may be refused then.
        """
        if not things:
            return  # flushing an empty set of classes would flush all
        classes: set[type] = {type(thing) for thing in things}
        later = not self._scope and classes <= {Batch, Job}
        if not later:
            self.flush(classes | self._admitted.keys())  # which may release unique places
        if any(self.cause):
            things = tuple(caused_by(self.cause, thing) for thing in things)
        for cls, place in PLACES.items():
            new: list[Any] = [thing for thing in things if type(thing) is cls]
            if not new:
                continue
            if later:
                self._admitted.setdefault(cls, []).extend(new)
            else:
                self._insert_new(cls, new)
            self._listed.pop(cls, None)
            self._added.setdefault(cls, {}).update((getattr(thing, place.key), None) for thing in new)
            for thing in new:
                self._known[cls, getattr(thing, place.key)] = thing
                if cls is Lease:
                    self._hold(thing)

    def _insert_new(self, cls: type, new: list[Any]) -> None:
        """Insert all objects or none: check them first, unless a failed statement leaves the transaction intact."""
        if len(new) > 1 or self._connection.dialect.name == "postgresql":
            self._refuse(cls, new)
            self._insert(cls, new)
            return
        try:
            self._insert(cls, new)
        except DuplicateId:
            self._refuse(cls, new)
            raise

    def _refuse(self, cls: type, new: list[Any]) -> None:
        """Raise an error if an object cannot be inserted."""
        self.refuse_stored(cls, [getattr(thing, PLACES[cls].key) for thing in new])
        if cls is Lease:
            self._refuse_held([thing.slot for thing in new if thing.state is LeaseState.HELD])
        if cls is Process:
            self._refuse_taken([thing.held_place for thing in new if thing.held_place is not None])

    def save(self, thing: Stored) -> None:
        cls = type(thing)
        key = getattr(thing, PLACES[cls].key)
        known = self._one(cls, key)
        if known.generation != thing.generation:
            raise Conflict(
                f"{called(cls, key)}: changed concurrently (generation {known.generation}, expected "
                f"{thing.generation}); read it again and retry"
            )
        if any(self.cause):
            thing = caused_by(self.cause, thing, known)
        published = CHANGES_ARE_ASKED_FOR.get(cls)
        if published is not None and (
            not published or any(getattr(known, name) != getattr(thing, name) for name in published)
        ):
            self._changed.setdefault(cls, set()).add(key)
        self._known[cls, key] = changed(thing, generation=thing.generation + 1)
        self._saved.setdefault(cls, {}).setdefault(key, known)
        self._before.setdefault(cls, {}).setdefault(key, known)
        if isinstance(thing, Lease):
            self._hold(self._known[cls, key])
        elif isinstance(thing, Job):
            self.changed_batches.add(thing.batch_uuid)

    def changes(self, cls: type[T]) -> Iterator[tuple[T, T]]:
        """Yield each object of a class that was saved, as it was before this transaction and as it is now."""
        for key, before in self._before.get(cls, {}).items():
            yield before, cast("T", self._known[cls, key])

    def events(self, cls: type[T]) -> Iterator[tuple[T, HistoryEntry]]:
        """Yield the events of objects of a class in this transaction, each with the object in its present state."""
        before, added = self._before.get(cls, {}), self._added.get(cls, {})
        for key in added | dict.fromkeys(before):
            known: tuple[HistoryEntry, ...] = () if key in added else before[key].history
            thing: Any = self._known[cls, key]
            yield from ((thing, entry) for entry in thing.history if not known or entry.number > known[-1].number)

    def remove_servers(self, names: Collection[str]) -> None:
        if names:
            self.flush([Server])
            for name in names:
                self._known.pop((Server, name), None)
            self.connection.execute(removal(Server), {"keys": sorted(names)})

    def send(self, command: Command) -> None:
        self._commands.append(changed(command, **self.cause._asdict()) if any(self.cause) else command)

    def drop_commands(self, host: str) -> None:
        self.flush([Command])
        mine = COMMANDS.c.shard == self.shard.name, COMMANDS.c.host == host, COMMANDS.c.slot != ""
        self.connection.execute(delete(COMMANDS).where(*mine))

    def record_run(self, run: Run) -> None:
        if run.job in self._completions:
            raise DuplicateId(f"{called(Run, run.job)}: exists already")
        self._completions[run.job] = run

    def forget_run(self, job_uuid: str) -> None:
        if self._completions.pop(job_uuid, None) is None:
            self.connection.execute(delete(RUNS).where(RUNS.c.job == job_uuid))

    def flush(self, classes: Collection[type] = ()) -> None:
        """Write saved objects, commands and completions to the database; only those of `classes`, if not empty."""
        if self._admitted and (not classes or not self._admitted.keys().isdisjoint(classes)):
            admitted, self._admitted = self._admitted, {}
            # Several batches need no check: if one is refused, the caller repeats the requests one by one.
            insert = self._insert_new if len(admitted.get(Batch, ())) < 2 else self._insert
            for cls in (cls for cls in PLACES if cls in admitted):
                insert(cls, admitted[cls])
        for cls in PLACES:
            if cls in classes or not classes:
                self._write(cls)
        if self._commands and (Command in classes or not classes):
            commands, self._commands = self._commands, []
            self._insert(Command, commands)
        if self._completions and (Run in classes or not classes):
            self._write(Job)  # a run refers to its job
            runs, self._completions = self._completions, {}
            try:
                self._insert(Run, list(runs.values()))
            except DuplicateId as error:
                raise DuplicateId(f"{called(Run, ', '.join(runs))}: exists already") from error

    def _write(self, cls: type) -> None:
        """Write the saved objects of a class."""
        stored = self._saved.pop(cls, None)
        if not stored:
            return
        published = self._changed.pop(cls, set())
        if cls is Job or (cls is Batch and len(stored) > 1):  # no other transaction can have changed them
            self._change_many(cls, stored)
            return
        self._change(cls, {key: before for key, before in stored.items() if key in published}, published=True)
        self._change(cls, {key: before for key, before in stored.items() if key not in published}, published=False)

    def _differing(self, cls: type, stored: Mapping[str, Any]) -> tuple[set[str], dict[str, dict[str, Any]]]:
        """Return the columns in which any of these objects has changed, and all present columns of each object."""
        now = {key: to_columns(self._known[cls, key]) for key in stored}
        names = {
            name
            for key, before in stored.items()
            for name, value in to_columns(before).items()
            if value != now[key][name]
        }
        return names, now

    def _change_many(self, cls: type, stored: Mapping[str, Any]) -> None:
        differing, now = self._differing(cls, stored)
        changed_columns = (*sorted(differing), *(["changed_in"] if cls in CHANGES_ARE_ASKED_FOR else []))
        names, statement = bulk_change(self._connection.dialect.name, cls, changed_columns)
        counted = [row | {"changed_in": self._generation} for row in now.values()]
        for begin in range(0, len(counted), ROWS_PER_CALL):
            with translated():
                self.connection.execute(statement, only(names, counted[begin : begin + ROWS_PER_CALL]))

    def _change(self, cls: type, stored: Mapping[str, Any], *, published: bool) -> None:
        if not stored:
            return
        differing, now = self._differing(cls, stored)
        names = (*sorted(differing), *(["changed_in"] if published else []))
        rows = [
            now[key] | {"the_key": key, "the_generation": before.generation, "changed_in": self._generation}
            for key, before in stored.items()
        ]
        with translated():
            found = "the_key", "the_generation"
            matched = self.connection.execute(change(cls, names), only((*names, *found), rows))
        if matched.rowcount != len(rows):
            raise Conflict(f"{cls.__name__.lower()}: one of {len(rows)} has changed concurrently; read it and retry")

    def _hold(self, lease: Lease) -> None:
        """Record a changed lease, and mark its slot as changed, as the lease is part of the slot's published state."""
        slot = lease.slot
        self._changed_leases[slot] = lease if lease.state is LeaseState.HELD else None
        stored = self._one(Slot, slot)  # this may write saved slots before it reads the slot
        self._saved.setdefault(Slot, {}).setdefault(slot, stored)
        self._changed.setdefault(Slot, set()).add(slot)

    def _insert(self, cls: type, things: list[Any]) -> None:
        extra = {"changed_in": self._generation} if cls in CHANGES_ARE_ASKED_FOR else {}
        rows = [to_columns(thing) | extra for thing in things]
        with translated():
            self.connection.execute(insertion(cls), only(given_in(cls, rows), rows))

    def refuse_stored(self, cls: type, keys: list[str]) -> None:
        """Raise DuplicateId if an object with one of these keys exists."""
        for key in self._stored(cls, PLACES[cls].key, keys):
            raise DuplicateId(f"{called(cls, key)}: exists already")

    def _refuse_held(self, slots: list[str]) -> None:
        for slot in self._stored(Lease, "held_slot", slots):
            raise Conflict(f"slot {slot}: it already has an active lease")

    def _refuse_taken(self, places: list[str]) -> None:
        for place in self._stored(Process, "held_place", places):
            raise Conflict(f"{place}: already used by another process")

    def _stored(self, cls: type, column: str, values: list[str]) -> Iterator[str]:
        """Yield the values that exist in a column."""
        for some in chunks(values):
            yield from self._connection.execute(among(cls, column), {"values": some}).scalars()


class SqlReading(SqlTransaction):
    """A read-only transaction: it supports all reads of a Transaction, and refuses changes."""

    batch = Reads.batch
    flush = Reads.flush

    def __init__(
        self,
        connection: Connection,
        scope: str,
        memory: Memory | None = None,
        remembered: Mapping[str, ShardMemory] | None = None,
    ) -> None:
        RememberingReads.__init__(self, connection, scope, memory)
        self._remembered = remembered

    @property
    def shard(self) -> Shard:
        """The shard of this transaction, which is read when this property is used."""
        return self.shard_named(self._scope) if self._scope else NO_SHARD

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("this transaction is read-only")

    add = save = remove_servers = send = drop_commands = record_run = forget_run = _refuse
