"""Several shards and schedulers; agents that identify themselves and number what they tell; flows limited by hosts."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TABLE_OPTIONS: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    """Everything that exists belongs to the shard `default`, the only one there was."""
    op.create_table(
        "schedulers",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        **TABLE_OPTIONS,
    )
    for table in ("hosts", "slots", "jobs"):
        op.add_column(table, sa.Column("shard", sa.String(255), nullable=False, server_default="default"))
    for table in ("hosts", "slots", "jobs"):
        op.add_column(table, sa.Column("changed_in", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_slots_changed", "slots", ["shard", "changed_in"])
    op.create_index("ix_hosts_changed", "hosts", ["shard", "changed_in"])
    op.create_index("ix_jobs_in_state_of_shard", "jobs", ["state", "shard"])
    op.add_column("hosts", sa.Column("availability_zone", sa.String(255), nullable=False, server_default=""))
    # The agent that is heard first from now on is the host's; it counts from the beginning.
    op.add_column("hosts", sa.Column("agent_id", sa.String(64), nullable=False, server_default=""))
    op.add_column("hosts", sa.Column("egress_driver", sa.String(64), nullable=False, server_default=""))
    for counter in ("boot", "beat", "reported", "refused_commands", "refused_messages"):
        op.add_column("hosts", sa.Column(counter, sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(sa.text("UPDATE hosts SET alive = :no").bindparams(sa.bindparam("no", False, sa.Boolean())))
    with op.batch_alter_table("hosts") as hosts:
        hosts.drop_column("boot_id")
    # What waits for its input at this moment is waited for without end.
    op.add_column("jobs", sa.Column("input_due_at", sa.Double(), nullable=False, server_default="9e99"))
