"""Properties of SQLite files: their content after a kill or on a full disk, their permissions, and query plans."""

import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, text

import fpga_pool
from fpga_pool.model.exceptions import StorageFull
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.messages.usage import UsagePage
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.model.objects.tasks import Task
from fpga_pool.store import Store
from fpga_pool.store.quotas import usage


def test_a_writer_that_is_killed_leaves_whole_transactions_and_all_it_had_committed(connection, store, shard):
    writer = Path(__file__).with_name("writer.py")
    environment = {"PYTHONPATH": str(Path(fpga_pool.__file__).parents[1])}
    command = [sys.executable, str(writer), connection, str(shard.epoch), "forever"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        committed = [process.stdout.readline().strip() for _ in range(20)]
        process.kill()
        committed += [line.strip() for line in process.stdout if line.endswith("\n")]
    store.close()
    reopened = Store(connection)
    reopened.check_schema()
    with reopened.reading() as tx:
        batches = [batch.uuid for batch in tx.batches()]
        jobs = {uuid: [job.uuid for job in tx.batch_jobs(uuid)] for uuid in batches}
    assert set(committed) <= set(batches)
    assert all(len(uuids) == 3 for uuids in jobs.values())
    commands = {command.id for command in reopened.undelivered(shard.name, limit=100_000)}
    assert commands == {uuid for uuids in jobs.values() for uuid in uuids}
    with reopened.engine.connect() as connection_:
        assert connection_.execute(text("PRAGMA integrity_check")).scalar() == "ok"
    reopened.close()


def test_a_full_disk_is_told_and_nothing_of_the_request_is_stored(store, begin, outbox, make, saved):
    known = saved(make.batch())

    def fill(connection, _record):
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")

    event.listen(store.engine, "connect", fill)
    store.engine.dispose()
    batch = make.batch(jobs=2000)

    def fill_up():
        with begin() as tx:
            tx.send(make.command())
            tx.add(batch, *make.jobs(batch, 2000))

    with pytest.raises(StorageFull, match="nothing was stored"):
        fill_up()
    assert outbox() == []
    with begin() as tx:
        assert list(tx.batches()) == [known]
        assert not tx.pending_batches()

    event.remove(store.engine, "connect", fill)
    store.engine.dispose()
    fill_up()  # there is room again
    assert len(outbox()) == 1


def test_the_file_and_its_log_are_for_their_owner_alone(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/pool.db")
    store.migrate()
    store.ensure_shards(["s"], now_s=100.0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"pool.db": 0o600, "pool.db-wal": 0o600, "pool.db-shm": 0o600}
    store.close()


def test_a_commit_is_on_disk_before_it_is_acknowledged(store):
    with store.engine.connect() as connection:
        settings = [connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]  # 2 = FULL


def test_rows_cannot_refer_to_what_does_not_exist(store):
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1


def test_a_database_in_memory_is_refused():
    with pytest.raises(ValueError, match="must be a file"):
        Store("sqlite://")


def test_a_new_file_can_be_opened_by_many_at_once(tmp_path):
    start = threading.Barrier(6)

    def open_and_ask(_):
        store = Store(f"sqlite:///{tmp_path}/pool.db")
        start.wait(timeout=30)
        with store.engine.connect() as opened:
            mode = opened.exec_driver_sql("PRAGMA journal_mode").scalar()
        store.close()
        return mode

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(open_and_ask, range(6))) == ["wal"] * 6


@pytest.mark.parametrize("cls", [Batch, Gang, Job, Task])
def test_a_page_of_a_project_is_read_in_the_order_of_an_index(store, cls):
    # This takes constant time, also in a list of a million: nothing is sorted, and only the returned rows are read.
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
    with store.reading() as tx:
        tx.page(cls, Page(project_id="project-a", descending=True, limit=100))
    (statement, parameters) = next(one for one in asked if "ORDER BY" in one[0])
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    (step,) = (row[-1] for row in plan)
    assert "newest_of_project" in step


def test_the_usage_of_a_period_is_found_by_an_index(store):
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
    assert usage(store, UsagePage(), 5.0, 15.0, 20.0, {}) == []
    (statement, parameters) = next(one for one in asked if "GROUP BY" in one[0])
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert any("ix_runs_finished" in row[-1] for row in plan), plan
