"""How many small jobs the embedded pool completes in a second, committed before they are acknowledged.

    pytest tests/benchmarks/test_small_jobs.py -s

1 kB of sha256 each, on a board whose slots take about a millisecond, so that what is measured is the pool.
"""

import time
from pathlib import Path

import pytest

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import embedded_pool

POOL = {"standalone": {"hosts": 3, "requesters": 2, "egress_mbps": 2000, "ingress_mbps": 4000}}
POOL |= {"driver_simulated": {"board": "kintex7"}, "scheduler": {"dispatch_lead_s": 0.05}}


@pytest.mark.parametrize("jobs", [100, 300])
def test_small_jobs(jobs, tmp_path):
    with embedded_pool(tmp_path / "pool", POOL) as endpoint, Client(endpoint) as client:
        work = [JobSpec("sha256", b"x" * 1000, "requester-1") for _ in range(jobs)]
        client.run_jobs(work[:10], output_dir=tmp_path / "warm")
        pid = next(int(path.name) for path in Path("/proc").glob("[0-9]*") if _runs(path, str(tmp_path)))
        cpu_s, began_s = _cpu_s(pid), time.perf_counter()
        result = client.run_jobs(work, output_dir=tmp_path / "out")
        took_s, cpu_s = time.perf_counter() - began_s, _cpu_s(pid) - cpu_s
    assert all(job.result is not None for job in result.jobs)
    print(
        f"\n{jobs} jobs in one batch: {jobs / took_s:.0f} jobs/s, {1000 * cpu_s / jobs:.1f} ms of the pool's CPU each"
    )


def _runs(process, directory):
    try:
        return directory in (process / "cmdline").read_text()
    except OSError:
        return False


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
