"""What a database complains of, told in the pool's own errors: the one place that knows the codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_db import exception as db
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm.exc import StaleDataError

from fpga_pool.model.exceptions import (
    Conflict,
    DuplicateId,
    FpgaPoolError,
    InvalidInput,
    NotFound,
    ServiceUnavailable,
    StorageFull,
)

#: "Full": SQLITE_FULL; MariaDB's ER_DISK_FULL and ER_RECORD_FILE_FULL; PostgreSQL's disk_full.
_FULL = frozenset({"SQLITE_FULL", 1021, 1114, "53100"})
#: "Another writer holds it, for longer than we wait": SQLite only, the others tell oslo.db of a deadlock.
_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY", "SQLITE_LOCKED"})


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


def _translation(error: Exception) -> FpgaPoolError | None:
    code = _driver_code(error)
    if code in _FULL:
        return StorageFull("the database is full: nothing was stored; free space on its disk and try again")
    if code in _BUSY or isinstance(error, PoolTimeout):
        return ServiceUnavailable("the database is busy with other writers; try again later")
    match error:
        case StaleDataError() | db.DBDeadlock():
            return Conflict("what this change was based on has changed meanwhile; read it again and decide anew")
        case db.DBDuplicateEntry():
            return DuplicateId(f"exists already (same {', '.join(error.columns)})")
        case db.DBReferenceError():
            return NotFound("it refers to an object that does not exist")
        case db.DBDataError():
            return InvalidInput(f"the database cannot hold a value: {error}")
        case db.DBConnectionError() | db.DBNonExistentDatabase():
            return ServiceUnavailable("the database does not answer; try again later")
    return None


def _driver_code(error: Exception) -> Any:
    """Return the driver's own code: SQLite's error name, PostgreSQL's SQLSTATE, MariaDB's number."""
    wrapped = error.inner_exception if isinstance(error, db.DBError) else error
    cause = wrapped.orig if isinstance(wrapped, DBAPIError) else wrapped
    for attribute in ("sqlite_errorname", "sqlstate", "pgcode"):
        if code := getattr(cause, attribute, None):
            return code
    return cause.args[0] if cause is not None and cause.args else None
