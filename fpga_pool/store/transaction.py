"""One transaction on SQL: `model.transaction.Transaction` on a session that writes in bulk, before it reads."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.util import identity_key

from fpga_pool.model.exceptions import Conflict, DuplicateId, NotFound
from fpga_pool.model.messages import Command
from fpga_pool.model.objects import Batch, Job, Lease, LeaseState, Run, Shard, Slot
from fpga_pool.model.transaction import Stored
from fpga_pool.store.errors import translated
from fpga_pool.store.mapping import PLACES, called, from_row, to_columns, update_row
from fpga_pool.store.models import BatchRow, CommandRow, LeaseRow
from fpga_pool.store.reads import Reads

#: How many keys one query asks for: every database takes so many parameters.
KEYS_PER_QUERY = 500


#: Objects that know in which generation of their shard they changed.
CHANGES_ARE_ASKED_FOR = frozenset({Job, Slot})


def chunks(keys: list[str]) -> Iterator[list[str]]:
    """Cut a list of keys into what one query can ask for."""
    for begin in range(0, len(keys), KEYS_PER_QUERY):
        yield keys[begin : begin + KEYS_PER_QUERY]


class SqlTransaction(Reads):
    """Reads and writes of one fenced transaction on one shard.

    `add` and `record_run` look before they write, so that a refused one leaves the transaction usable; saved objects
    are written together, before the next query or at the end.
    """

    def __init__(self, session: Session, shard: Shard) -> None:
        super().__init__(session, shard.name)
        self.shard = shard
        self._generation = shard.pool_generation + 1

    def batch(self, uuid: str) -> Batch:
        """Return a batch; it is locked, because the jobs of other shards may be counted in it as well."""
        row = self._session.identity_map.get(identity_key(BatchRow, uuid))
        if row is None or row not in self._rows:
            row = self._session.get(BatchRow, uuid, with_for_update=True)
            if row is None:
                raise NotFound(f"no {called(Batch, uuid)}")
            self._rows.add(row)
        return from_row(Batch, row)

    def add(self, *things: Stored) -> None:
        """Store new objects; raises DuplicateId if one exists, Conflict for a lease on a slot that is held."""
        self._session.flush()
        for cls, place in PLACES.items():
            new: list[Any] = [thing for thing in things if type(thing) is cls]
            self._refuse_stored(cls, [getattr(thing, place.key) for thing in new])
            if cls is Lease:
                self._refuse_held([thing.slot for thing in new if thing.state is LeaseState.HELD])
            self._insert(new)

    def save(self, thing: Stored) -> None:
        """Store a changed object."""
        cls = type(thing)
        key = getattr(thing, PLACES[cls].key)
        row = self._row(cls, key)
        if row.generation != thing.generation:
            raise Conflict(
                f"{called(cls, key)}: changed meanwhile (generation {row.generation}, expected {thing.generation});"
                " read it again and decide anew"
            )
        update_row(row, thing)
        if cls in CHANGES_ARE_ASKED_FOR:
            row.changed_in = self._generation

    def send(self, command: Command) -> None:
        """Put a command into the outbox."""
        self._session.add(CommandRow(**to_columns(command)))

    def drop_commands(self, host: str) -> None:
        """Remove what the outbox holds for a host that is lost."""
        self._session.flush()
        self._session.execute(delete(CommandRow).where(CommandRow.shard == self.shard.name, CommandRow.host == host))

    def record_run(self, run: Run) -> None:
        """Record the completion of a job; at most one per job, a second one raises DuplicateId."""
        self._refuse_stored(Run, [run.job])
        self._insert([run])

    def _insert(self, things: list[Any]) -> None:
        if things:
            extra = {"changed_in": self._generation} if type(things[0]) in CHANGES_ARE_ASKED_FOR else {}
            rows = [to_columns(thing) | extra for thing in things]
            with translated():
                self._session.execute(insert(PLACES[type(things[0])].row.__table__), rows)

    def _refuse_stored(self, cls: type, keys: list[str]) -> None:
        place = PLACES[cls]
        for key in self._stored(getattr(place.row, place.key), keys):
            raise DuplicateId(f"{called(cls, key)}: exists already")

    def _refuse_held(self, slots: list[str]) -> None:
        for slot in self._stored(LeaseRow.held_slot, slots):
            raise Conflict(f"slot {slot}: another lease on it is in force")

    def _stored(self, column: InstrumentedAttribute[Any], values: list[str]) -> Iterator[str]:
        """Yield those of the values that the column holds."""
        for chunk in chunks(values):
            yield from self._session.scalars(select(column).where(column.in_(chunk)))


class SqlReading(SqlTransaction):
    """A transaction that only reads: code written for a Transaction can ask it all, and change nothing."""

    batch = Reads.batch

    def add(self, *things: Stored) -> None:
        """Refuse."""
        self._refuse()

    def save(self, thing: Stored) -> None:
        """Refuse."""
        self._refuse()

    def send(self, command: Command) -> None:
        """Refuse."""
        self._refuse()

    def drop_commands(self, host: str) -> None:
        """Refuse."""
        self._refuse()

    def record_run(self, run: Run) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> None:
        raise TypeError("this transaction only reads")
