"""The output of the demonstration fits a terminal."""

import io
from types import SimpleNamespace

from rich.console import Console

from fpga_pool.experiments.demo_output import print_policies

NUMBERS = {"bound_s": 103.8, "planned_s": 104.25, "simulated_s": 104.28, "error": -0.123, "loads": 1053}


class Measured:
    def __init__(self, policy, measured_s):
        self.policy, self._measured_s = policy, measured_s
        job = SimpleNamespace(job=SimpleNamespace(function="wordcount", input_bytes=10**9))
        self.result = SimpleNamespace(jobs=[job] * 1000)

    def numbers(self):
        return NUMBERS | {"policy": self.policy, "measured_s": self._measured_s}


def test_the_table_of_policies_is_whole_in_80_columns():
    out = io.StringIO()
    policies = ("makespan", "ect", "sjf", "ljf")
    print_policies([Measured(policy, s) for policy in policies for s in (104.26, 110.31)], Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out.getvalue()
    for policy in policies:
        (row,) = (line for line in lines if f"│ {policy} " in line)
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells == [policy, "104", "104", "104", "104-110", "-12.3 %", "1.03", "1053"]
