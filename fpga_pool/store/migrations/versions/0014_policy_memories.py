"""What policies that learn remember, kept with the shard."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0014"
down_revision = "0013"

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """No policy has learned anything yet."""
    op.create_table(
        "policy_memories",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("shard", sa.String(255), nullable=False),
        sa.Column("family", sa.String(64), nullable=False),
        sa.Column("policy", sa.String(255), nullable=False),
        sa.Column("state", LONG_TEXT, nullable=False),
        sa.Column("watched", LONG_TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
