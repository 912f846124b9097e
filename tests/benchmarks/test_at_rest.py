"""CPU time, memory and wake-ups of the processes of a pool that has nothing to do.

    AT_REST_S=60 pytest tests/benchmarks/test_at_rest.py -s

The embedded pool with its default options, and a pool as an operator runs it: API, scheduler, two hosts and a requester
as processes on RabbitMQ and MariaDB.  The measurement begins when the pool has rested for half a minute, or for as long
as the measurement if that is shorter.
"""

import os
import time

from fpga_pool.experiments.embedded import start_pool, stop_pool
from support.deployment import Deployment
from support.servers.process import cpu_s, resident_bytes, wake_ups

MEASURED_S = float(os.environ.get("AT_REST_S", "5"))
SETTLED_S = min(MEASURED_S, 30.0)


def show(pids):
    """Print the use of each process, by name."""
    time.sleep(SETTLED_S)
    before, began_s = {name: (cpu_s(pid), wake_ups(pid)) for name, pid in pids.items()}, time.monotonic()
    time.sleep(MEASURED_S)
    passed_s = time.monotonic() - began_s
    print()
    for name, pid in pids.items():
        cpu, woken = cpu_s(pid) - before[name][0], wake_ups(pid) - before[name][1]
        print(
            f"{name:12s} {100 * cpu / passed_s:5.2f} % of a processor, {woken / passed_s:5.1f} wake-ups/s,"
            f" {resident_bytes(pid) / 1e6:5.0f} MB"
        )


def test_the_embedded_pool(tmp_path):
    process, _ = start_pool(tmp_path, {})
    try:
        show({"standalone": process.pid})
    finally:
        stop_pool(process)


def test_a_pool_of_processes(rabbitmq, mariadb, tmp_path):
    url = mariadb.new_database()
    try:
        with Deployment(tmp_path / "pool", rabbitmq.url, url, agents=2, requesters=1) as pool:
            show({name: pool.pid(name) for name in pool.names})
    finally:
        mariadb.drop_database(url)
