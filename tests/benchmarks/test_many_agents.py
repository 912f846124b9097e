"""The cost of many agents' heartbeats for one scheduler: its CPU time and memory, and their growth.

    pytest tests/benchmarks/test_many_agents.py -s

A scheduler process on RabbitMQ and MariaDB; agents are threads of another process, with 8 slots each, which send a
heartbeat every second, or every 5 seconds; those of the last line send what is due, mostly life signs, as real ones do.
Prints one line per number of agents; times are not asserted, as they depend on the machine.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.services.scheduler.heartbeats import FULL_EVERY, LONGEST_DUE_S
from support.servers.process import cpu_s, resident_bytes

#: Heartbeats of each agent before the measurement: all have been compared in full since the last agent joined.
WARM_BEATS = 2 * FULL_EVERY
#: Duration of a measurement, and of one in which agents send a heartbeat every LONGEST_DUE_S.
MEASURED_S, SPARING_S = 15.0, 2 * LONGEST_DUE_S
TICKS_PER_S = 100


@pytest.mark.parametrize(
    ("agents", "interval_s", "sparing"),
    [(125, 1.0, False), (250, 1.0, False), (500, 1.0, False), (500, 5.0, False), (1000, 5.0, False), (1000, 5.0, True)],
)
def test_many_agents(scheduler_process, rabbitmq, agents, interval_s, sparing):
    pool, database_url = scheduler_process
    warm_s, measured_s = (SPARING_S, SPARING_S) if sparing else (WARM_BEATS * interval_s, MEASURED_S)
    beating = [
        sys.executable,
        str(Path(__file__).with_name("beating.py")),
        rabbitmq.url,
        database_url,
        f"node{agents}-{interval_s:g}",
        *map(str, (agents, interval_s, warm_s, measured_s, 0, int(sparing))),
    ]
    with subprocess.Popen(beating, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout.readline() == "ready\n"
        load.stdin.write("go\n")
        load.stdin.flush()
        time.sleep(warm_s)
        pids = {"scheduler": pool.pid("scheduler-1"), "load": load.pid}
        before, idle = {name: cpu_s(pid) for name, pid in pids.items()}, idle_s()
        time.sleep(measured_s)
        cpu = {name: (cpu_s(pid) - before[name]) / measured_s for name, pid in pids.items()}
        idle = (idle_s() - idle) / measured_s
        memory = resident_bytes(pids["scheduler"])
        answered = json.loads(load.stdout.readline())
    times_ms = 1e3 * np.array(answered["times_s"])
    median, worst = np.percentile(times_ms, [50, 99])
    taken = len(times_ms) / measured_s
    when = f"every {interval_s:g} s" + (" if due" if sparing else "")
    print(
        f"\n{agents:5d} agents, {when}: {taken:6.1f} heartbeats/s, {answered['unanswered']} unanswered;"
        f" answered in {median:.0f} ms (99 %: {worst:.0f} ms); scheduler {cpu['scheduler']:.2f} s/s of CPU"
        f" ({1e3 * cpu['scheduler'] / taken:.2f} ms each), {memory / 2**20:.0f} MiB;"
        f" agents {cpu['load']:.2f} s/s, idle {idle:.2f} s/s"
    )


def idle_s():
    """Return the idle time of all processors, in seconds."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[4]) / TICKS_PER_S
