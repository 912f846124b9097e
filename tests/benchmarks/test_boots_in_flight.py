"""What twenty boots at once cost where hundreds of computes have agents: Nova's schedulers, the plug-in, and the pool.

    COMPUTES=500 pytest tests/benchmarks/test_boots_in_flight.py -s --timeout 0

A scheduler process of the pool on RabbitMQ and MariaDB, which keeps its slots in a Placement process as it does in a
cloud; agents are threads of another process (`beating.py`), of 8 slots each, which beat every 5 seconds and tell of a
changed slot every 50.  Their hosts are recorded in the database of Nova, whose schedulers (`nova_in_flight.py`) ask the
pool's scheduler what there is.  Prints lines for each round; nothing is asserted about times, which belong to the
machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.placement import Placement

HERE = Path(__file__).parent
COMPUTES = os.environ.get("COMPUTES", "20")
PREFIX = "compute"
#: Of each agent, and after how many of them one of its slots has another function.
INTERVAL_S, CHANGING = 5, 10


@pytest.fixture
def placement(mariadb, tmp_path):
    pytest.importorskip("nova")
    url = mariadb.new_database()
    placement = Placement(url, tmp_path / "placement.log")
    try:
        placement.start()
        yield placement
    finally:
        placement.stop()
        mariadb.drop_database(url)


@pytest.fixture
def scheduler_options(scheduler_options, placement):
    return scheduler_options | {"placement": placement.section}


def test_boots_in_flight(scheduler_process, rabbitmq, mariadb, placement):
    pool, database_url = scheduler_process
    agents = [rabbitmq.url, database_url, PREFIX, COMPUTES, *map(str, (INTERVAL_S, 0, 0, CHANGING))]
    beating = [sys.executable, HERE / "beating.py", *agents]
    processes = {
        "the pool's scheduler": pool.pid("scheduler-1"),
        "Placement": placement.pid,
        "MariaDB": mariadb.pid,
        "RabbitMQ": rabbitmq.pid,
    }
    shown = {
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1",
        "COMPUTES": COMPUTES,
        "COMPUTE_PREFIX": PREFIX,
        "PLACEMENT_URL": placement.url,
        "POOL_TRANSPORT_URL": rabbitmq.url,
        "POOL_KEY": str(pool.directory / "keys" / "nova.pem"),
        "PROCESSES": json.dumps(processes),
    }
    quiet = ("-q", "-s", "-W", "ignore", "-p", "no:cacheprovider", "--timeout=0")
    settings = f"--config-file={HERE.parent}/nova/pytest.ini"
    nova = [sys.executable, "-m", "pytest", *quiet, settings, HERE / "nova_in_flight.py"]
    with subprocess.Popen(beating, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        print("begin", file=load.stdin, flush=True)
        assert subprocess.run(nova, env=os.environ | shown).returncode == 0
        print("end", file=load.stdin, flush=True)
        assert load.stdout.readline() == "ready\n"
        answered = json.loads(load.stdout.readline())
    median, most = np.percentile(1e3 * np.array(answered["times_s"]), [50, 99])
    print(
        f"{len(answered['times_s'])} heartbeats answered in {median:.0f} ms (99 %: {most:.0f} ms),"
        f" {answered['unanswered']} unanswered"
    )
