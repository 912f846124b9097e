"""Each error of a database driver is translated to an error of the pool."""

import contextlib
import socket

import psycopg
import pytest
import sqlalchemy
from oslo_db import exception as db
from sqlalchemy.exc import OperationalError

from fpga_pool.model import exceptions
from fpga_pool.store import Store, engine
from fpga_pool.store.engine import translated


class PostgresError(Exception):
    def __init__(self, message, sqlstate="53100"):
        super().__init__(message)
        self.sqlstate = sqlstate


class MariaError(Exception):
    sqlstate = "HY000"  # PyMySQL has it too, but only the number distinguishes errors


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("INSERT", {}, Exception(1021, "Disk full")), exceptions.StorageFull),
        (OperationalError("INSERT", {}, Exception(1114, "The table is full")), exceptions.StorageFull),
        (OperationalError("INSERT", {}, MariaError(1021, "Disk full")), exceptions.StorageFull),
        (
            db.DBError(OperationalError("SELECT", {}, MariaError(3, 'writing "#sql" (Errcode: 28 "No space left")'))),
            exceptions.StorageFull,
        ),
        (
            OperationalError("SELECT", {}, MariaError(1030, "Got error 28 from engine")),
            exceptions.StorageFull,
        ),
        (OperationalError("UPDATE", {}, MariaError(1205, "Lock wait timeout")), exceptions.ServiceUnavailable),
        (OperationalError("UPDATE", {}, PostgresError("lock timeout", "55P03")), exceptions.ServiceUnavailable),
        (OperationalError("UPDATE", {}, PostgresError("serialize", "40001")), exceptions.Contended),
        (OperationalError("SELECT", {}, MariaError(1040, "Too many connections")), exceptions.ServiceUnavailable),
        (OperationalError("SELECT", {}, MariaError(1045, "Access denied")), exceptions.ServiceUnavailable),
        (OperationalError("INSERT", {}, PostgresError("could not extend file")), exceptions.StorageFull),
        (db.DBError(OperationalError("INSERT", {}, PostgresError("no space"))), exceptions.StorageFull),
        (db.DBDeadlock(), exceptions.Contended),
        (db.DBDuplicateEntry(["uuid"]), exceptions.DuplicateId),
        (db.DBReferenceError("jobs", "fk", "batch_uuid", "batches"), exceptions.NotFound),
        (db.DBDataError(), exceptions.InvalidInput),
        (db.DBConnectionError(), exceptions.ServiceUnavailable),
        (sqlalchemy.exc.TimeoutError("QueuePool limit reached"), exceptions.ServiceUnavailable),
    ],
)
def test_database_errors_become_domain_errors(error, expected):
    with pytest.raises(exceptions.FpgaPoolError) as raised, translated():
        raise error
    assert type(raised.value) is expected
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("driver", ["mysql+pymysql", "postgresql+psycopg"])
def test_a_server_that_takes_connections_and_says_nothing_is_away(driver):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        limit = "read_timeout=1" if driver.startswith("mysql") else "connect_timeout=2"
        url = f"{driver}://user:word@127.0.0.1:{silent.getsockname()[1]}/pool?{limit}"
        with pytest.raises(exceptions.ServiceUnavailable, match="does not respond; try again later"):
            Store(url, max_retries=0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("the database system is starting up", "does not respond; try again later"),
        ("could not write init file", "does not respond; try again later"),  # its disk is full
        ("password authentication failed for user", "refuses the login"),
    ],
)
def test_a_login_is_refused_only_where_it_would_be_refused_again(said, expected):
    error = OperationalError("", {}, psycopg.OperationalError(f"connection failed: FATAL:  {said}"))
    with pytest.raises(exceptions.ServiceUnavailable, match=expected), translated():
        raise error


def test_mistakes_of_ours_stay_what_they_are():
    error = OperationalError("SELEKT", {}, Exception("syntax error"))
    with pytest.raises(OperationalError), translated():
        raise error


def test_a_writer_that_waited_too_long_for_another_process_is_told_to_come_back(store, shard, begin):
    def hurry(connection, _record):
        connection.execute("PRAGMA busy_timeout = 10")

    with contextlib.closing(Store(str(store.engine.url))) as other:
        sqlalchemy.event.listen(other.engine, "connect", hurry)
        other.engine.dispose()
        with begin(), pytest.raises(exceptions.ServiceUnavailable, match="busy"), other.transaction(shard.name):
            pass


def test_a_writer_that_waited_too_long_for_another_thread_is_told_to_come_back(begin, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.01)
    with begin(), pytest.raises(exceptions.ServiceUnavailable, match="busy"), begin():
        pass
    with begin():
        pass


def test_a_row_that_changed_behind_the_transaction_is_a_conflict(begin, counted, bump):
    # The owner of another shard can do this on a database that locks rows. Here the same connection does it.
    def change_what_changes():
        with begin() as tx:
            batch = tx.batch(counted.uuid)
            tx._connection.execute(sqlalchemy.text("UPDATE batches SET generation = 7"))
            tx.save(bump(batch))

    with pytest.raises(exceptions.Conflict, match="changed concurrently"):
        change_what_changes()


def test_a_job_of_no_batch_is_refused(begin, make):
    with pytest.raises(exceptions.NotFound, match="does not exist"), begin() as tx:
        tx.add(make.job(make.batch()))
