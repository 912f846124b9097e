"""The store with a database server that is restarted, killed or away, or that ends a stalled client's session."""

import contextlib
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from signal import SIGCONT, SIGSTOP

import pytest
from sqlalchemy import event, text

from fpga_pool.model.exceptions import Contended, InvalidInput, ServiceUnavailable
from fpga_pool.model.objects.pool import Batch
from fpga_pool.services.loop import Loop
from fpga_pool.store import Store
from fpga_pool.store.engine import IDLE_TRANSACTION_TIMEOUT_S
from support.servers import MariaDB, PostgreSQL

SHARD, OWNER = "shard-0", "scheduler-0"
BATCH = Batch(uuid="b" * 36, project_id="p", user_id="u", name="", policy="ect", created_at=1.0, jobs=1)

#: Changes a batch, adds others, prints a line, and keeps the transaction open until told to continue.
STALLING_WRITER = """
import sys
from dataclasses import replace
from fpga_pool.store import Store

url, epoch, batch, *others = sys.argv[1:]
with Store(url).transaction("shard-0", "scheduler-0", int(epoch)) as tx:
    found = tx.batch(batch)
    tx.save(replace(found, jobs_completed=1))
    tx.flush()
    tx.add(*(replace(found, uuid=other) for other in others))
    print("changed", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module", params=[MariaDB, PostgreSQL], ids=lambda kind: kind.name)
def server(request, run_server, servers_directory):
    """A separate server for these tests, which they stop and kill; it runs again at the start of each test."""
    yield from run_server(request.param(servers_directory / f"hurt-{request.param.name}"))


@pytest.fixture
def url(server):
    url = server.new_database()
    yield url
    server.start()
    server.drop_database(url)


@pytest.fixture
def store(url):
    store = Store(url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def shard(store):
    store.ensure_shards([SHARD], now_s=1.0)
    return store.acquire_shard(SHARD, OWNER, now_s=1.0)


@pytest.fixture
def begin(store, shard):
    with store.transaction(SHARD, OWNER, shard.epoch) as tx:
        tx.add(BATCH)
    return lambda: store.transaction(SHARD, OWNER, shard.epoch)


@pytest.fixture
def count(begin):
    """Count one more completed job of the batch: `count(happens)`; `happens` runs before the commit."""

    def count(happens=lambda: None):
        with begin() as tx:
            batch = tx.batch(BATCH.uuid)
            tx.save(replace(batch, jobs_completed=batch.jobs_completed + 1))
            tx.batches()  # sends the change to the server
            happens()

    return count


@pytest.fixture
def completed(store):
    def completed():
        with store.reading() as tx:
            return tx.batch(BATCH.uuid).jobs_completed

    return completed


@contextmanager
def each_session(store, setting):
    """Apply a setting to each new session of a store."""

    def apply(connection, _record):
        cursor = connection.cursor()
        cursor.execute(setting)
        cursor.close()
        connection.commit()

    event.listen(store.engine, "connect", apply)
    store.engine.dispose()
    try:
        yield
    finally:
        event.remove(store.engine, "connect", apply)
        store.engine.dispose()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_between_two_transactions_goes_unnoticed(server, count, completed, end):
    count()
    getattr(server, end)()
    server.start()
    count()
    assert completed() == 2


def test_a_connection_that_has_rested_is_not_tried_before_it_is_used(store, monkeypatch):
    """A server that ended would have closed the connection, and a ping takes as long as a statement."""
    tried = []
    monkeypatch.setattr(store.engine.dialect, "do_ping", tried.append)
    for _ in range(3):
        with store.single_reads() as tx:
            tx.shards()
        time.sleep(0.2)
    assert tried == []


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_transaction_whose_server_ends_is_told_to_come_back_and_leaves_nothing(server, count, completed, end):
    with pytest.raises(ServiceUnavailable, match="does not respond; try again later"):
        count(getattr(server, end))
    with pytest.raises(ServiceUnavailable, match="does not respond; try again later"):
        completed()
    server.start()
    assert completed() == 0
    count()
    assert completed() == 1


def test_a_start_waits_for_a_server_that_starts_too(server, url, store):
    server.stop()
    with pytest.raises(ServiceUnavailable), store.reading() as tx:
        tx.hosts()
    starting = threading.Timer(1.0, lambda: server.start())
    starting.start()
    late = Store(url, max_retries=500, retry_interval=0.2)
    late.check_schema()
    late.close()
    starting.join()


@pytest.fixture
def sessions_end(store):
    """End stalled sessions, as schedulers do if the database does not."""
    loop = Loop("end-stalled", lambda: bool(store.end_stalled_sessions()), 0.2)
    if store.ends_stalled_sessions:
        loop.start()
    yield
    loop.stop()


@pytest.mark.long
@pytest.mark.parametrize("others", [[], ["c" * 36, "d" * 36]], ids=["after a statement", "after one for several rows"])
def test_a_stalled_client_loses_its_locks_and_what_it_had_not_committed(
    server, url, shard, count, completed, sessions_end, others
):
    command = [sys.executable, "-c", STALLING_WRITER, url, str(shard.epoch), BATCH.uuid, *others]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as stalled:
        try:
            assert stalled.stdout.readline() == "changed\n"
            stalled.send_signal(SIGSTOP)
            count()  # waits for the shard's lock until the server ends the stalled session
            stalled.send_signal(SIGCONT)
            _, said = stalled.communicate("\n", timeout=240)
        finally:
            stalled.kill()
    assert stalled.returncode == 1
    assert "ServiceUnavailable: the database does not respond; try again later" in said
    assert completed() == 1


def test_a_session_that_sends_a_large_result_is_not_taken_for_stalled(postgresql):
    url = postgresql.new_database()
    with contextlib.closing(Store(url)) as store, store.engine.begin() as connection:
        cursor = connection.connection.cursor()
        with cursor.copy("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT") as rows:
            rows.read()
            time.sleep(IDLE_TRANSACTION_TIMEOUT_S + 1)
            assert store.end_stalled_sessions() == []
            assert sum(len(bytes(row)) for row in rows) > 99_000_000
    postgresql.drop_database(url)


def test_a_lock_that_is_held_too_long_is_told_to_come_back(server, url, begin):
    setting = "SET SESSION innodb_lock_wait_timeout = 1" if server.name == "mariadb" else "SET lock_timeout = '1s'"
    with (
        contextlib.closing(Store(url)) as other,
        each_session(other, setting),
        begin(),
        pytest.raises(ServiceUnavailable, match="busy with other writers"),
        other.transaction(SHARD),
    ):
        pass


def test_the_victim_of_a_deadlock_is_told_to_try_again(store, begin):
    store.ensure_shards(["a", "b"], now_s=1.0)
    both_hold = threading.Barrier(2)
    outcomes = []

    def lock(first, second):
        try:
            with store.transaction(first) as tx:
                both_hold.wait(timeout=120)
                tx._connection.execute(text("UPDATE shards SET generation = 7 WHERE name = :name"), {"name": second})
        except Contended as error:
            outcomes.append(str(error))
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=lock, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert sorted(outcome.partition(";")[0] for outcome in outcomes) == [
        "done",
        "the database aborted the transaction in favour of other writers",
    ]


@pytest.mark.parametrize("value", [{"name": "x" * 256}, {"created_at": "soon"}, {"jobs": 2**63}])
def test_a_value_that_does_not_fit_is_refused_not_cut(begin, completed, value):
    with pytest.raises(InvalidInput, match="cannot store a value"), begin() as tx:
        tx.add(replace(BATCH, uuid="c" * 36, **value))
    assert completed() == 0


@pytest.mark.parametrize("part", ["password", "database"])
def test_an_url_that_the_server_refuses_is_named_as_the_cause(server, url, part):
    wrong = url.replace(server.password, "wrong") if part == "password" else f"{url}_of_nobody"
    with pytest.raises(ServiceUnavailable, match="check user, password and database name"):
        Store(wrong).check_schema()


def test_the_servers_keep_what_they_acknowledge(server):
    asked = {
        "mariadb": ("SELECT @@innodb_flush_log_at_trx_commit", "1"),
        "postgresql": ("SELECT current_setting('fsync') || current_setting('synchronous_commit')", "onon"),
    }
    statement, expected = asked[server.name]
    assert server.execute(statement).strip() == expected
