"""The pool as columns, read without making an object of each row."""

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Select, String, Table, func, or_, select, type_coerce

from fpga_pool.model.pool.columns import PoolColumns, already_told
from fpga_pool.store.models import HostRow, LeaseRow, ShardRow, SlotRow

_HOSTS, _SLOTS, _LEASES, _SHARDS = (cast("Table", row.__table__) for row in (HostRow, SlotRow, LeaseRow, ShardRow))

#: The generation of every shard, and how many hosts and slots there are: a removed row is missed by its number only.
_MOMENT = select(
    _SHARDS.c.name,
    _SHARDS.c.pool_generation,
    select(func.count()).select_from(_HOSTS).scalar_subquery(),
    select(func.count()).select_from(_SLOTS).scalar_subquery(),
)
#: In the order of the columns of `model.pool.columns`; the place of a slot is what its name says after the host.
_HOST_ROWS = select(_HOSTS.c.name, _HOSTS.c.shard, _HOSTS.c.availability_zone, _HOSTS.c.alive, _HOSTS.c.changed_in)
_SLOT_ROWS = select(
    _SLOTS.c.host,
    _SLOTS.c.shard,
    _SLOTS.c.name,
    _SLOTS.c.card,
    _SLOTS.c.board,
    _SLOTS.c.kind,
    type_coerce(_SLOTS.c.state, String),
    _SLOTS.c.function,
    type_coerce(_LEASES.c.kind, String),
    _LEASES.c.holder,
    _LEASES.c.revocable,
    _SLOTS.c.drain_requested,
    _SLOTS.c.changed_in,
).select_from(_SLOTS.outerjoin(_LEASES, _LEASES.c.held_slot == _SLOTS.c.name))


def read(connection: Connection, seen: Mapping[str, int]) -> PoolColumns:
    """Return the hosts and slots that changed after these generations; of shards not named, all."""
    moment = connection.execute(_MOMENT).all()
    now = {shard: generation for shard, generation, _, _ in moment}
    told = already_told(seen, now)
    behind = {shard: told.get(shard, -1) for shard, generation in now.items() if generation > told.get(shard, -1)}
    host_count, slot_count = moment[0][2:] if moment else (0, 0)
    hosts = connection.execute(_newer(_HOST_ROWS, _HOSTS, behind)).all() if behind else []
    slots = connection.execute(_newer(_SLOT_ROWS, _SLOTS, behind)).all() if behind else []
    return PoolColumns.of(now, hosts, [_slot(row) for row in slots], host_count, slot_count)


def _newer(rows: Select[Any], table: FromClause, seen: Mapping[str, int]) -> Select[Any]:
    newer: list[ColumnElement[bool]] = [
        (table.c.shard == shard) & (table.c.changed_in > generation) for shard, generation in seen.items()
    ]
    return rows.where(or_(*newer))


def _slot(row: Row[Any]) -> tuple[Any, ...]:
    host, shard, name, card, board, kind, state, function, lease, holder, revocable, drain_requested, changed_in = row
    place = name.removeprefix(f"{host}/")
    held = (lease, holder, revocable) if lease else ("", "", False)
    return host, shard, place, card, board, kind, state, function, *held, drain_requested, changed_in
