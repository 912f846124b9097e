"""Control groups of version 2 in a kernel that has no others: an emulated Debian, whatever this machine has."""

import json
import subprocess
from pathlib import Path

import pytest

from support import guest_image as images

from . import hypervisor as hypervisors

BOOT_S = 500.0
SCOPE = "/sys/fs/cgroup/machine.slice/machine-qemu-{}.scope"


@pytest.mark.timeout(600)
def test_the_background_gets_what_the_foreground_leaves_by_version_2_alone(kernel, tmp_path):
    if why := hypervisors.missing():
        pytest.skip(why)
    initrd = images.build_groups(tmp_path, Path(__file__).with_name("two_groups.py"))
    console = tmp_path / "console"
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nodefaults", "-display", "none", "-no-reboot",
        "-serial", f"file:{console}", "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", "console=ttyS0 panic=-1 quiet no_timer_check",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=BOOT_S)
    said = console.read_text(errors="replace")
    results = [line.partition("result: ")[2] for line in said.splitlines() if "result: " in line]
    assert results, said[-3000:]
    found = json.loads(results[0])
    print(found)
    assert (found["version"], found["guest"]) == (2, SCOPE.format(1))
    assert found["idle"] == [False, True]
    # Equals would have 0.5; weights of 1 to 1600 give 0.0006, and an idle group less.
    assert set(found["shares"]) == {SCOPE.format(1), SCOPE.format(2)}
    assert max(found["shares"].values()) < 0.1
    assert found["behind nobody"] > 0.5
    assert found["whole guest"]
