"""The version of the database schema: read, check, and upgrade it with alembic.

alembic is configured in code, so that no configuration file has to be found.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from sqlalchemy import Connection, Engine, column, func, select, table

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.store.engine import single_reads_of

DIRECTORY = Path(__file__).parent

#: Revisions that this code knows, in order; the files of migrations are named NNNN_WHAT.py with their revision NNNN.
REVISIONS = sorted(file.stem.partition("_")[0] for file in (DIRECTORY / "versions").glob("[0-9]*.py"))

#: Table in which alembic stores the revision of the schema.
_VERSIONS = table("alembic_version", column("version_num"))

#: The name of the migration lock, and how long others wait for it.
LOCK = "fpga_pool.migrate."
LOCK_TIMEOUT_S = 30


def migrate(engine: Engine) -> None:
    """Upgrade the schema to the newest revision; concurrent calls wait, and find it upgraded."""
    with _alone(engine) as worker:
        _refuse_newer(worker)
        if _revisions(worker) == {REVISIONS[-1]}:
            return
        # Imported here, because it costs 12 MB and a tenth of a second, also for processes that only check the schema.
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(DIRECTORY).replace("%", "%%"))
        config.attributes["connection"] = worker
        command.upgrade(config, "head")


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Yield the connection for the migration, while no other process migrates."""
    # MariaDB commits after each change of a table, so another session holds the lock.
    lock = _named_lock(engine) if engine.dialect.name == "mysql" else contextlib.nullcontext()
    with lock, engine.begin() as worker:  # in SQLite this is the only writer
        if engine.dialect.name == "postgresql":  # the timeout of all locks applies to this one, too
            worker.execute(select(func.pg_advisory_xact_lock(func.hashtext(LOCK))))
        yield worker


@contextmanager
def _named_lock(engine: Engine) -> Iterator[None]:
    name = func.concat(LOCK, func.md5(func.database()))
    with single_reads_of(engine).connect() as holder:
        if holder.scalar(select(func.get_lock(name, LOCK_TIMEOUT_S))) != 1:
            raise ServiceUnavailable("another process is migrating the database; try again later")
        try:
            yield
        finally:
            holder.execute(select(func.release_lock(name)))


def check_schema(connection: Connection) -> None:
    """Raise ServiceUnavailable if the schema is not exactly the version that this code expects."""
    _refuse_newer(connection)
    if _revisions(connection) != {REVISIONS[-1]}:
        raise ServiceUnavailable(
            "the database is older than this version of fpga_pool: upgrade it first (fpga-pool-manage db sync)"
        )


def schema_version(connection: Connection) -> str:
    """Return the revision of the schema; "" before the first migration."""
    return ", ".join(sorted(_revisions(connection)))


def _refuse_newer(connection: Connection) -> None:
    unknown = _revisions(connection) - set(REVISIONS)
    if unknown:
        raise ServiceUnavailable(
            f"the database is newer than this version of fpga_pool (it is at revision {', '.join(sorted(unknown))});"
            " run the version that migrated it, or a later one"
        )


def _revisions(connection: Connection) -> set[str]:
    # alembic's own function logs two lines per call, and health checks call this every second.
    if not sqlalchemy.inspect(connection).has_table(_VERSIONS.name):
        return set()
    return set(connection.scalars(select(_VERSIONS.c.version_num)))
