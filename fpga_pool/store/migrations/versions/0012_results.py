"""Results flow back at planned rates, and batches are promised when all are back."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision = "0011"

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """No rates are planned for the results of jobs that are there."""
    op.add_column("jobs", sa.Column("result_transfer", LONG_TEXT, nullable=True))
    for name in ("planned_completion_s", "completion_bound_s"):
        op.add_column("batches", sa.Column(name, sa.Double(), nullable=True))
