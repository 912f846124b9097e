"""The systemd units give services no more than they need, and the files beside them make what they rely on."""

import os
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


@pytest.fixture
def root(tmp_path):
    """A machine whose operator has copied the files and made the keys: all is root's."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    keys = tmp_path / "etc" / "fpga_pool" / "keys"
    keys.mkdir(parents=True)
    for file in (*(keys / name for name in ("tokens.pem", "api.pem", "nova.pem")), keys.parent / "fpga_pool.conf"):
        file.touch(mode=0o644)
    for command in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
        file = UNITS / f"fpga-pool.{command[0].removeprefix('systemd-')}.conf"
        done = subprocess.run(
            [*command, f"--root={tmp_path}", str(file)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_user_of_the_units_is_made_and_cannot_log_in(root):
    users = {re.search(r"^User=(\w+)$", (UNITS / f"{name}.service").read_text(), re.MULTILINE)[1] for name in EXPOSURE}
    entries = [line.split(":") for line in (root / "etc" / "passwd").read_text().splitlines()]
    assert {entry[0]: entry[-1] for entry in entries} == dict.fromkeys(users, "/usr/sbin/nologin")


def test_each_secret_is_readable_for_its_process_only(root):
    (passwd,) = (root / "etc" / "passwd").read_text().splitlines()
    uid, gid = (int(number) for number in passwd.split(":")[2:4])
    found = {
        path.name: (path.stat().st_mode & 0o777, path.stat().st_uid, path.stat().st_gid)
        for path in (root / "etc" / "fpga_pool").rglob("*")
        if path.is_file()
    }
    assert found == {
        "fpga_pool.conf": (0o640, 0, gid),
        "tokens.pem": (0o600, uid, gid),
        "api.pem": (0o600, uid, gid),
        "nova.pem": (0o644, 0, 0),  # of nova-scheduler's user
    }
    bitstreams = (root / "var" / "lib" / "fpga_pool" / "bitstreams").stat()
    assert (bitstreams.st_mode & 0o777, bitstreams.st_uid) == (0o755, 0)
