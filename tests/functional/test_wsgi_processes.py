"""The API under a WSGI server with several processes: each process is listed, and one scrape covers all."""

import os
import signal
import subprocess
import sys

import pytest
import requests

from support import IMPORT_PATH
from support.scraping import Scrape
from support.servers.process import dies_with_us, spawn
from support.servers.server import free_port
from support.waiting import wait_until

TIMEOUT_S = 60
PROCESSES = 2
CONFIG = """
[DEFAULT]
transport_url = {transport_url}
log_file = {directory}/wsgi.log
[api]
key = {key}
[keystone_authtoken]
auth_type = none
www_authenticate_uri = http://keystone.test
"""


@pytest.fixture
def serve(tmp_path):
    """Serve an application of the package; return its URL: `serve(module, processes)`."""
    started = []

    def start(module, processes, **environment):
        port = free_port()
        command = [sys.executable, "-W", "ignore", "-m", "support.prefork", module, str(port), str(processes)]
        env = {**os.environ, "PYTHONPATH": IMPORT_PATH, **{name: str(value) for name, value in environment.items()}}
        started.append(spawn(dies_with_us(command), tmp_path / f"{module}.log", env=env))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url), f"{module} answers", timeout_s=180)
        return url

    yield start
    for one in started:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait(TIMEOUT_S)


def answers(url):
    try:
        return requests.get(f"{url}/healthcheck", timeout=TIMEOUT_S)
    except requests.ConnectionError:
        return None


def config(tmp_path, pool, transport_url):
    path = tmp_path / "wsgi.conf"
    key = pool.directory / "keys" / "api.pem"
    path.write_text(CONFIG.format(transport_url=transport_url, directory=tmp_path, key=key))
    return path


@pytest.mark.long
def test_each_process_is_listed_until_it_ends_and_one_scrape_tells_of_all(
    deployment, rabbitmq, mariadb_url, serve, tmp_path
):
    """1. Both processes respond. 2. One scrape has their sum. 3. One ends, and then one of fpga-pool-api."""
    pool = deployment(rabbitmq.url, mariadb_url, agents=1, apis=2)
    directory = tmp_path / "metrics"
    directory.mkdir()
    settings = {
        "OS_FPGA_POOL_CONFIG_FILES": config(tmp_path, pool, rabbitmq.url),
        "PROMETHEUS_MULTIPROC_DIR": directory,
    }
    url = serve("fpga_pool.wsgi.api", PROCESSES, **settings)
    metrics = serve("fpga_pool.wsgi.metrics", 1, PROMETHEUS_MULTIPROC_DIR=directory)

    def listed():
        return {one.name.rpartition(":")[2]: one.up for one in pool.client().services() if one.kind == "api"}

    own = {str(pool.pid(name)) for name in ("api", "api-2")}
    asked = 0

    def all_have_answered():
        nonlocal asked
        asked += 1
        assert requests.get(f"{url}/v1/", timeout=TIMEOUT_S).status_code == 200
        return len(list(directory.glob("counter_*.db"))) == PROCESSES

    wait_until(all_have_answered, "both processes have answered", timeout_s=120)
    counted = {path.stem.rpartition("_")[2] for path in directory.glob("counter_*.db")}
    up = dict.fromkeys(own | counted, True)
    wait_until(lambda: listed() == up, lambda: f"all processes are listed, and up: {listed()}")
    workers = up.keys() - own
    assert len(workers) == PROCESSES
    scraped = Scrape(metrics)
    assert scraped.total("fpga_pool_api_requests_total", status="200") == asked
    assert scraped.total("fpga_pool_api_request_seconds_count") == asked

    def left(*processes):
        """Wait until only these are up.  A process whose last report was lost is listed as down for a while."""
        return wait_until(
            lambda: {name for name, up in listed().items() if up} == set(processes), "one less", timeout_s=180
        )

    ended = min(workers)
    os.kill(int(ended), signal.SIGTERM)
    left(*own, *(workers - {ended}))
    assert pool.terminate("api-2") == 0
    left(str(pool.pid("api")), *(workers - {ended}))
    # The counts of the ended process remain.
    assert Scrape(metrics).total("fpga_pool_api_requests_total", status="200") == asked


@pytest.mark.parametrize("module", ["api", "metrics"])
def test_a_directory_that_is_none_stops_the_start_with_one_line(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import fpga_pool.wsgi.{module}"],
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fpga_pool.wsgi.{module}: PROMETHEUS_MULTIPROC_DIR: expected ")
