"""Tasks can have several shapes, with fewer slots than shares."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0015"
down_revision = "0014"

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Tasks that are there have one shape, with a slot for each share."""
    op.add_column("tasks", sa.Column("shares", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE tasks SET shares = slots")
    op.add_column("tasks", sa.Column("shapes", LONG_TEXT, nullable=True))
