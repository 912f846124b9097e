"""The cloud of tools/all-in-one is a real one: a tenant boots virtual machines on it."""

import json
import subprocess
import time

import pytest

from support.servers.process import processes_naming

pytestmark = [pytest.mark.timeout(1800)]


def test_a_second_start_leaves_the_cloud_as_it_is(all_in_one):
    before = all_in_one.run("status")
    assert before.returncode == 0, before.stdout
    begin_s = time.monotonic()
    assert all_in_one.run("start").returncode == 0
    print(f"a second start took {time.monotonic() - begin_s:.1f} s")
    assert all_in_one.run("status").stdout == before.stdout


def test_everything_listens_on_loopback_addresses_only(all_in_one):
    """Sockets are identified by the ports of the APIs, and by processes with the directory in their command lines."""
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True, timeout=60).stdout
    own = processes_naming(str(all_in_one.directory))
    apis = {str(port) for port in json.loads((all_in_one.directory / "site.json").read_text())["ports"].values()}
    seen = set()
    for line in listening.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if port in apis or any(f"pid={pid}," in line for pid in own):
            assert address.startswith(("127.", "[::1]", "[::ffff:127.")), line
            seen.add(port)
    assert apis < seen


@pytest.mark.parametrize("host", ["fake-1", "libvirt-1"])
def test_a_stock_flavor_boots_on_every_kind_of_compute(admin, host):
    uuid = admin.boot(f"on-{host}", host=host)
    server = admin.built(uuid)
    assert server["status"] == "ACTIVE", server.get("fault")
    assert server["OS-EXT-SRV-ATTR:host"] == host
    if host == "libvirt-1":
        admin.says(uuid, "HELLO")
    admin.delete(uuid)


def test_a_tenant_boots_where_nova_likes_best(tenant):
    uuid = tenant.boot("anywhere")
    server = tenant.built(uuid)
    assert server["status"] == "ACTIVE", server.get("fault")
    assert server["addresses"]["shared"]
    tenant.delete(uuid)
