"""Gangs run real guests: their image and command, and the saved memory that a process begins from."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Gangs that are there have the image of their hosts."""
    op.add_column("gangs", sa.Column("image", sa.String(255), nullable=False, server_default=""))
    op.add_column("gangs", sa.Column("command", sa.String(1000), nullable=False, server_default=""))
    op.add_column("processes", sa.Column("saved", sa.String(255), nullable=False, server_default=""))
