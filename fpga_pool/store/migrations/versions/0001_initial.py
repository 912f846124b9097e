"""The first schema: every object of the pool, the outbox, and the runs that time models are fitted to.

A migration stands still while the code moves on: it names plain SQL types, not the classes of `store.models`.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """Create everything."""
    _create_shards()
    _create_hosts()
    _create_slots()
    _create_leases()
    _create_batches()
    _create_jobs()
    _create_commands()
    _create_runs()
    _create_time_models()


def _create_shards() -> None:
    op.create_table(
        "shards",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("pool_generation", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )


def _create_hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("egress_bps", sa.Double(), nullable=True),
        sa.Column("ingress_bps", sa.Double(), nullable=True),
        sa.Column("data_address", sa.String(255), nullable=False),
        sa.Column("data_port", sa.BigInteger(), nullable=False),
        sa.Column("data_tls", sa.Boolean(), nullable=False),
        sa.Column("refused_streams", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.Column("alive", sa.Boolean(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )


def _create_slots() -> None:
    op.create_table(
        "slots",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("uuid", sa.String(36), unique=True, nullable=False),
        sa.Column("host", sa.String(255), sa.ForeignKey("hosts.name"), nullable=False),
        sa.Column("card", sa.String(255), nullable=False),
        sa.Column("region", sa.String(255), nullable=False),
        sa.Column("board", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("function", sa.String(64), nullable=False),
        sa.Column("job", sa.String(36), nullable=False),
        sa.Column("drain_requested", sa.Boolean(), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("lease_epoch", sa.BigInteger(), nullable=False),
        sa.Column("reconfigurations", sa.BigInteger(), nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_slots_host", "slots", ["host"])


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("slot", sa.String(255), sa.ForeignKey("slots.name"), nullable=False),
        sa.Column("held_slot", sa.String(255), unique=True, nullable=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("revocable", sa.Boolean(), nullable=False),
        sa.Column("granted_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.Column("story", LONG_TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_leases_slot", "leases", ["slot"])


def _create_batches() -> None:
    op.create_table(
        "batches",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("policy", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("jobs_completed", sa.BigInteger(), nullable=False),
        sa.Column("jobs_failed", sa.BigInteger(), nullable=False),
        sa.Column("jobs_cancelled", sa.BigInteger(), nullable=False),
        sa.Column("dispatched_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("planned_makespan_s", sa.Double(), nullable=True),
        sa.Column("lower_bound_s", sa.Double(), nullable=True),
        sa.Column("story", LONG_TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_batches_newest", "batches", ["created_at", "uuid"])
    op.create_index("ix_batches_newest_of_project", "batches", ["project_id", "created_at", "uuid"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("batch_uuid", sa.String(36), sa.ForeignKey("batches.uuid"), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("function", sa.String(64), nullable=False),
        sa.Column("requester", sa.String(255), nullable=False),
        sa.Column("input_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("error_code", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("slot", sa.String(255), nullable=False),
        sa.Column("order", sa.BigInteger(), nullable=False),
        sa.Column("dispatched_at", sa.Double(), nullable=True),
        sa.Column("start_s", sa.Double(), nullable=True),
        sa.Column("end_s", sa.Double(), nullable=True),
        sa.Column("transfer", LONG_TEXT, nullable=False),
        sa.Column("flow", sa.String(255), nullable=False),
        sa.Column("staged_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("compute_s", sa.Double(), nullable=True),
        sa.Column("result_bytes", sa.BigInteger(), nullable=True),
        sa.Column("result_sha256", sa.String(64), nullable=False),
        sa.Column("story", LONG_TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_jobs_in_state_on_host", "jobs", ["state", "host"])
    op.create_index("ix_jobs_in_state_on_slot", "jobs", ["state", "slot", "order"])
    op.create_index("ix_jobs_of_batch", "jobs", ["batch_uuid", "index"])


def _create_commands() -> None:
    op.create_table(
        "commands",
        sa.Column("position", POSITION, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), unique=True, nullable=False),
        sa.Column("shard", sa.String(255), sa.ForeignKey("shards.name"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("slot", sa.String(255), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_commands_host", "commands", ["host"])
    op.create_index("ix_commands_in_order", "commands", ["shard", "position"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("job", sa.String(36), sa.ForeignKey("jobs.uuid"), primary_key=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("function", sa.String(64), nullable=False),
        sa.Column("board", sa.String(64), nullable=False),
        sa.Column("input_bytes", sa.BigInteger(), nullable=False),
        sa.Column("compute_s", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=False),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_runs_newest", "runs", ["function", "board", "finished_at"])


def _create_time_models() -> None:
    op.create_table(
        "time_models",
        sa.Column("function", sa.String(64), primary_key=True),
        sa.Column("board", sa.String(64), primary_key=True),
        sa.Column("a_s", sa.Double(), nullable=False),
        sa.Column("b_s_per_byte", sa.Double(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("fitted_at", sa.Double(), nullable=False),
        **TABLE_OPTIONS,
    )
