"""The pool's memory: transactions fenced by the epoch of a shard's owner, the outbox, and who owns a shard."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from sqlalchemy import ColumnElement, CursorResult, delete, select, update
from sqlalchemy.orm import Session, sessionmaker

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import Conflict, StaleEpoch
from fpga_pool.model.messages import Command
from fpga_pool.model.objects import Shard
from fpga_pool.store import engine, schema
from fpga_pool.store.errors import translated
from fpga_pool.store.mapping import from_row, to_columns
from fpga_pool.store.models import CommandRow, ShardRow, TimeModelRow
from fpga_pool.store.transaction import SqlReading, SqlTransaction, chunks

#: What a reader is told of a shard it did not ask for.
NO_SHARD = Shard(name="", owner="", epoch=0, renewed_at=0.0)


def _owned(shard: str, owner: str, epoch: int) -> tuple[ColumnElement[bool], ...]:
    return ShardRow.name == shard, ShardRow.owner == owner, ShardRow.epoch == epoch


def _fence(session: Session, shard: str, owner: str, epoch: int, *, changes: int = 0) -> None:
    """Lock the shard for this transaction and count its changes, or raise StaleEpoch if another one owns it."""
    counted = {ShardRow.pool_generation: ShardRow.pool_generation + changes}
    matched = session.execute(update(ShardRow).where(*_owned(shard, owner, epoch)).values(counted))
    if not cast("CursorResult[None]", matched).rowcount:
        raise StaleEpoch(f"shard {shard}: {owner} does not own it in epoch {epoch}, or not any more")


class Store:
    """Objects of the pool in one database, given by its SQLAlchemy URL."""

    def __init__(self, connection: str) -> None:
        self.engine = engine.connect(connection)
        self._writers = sessionmaker(self.engine, expire_on_commit=False)
        self._readers = sessionmaker(engine.snapshots_of(self.engine))

    def close(self) -> None:
        """Give up all connections."""
        self.engine.dispose()

    # Schema ----------------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Bring the schema to this version of the code; nothing is done where it is there already."""
        with translated(), self.engine.begin() as connection:
            schema.migrate(connection)

    def check_schema(self) -> None:
        """Raise ServiceUnavailable, saying what to do, if the schema is older or newer than the code."""
        with translated(), self.engine.connect() as connection:
            schema.check(connection)

    # Transactions ----------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, shard: str, owner: str, epoch: int) -> Iterator[SqlTransaction]:
        """Begin a transaction on a shard as its owner; committed at the end, rolled back if anything was raised.

        Raises StaleEpoch if `owner` does not own the shard in this epoch (any more).
        """
        with self._session() as session:
            _fence(session, shard, owner, epoch, changes=1)
            found = from_row(Shard, session.get_one(ShardRow, shard))
            yield SqlTransaction(session, replace(found, pool_generation=found.pool_generation - 1))

    @contextmanager
    def reading(self, shard: str | None = None) -> Iterator[SqlReading]:
        """Begin a transaction that sees one moment of the database, and changes nothing.

        `shard` names the one whose generation the reader wants to know.
        """
        with translated(), self._readers() as session:
            tx = SqlReading(session, NO_SHARD)
            if shard is not None:
                tx.shard = tx.shard_named(shard)
            yield tx

    # Shards ----------------------------------------------------------------------------------------------------

    def acquire_shard(self, name: str, owner: str, now_s: float, expired_before: float) -> Shard:
        """Make `owner` the owner of a shard, in a new epoch.

        The shard must be new, released, its own from before a restart, or not renewed since `expired_before`; else
        Conflict names the owner.
        """
        with self._session() as session:
            row = session.get(ShardRow, name, with_for_update=True)
            if row is None:
                row = ShardRow(**to_columns(Shard(name=name, owner="", epoch=0, renewed_at=now_s)))
                session.add(row)
            elif row.owner not in ("", owner) and row.renewed_at >= expired_before:
                raise Conflict(f"shard {name}: {row.owner} owns it (epoch {row.epoch})")
            row.owner, row.epoch, row.renewed_at, row.generation = owner, row.epoch + 1, now_s, row.generation + 1
            return from_row(Shard, row)

    def renew_shard(self, shard: Shard, now_s: float) -> Shard:
        """Say that the owner lives; raises StaleEpoch if it has lost the shard."""
        with self._session() as session:
            _fence(session, shard.name, shard.owner, shard.epoch)
            row = session.get_one(ShardRow, shard.name)
            row.renewed_at, row.generation = now_s, row.generation + 1
            return from_row(Shard, row)

    def release_shard(self, shard: Shard) -> None:
        """Leave the shard to the next who wants it; nothing is done if it is lost already."""
        with self._session() as session:
            session.execute(update(ShardRow).where(*_owned(shard.name, shard.owner, shard.epoch)).values(owner=""))

    # Outbox ----------------------------------------------------------------------------------------------------

    def undelivered(self, shard: str, limit: int) -> list[Command]:
        """Return the oldest commands of the outbox, in the order of their commits."""
        oldest = select(CommandRow).where(CommandRow.shard == shard).order_by(CommandRow.position).limit(limit)
        with translated(), self._readers() as session:
            return [from_row(Command, row) for row in session.scalars(oldest)]

    def delivered(self, shard: str, owner: str, epoch: int, ids: Collection[str]) -> None:
        """Remove commands that agents have acknowledged.

        Raises StaleEpoch for a replaced owner: its commands may have been refused, and stay for the new one.
        """
        with self._session() as session:
            _fence(session, shard, owner, epoch)
            for chunk in chunks(list(ids)):
                session.execute(delete(CommandRow).where(CommandRow.shard == shard, CommandRow.id.in_(chunk)))

    # Time models -----------------------------------------------------------------------------------------------

    def save_time_model(self, function: str, board: str, model: TimeModel, samples: int, now_s: float) -> None:
        """Store a refitted time model in place of the one before."""
        row = TimeModelRow(
            function=function,
            board=board,
            a_s=model.a_s,
            b_s_per_byte=model.b_s_per_byte,
            samples=samples,
            fitted_at=now_s,
        )
        with self._session() as session:
            session.merge(row)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Begin; commit at the end, or roll back; tell the database's errors in the pool's own."""
        with translated(), self._writers.begin() as session:
            yield session
