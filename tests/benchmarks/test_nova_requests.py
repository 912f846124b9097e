"""What a request costs nova-scheduler with the plug-in and without, at 1,000 and 10,000 hosts.

    pytest tests/benchmarks/test_nova_requests.py -s

Prints medians of the processor's time; nothing is asserted about times, which belong to the machine.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "nova_requests.py"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("hosts", "requests"), [(1000, 15), (10000, 5)])
def test_a_request_with_the_plugin_and_without(hosts, requests):
    pytest.importorskip("nova")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPT, str(hosts), str(requests)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    spread = found.pop("spread_ms")
    own = found.pop("own_part_of_plain")
    print(f"\n{found.pop('hosts')} hosts")
    print(f"  our part of a plain request  {own['us']:9.1f} us, {own['bytes']} bytes at most")
    for name, ms in found.items():
        print(f"  {name:28} {ms:9.1f} ms", *(f"{value:.1f}" for value in spread.get(name, ())))
    assert found["accelerated"] > 0
