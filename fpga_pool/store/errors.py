"""What a database complains of, told in the pool's own errors: the one place that knows the codes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from oslo_db import exception as db
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm.exc import StaleDataError

from fpga_pool.model.exceptions import (
    Conflict,
    Contended,
    DuplicateId,
    FpgaPoolError,
    InvalidInput,
    NotFound,
    ServiceUnavailable,
    StorageFull,
)

# SQLite's name of an error, MariaDB's number, PostgreSQL's SQLSTATE.

#: "Full": ER_DISK_FULL, ER_RECORD_FILE_FULL; disk_full.
_FULL = frozenset({"SQLITE_FULL", 1021, 1114, "53100"})
#: "Another writer holds it, for longer than we wait": ER_LOCK_WAIT_TIMEOUT; lock_not_available.
_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY", "SQLITE_LOCKED", 1205, "55P03"})
#: "Chosen to give way to another writer": ER_CHECKREAD, ER_LOCK_DEADLOCK; serialization_failure, deadlock_detected.
_GIVES_WAY = frozenset({1020, 1213, "40001", "40P01"})
#: "Not now": too many connections or of one user, shutdown, killed; too_many_connections, shutdown, crash, starting
#: up, silent for too long within a transaction.
_AWAY = frozenset({1040, 1053, 1203, 1927, "53300", "57P01", "57P02", "57P03", "25P03"})
#: "Not you": access to the database or server denied, no such database.
_REFUSED = frozenset({1044, 1045, 1049, 1698, "28000", "28P01", "3D000"})
#: What libpq says, without a code, of a server that answers but takes no connection at present.
_PG_NOT_NOW = re.compile("starting up|shutting down|too many|recovery|not yet accepting")


@contextmanager
def translated() -> Iterator[None]:
    """Raise a domain error in place of the database's; what has none (a mistake of ours) passes as it is."""
    try:
        yield
    except (DBAPIError, db.DBError, StaleDataError, PoolTimeout) as error:
        translation = _translation(error)
        if translation is None:
            raise
        raise translation from error


def is_away(error: BaseException) -> bool:
    """Say whether a server does not answer at present, so that it may be worth while to try again."""
    code, cause = _driver_code(error), _driver_error(error)
    return code in _AWAY or isinstance(error, db.DBConnectionError) or _libpq_verdict(cause) == "away"


def _translation(error: Exception) -> FpgaPoolError | None:
    code = _driver_code(error)
    if code in _FULL:
        return StorageFull("the database is full: nothing was stored; free space on its disk and try again")
    if code in _BUSY or isinstance(error, PoolTimeout):
        return ServiceUnavailable("the database is busy with other writers; try again later")
    if code in _GIVES_WAY or isinstance(error, db.DBDeadlock):
        return Contended("the database gave way to other writers; try again")
    if isinstance(error, StaleDataError):
        return Conflict("what this change was based on has changed meanwhile; read it again and decide again")
    if is_away(error):
        return ServiceUnavailable("the database does not answer; try again later")
    if code in _REFUSED or isinstance(error, db.DBNonExistentDatabase) or _libpq_verdict(_driver_error(error)):
        return ServiceUnavailable("the database lets nobody in: check user, password and name of database in its URL")
    match error:
        case db.DBDuplicateEntry():
            return DuplicateId(f"exists already (same {', '.join(error.columns)})")
        case db.DBReferenceError():
            return NotFound("it refers to an object that does not exist")
        case db.DBDataError() | db.DBError(inner_exception=DataError()):
            return InvalidInput(f"the database cannot hold a value: {_driver_error(error)}")
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
    """Return what an error means that came about before a server gave it a code; None if it is of another kind."""
    if type(cause).__name__ != "OperationalError" or getattr(cause, "sqlstate", cause) is not None:
        return None
    message = str(cause)
    return "refused" if "FATAL:" in message and not _PG_NOT_NOW.search(message) else "away"
