"""The schema's version: alembic, set up in code, so that no file has to be found."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

from fpga_pool.model.exceptions import ServiceUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"

#: The name of the migration lock, and how long others wait for it.
LOCK = "fpga_pool.migrate."
LOCK_TIMEOUT_S = 30


def migrate(connection: Connection) -> None:
    """Bring the schema to the newest revision; of two processes that start at once, the second finds it done."""
    with _alone(connection) as worker:
        _refuse_newer(worker)
        config = _config()
        config.attributes["connection"] = worker
        command.upgrade(config, "head")


@contextmanager
def _alone(connection: Connection) -> Iterator[Connection]:
    """Yield the connection to migrate on, while no other process migrates."""
    match connection.dialect.name:
        case "sqlite":  # its transaction is the only writer
            yield connection
        case "postgresql":  # the lock ends with the transaction; the wait for it has the limit of every lock
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(LOCK))))
            yield connection
        case _:
            with _named_lock(connection), connection.engine.begin() as worker:
                yield worker


@contextmanager
def _named_lock(connection: Connection) -> Iterator[None]:
    """Hold a lock of the server's in a session that does nothing else: MariaDB commits with each change of a table."""
    name = func.concat(LOCK, func.md5(func.database()))
    if connection.scalar(select(func.get_lock(name, LOCK_TIMEOUT_S))) != 1:
        raise ServiceUnavailable("another process is migrating the database; try again later")
    try:
        yield
    finally:
        connection.execute(select(func.release_lock(name)))


def check(connection: Connection) -> None:
    """Raise ServiceUnavailable unless the schema is exactly what this code expects."""
    _refuse_newer(connection)
    expected = set(ScriptDirectory.from_config(_config()).get_heads())
    if _revisions(connection) != expected:
        raise ServiceUnavailable(
            "the database is older than this version of fpga_pool: upgrade it first (fpga-pool-manage db sync)"
        )


def version(connection: Connection) -> str:
    """Return the revision of the schema; "" before the first migration."""
    return ", ".join(sorted(_revisions(connection)))


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
