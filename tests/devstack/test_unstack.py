"""The end of the cloud, after all other tests: nothing remains of the pool."""

import os
import subprocess
from pathlib import Path

import openstack
import pytest
import requests

from .conftest import CONF, cloud_name

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings("default")]

#: Command that ends the cloud: `cd /opt/stack/devstack && ./unstack.sh && ./clean.sh`, or `tools/all-in-one stop`.
END = os.environ.get("FPGA_POOL_END", "")
#: Files of the DevStack plug-in outside of the configuration directory.
MADE = (
    Path("/etc/libvirt/hooks/qemu.d/fpga_pool"),
    Path("/etc/libvirt/hooks/fpga_pool.conf"),
    Path("/opt/stack/data/fpga_pool"),
    Path("/usr/local/bin/fpga-pool"),
    Path("/usr/local/bin/fpga-pool-manage"),
)


def processes():
    """Return the command lines of the processes that use this cloud's configuration of the pool."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(f"{CONF.parent}/" in word for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.skipif(not END, reason="FPGA_POOL_END does not say how the cloud ends")
def test_nothing_of_the_pool_is_left_when_the_cloud_has_ended():
    endpoint = openstack.connect(cloud=cloud_name()).session.get_endpoint(service_type="fpga")
    assert requests.get(f"{endpoint}/", timeout=60).ok
    assert processes()
    subprocess.run(END, shell=True, check=True, timeout=900)
    assert processes() == []
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{endpoint}/", timeout=60)
    if Path("/etc/fpga_pool") == CONF.parent:
        assert [path for path in (CONF.parent, *MADE) if path.exists()] == []
