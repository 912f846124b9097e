"""The component tests of the store, run on MariaDB and PostgreSQL, without those that are specific to SQLite."""

import importlib.util
from pathlib import Path

import pytest
import sqlalchemy

from fpga_pool.store.tables import METADATA

COMPONENT_TESTS = Path(__file__).parents[1] / "component" / "store"
PORTABLE = (
    "conftest",
    "test_statements",
    "test_columns",
    "test_concurrency",
    "test_contract",
    "test_policy_contract",
    "test_gang_contract",
    "test_queries",
    "test_schema",
)
PORTABLE += ("test_open_work", "test_purge", "test_quotas", "test_shards", "test_usage")


def load(name):
    spec = importlib.util.spec_from_file_location(f"store_{name}", COMPONENT_TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


for module in PORTABLE:
    # pytest finds tests and fixtures in the namespace of a module, wherever they were defined.
    globals().update({name: value for name, value in load(module).items() if not name.startswith("__")})


@pytest.fixture(scope="module")
def migrated():
    """Return an engine of a database that tests share unless they test its creation: `migrated(server)`."""
    engines = {}

    def engine(server):
        if server.name not in engines:
            engines[server.name] = sqlalchemy.create_engine(server.new_database())
        return engines[server.name]

    yield engine
    for made in engines.values():
        made.dispose()


@pytest.fixture(params=["mariadb", "postgresql"])
def connection(request, migrated):
    server = request.getfixturevalue(request.param)
    if request.function.__module__ == "store_test_schema":
        url = server.new_database()
        yield url
        server.drop_database(url)
        return
    engine = migrated(server)
    yield engine.url.render_as_string(hide_password=False)
    delete_all_rows(engine)


def delete_all_rows(engine):
    with engine.begin() as emptied:
        for table in reversed(METADATA.sorted_tables):
            emptied.execute(table.delete())
