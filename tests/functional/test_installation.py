"""The documented installation of a pool on several hosts, in copies of /etc and /var/lib."""

import os
import shutil
from dataclasses import replace

import pytest

from support.pages import ROOT, blocks, pages, path_of, row_of, run, table
from support.servers import MariaDB

THIS_TEST = "functional/test_installation.py"
ROWS = table()
#: Changes below /etc and /var/lib vanish when the shell ends.
MACHINE = """
set -e
mount -t tmpfs -o mode=755 tmpfs scratch
mkdir scratch/lib
cp -a /etc scratch/etc
mount --bind scratch/etc /etc
mount --bind scratch/lib /var/lib
mkdir -p /etc/sysusers.d /etc/tmpfiles.d /etc/fpga_pool
cp fpga_pool.conf /etc/fpga_pool/
exec bash "$@"
"""
#: Without systemd, units are enabled but not started.  A package that pip would have to download is an error.
OFFLINE = {"SYSTEMD_OFFLINE": "1", "PIP_NO_INDEX": "1"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "systemd-sysusers", "systemd-tmpfiles"))),
    reason="needs root, and the programs of systemd",
)


@pytest.fixture
def mariadb(run_server, servers_directory):
    """A server that has the account of the page, except for its password."""
    directory = servers_directory / "installation"
    directory.mkdir(mode=0o711)
    yield from run_server(MariaDB(directory))


@pytest.fixture
def programs(mariadb, tmp_path):
    """A directory with the client program of the operator, which connects to this server."""
    directory = tmp_path / "programs"
    directory.mkdir()
    login = f"--no-defaults --protocol=tcp --host=127.0.0.1 --port={mariadb.port} --user=fpga_pool"
    program = directory / "mariadb"
    program.write_text(f'#!/bin/sh\nMYSQL_PWD={mariadb.password} exec {shutil.which("mariadb")} {login} "$@"\n')
    program.chmod(0o755)
    return directory


def shown(name):
    return [one for one in pages()[name] if (row := row_of(name, one, ROWS)) and row.test == THIS_TEST]


def here(text):
    """Adapt commands: do not start units, and do not build the package, which is already installed."""
    return text.replace("enable --now", "enable").replace("pip install '.[", "pip install 'fpga_pool[")


def install(name, tmp_path):
    (tmp_path / "etc").symlink_to(ROOT / "etc")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "machine.sh").write_text(MACHINE)
    shell = ("unshare", "--mount", "bash", "machine.sh")
    todo = [replace(one, text=here(one.text)) for one in shown(name)]
    return run(path_of(name), tmp_path, todo, pool=False, shell=shell, extra=OFFLINE)


def test_a_controller_is_installed_as_its_page_shows(mariadb, programs, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (text,) = (block.text for block in blocks(path_of("admin/services")) if "[database]" in block.text)
    (tmp_path / "fpga_pool.conf").write_text(
        text.replace("@10.0.0.1/fpga_pool", f"@127.0.0.1:{mariadb.port}/fpga_pool")
    )
    assert install("admin/services", tmp_path) == []


def test_the_panel_of_horizon_is_enabled_as_its_page_shows(tmp_path):
    packages = tmp_path / "SITE_PACKAGES"
    (packages / "openstack_dashboard" / "local" / "enabled").mkdir(parents=True)
    (packages / "fpga_pool").symlink_to(ROOT / "fpga_pool")
    assert run(path_of("admin/horizon"), tmp_path, shown("admin/horizon"), pool=False) == []
    assert len(list(packages.glob("openstack_dashboard/local/enabled/_2*.py"))) == 3


def test_a_compute_node_is_installed_as_its_page_shows(tmp_path):
    (tmp_path / "fpga_pool.conf").touch()
    assert install("admin/compute-node", tmp_path) == []
