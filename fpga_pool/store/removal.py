"""Removal of hardware that has left the pool, with its leases of the past; what is in use cannot be removed."""

from collections.abc import Collection

from sqlalchemy import delete, select

from fpga_pool.model.exceptions import Conflict
from fpga_pool.store.engine import translated
from fpga_pool.store.quotas import keep_usage_of_leases
from fpga_pool.store.store import Store
from fpga_pool.store.tables.families import ProcessorRow, ProcessRow, ServerRow
from fpga_pool.store.tables.models import CommandRow, HostRow, LeaseRow, SlotRow
from fpga_pool.store.transaction import SqlTransaction


def remove_slots(store: Store, shard: str, names: Collection[str]) -> None:
    """Remove slots of a shard; Conflict, and nothing is removed, if one is held or has jobs."""
    with store.transaction(shard) as tx:
        occupied = tx.occupied(names) | {lease.slot for lease in tx.leases(slots=sorted(names))}
        if occupied:
            raise Conflict(f"in use: {', '.join(sorted(occupied))}")
        delete_slots(tx, names)


def delete_slots(tx: SqlTransaction, names: Collection[str]) -> None:
    """Remove slots that nobody holds and nothing runs on, with their commands and leases of the past."""
    tx.flush()
    with translated():
        keep_usage_of_leases(tx.connection, LeaseRow.slot.in_(names))
        for row in (CommandRow.slot, LeaseRow.slot, SlotRow.name):
            tx.connection.execute(delete(row.class_).where(row.in_(names)))


def remove_host(store: Store, shard: str, name: str) -> None:
    """Remove a host without slots, and its processors; Conflict if it has slots, or processes of gangs."""
    processors = select(ProcessorRow.name).where(ProcessorRow.host == name)
    held = ProcessRow.processor.in_(processors), ProcessRow.held_place.is_not(None)
    with store.transaction(shard) as tx:
        if tx.slots(name) or tx.connection.execute(select(ProcessRow.uuid).where(*held)).first():
            raise Conflict(f"host {name}: it has slots, or runs processes of gangs")
        with translated():
            tx.connection.execute(delete(ProcessRow).where(held[0]))
            tx.connection.execute(delete(ProcessorRow).where(ProcessorRow.host == name))
            tx.connection.execute(delete(CommandRow).where(CommandRow.host == name))
            tx.connection.execute(delete(ServerRow).where(ServerRow.host == name))
            tx.connection.execute(delete(HostRow).where(HostRow.name == name))
