"""The configuration of a cloud on one machine stays the same for the lifetime of its directory."""

import os
from importlib.metadata import distributions
from pathlib import Path

import pytest

from fpga_pool.model.exceptions import NotFound
from support.cloud.programs import programs
from support.cloud.site import APIS, Site


def test_a_directory_keeps_its_ports_password_and_shape(tmp_path):
    made = Site.open_or_make(tmp_path / "cloud", fake_computes=2, libvirt_computes=0)
    assert Site.open(tmp_path / "cloud") == made
    assert Site.open_or_make(tmp_path / "cloud", fake_computes=9, libvirt_computes=1) == made


def test_what_was_never_started_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="holds no cloud: start one there first"):
        Site.open(tmp_path)


def test_nobody_else_can_read_the_password(tmp_path):
    Site.open_or_make(tmp_path, fake_computes=1, libvirt_computes=0)
    assert (tmp_path / "site.json").stat().st_mode & 0o777 == 0o600


def test_every_api_has_a_port_of_its_own_on_the_loopback_address(tmp_path):
    site = Site.open_or_make(tmp_path, fake_computes=1, libvirt_computes=0)
    assert len(set(site.ports.values())) == len(APIS)
    assert all(site.endpoint(service).startswith("http://127.0.0.1:") for service in APIS)


def test_each_compute_is_a_process_with_a_configuration_of_its_own(tmp_path):
    site = Site.open_or_make(tmp_path, fake_computes=2, libvirt_computes=2)
    computes = {name: table.command for name, table in programs(site).items() if name.startswith("nova-compute-")}
    assert list(computes) == [f"nova-compute-{host}" for host in ("fake-1", "fake-2", "libvirt-1", "libvirt-2")]
    assert len({command[-1] for command in computes.values()}) == 4


def test_gangs_or_tiers_of_two_libvirt_computes_are_on_different_pcpus(tmp_path):
    site = Site.open_or_make(tmp_path, fake_computes=0, libvirt_computes=2, tiers=True)
    assert Site.open(tmp_path).tiers
    assert len({site.processors(host) for host in site.libvirts}) == 2


def test_neutron_finds_its_driver_though_it_is_not_installed(tmp_path):
    site = Site.open_or_make(tmp_path, fake_computes=1, libvirt_computes=0)
    path = programs(site)["neutron-api"].environment["PYTHONPATH"].split(os.pathsep)
    (found,) = entry_points_of(path, "neutron.ml2.mechanism_drivers")
    assert found.name == "fpga_pool_tap"
    assert Path(path[0], *found.module.split(".")).with_suffix(".py").is_file()


def entry_points_of(path, group):
    return [entry for found in distributions(path=path) for entry in found.entry_points if entry.group == group]
