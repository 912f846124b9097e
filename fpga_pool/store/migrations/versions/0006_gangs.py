"""Gangs: processors that hosts give to them, their processes, and how these move."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """No host gives processors to gangs yet."""
    _create_processors()
    _create_gangs()
    _create_processes()
    _create_migrations()


def _text(name: str, length: int, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length), nullable=nullable)


def _numbers(kind: type[Any], *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind(), nullable=nullable) for name in names]


def _create_processors() -> None:
    op.create_table(
        "processors",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("host", sa.String(255), sa.ForeignKey("hosts.name", name="fk_processors_host"), nullable=False),
        _text("shard", 255),
        *_numbers(sa.Boolean, "offered"),
        *_numbers(sa.BigInteger, "number", "sequence", "generation"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_processors_host", "processors", ["host"])


def _create_gangs() -> None:
    op.create_table(
        "gangs",
        sa.Column("uuid", sa.String(36), primary_key=True),
        _text("project_id", 64),
        _text("user_id", 64),
        _text("name", 255),
        _text("shard", 255),
        _text("state", 32),
        *_numbers(sa.Boolean, "cancel_requested"),
        *_numbers(sa.BigInteger, "processes", "attempt", "failures", "migrations", "kills", "swaps", "generation"),
        *_numbers(sa.Double, "runtime_s", "cpu_usage", "work_s", "created_at", "front_s", "behind_s", "cpu_s"),
        *_numbers(sa.Double, "ends_at", "started_at", "ended_at", "tier_since", nullable=True),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_gangs_newest_of_project", "gangs", ["project_id", "created_at", "uuid"])
    op.create_index("ix_gangs_in_state", "gangs", ["state", "shard"])


def _create_processes() -> None:
    op.create_table(
        "processes",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column(
            "gang_uuid", sa.String(36), sa.ForeignKey("gangs.uuid", name="fk_processes_gang_uuid"), nullable=False
        ),
        sa.Column(
            "processor",
            sa.String(255),
            sa.ForeignKey("processors.name", name="fk_processes_processor"),
            nullable=False,
        ),
        _text("host", 255),
        _text("tier", 32),
        _text("shard", 255),
        _text("state", 32),
        _text("held_place", 255, nullable=True),
        *_numbers(sa.BigInteger, "index", "attempt", "generation"),
        *_numbers(sa.Double, "done_s", "rate", "progress_at", "cpu_s"),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        sa.UniqueConstraint("held_place", name="uq_processes_held_place"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_processes_processor", "processes", ["processor"])
    op.create_index("ix_processes_of_gang", "processes", ["gang_uuid", "attempt", "index"])
    op.create_index("ix_processes_in_state", "processes", ["state", "shard"])
    op.create_index("ix_processes_in_state_on_host", "processes", ["state", "host"])


def _create_migrations() -> None:
    op.create_table(
        "migrations",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column(
            "gang_uuid", sa.String(36), sa.ForeignKey("gangs.uuid", name="fk_migrations_gang_uuid"), nullable=False
        ),
        _text("shard", 255),
        _text("state", 32),
        *_numbers(sa.BigInteger, "attempt", "generation"),
        *_numbers(sa.Double, "began_at"),
        *_numbers(sa.Double, "ended_at", nullable=True),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_migrations_gang_uuid", "migrations", ["gang_uuid"])
