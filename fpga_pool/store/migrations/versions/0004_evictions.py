"""Jobs that were evicted keep what they have done."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """No job has been evicted yet."""
    op.add_column("jobs", sa.Column("done", sa.Double(), nullable=False, server_default="0"))
