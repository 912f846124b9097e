"""Hosts are known to Placement by a name, and leases of instances say what their slots hold."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """No instance holds a slot yet; agents tell their nodes by the next heartbeat."""
    op.add_column("hosts", sa.Column("node", sa.String(255), nullable=False, server_default=""))
    op.add_column("leases", sa.Column("function", sa.String(64), nullable=False, server_default=""))
