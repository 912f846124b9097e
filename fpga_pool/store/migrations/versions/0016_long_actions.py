"""A command may carry the planned rates of an input and a result, of many pieces each."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Only MySQL and MariaDB limit a text to 64 KiB."""
    if op.get_bind().dialect.name in ("mysql", "mariadb"):
        op.alter_column(
            "commands", "action", existing_type=sa.Text(), type_=mysql.MEDIUMTEXT(), existing_nullable=False
        )
