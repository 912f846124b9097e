"""The cost of twenty concurrent boots with hundreds of hosts that have agents: Nova's schedulers, plug-in and pool.

    COMPUTES=500 pytest tests/benchmarks/test_boots_in_flight.py -s --timeout 0

The pool has a scheduler process on RabbitMQ and MariaDB, which reports its slots to a Placement process as in a cloud.
Agents are threads of another process (`beating.py`) with 8 slots each, which send heartbeats every 5 seconds and report
a changed slot every 50.  Their hosts are recorded in Nova's database, and Nova's schedulers (`nova_in_flight.py`) query
the pool's scheduler.  Prints lines for each round; times are not asserted, as they depend on the machine.
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
#: Heartbeat interval of each agent, and the number of heartbeats after which one of its slots changes its function.
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
