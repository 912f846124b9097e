"""Database engines with durable commits, and the translation of driver errors to the pool's errors.

No other module depends on the error codes of databases.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from inspect import isclass
from pathlib import Path
from select import POLLIN, poll
from typing import Any, Literal

import sqlalchemy
from oslo_db import exception as db
from oslo_db.api import wrap_db_retry
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import URL, Connection, Dialect, Engine, event, make_url
from sqlalchemy.exc import DataError, DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fpga_pool.model.exceptions import (
    Contended,
    DuplicateId,
    FpgaPoolError,
    InvalidInput,
    NotFound,
    ServiceUnavailable,
    StorageFull,
)

# ---- Error codes: SQLite's names, MariaDB's numbers, PostgreSQL's SQLSTATEs

#: The disk is full: ER_DISK_FULL, ER_RECORD_FILE_FULL; disk_full.
_FULL = frozenset({"SQLITE_FULL", 1021, 1114, "53100"})
#: Messages of MariaDB, with various codes, if there is no space for its own files, for example for a sort.
_NO_SPACE = re.compile(r"\((?:Errcode|errno): 28\b|Got error 28 ")
#: Timeout while waiting for another writer's lock: ER_LOCK_WAIT_TIMEOUT; lock_not_available.
_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY", "SQLITE_LOCKED", 1205, "55P03"})
#: Aborted in favor of another writer: ER_CHECKREAD, ER_LOCK_DEADLOCK; serialization_failure, deadlock_detected.
_GIVES_WAY = frozenset({1020, 1213, "40001", "40P01"})
#: Temporarily unavailable: too many connections (of one user), shutdown, killed; too_many_connections, shutdown, crash,
#: starting up, idle in a transaction for too long.
_AWAY = frozenset({1040, 1053, 1203, 1927, "53300", "57P01", "57P02", "57P03", "25P03"})
#: Access to the database or server denied, or no such database.
_REFUSED = frozenset({1044, 1045, 1049, 1698, "28000", "28P01", "3D000"})
#: Messages of libpq, without a code, if a server answers but accepts no connections at present.
_PG_NOT_NOW = re.compile("could not|starting up|shutting down|too many|recovery|not yet accepting")


@contextmanager
def translated() -> Iterator[None]:
    """Raise a domain error instead of a database error; errors without a translation (bugs) are raised unchanged."""
    try:
        yield
    except (DBAPIError, db.DBError, PoolTimeout) as error:
        translation = _translation(error)
        if translation is None:
            raise
        raise translation from error


def is_away(error: BaseException) -> bool:
    """Return whether an error means that the server is temporarily unavailable, so that a retry makes sense."""
    code, cause = _driver_code(error), _driver_error(error)
    return code in _AWAY or isinstance(error, db.DBConnectionError) or _libpq_verdict(cause) == "away"


def _translation(error: Exception) -> FpgaPoolError | None:
    code = _driver_code(error)
    if code in _FULL or (isinstance(code, int) and _NO_SPACE.search(str(_driver_error(error)))):
        return StorageFull("the database is full: nothing was stored; free space on its disk and try again")
    if code in _BUSY or isinstance(error, PoolTimeout):
        return ServiceUnavailable(BUSY)
    if code in _GIVES_WAY or isinstance(error, db.DBDeadlock):
        return Contended("the database aborted the transaction in favour of other writers; try again")
    if is_away(error):
        return ServiceUnavailable("the database does not respond; try again later")
    if code in _REFUSED or isinstance(error, db.DBNonExistentDatabase) or _libpq_verdict(_driver_error(error)):
        return ServiceUnavailable("the database refuses the login: check user, password and database name in its URL")
    match error:
        case db.DBDuplicateEntry():
            return DuplicateId(f"exists already (same {', '.join(error.columns)})")
        case db.DBReferenceError():
            return NotFound("refers to an object that does not exist")
        case db.DBDataError() | db.DBError(inner_exception=DataError()):
            return InvalidInput(f"the database cannot store a value: {_driver_error(error)}")
    return None


def _driver_error(error: BaseException) -> BaseException | None:
    wrapped = error.inner_exception if isinstance(error, db.DBError) else error
    return wrapped.orig if isinstance(wrapped, DBAPIError) else wrapped


def _driver_code(error: BaseException) -> int | str | None:
    """Return the driver's own code: SQLite's error name, MariaDB's number, PostgreSQL's SQLSTATE."""
    cause = _driver_error(error)
    if cause is not None and cause.args and isinstance(cause.args[0], int):
        return cause.args[0]
    for attribute in ("sqlite_errorname", "sqlstate", "pgcode"):
        if code := getattr(cause, attribute, None):
            return str(code)
    return None


def _libpq_verdict(cause: BaseException | None) -> Literal["away", "refused"] | None:
    """Return the meaning of an error of libpq without a code from the server; None for other errors."""
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if "OperationalError" not in kinds or getattr(cause, "sqlstate", cause) is not None:
        return None
    message = str(cause)
    return "refused" if "FATAL:" in message and not _PG_NOT_NOW.search(message) else "away"


#: How long a writer waits for another one, and the error message after that.
BUSY_TIMEOUT_S = 30.0
BUSY = "the database is busy with other writers; try again later"
#: Idle time in a transaction after which a server ends the session, which releases the locks of a stalled or cut off
#: scheduler.  Our transactions pause for milliseconds only; others wait for the locks for BUSY_TIMEOUT_S.
IDLE_TRANSACTION_TIMEOUT_S = 5
#: Time without an answer after which a client gives a server up; longer than any statement, including its lock wait.
SILENCE_TIMEOUT_S = 60
CONNECT_TIMEOUT_S = 10
_IN_TRANSACTION = 1  # the flag SERVER_STATUS_IN_TRANS in MariaDB's answers
#: Number and interval of the retries at the start if the database server does not answer yet.
CONNECT_RETRIES = 5
CONNECT_INTERVAL_S = 2.0
#: The same for setting the journal mode of a new SQLite file: SQLite does not wait if two connections do so at once.
LOG_RETRIES = 100
LOG_INTERVAL_S = 0.02


def connect(connection: str, **options: Any) -> Engine:
    """Return an engine for a URL; `options` of oslo.db apply to servers only.  A missing SQLite file is created."""
    url = make_url(connection)
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return _server(url, options)


def snapshots_of(engine: Engine) -> Engine:
    """Return the engine for readers: a transaction reads a consistent snapshot and does not block writers."""
    return engine.execution_options(snapshot=True)


def single_reads_of(engine: Engine) -> Engine:
    """Return the engine for single reads: one statement is always consistent and needs no transaction."""
    return engine.execution_options(single_read=True)


def _is_snapshot(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("snapshot"))


def _is_single_read(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("single_read"))


# Database servers --------------------------------------------------------------------------------------------------

#: Default options of the drivers, which a URL can override.  libpq has no timeout for a server that does not answer
#: while its host still does.
_DRIVER_OPTIONS = {
    "mysql": {
        "charset": "utf8mb4",
        "connect_timeout": str(CONNECT_TIMEOUT_S),
        "read_timeout": str(SILENCE_TIMEOUT_S),
        "write_timeout": str(SILENCE_TIMEOUT_S),
    },
    "postgresql": {
        "application_name": "fpga_pool",
        "connect_timeout": str(CONNECT_TIMEOUT_S),
        "keepalives_idle": str(SILENCE_TIMEOUT_S // 2),
        "keepalives_interval": str(SILENCE_TIMEOUT_S // 6),
        "keepalives_count": "3",
        "tcp_user_timeout": str(SILENCE_TIMEOUT_S * 1000),
    },
}

#: Settings of every session: writers read committed data, and idle sessions lose their locks after a timeout.
#: MariaDB executes the comment in the SQL; MySQL has no such setting, so there a stalled client keeps its locks until
#: TCP closes its connection.
_SESSION_SETTINGS = {
    "mysql": (
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        f"SET SESSION innodb_lock_wait_timeout = {BUSY_TIMEOUT_S:.0f}"
        f" /*M!100300 , idle_transaction_timeout = {IDLE_TRANSACTION_TIMEOUT_S} */",
    ),
    "postgresql": (
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        f"SET SESSION lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'",
        f"SET SESSION idle_in_transaction_session_timeout = '{IDLE_TRANSACTION_TIMEOUT_S}s'",
    ),
}


def _server(url: URL, options: dict[str, Any]) -> Engine:
    # oslo.db recognizes the errors of MariaDB under the older driver name only.
    url = url.set(drivername=url.drivername.replace("mariadb+", "mysql+"))
    backend = url.get_backend_name()
    if backend not in _DRIVER_OPTIONS:
        raise ValueError(f"{url!r}: unsupported database; expected sqlite, {', '.join(_DRIVER_OPTIONS)}")
    url = url.set(query=_DRIVER_OPTIONS[backend] | dict(url.query))
    retries, interval_s = options.pop("max_retries", CONNECT_RETRIES), options.pop("retry_interval", CONNECT_INTERVAL_S)
    options["mysql_sql_mode"] = options.get("mysql_sql_mode") or "TRADITIONAL"
    options.setdefault("thread_checkin", False)  # yielding to other threads is needed for eventlet only
    engine = engines.create_engine(url.render_as_string(hide_password=False), max_retries=0, **options)
    engine.pool._pre_ping = False  # noqa: SLF001  # oslo.db has each connection tried each time; see `_try`
    if engine.driver == "pymysql":
        engine.dialect.do_rollback = _roll_back
        # It parses the description of every column of every answer in Python; the results are cached.
        parsing = engine.dialect.loaded_dbapi.connections
        if isclass(packet := parsing.FieldDescriptorPacket):
            parsing.FieldDescriptorPacket = lru_cache(4096)(packet)
    event.listen(engine, "connect", partial(_set_up_session, engine.dialect, _SESSION_SETTINGS[backend]))
    event.listen(engine, "begin", _begin_on_server)
    event.listen(engine, "checkout", partial(_try, engine.dialect))
    _wait_for_server(engine, retries, interval_s)
    return engine


def _roll_back(connection: Any) -> None:
    """Roll back if a transaction is open; psycopg checks this itself."""
    if connection.server_status & _IN_TRANSACTION:
        connection.rollback()


def _try(dialect: Dialect, connection: Any, _record: Any, _proxy: Any) -> None:
    """Replace this connection and all others if the server has closed it, with or without an error message."""
    try:
        socket = getattr(connection, "_sock", connection)  # of PyMySQL; psycopg's connection has `fileno` itself
        idle = poll()
        idle.register(socket.fileno(), POLLIN)
        if idle.poll(0):
            dialect.do_ping(connection)
    except (dialect.loaded_dbapi.Error, AttributeError) as error:  # PyMySQL has no socket where it has closed it
        raise InvalidatePoolError from error


def _wait_for_server(engine: Engine, retries: int, interval_s: float) -> None:
    # oslo.db would do this, too, but does not recognize the errors of psycopg for an unavailable server.
    @wrap_db_retry(max_retries=retries, retry_interval=interval_s, inc_retry_interval=False, exception_checker=is_away)
    def connect_once() -> None:
        engine.connect().close()

    with translated():
        connect_once()


def _set_up_session(dialect: Dialect, settings: tuple[str, ...], connection: Any, _record: Any) -> None:
    dialect.set_isolation_level(connection, "AUTOCOMMIT")  # transactions begin explicitly, see `_begin_on_server`
    with contextlib.closing(connection.cursor()) as cursor:
        for setting in settings:
            cursor.execute(setting)


def _begin_on_server(connection: Connection) -> None:
    if _is_single_read(connection):
        return
    if _is_snapshot(connection):
        snapshot = "TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"START {snapshot}")
            return
        if getattr(connection.dialect, "is_mariadb", False):
            connection.exec_driver_sql(f"BEGIN NOT ATOMIC SET {snapshot}; START TRANSACTION; END")  # one statement
            return
        connection.exec_driver_sql(f"SET {snapshot}")
    connection.exec_driver_sql("BEGIN")


# SQLite ------------------------------------------------------------------------------------------------------------


def _sqlite(url: URL) -> Engine:
    # oslo.db's engine opens a connection per transaction, and the last one to close rewrites the whole log.
    _create_private_file(url)
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    exc_filters.register_engine(engine)
    return engine


def _create_private_file(url: URL) -> None:
    """Create the file with access for its owner only; SQLite gives its log the same mode."""
    if not url.database or url.database == ":memory:":
        raise ValueError(f"{url}: the pool's database must be a file to be persistent")
    Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(url.database, os.O_CREAT | os.O_RDWR, 0o600))


def _busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY"


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin explicitly, not automatically by the driver
    _use_log(connection)
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
    connection.execute("PRAGMA foreign_keys = ON")


@wrap_db_retry(
    max_retries=LOG_RETRIES, retry_interval=LOG_INTERVAL_S, inc_retry_interval=False, exception_checker=_busy
)
def _use_log(connection: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    # A writer locks the database at its start: two readers that both want to become writers would deadlock.
    if not _is_single_read(connection):
        connection.exec_driver_sql("BEGIN DEFERRED" if _is_snapshot(connection) else "BEGIN IMMEDIATE")
