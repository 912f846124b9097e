"""The time to limit many flows: our driver compared with `tc -batch`, which creates the same classes and filters.

    pytest tests/benchmarks/test_tc_install.py -s

Needs root; runs in a separate network namespace.  The files for `tc` are written before the measurement, with its
classes in one queue and its filters in a hash table, as an administrator would write them.
"""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyroute2 import netns

from fpga_pool.drivers import privileged
from fpga_pool.drivers.egress.base import Flow, LimitedFlow
from fpga_pool.drivers.egress.tc.driver import TcDriver

DEVICE = "nic0"
RATE_BPS = 100e6


@pytest.fixture
def space():
    """A namespace with one device; yields a function that runs a call in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make a network namespace")
    name = f"fptc-bench-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with ThreadPoolExecutor(1, initializer=netns.setns, initargs=(name,)) as thread:
            assert privileged.use_own_capabilities()
            command = f"ip link add {DEVICE} type veth; ip link set {DEVICE} up; ip link set veth0 up"
            thread.submit(subprocess.run, command, shell=True, check=True).result()
            yield lambda call, *args, **known: thread.submit(call, *args, **known).result()
    finally:
        privileged.tc_context.set_client_mode(True)
        subprocess.run(["ip", "netns", "del", name], check=True)


def flows_of(count):
    return [
        Flow(
            key=f"f{i}",
            source_address="10.0.0.1",
            source_port=10_000 + 2 * i,
            destination_address="10.0.0.2",
            destination_port=7000,
        )
        for i in range(count)
    ]


def tc_files(flows, directory):
    """Write batch files with the same classes and filters: queue and table, classes, filters."""
    setup = [
        f"qdisc add dev {DEVICE} root handle 1: htb",
        f"filter add dev {DEVICE} parent 1: prio 1 protocol ip handle 100: u32 divisor 256",
        f"filter add dev {DEVICE} parent 1: prio 1 protocol ip u32 match ip protocol 6 0xff"
        " hashkey mask 0x01fe0000 at 20 link 100:",
    ]
    classes = [
        f"class add dev {DEVICE} parent 1: classid 1:{i:x} htb rate 100mbit burst 512k cburst 512k quantum 65536"
        for i in range(1, len(flows) + 1)
    ]
    filters = [
        f"filter add dev {DEVICE} parent 1: prio 1 protocol ip u32 ht 100:{flow.source_port >> 1 & 0xFF:x}:"
        f" match u32 {flow.source_port << 16 | flow.destination_port:#x} 0xffffffff at 20"
        f" match ip src {flow.source_address}/32 match ip dst {flow.destination_address}/32 flowid 1:{i:x}"
        for i, flow in enumerate(flows, 1)
    ]
    paths = []
    for name, lines in (("setup", setup), ("classes", classes), ("filters", filters)):
        paths.append(directory / name)
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def timed(space, call, *args, **known):
    began_s = time.perf_counter()
    space(call, *args, **known)
    return time.perf_counter() - began_s


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_install(space, count, tmp_path):
    flows = flows_of(count)
    driver = TcDriver(DEVICE)
    limits = [LimitedFlow(flow, RATE_BPS) for flow in flows]
    ours_s = timed(space, driver.open_all, limits)
    assert len(space(driver.flows)) == count
    change_s = timed(space, driver.set_rates, {flow.key: 2 * RATE_BPS for flow in flows})
    close_s = timed(space, driver.close_all, [flow.key for flow in flows])
    space(driver.reset)
    tc_s = sum(timed(space, subprocess.run, ["tc", "-batch", path], check=True) for path in tc_files(flows, tmp_path))
    print(
        f"\n{count} flows: open {ours_s:.2f} s, tc -batch {tc_s:.2f} s, ratio {tc_s / ours_s:.1f};"
        f" change all rates {change_s:.2f} s, close all {close_s:.2f} s"
    )
    assert space(subprocess.run, ["tc", "qdisc", "del", "dev", DEVICE, "root"], check=True).returncode == 0
