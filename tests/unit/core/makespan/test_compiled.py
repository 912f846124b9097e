"""When compiled kernels are loaded; in a process of its own, for they are loaded once."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

PUT_OFF = """
import sys
from fpga_pool.core.makespan import Makespan, compiled
policy = Makespan()
policy.put_off_preparing()
assert not policy.unprepared
assert compiled.kernels() is None
assert policy.unprepared and "numba" not in sys.modules
policy.prepare()
assert compiled.kernels() is not None and not policy.unprepared
"""


def test_plans_go_without_kernels_that_are_put_off_until_they_are_loaded():
    subprocess.run([sys.executable, "-c", PUT_OFF], check=True, timeout=120)
