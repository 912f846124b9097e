"""Tests marked long are skipped with the reason once their time is over; all others still run."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Has quick tests and one that is marked long.
FILE = "tests/unit/core/learned/test_metrics.py"


@pytest.mark.parametrize(("left_s", "skipped"), [(-1, 1), (600, 0)])
def test_no_test_marked_long_begins_after_the_limit(left_s, skipped):
    env = os.environ | {"FPGA_POOL_LONG_UNTIL": str(int(time.time() + left_s))}
    command = [sys.executable, "-m", "pytest", "--long", "-q", "-rs", FILE]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 3
    assert ("1 skipped" in done.stdout) == ("no time is left" in done.stdout) == bool(skipped)
