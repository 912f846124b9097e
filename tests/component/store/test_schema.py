"""The tables, and their migrations."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import fpga_pool
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.values import field_names
from fpga_pool.store import Store
from fpga_pool.store.migrations import schema
from fpga_pool.store.tables import METADATA, PLACES


@pytest.fixture(params=["sqlite"])
def connection(request, tmp_path):
    """Return the URL of an empty database, for each kind of database that the store supports."""
    return {"sqlite": f"sqlite:///{tmp_path}/pool.db"}[request.param]


@pytest.fixture
def store(connection):
    store = Store(connection)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def empty(connection):
    store = Store(connection)
    yield store
    store.close()


def test_migrations_build_what_the_models_describe(store):
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def described(engine):
    """Return columns, keys, constraints and indexes of each table, with their names, as reported by the database."""
    inspector = sqlalchemy.inspect(engine)

    def in_order(found):
        return sorted(({name: str(value) for name, value in one.items()} for one in found), key=lambda one: one["name"])

    return {
        table: (
            in_order(inspector.get_columns(table)),
            inspector.get_pk_constraint(table),
            in_order(inspector.get_foreign_keys(table)),
            in_order(inspector.get_unique_constraints(table)),
            in_order(inspector.get_indexes(table)),
        )
        for table in METADATA.tables
    }


def test_migrated_tables_are_those_that_the_models_would_create(store, empty):
    migrated = described(store.engine)
    with empty.engine.begin() as connection:
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
    assert migrated == described(empty.engine)


def test_files_of_migrations_are_named_after_their_revisions_in_order():
    found = [script.revision for script in ScriptDirectory(str(schema.DIRECTORY)).walk_revisions()]
    assert found[::-1] == schema.REVISIONS


def test_migrating_again_changes_nothing(store, make, saved):
    batch = saved(make.batch())
    store.migrate()
    store.check_schema()
    with store.reading() as tx:
        assert tx.batch(batch.uuid) == batch


def test_a_look_at_the_version_of_the_schema_is_nothing_for_the_log(store, caplog):
    caplog.set_level(logging.INFO)
    store.check_schema()
    assert store.schema_version()
    assert caplog.text == ""


def test_an_empty_database_is_told_to_be_migrated(empty):
    with pytest.raises(ServiceUnavailable, match="older than this version"):
        empty.check_schema()


@pytest.mark.parametrize("act", ["check_schema", "migrate"])
def test_a_database_from_a_later_version_is_left_alone(store, act):
    with store.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ServiceUnavailable, match=r"newer than this version of fpga_pool .*9999"):
        getattr(store, act)()


def test_processes_that_start_at_once_all_find_the_schema(connection):
    program = "import sys; from fpga_pool.store import Store; s = Store(sys.argv[1]); s.migrate(); s.check_schema()"
    root = Path(fpga_pool.__file__).parents[1]
    started = [
        subprocess.Popen([sys.executable, "-c", program, connection], cwd=root, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=200)[1] for process in started] == [b""] * 2
    assert [process.returncode for process in started] == [0] * 2


@pytest.mark.parametrize("cls", PLACES, ids=lambda cls: cls.__name__)
def test_every_field_has_a_column(cls):
    place = PLACES[cls]
    assert set(field_names(cls)) <= set(place.table.columns.keys())


@pytest.mark.parametrize("table", ["batches", "jobs"])
@pytest.mark.parametrize("column", ["project_id", "user_id"])
def test_tenant_rows_always_have_an_owner(table, column):
    assert not METADATA.tables[table].columns[column].nullable


@pytest.mark.parametrize("dialect", [sqlite, mysql, postgresql], ids=lambda module: module.__name__)
def test_the_tables_can_be_written_in_the_language_of_every_database(dialect):
    for table in METADATA.sorted_tables:
        assert str(CreateTable(table).compile(dialect=dialect.dialect()))
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect.dialect()))
