"""The cost of many agents' heartbeats for one scheduler: its CPU time and memory, and their growth.

    pytest tests/benchmarks/test_many_agents.py -s

A scheduler process on RabbitMQ and MariaDB; agents are threads of another process, with 8 slots each, which send a
heartbeat every second, or every 5 seconds.  Prints one line per number of agents; times are not asserted, as they
depend on the machine.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.services.scheduler.heartbeats import FULL_EVERY
from support.servers.process import cpu_s, resident_bytes

#: Heartbeats of each agent before the measurement: all have been compared in full since the last agent joined.
WARM_BEATS = 2 * FULL_EVERY
MEASURED_S = 15.0
TICKS_PER_S = 100


@pytest.mark.parametrize(("agents", "interval_s"), [(125, 1.0), (250, 1.0), (500, 1.0), (500, 5.0), (1000, 5.0)])
def test_many_agents(scheduler_process, rabbitmq, agents, interval_s):
    pool, database_url = scheduler_process
    beating = [
        sys.executable,
        str(Path(__file__).with_name("beating.py")),
        rabbitmq.url,
        database_url,
        f"node{agents}-{interval_s:g}",
    ]
    warm_s = WARM_BEATS * interval_s
    with subprocess.Popen(
        [*beating, str(agents), str(interval_s), str(warm_s), str(MEASURED_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as load:
        assert load.stdout.readline() == "ready\n"
        load.stdin.write("go\n")
        load.stdin.flush()
        time.sleep(warm_s)
        pids = {"scheduler": pool.pid("scheduler-1"), "load": load.pid}
        before, idle = {name: cpu_s(pid) for name, pid in pids.items()}, idle_s()
        time.sleep(MEASURED_S)
        cpu = {name: (cpu_s(pid) - before[name]) / MEASURED_S for name, pid in pids.items()}
        idle = (idle_s() - idle) / MEASURED_S
        memory = resident_bytes(pids["scheduler"])
        answered = json.loads(load.stdout.readline())
    times_ms = 1e3 * np.array(answered["times_s"])
    median, worst = np.percentile(times_ms, [50, 99])
    taken = len(times_ms) / MEASURED_S
    print(
        f"\n{agents:5d} agents, every {interval_s:g} s: {taken:6.1f} heartbeats/s, {answered['unanswered']} unanswered;"
        f" answered in {median:.0f} ms (99 %: {worst:.0f} ms); scheduler {cpu['scheduler']:.2f} s/s of CPU"
        f" ({1e3 * cpu['scheduler'] / taken:.2f} ms each), {memory / 2**20:.0f} MiB;"
        f" agents {cpu['load']:.2f} s/s, idle {idle:.2f} s/s"
    )


def idle_s():
    """Return the idle time of all processors, in seconds."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[4]) / TICKS_PER_S
