"""The cost of a request to nova-scheduler with the plug-in and without, at 1,000 and 10,000 hosts.

    pytest tests/benchmarks/test_nova_requests.py -s

Prints CPU times; they are not asserted, as they depend on the machine.
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
    own = found["own_part_of_plain"]
    print(f"\n{found['hosts']} hosts: first {found['first_ms']:.0f} ms, question {found['question_ms']:.1f} ms")
    print("  learned weigher: {:.2f} ms at least, median {:.2f} ms".format(*found["learned_ms"]))
    print(f"  our part of a request that is not ours: {own['us']:.1f} us, {own['bytes']} bytes at most")
    for name, parts in found["requests"].items():
        print(f"  {name}: median (least to most)")
        for part, (least, median, most) in parts.items():
            print(f"    {part:16} {median:7.1f} ({least:.1f} to {most:.1f})")
    assert found["requests"]["accelerators"]["own_ms"][0] > 0
