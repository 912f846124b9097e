"""The systemd units give services only the rights that they need, and the files beside them create what is required."""

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[3] / "etc" / "fpga_pool"

#: Highest exposure of 10 that `systemd-analyze security` may report, by unit and drop-in. The agent's is higher,
#: because it has devices (cards) and control groups (tiers). It needs sudo with egress by tc, and runs as root with
#: guests, for the reasons in the drop-ins.
EXPOSURE = {"fpga-pool-api": 2.0, "fpga-pool-scheduler": 2.0, "fpga-pool-agent": 2.5}
EXPOSURE_WITH = {"fpga-pool-agent.egress.conf": 3.4, "fpga-pool-agent.guests.conf": 3.0}
#: Additional rights by drop-ins of the agent: capabilities, and writable paths on an otherwise read-only system.
GIVEN = {
    "fpga-pool-agent.egress.conf": {
        "CapabilityBoundingSet": "CAP_AUDIT_WRITE CAP_DAC_OVERRIDE CAP_NET_ADMIN CAP_SETGID CAP_SETUID",
        "ReadWritePaths": "",
    },
    "fpga-pool-agent.guests.conf": {
        "CapabilityBoundingSet": "CAP_DAC_OVERRIDE CAP_NET_ADMIN",
        "ReadWritePaths": "-/var/lib/fpga_pool/saved",
    },
}

INSTALLED = re.search(r"python3 -m venv (\S+)", (UNITS.parents[1] / "doc/source/install/index.rst").read_text())[1]
PROGRAMS = configparser.ConfigParser()
PROGRAMS.read(UNITS.parents[1] / "setup.cfg")


def exposure(unit):
    found = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return float(re.search(r"exposure level for \S+: ([0-9.]+)", found.stdout)[1])


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_gives_its_service_little(name):
    assert exposure(UNITS / f"{name}.service") <= EXPOSURE[name]


@pytest.mark.parametrize("drop_in", EXPOSURE_WITH)
def test_a_drop_in_gives_its_service_what_it_says_and_no_more(tmp_path, drop_in):
    merged, added = tmp_path / "fpga-pool-agent.service", (UNITS / drop_in).read_text()
    merged.write_text((UNITS / merged.name).read_text() + added)
    assert exposure(merged) <= EXPOSURE_WITH[drop_in]
    for directive, given in GIVEN[drop_in].items():
        found = re.findall(rf"^{directive}=(.*)$", added, re.MULTILINE)
        assert sorted(" ".join(found).split()) == given.split()


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_starts_a_program_where_the_page_on_installing_puts_it(name):
    (program,) = re.findall(r"^ExecStart=(\S+)", (UNITS / f"{name}.service").read_text(), re.MULTILINE)
    scripts = PROGRAMS["options.entry_points"]["console_scripts"].split()
    assert program in {f"{INSTALLED}/bin/{script}" for script in scripts}


@pytest.fixture
def root(tmp_path):
    """Return the root of a machine whose operator has copied the files and made the keys, all owned by root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    keys = tmp_path / "etc" / "fpga_pool" / "keys"
    keys.mkdir(parents=True)
    for file in (*(keys / name for name in ("tokens.pem", "api.pem", "nova.pem")), keys.parent / "fpga_pool.conf"):
        file.touch(mode=0o644)
    for command in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
        file = UNITS / f"fpga-pool.{command[0].removeprefix('systemd-')}.conf"
        done = subprocess.run(
            [*command, f"--root={tmp_path}", str(file)], capture_output=True, text=True, check=False, timeout=200
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
        "nova.pem": (0o644, 0, 0),  # for the user of nova-scheduler
    }
    bitstreams = (root / "var" / "lib" / "fpga_pool" / "bitstreams").stat()
    assert (bitstreams.st_mode & 0o777, bitstreams.st_uid) == (0o755, 0)
