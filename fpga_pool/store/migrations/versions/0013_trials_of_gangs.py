"""Gangs know how long they ran and are expected to run, and are tried; their processes can exchange priorities."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Nothing is predicted from gangs that are over, and nobody is in a trial."""
    for name in ("expected_s", "ran_s", "trial_ends_at"):
        op.add_column("gangs", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("gangs", sa.Column("gave_way_s", sa.Double(), nullable=False, server_default="0"))
    op.create_index("ix_gangs_done_of_user", "gangs", ["user_id", "ended_at"])
    op.add_column("processes", sa.Column("exchanged", sa.Boolean(), nullable=False, server_default=sa.false()))
