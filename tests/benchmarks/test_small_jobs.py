"""The number of small jobs that a pool completes per second, and the CPU time of each process per job.

    pytest tests/benchmarks/test_small_jobs.py -s

Each job is 1 kB of sha256; everything is committed before it is acknowledged, and every result is checked by its
digest.  The slots take no time, so that the pool itself is measured: as an operator runs it (processes on RabbitMQ and
MariaDB, one scheduler, two hosts with four slots each), and embedded.  Users submit a batch when they have all results
of the previous one, each in a thread of one client process.

The cost of signatures is measured in one embedded pool (`unsigned.py`), in whose process calls and tokens are neither
signed nor verified in half of the rounds.  The order is with, without, without, with and so on.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpga_pool.client import Client
from fpga_pool.conf.catalogue import installed_catalogue
from fpga_pool.experiments.embedded import config_text, start_pool
from support.deployment import Deployment

MEASURED_S = 20.0
ROUNDS, ROUND_S = 12, 5.0
TICKS_PER_S = 100
SET_UP = "a_s = 1e-3, b_s_per_byte = 2.5e-9"
EMBEDDED = {"standalone": {"hosts": 2, "requesters": 1, "egress_mbps": 2000, "ingress_mbps": 4000}}


@pytest.fixture
def options(tmp_path):
    """Return options for a board on which sha256 jobs need no setup time, and for plans that begin soon."""
    catalogue = installed_catalogue().read_text()
    assert catalogue.count(SET_UP) == 1
    (tmp_path / "catalogue.toml").write_text(catalogue.replace(SET_UP, SET_UP.replace("1e-3", "0.0")))
    return {
        "functions": {"catalogue": tmp_path / "catalogue.toml"},
        "driver_simulated": {"board": "kintex7"},
        "scheduler": {"dispatch_lead_s": 0.05},
    }


@pytest.fixture
def deployment(rabbitmq, mariadb, tmp_path, options):
    url = mariadb.new_database()
    with Deployment(tmp_path / "pool", rabbitmq.url, url, requesters=1, options=options) as pool:
        yield pool
    mariadb.drop_database(url)


@pytest.mark.parametrize(("jobs", "users"), [(100, 4), (100, 8), (1, 1), (1, 16)])
def test_small_jobs_on_servers(deployment, rabbitmq, mariadb, tmp_path, jobs, users):
    processes = {name: deployment.pid(name) for name in deployment.names}
    processes |= {server.name: server._process.pid for server in (rabbitmq, mariadb)}
    measure(deployment.endpoint, processes, tmp_path, jobs, users)


def test_small_jobs_in_the_embedded_pool(options, tmp_path):
    process, endpoint = start_pool(tmp_path / "pool", EMBEDDED | options)
    try:
        measure(endpoint, {"pool": process.pid}, tmp_path, jobs=100, users=4)
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def switched(options, tmp_path):
    """A pool that turns signatures on and off, and its endpoint."""
    config = tmp_path / "fpga_pool.conf"
    config.write_text(config_text(EMBEDDED | options))
    command = [sys.executable, Path(__file__).with_name("unsigned.py"), "--config-file", config]
    command += ["--state-dir", tmp_path / "state", "--port", "0", "--log-file", tmp_path / "pool.log"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, process.stdout.readline().split()[-1]
        process.terminate()


def test_cost_of_signatures(switched, tmp_path):
    process, endpoint = switched

    def turn(how):
        process.stdin.write(f"{how}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    found = {"signed": [], "not signed": []}
    for number in range(ROUNDS):
        how = "signed" if number % 4 in (0, 3) else "not signed"
        before_s = turn(how)
        time.sleep(1.0)
        jobs_s, each_ms, jobs = measure(endpoint, {"pool": process.pid}, tmp_path, jobs=100, users=4, seconds=ROUND_S)
        found[how].append((jobs_s, each_ms["pool"], 1000 * (turn(how) - before_s) / jobs))
    for what, unit, place in (
        ("jobs/s", "{:.0f}", 0),
        ("ms of the pool's CPU per job", "{:.2f}", 1),
        ("ms of it in what is replaced", "{:.4f}", 2),
    ):
        signed, unsigned = ([one[place] for one in rounds] for rounds in found.values())
        ratios = statistics.quantiles([one / other for one, other in zip(signed, unsigned, strict=True)])
        print(
            f"{what}: {unit.format(statistics.median(signed))} signed, {unit.format(statistics.median(unsigned))} not;"
            f" ratio {statistics.median(signed) / statistics.median(unsigned):.3f}"
            f" (of pairs: quartiles {ratios[0]:.3f}, {ratios[1]:.3f}, {ratios[2]:.3f})"
        )


def measure(endpoint, processes, tmp_path, jobs, users, seconds=MEASURED_S, begun=lambda pid: None):
    """Let users submit batches; measure the rate of completed jobs, and their cost.

    Returns the jobs per second, the milliseconds of CPU time per job by process, and the number of all completed jobs,
    including those before the measurement.  `begun` is called with the pid of the users' process at the start.
    """
    command = [sys.executable, str(Path(__file__).with_name("submitting.py")), endpoint]
    command += [str(jobs), str(users), str(seconds), str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout.readline() == "ready\n"
        processes = processes | {"client": load.pid}
        before_s, idle, began_s = cpu_s(processes), idle_s(), time.monotonic()
        begun(load.pid)
        load.stdin.write("go\n")
        load.stdin.flush()
        done = json.loads(load.stdout.readline())
        used_s = {name: now_s - before_s[name] for name, now_s in cpu_s(processes).items()}
        idle = (idle_s() - idle) / (time.monotonic() - began_s)
        load.stdin.write("end\n")
    with Client(endpoint) as client:
        ended = client.batches()[: len(done["batches_s"])]
    assert all((batch.state, batch.jobs_completed) == ("COMPLETED", jobs) for batch in ended)
    median_s = sorted(done["batches_s"])[len(done["batches_s"]) // 2]
    each_ms = {name: 1000 * seconds / done["jobs"] for name, seconds in used_s.items()}
    print(
        f"\nbatches of {jobs}, {users} in flight: {done['jobs'] / done['took_s']:.0f} jobs/s,"
        f" a batch in {median_s:.2f} s (median); {sum(each_ms.values()):.1f} ms of CPU per job"
        f" ({', '.join(f'{name} {ms:.2f}' for name, ms in each_ms.items())}), {idle:.2f} of the processors idle"
    )
    return done["jobs"] / done["took_s"], each_ms, done["jobs"] + jobs * users


def cpu_s(processes):
    """Return the CPU time of each process in seconds."""
    return {name: sum(map(int, _fields(pid)[11:13])) / TICKS_PER_S for name, pid in processes.items()}


def _fields(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def idle_s():
    """Return the idle time of all processors, in seconds."""
    return int(Path("/proc/stat").read_text().splitlines()[0].split()[4]) / TICKS_PER_S
