"""A small pool for the tests of the API, the client and the command line, based on `pool_bench`."""

import contextlib
import importlib.util
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from fpga_pool.store import Store

WAIT_S = 60.0


@pytest.fixture(scope="session")
def new_database(tmp_path_factory):
    """Return a function that copies a migrated SQLite database and returns its URL. A migration would take 0.1 s."""
    template = tmp_path_factory.mktemp("schema") / "pool.sqlite"
    store = Store(f"sqlite:///{template}")
    store.migrate()
    store.close()

    def make(path):
        shutil.copyfile(template, path)
        return f"sqlite:///{path}"

    return make


@pytest.fixture(scope="session")
def new_pool(new_database):
    """Return a function that makes pools. `pool_bench` is loaded by path, because tests are not in a package."""
    spec = importlib.util.spec_from_file_location("pool_bench", Path(__file__).with_name("pool_bench.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(directory, max_batch_jobs):
        return module.PoolBench(new_database(directory / "pool.sqlite"), directory, max_batch_jobs)

    return make


@pytest.fixture
def make_pool(tmp_path, new_pool):
    with contextlib.ExitStack() as stack:

        def make(max_batch_jobs=10_000):
            directory = tmp_path / "pool"
            directory.mkdir()
            bench = new_pool(directory, max_batch_jobs)
            stack.callback(bench.close)
            return bench

        yield make


@pytest.fixture
def pool(make_pool):
    return make_pool()


@pytest.fixture
def serve():
    """Return a callable that serves a pool's API on a free or given port and returns the URL; `stop` stops all."""
    from fpga_pool.api.app import create_app
    from fpga_pool.api.http.server import ApiServer

    class Serve:
        def __init__(self):
            self.servers = []

        def __call__(self, pool, port=0, limits=None, tls=None, **options):
            self.servers.append(ApiServer(create_app(pool, **options), port=port, limits=limits, tls=tls))
            return self.servers[-1].start()

        def stop(self):
            while self.servers:
                self.servers.pop().stop()

    serve = Serve()
    yield serve
    serve.stop()


@pytest.fixture
def client(pool, serve):
    from fpga_pool.client import Client

    with Client(serve(pool)) as client:
        yield client


@pytest.fixture
def keystone():
    """Run a Keystone without a pool in its catalogue."""
    from support.keystone import running_keystone

    with running_keystone() as keystone:
        yield keystone


@pytest.fixture
def cloud(keystone, pool, tmp_path):
    """Run the Keystone of a cloud with a pool, whose API validates tokens with Keystone's middleware."""
    from keystonemiddleware.fixture import AuthTokenFixture

    from fpga_pool.api.http.server import ApiServer
    from fpga_pool.api.stack import make_application
    from fpga_pool.client.session import SERVICE_TYPE
    from support.keystone import TOKEN
    from support.personas import keystone_configuration

    conf = keystone_configuration(tmp_path)
    with AuthTokenFixture() as tokens:
        server = ApiServer(make_application(conf, pool, keystone=True), port=0, authenticates=True)
        keystone.catalogue[SERVICE_TYPE] = server.start()
        tokens.add_token(keystone.token(), token_id=TOKEN)
        yield keystone
        server.stop()


@pytest.fixture
def clouds_yaml(keystone, tmp_path, monkeypatch):
    """Write a clouds.yaml with Keystone's account as cloud `test`, and unset environment variables that override it."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "clouds.yaml"
    path.write_text(json.dumps({"clouds": {"test": {"auth": keystone.account, "region_name": "RegionOne"}}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    return path


@pytest.fixture
def eventually():
    """Return a function that polls until a condition holds."""

    def wait(condition):
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, "did not happen in time"
            time.sleep(0.005)

    return wait
