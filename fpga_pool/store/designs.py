"""Bitstreams of designs, stored separately from the designs because lists of designs are read often."""

import hashlib

import sqlalchemy as sa

from fpga_pool.model.exceptions import BitstreamRefused
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.store.engine import translated
from fpga_pool.store.statements import EVERY_SHARD_CHANGED, EVERY_SHARD_LOCKED
from fpga_pool.store.tables import DESIGN_FILES
from fpga_pool.store.transaction import SqlTransaction, removal

#: Size of the pieces of a stored bitstream: servers limit the length of statements, which need two bytes for each byte.
PIECE_BYTES = 1 << 20


def store_bitstream(tx: SqlTransaction, design: str, bitstream: bytes) -> None:
    """Store the bitstream of a design that was added by this transaction."""
    starts = range(0, len(bitstream), PIECE_BYTES)
    rows = [{"design": design, "begin": begin, "piece": bitstream[begin : begin + PIECE_BYTES]} for begin in starts]
    with translated():
        for row in rows:  # separately, as the driver may combine several rows into one statement
            tx.connection.execute(sa.insert(DESIGN_FILES), row)


def bitstream_of(tx: SqlTransaction, design: Design) -> bytes:
    """Return the bitstream of a design; BitstreamRefused if it differs from the submitted one."""
    query = sa.select(DESIGN_FILES.c.piece).where(DESIGN_FILES.c.design == design.uuid).order_by(DESIGN_FILES.c.begin)
    found = b"".join(tx.connection.execute(query).scalars())
    if hashlib.sha256(found).hexdigest() != design.sha256:
        raise BitstreamRefused(f"bitstream of {design.function}: what is stored has another digest")
    return found


def remove_design(tx: SqlTransaction, design: Design) -> None:
    """Remove a design with its bitstream."""
    tx.connection.execute(sa.delete(DESIGN_FILES).where(DESIGN_FILES.c.design == design.uuid))
    tx.connection.execute(removal(Design), {"keys": [design.uuid]})
    tx.note_removal_of_designs()


def finish(tx: SqlTransaction) -> None:
    """Write the remaining changes of a transaction; if it has changed designs, mark every shard as changed.

    This is the last step, because it locks all shards: all other locks must have been acquired before.
    """
    tx.flush()
    if tx.has_changed_designs:
        tx.connection.execute(EVERY_SHARD_LOCKED).close()
        tx.connection.execute(EVERY_SHARD_CHANGED)
