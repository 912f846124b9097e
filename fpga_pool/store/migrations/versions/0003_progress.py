"""How far an input is, where that differs from its plan."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Nothing is known of the inputs that move now, until their agents tell."""
    op.add_column("jobs", sa.Column("moved_bytes", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("moved_at", sa.Double(), nullable=True))
