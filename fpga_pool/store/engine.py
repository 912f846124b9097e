"""Connections to the database, each kind set up to keep what it has acknowledged."""

import os
from pathlib import Path
from typing import Any

import sqlalchemy
from oslo_db.api import wrap_db_retry
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import URL, Connection, Engine, event, make_url

#: How long a writer waits for another one.
BUSY_TIMEOUT_S = 30.0
#: How often, and at what interval, a database server that does not answer yet is tried at start.
CONNECT_RETRIES = 5
CONNECT_INTERVAL_S = 2.0
#: The same for the log of a new SQLite file: while two connections turn to it at once, SQLite does not wait by itself.
LOG_RETRIES = 100
LOG_INTERVAL_S = 0.02


def connect(connection: str) -> Engine:
    """Return an engine for the database at a URL; a SQLite file is made if it is missing."""
    url = make_url(connection)
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return engines.create_engine(connection, max_retries=CONNECT_RETRIES, retry_interval=CONNECT_INTERVAL_S)


def snapshots_of(engine: Engine) -> Engine:
    """Return the engine for readers: a transaction sees one moment of the database, and delays no writer."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(sqlite_begin="BEGIN DEFERRED")
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _sqlite(url: URL) -> Engine:
    # oslo.db's own engine opens a connection per transaction, and the last one to close rewrites the whole log.
    _create_private_file(url)
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    exc_filters.register_engine(engine)
    return engine


def _create_private_file(url: URL) -> None:
    """Create the file for its owner alone; SQLite gives its log the same mode."""
    if not url.database or url.database == ":memory:":
        raise ValueError(f"{url}: the pool's database must be a file, or it would forget")
    Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(url.database, os.O_CREAT | os.O_RDWR, 0o600))


def _busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY"


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say, not where the driver thinks
    _use_log(connection)
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
    connection.execute("PRAGMA foreign_keys = ON")


@wrap_db_retry(
    max_retries=LOG_RETRIES, retry_interval=LOG_INTERVAL_S, inc_retry_interval=False, exception_checker=_busy
)
def _use_log(connection: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its place in the queue at once: two readers that both want to become writers would deadlock.
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE"))
