"""What tools say and do where system packages are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.servers import Libvirt, MariaDB, RabbitMQ

ROOT = Path(__file__).resolve().parents[2]


def missing(tmp_path, *packages, user="1000"):
    """Install the system packages of a profile where some are missing; return the exit code and what is said."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in {
        "bindep": f"printf '%s\\n' {' '.join(packages)}" if packages else "true",
        "id": f"echo {user}",
        "apt-get": f'echo "$*" >>{tmp_path}/calls',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    script = f". {ROOT}/tools/bootstrap; VENV={tmp_path}; BOOTSTRAP_LOG={tmp_path}/log; PATH={commands}:$PATH; "
    # What starts services is the machine's, which a test leaves as it is.
    script += 'without_starting_services() { "$@"; }; install_system_packages cloud'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=200, check=False)
    calls = tmp_path / "calls"
    return done.returncode, done.stderr, calls.read_text() if calls.exists() else ""


def test_a_user_is_told_what_root_is_to_install(tmp_path):
    code, said, calls = missing(tmp_path, "rabbitmq-server", "libvirt-dev")
    assert code == 1
    assert "as root, apt-get install --no-install-recommends rabbitmq-server libvirt-dev" in said
    assert not calls


def test_root_installs_what_is_missing_and_nothing_else(tmp_path):
    code, said, calls = missing(tmp_path, "rabbitmq-server", user="0")
    assert code == 0, said
    assert calls.splitlines() == ["update", "install -y --no-install-recommends rabbitmq-server"]


@pytest.mark.parametrize("user", ["0", "1000"])
def test_nothing_is_installed_where_nothing_is_missing(tmp_path, user):
    assert missing(tmp_path, user=user) == (0, "", "")


def test_the_cloud_of_one_machine_has_the_packages_of_its_servers():
    command = [str(Path(sys.prefix) / "bin" / "bindep"), "--list_all", "newline", "--file", str(ROOT / "bindep.txt")]
    listed = subprocess.run([*command, "cloud"], capture_output=True, text=True, timeout=200, check=True).stdout
    assert {server.package for server in (RabbitMQ, MariaDB, Libvirt)} <= set(listed.split())
