"""The pool as columns, read without making an object of each row."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Row, Select, String, Table, bindparam, func, select, type_coerce

from fpga_pool.model.pool.columns import PoolColumns, already_told
from fpga_pool.store.models import HostRow, LeaseRow, ShardRow, SlotRow

_HOSTS, _SLOTS, _LEASES, _SHARDS = (cast("Table", row.__table__) for row in (HostRow, SlotRow, LeaseRow, ShardRow))

_GENERATIONS = select(_SHARDS.c.name, _SHARDS.c.pool_generation)
_SIZE = select(
    select(func.count()).select_from(_HOSTS).scalar_subquery(),
    select(func.count()).select_from(_SLOTS).scalar_subquery(),
)
#: In the order of the columns of `model.pool.columns`; the place of a slot is what its name says after the host.
_HOST_COLUMNS = (_HOSTS.c.name, _HOSTS.c.shard, _HOSTS.c.availability_zone, _HOSTS.c.alive, _HOSTS.c.changed_in)
_SLOT_COLUMNS = (
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
)


def _newer(columns: Sequence[ColumnElement[Any]], table: Table) -> Select[Any]:
    """Return what asks for the rows of one shard that changed after one of its generations."""
    return select(*columns).where(table.c.shard == bindparam("of_shard"), table.c.changed_in > bindparam("seen"))


#: Made once: to make a statement takes longer than to execute it.
_NEWER_HOSTS = _newer(_HOST_COLUMNS, _HOSTS)
_NEWER_SLOTS = _newer(_SLOT_COLUMNS, _SLOTS).select_from(
    _SLOTS.outerjoin(_LEASES, _LEASES.c.held_slot == _SLOTS.c.name)
)


def read(connection: Connection, seen: Mapping[str, int], *, count: bool) -> PoolColumns:
    """Return the hosts and slots that changed after these generations; of shards not named, all.

    What was removed is missed only by who counts, and a server needs longer for that than for a few changed rows.
    """
    now: dict[str, int] = dict(connection.execute(_GENERATIONS).tuples().all())
    told = already_told(seen, now)
    hosts: list[Row[Any]] = []
    slots: list[Row[Any]] = []
    for shard, generation in now.items():
        if generation > told.get(shard, -1):
            newer = {"of_shard": shard, "seen": told.get(shard, -1)}
            hosts += connection.execute(_NEWER_HOSTS, newer).all()
            slots += connection.execute(_NEWER_SLOTS, newer).all()
    size: tuple[int, int] | None = None
    if count:
        host_count, slot_count = connection.execute(_SIZE).one()
        size = host_count, slot_count
    return PoolColumns.of(now, hosts, [_slot(row) for row in slots], size)


def _slot(row: Row[Any]) -> tuple[Any, ...]:
    host, shard, name, card, board, kind, state, function, lease, holder, revocable, drain_requested, changed_in = row
    place = name.removeprefix(f"{host}/")
    held = (lease, holder, revocable) if lease else ("", "", False)
    return host, shard, place, card, board, kind, state, function, *held, drain_requested, changed_in
