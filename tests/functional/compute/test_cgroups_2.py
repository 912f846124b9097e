"""Control groups of version 2 only, on an emulated compute node, independent of the kernel of this machine.

Its libvirtd runs guests that are emulated on the emulated processor.
"""

import json
import re
from pathlib import Path

import pytest

from support import guest_host

from . import hypervisor as hypervisors

BOOT_S = 1200.0
#: The control group of a guest, with and without systemd.
GROUPS = {
    True: r"/sys/fs/cgroup/machine\.slice/machine-qemu\\x2d\d+\\x2dguest\\x2dforeground\.scope",
    False: r"/sys/fs/cgroup/fpga-\d+/machine/qemu-\d+-guest-foreground\.libvirt-qemu",
}
GANG_WEIGHTS = {"foreground": 1600, "background": None}


@pytest.mark.timeout(BOOT_S + 60)
@pytest.mark.parametrize("systemd", [True, False], ids=["systemd", "without-systemd"])
def test_the_background_gets_what_the_foreground_leaves_by_version_2_alone(systemd, libvirt, kernel, tmp_path):
    if why := hypervisors.missing() or guest_host.missing(systemd=systemd):
        pytest.skip(why)
    initrd = guest_host.build(kernel, tmp_path, Path(__file__).with_name("node_of_2.py"), systemd=systemd)
    said = guest_host.run(kernel, initrd, tmp_path / "console", BOOT_S)
    results = re.findall(r"^result: (.*?)\r?$", said, re.MULTILINE)
    assert results, said[-3000:]
    found = json.loads(results[0])
    print(found)
    assert re.fullmatch(GROUPS[systemd], found["group"])
    assert found["equal"] == [True, True]  # before and after they are in tiers
    # Equal guests would have 0.5; weights of 2 and 1600 result in 0.001, and an idle group in less.
    assert max(found["behind"]) < 0.04
    assert found["behind nobody"] > 0.5
    assert found["placed"]
    assert found["swapped"]
    # systemd resets a machine to the values that it knows; the agent notices and restores them.
    assert not systemd or found["reloaded"] in (["foreground", "None"], ["foreground", "background"])
    assert found["measured"]
    # Each is on the pCPU that the runner reports; the weight of an idle group is None.
    pcpus = (0, 1) if systemd else (0,)
    front, behind = ([[tier, pcpu, weight, pcpu] for pcpu in pcpus] for tier, weight in GANG_WEIGHTS.items())
    assert found["launched"] == front + behind
    assert found["exchanged"] == behind + front
    assert max(found["gang behind"]) < 0.04
    assert found["moved"] == front[::-1]
    assert found["left"] == []
    assert not found.get("host left")
