"""Slots say how they are linked."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Agents tell their links by the next heartbeat."""
    op.add_column("slots", sa.Column("links", sa.String(255), nullable=False, server_default=""))
