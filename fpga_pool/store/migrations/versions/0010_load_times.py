"""Slots know when the function they hold was loaded."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Of functions that are loaded it is not known: they count as loaded long ago."""
    op.add_column("slots", sa.Column("loaded_at", sa.Double(), nullable=True))
