"""The time to simulate a scenario: a pool of 1,008 slots with a batch a minute and five online jobs a second.

    pytest tests/benchmarks/test_scenario.py -s

63 hosts with four cards of four slots each and a CPU worker; batches of 1,000 jobs at 0, 60 and 120 s, 900 online jobs.
JOBS=10 reduces it to a hundredth.  Prints the CPU time of this process without imports, which is not asserted.
"""

import os
import time

from fpga_pool.cli.sim.pool import load
from fpga_pool.services.audit import audit

JOBS = int(os.environ.get("JOBS", "1000"))
SCENARIO = f"""
[hosts.node]
count = 63
board = "kintex7"
cards = 4
cpu_workers = 1
egress_mbps = 10_000
ingress_mbps = 10_000

[[batches]]
name = "batch"
count = 3
every_s = 60

[[batches.jobs]]
function = "dnn"
count = {JOBS}
input_bytes = [50_000_000, 200_000_000]
requester = ["node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7", "node-8"]

[[online]]
name = "online"
count = {JOBS * 9 // 10}
rate_per_s = 5
function = {{ aes = 1, sha256 = 1, gmm = 1 }}
input_bytes = [500_000_000, 2_000_000_000]
requester = ["node-10", "node-11", "node-12"]
"""


def test_a_pool_of_a_thousand_slots(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    run = load(path)
    begin_s = time.process_time()
    run.run(3600.0)
    took_s = time.process_time() - begin_s
    happened = len(run.recorder.history)
    print(
        f"\n{run.now_s:.0f} simulated seconds, {happened} transitions in {took_s:.1f} s of CPU time:"
        f" {run.now_s / took_s:.1f} simulated seconds and {happened / took_s:.0f} transitions per second"
    )
    assert run.unfinished() == audit(run.store, idle=True) == []
