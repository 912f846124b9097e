"""The script and files for an operator's first accelerated VM.  The test of the whole cloud runs them for real."""

import os
import re
import subprocess
from pathlib import Path

PAGES = Path(__file__).parents[3] / "doc" / "source" / "admin" / "first-vm"
SCRIPT = PAGES / "first-vm.sh"


def commands(text):
    """Return the commands of a script, each on one line, without those that only set variables or options."""
    joined = text.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    return [line for line in lines if line and not re.match(r"#|set |export |[A-Z_]+=", line)]


def test_it_takes_fewer_than_ten_commands():
    assert len(commands(SCRIPT.read_text())) == 9


def test_the_commands_run_in_order_and_with_what_each_needs(tmp_path):
    log = tmp_path / "log"
    for name in ("fpga-pool-manage", "openstack", "systemctl"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name} $*" | tee -a {log}\n')
        program.chmod(0o755)
    (tmp_path / "etc" / "fpga_pool").mkdir(parents=True)
    (tmp_path / "etc" / "fpga_pool" / "libvirt-qemu-hook").touch()
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "FPGA_POOL_HOOK": str(tmp_path / "hooks" / "fpga_pool"),
        "IMAGE": "cirros",
        "NETWORK": "private",
    }
    subprocess.run(["bash", str(SCRIPT)], env=environ, check=True, timeout=200, capture_output=True)
    manage = "fpga-pool-manage --config-file /etc/fpga_pool/fpga_pool.conf"
    assert log.read_text().splitlines() == [
        f"{manage} db sync",
        f"{manage} keys create --directory /etc/fpga_pool/keys",
        f"{manage} bitstreams stock --board demo --key /etc/fpga_pool/keys/bitstreams.pem",
        "systemctl restart libvirtd fpga-pool-scheduler fpga-pool-agent nova-api nova-scheduler",
        f"{manage} host approve --all",
        "openstack allocation candidate list --resource CUSTOM_FPGA_SLOT=1 --resource MEMORY_MB=1"
        " --forbidden COMPUTE_STATUS_DISABLED --limit 1 -f value",
        "openstack image set --property hw_qemu_guest_agent=yes cirros",
        f"{manage} flavor create fpga.sha256 --function sha256 --ram 512 --disk 1 --vcpus 1",
        "openstack server create --flavor fpga.sha256 --image cirros --network private --wait first-accelerated",
    ]
    assert (tmp_path / "hooks" / "fpga_pool").stat().st_mode & 0o777 == 0o755


def test_it_stops_at_the_first_command_that_fails(tmp_path):
    program = tmp_path / "fpga-pool-manage"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "IMAGE": "cirros", "NETWORK": "private"}
    assert subprocess.run(["bash", str(SCRIPT)], env=environ, check=False, timeout=200).returncode == 3
