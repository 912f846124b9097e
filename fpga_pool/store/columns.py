"""Reads of the whole pool as columns, without creating an object for each row."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.shared.columns import Ingress, PoolColumns, already_sent
from fpga_pool.store.tables import HOSTS, JOBS, LEASES, SHARDS, SLOTS

_GENERATIONS = sa.select(SHARDS.c.name, SHARDS.c.pool_generation)
_SIZE = sa.select(
    sa.select(sa.func.count()).select_from(HOSTS).scalar_subquery(),
    sa.select(sa.func.count()).select_from(SLOTS).scalar_subquery(),
)
#: Inputs sent from a host to itself are left out, because they do not pass its NIC.
_INGRESS = (
    sa.select(HOSTS.c.name, HOSTS.c.ingress_bps, sa.func.sum(JOBS.c.input_bytes))
    .join_from(JOBS, HOSTS, JOBS.c.host == HOSTS.c.name)
    .where(JOBS.c.state == JobState.WAITING_INPUT, JOBS.c.requester != JOBS.c.host, HOSTS.c.ingress_bps.is_not(None))
    .group_by(HOSTS.c.name, HOSTS.c.ingress_bps)
)
#: Hosts whose planned ingress takes less time than this are left out, because it is negligible.
_SHORTEST_S = 1.0
#: In the order of the columns of `model.rules.shared.columns`; the place of a slot is its name without the host.
_HOST_COLUMNS = (HOSTS.c.name, HOSTS.c.shard, HOSTS.c.availability_zone, HOSTS.c.alive, HOSTS.c.changed_in)
_SLOT_COLUMNS = (
    SLOTS.c.host,
    SLOTS.c.shard,
    SLOTS.c.name,
    SLOTS.c.card,
    SLOTS.c.board,
    SLOTS.c.kind,
    SLOTS.c.links,
    sa.type_coerce(SLOTS.c.state, sa.String),
    SLOTS.c.function,
    sa.type_coerce(LEASES.c.kind, sa.String),
    LEASES.c.holder,
    LEASES.c.revocable,
    SLOTS.c.drain_requested,
    SLOTS.c.changed_in,
)
#: Kinds of rows of the combined statement for changes, and the numbers of its columns for texts and for numbers.
_SHARD, _HOST, _SLOT, _COUNT = "shard", "host", "slot", "count"
_TEXTS, _NUMBERS = 11, 3


def _newer(columns: Sequence[sa.ColumnElement[Any]], table: sa.Table) -> sa.Select[Any]:
    """Return the query for the rows of one shard that changed after a given generation of the shard."""
    return sa.select(*columns).where(
        table.c.shard == sa.bindparam("of_shard"), table.c.changed_in > sa.bindparam("seen")
    )


#: Built once, because building a statement takes longer than executing it.
_NEWER_HOSTS = _newer(_HOST_COLUMNS, HOSTS)
_NEWER_SLOTS = _newer(_SLOT_COLUMNS, SLOTS).select_from(SLOTS.outerjoin(LEASES, LEASES.c.held_slot == SLOTS.c.name))


def read(connection: sa.Connection, seen: Mapping[str, int], *, count: bool) -> PoolColumns:
    """Return the hosts and slots that changed after the generations `seen`, and all of other shards.

    With `count`, also return the numbers of hosts and slots, by which callers notice removals, and the planned ingress.
    Reading these takes a database longer than reading a few changed rows.
    """
    now: dict[str, int] = dict(connection.execute(_GENERATIONS).tuples().all())
    sent = already_sent(seen, now)
    hosts: list[sa.Row[Any]] = []
    slots: list[sa.Row[Any]] = []
    for shard, generation in now.items():
        if generation > sent.get(shard, -1):
            newer = {"of_shard": shard, "seen": sent.get(shard, -1)}
            hosts += connection.execute(_NEWER_HOSTS, newer).all()
            slots += connection.execute(_NEWER_SLOTS, newer).all()
    size: tuple[int, int] | None = None
    if count:
        host_count, slot_count = connection.execute(_SIZE).one()
        size = host_count, slot_count
    return PoolColumns.of(
        now, hosts, [_slot(row) for row in slots], size, _planned_ingress(connection) if count else None
    )


def _planned_ingress(connection: sa.Connection) -> Ingress:
    planned = {host: (8.0 * float(size), bps) for host, bps, size in connection.execute(_INGRESS)}
    return {host: (bits, bps) for host, (bits, bps) in planned.items() if bits >= _SHORTEST_S * bps}


def read_changes(connection: sa.Connection, seen: Mapping[str, int], *, count: bool) -> PoolColumns | None:
    """Return the same as `read` by one statement, which needs no transaction; None if the set of shards has changed."""
    values: dict[str, Any] = {}
    for place, (shard, generation) in enumerate(sorted(seen.items())):
        values |= {f"shard_{place}": shard, f"seen_{place}": generation}
    rows: dict[str, list[sa.Row[Any]]] = {_SHARD: [], _HOST: [], _SLOT: [], _COUNT: []}
    for row in connection.execute(_changes(len(seen), count=count), values):
        rows[row.of].append(row)
    now = {row.text_0: row.number_0 for row in rows[_SHARD]}
    if now.keys() != seen.keys() or not already_sent(seen, now):
        return None
    hosts = [(row.text_0, row.text_1, row.text_2, bool(row.number_0), row.number_1) for row in rows[_HOST]]
    slots = [_slot((*row[1 : 1 + _TEXTS], bool(row.number_0), bool(row.number_1), row.number_2)) for row in rows[_SLOT]]
    sizes = [(row.number_0, row.number_1) for row in rows[_COUNT]]
    ingress = _planned_ingress(connection) if count else None
    return PoolColumns.of(now, hosts, slots, sizes[0] if sizes else None, ingress)


@cache
def _changes(shards: int, *, count: bool) -> sa.CompoundSelect[Any]:
    """Return the query for the generations of all shards, and for changes in this number of them since given ones."""
    hosts, slots = (
        sa.or_(
            *(
                (of.c.shard == sa.bindparam(f"shard_{place}")) & (of.c.changed_in > sa.bindparam(f"seen_{place}"))
                for place in range(shards)
            )
        )
        for of in (HOSTS, SLOTS)
    )
    held = SLOTS.outerjoin(LEASES, LEASES.c.held_slot == SLOTS.c.name)
    texts, numbers = _SLOT_COLUMNS[:_TEXTS], _SLOT_COLUMNS[_TEXTS:]
    parts = [
        _part(_SHARD, [SHARDS.c.name], [SHARDS.c.pool_generation]),
        _part(_HOST, _HOST_COLUMNS[:3], _HOST_COLUMNS[3:]).where(hosts),
        _part(_SLOT, texts, numbers).select_from(held).where(slots),
    ]
    if count:
        host_count, slot_count = _SIZE.selected_columns
        parts.append(_part(_COUNT, [], [host_count, slot_count]))
    return sa.union_all(*parts)


def _part(of: str, texts: Sequence[sa.ColumnElement[Any]], numbers: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """Return one part of the combined statement; the columns have the same types in all parts."""
    all_texts = list(texts) + [sa.literal("")] * (_TEXTS - len(texts))
    all_numbers = [_number(number) for number in numbers] + [sa.literal(0)] * (_NUMBERS - len(numbers))
    return sa.select(
        sa.literal(of).label("of"),
        *(text.label(f"text_{place}") for place, text in enumerate(all_texts)),
        *(number.label(f"number_{place}") for place, number in enumerate(all_numbers)),
    )


def _number(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a column as a number, as PostgreSQL does not treat booleans as numbers."""
    return sa.case((column, 1), else_=0) if isinstance(column.type, sa.Boolean) else column


def _slot(row: Sequence[Any]) -> tuple[Any, ...]:
    host, shard, name, *facts, lease, holder, revocable, drain_requested, changed_in = row
    held = (lease, holder, revocable) if lease else ("", "", False)
    return host, shard, name.removeprefix(f"{host}/"), *facts, *held, drain_requested, changed_in
