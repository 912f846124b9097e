"""An agent without root privileges limits rates through the privileged daemon."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

#: Starts the daemon, drops root privileges, and limits a rate.
AGENT = textwrap.dedent(
    """
    import json, os, sys

    from oslo_config import cfg
    from oslo_privsep import priv_context

    from fpga_pool.drivers import privileged
    from fpga_pool.drivers.egress.base import Flow
    from fpga_pool.drivers.egress.tc.driver import TcDriver
    from fpga_pool.model.exceptions import Conflict

    device, method, helper = sys.argv[1:]
    cfg.CONF([], project="fpga_pool")
    if helper:
        cfg.CONF.set_override("helper_command", helper, group="privsep_tc")
    privileged.tc_context.start(priv_context.Method[method])
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    known = {"source_address": "10.77.0.1", "destination_address": "10.77.0.2", "destination_port": 7000}
    flows = [Flow(key=f"f{port}", source_port=port, **known) for port in (5000, 5001)]
    told = {"own_capabilities": privileged.use_own_capabilities()}
    for direction in ("egress", "ingress"):
        driver = TcDriver(device, direction)
        driver.open(flows[0], 1e6)
        driver.open(flows[1], 2e6)
        driver.set_rate("f5001", 0)
        driver.close("f5000")
        told[direction] = [[limited.flow.key, limited.rate_bps] for limited in driver.flows()]
        driver.reset()
    try:
        TcDriver("lo").open(flows[0], 1e6)
    except Conflict as conflict:
        told["conflict"] = str(conflict)
    print(json.dumps(told))
    privileged.tc_context.stop()
    """
)


@pytest.fixture(params=["FORK", "ROOTWRAP"])
def method(request):
    """How the daemon starts: forked from a process that still has root privileges, or by a command."""
    return request.param


@pytest.fixture
def helper(method):
    """The command, without sudo because the test runs as root."""
    if method == "FORK":
        return ""
    path = Path(sys.executable).with_name("privsep-helper")
    if not path.exists():
        pytest.skip("privsep-helper is not installed beside python")
    return str(path)


def test_agent_without_privileges(net, method, helper):
    net.host.shell("tc qdisc add dev lo root handle 7: tbf rate 1gbit burst 1mb latency 50ms")
    before = net.host.shell("tc qdisc show; ip -o link")
    done = subprocess.run(
        ["ip", "netns", "exec", net.host.name, sys.executable, "-c", AGENT, net.device, method, helper],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["own_capabilities"] is False
    assert told["egress"] == told["ingress"] == [["f5001", 0]]
    assert told["conflict"].startswith("device lo: its root queue is tbf 7:")
    assert net.host.shell("tc qdisc show; ip -o link") == before
