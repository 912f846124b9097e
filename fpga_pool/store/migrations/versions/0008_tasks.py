"""Tasks: one function on several linked slots; their shares are jobs of a batch with the same uuid."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0008"
down_revision = "0007"

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """There are no tasks yet."""
    texts = {"project_id": 64, "user_id": 64, "name": 255, "function": 64, "topology": 32, "shard": 255, "state": 32}
    op.create_table(
        "tasks",
        sa.Column("uuid", sa.String(36), sa.ForeignKey("batches.uuid", name="fk_tasks_uuid"), primary_key=True),
        *[sa.Column(name, sa.String(length), nullable=False) for name, length in texts.items()],
        *_numbers(sa.BigInteger, "slots", "input_bytes", "attempt", "failures", "generation"),
        *_numbers(sa.Boolean, "cancel_requested"),
        *_numbers(sa.Double, "created_at"),
        *_numbers(sa.Double, "ends_at", "started_at", "ended_at", nullable=True),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_tasks_newest_of_project", "tasks", ["project_id", "created_at", "uuid"])
    op.create_index("ix_tasks_in_state", "tasks", ["state", "shard"])


def _numbers(kind: type[Any], *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind(), nullable=nullable) for name in names]
