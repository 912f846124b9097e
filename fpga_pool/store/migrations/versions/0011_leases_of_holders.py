"""Leases are asked for by their holders: a task's when it ends, an instance's when it leaves."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Index what is there."""
    op.create_index("ix_leases_holder", "leases", ["holder"])
