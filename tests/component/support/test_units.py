"""The systemd units give services no more than they need."""

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[3] / "etc" / "fpga_pool"

#: Highest exposure that `systemd-analyze security` may find, of 10.  The agent's is higher: it needs devices (the
#: cards), control groups (tiers) and CAP_NET_ADMIN.
EXPOSURE = {"fpga-pool-api": 2.0, "fpga-pool-scheduler": 2.0, "fpga-pool-agent": 3.0}


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_gives_its_service_little(name):
    found = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / f"{name}.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    exposure = float(re.search(r"exposure level for \S+: ([0-9.]+)", found.stdout)[1])
    assert exposure <= EXPOSURE[name], found.stdout
