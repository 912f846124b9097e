"""The schema's version: alembic, set up in code, so that no file has to be found."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from fpga_pool.model.exceptions import ServiceUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(connection: Connection) -> None:
    """Bring the schema to the newest revision, within the connection's transaction.

    On SQLite that transaction is the only writer: of two processes that start at once, the second finds it done.
    """
    _refuse_newer(connection)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def check(connection: Connection) -> None:
    """Raise ServiceUnavailable unless the schema is exactly what this code expects."""
    _refuse_newer(connection)
    expected = set(ScriptDirectory.from_config(_config()).get_heads())
    if _revisions(connection) != expected:
        raise ServiceUnavailable("the database is older than this version of fpga_pool: migrate it first")


def _refuse_newer(connection: Connection) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    unknown = _revisions(connection) - known
    if unknown:
        raise ServiceUnavailable(
            f"the database is newer than this version of fpga_pool (it is at revision {', '.join(sorted(unknown))});"
            " run the version that migrated it, or a later one"
        )


def _revisions(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
