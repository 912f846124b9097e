"""A real OpenStack cloud as tools/all-in-one makes it: a tenant boots virtual machines on it."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from fpga_pool.experiments.servers import Libvirt, MariaDB, RabbitMQ
from fpga_pool.experiments.waiting import wait_until

TOOL = Path(__file__).parents[2] / "tools" / "all-in-one"
#: Installing the packages included.
START_TIMEOUT_S = 1200.0
STOP_TIMEOUT_S = 200.0
BOOT_TIMEOUT_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


class Tenant:
    """A project of the cloud and what its user does there."""

    def __init__(self, environment: dict[str, str], project: str) -> None:
        auth = v3.Password(
            auth_url=environment["OS_AUTH_URL"],
            username=project,
            password=environment["OS_PASSWORD"],
            project_name=project,
            user_domain_id="default",
            project_domain_id="default",
        )
        self._session = Session(auth=auth)
        self._compute = self._adapter("compute", "2.74")

    def boot(self, name: str, **more: object) -> str:
        """Ask for a virtual machine, and return its uuid."""
        server = {
            "name": name,
            "imageRef": self._id("image", "/v2/images", "hello"),
            "flavorRef": self._id("compute", "/flavors", "small"),
            "networks": [{"uuid": self._id("network", "/v2.0/networks", "shared")}],
            **more,
        }
        return self._compute.post("/servers", json={"server": server}).json()["server"]["id"]

    def show(self, uuid: str) -> dict:
        return self._compute.get(f"/servers/{uuid}").json()["server"]

    def built(self, uuid: str) -> dict:
        """Wait until it is no more being built."""

        def look() -> dict | None:
            server = self.show(uuid)
            return None if server["status"] == "BUILD" else server

        return wait_until(look, f"{uuid} built", BOOT_TIMEOUT_S)

    def says(self, uuid: str, text: str) -> str:
        """Wait until a text is on a guest's console."""

        def look() -> str:
            body = {"os-getConsoleOutput": {}}
            said = self._compute.post(f"/servers/{uuid}/action", json=body).json()["output"]
            return said if text in said else ""

        return wait_until(look, f"{text!r} on the console of {uuid}", BOOT_TIMEOUT_S)

    def delete(self, uuid: str) -> None:
        """Delete a virtual machine, and wait until it is gone."""
        self._compute.delete(f"/servers/{uuid}")

        def is_gone() -> bool:
            return self._compute.get(f"/servers/{uuid}", raise_exc=False).status_code == 404

        wait_until(is_gone, f"{uuid} deleted", BOOT_TIMEOUT_S)

    def _id(self, service: str, path: str, name: str) -> str:
        answer = self._adapter(service).get(path).json()
        return next(found["id"] for found in answer[path.rpartition("/")[2]] if found["name"] == name)

    def _adapter(self, service: str, microversion: str | None = None) -> Adapter:
        return Adapter(self._session, service_type=service, default_microversion=microversion)


class AllInOne:
    """The tool on a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, act: str, timeout_s: float = STOP_TIMEOUT_S) -> subprocess.CompletedProcess:
        command = [str(TOOL), act, "--directory", str(self._directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)

    def environment(self) -> dict[str, str]:
        lines = self.run("env").stdout.splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def all_in_one(servers_directory) -> Iterator[AllInOne]:
    """One cloud for all tests of this module."""
    for kind in (RabbitMQ, MariaDB, Libvirt):
        if problem := kind.missing():
            pytest.skip(problem)
    cloud = AllInOne(servers_directory / "all-in-one")
    try:
        started = cloud.run("start", START_TIMEOUT_S)
        print(started.stderr)
        assert started.returncode == 0, started.stderr
        yield cloud
    finally:
        cloud.run("stop")


@pytest.fixture
def tenant(all_in_one) -> Tenant:
    return Tenant(all_in_one.environment(), "demo")


def test_a_second_start_leaves_the_cloud_as_it_is(all_in_one):
    before = all_in_one.run("status")
    assert before.returncode == 0, before.stdout
    begin_s = time.monotonic()
    assert all_in_one.run("start").returncode == 0
    print(f"a second start took {time.monotonic() - begin_s:.1f} s")
    assert all_in_one.run("status").stdout == before.stdout


def test_everything_listens_on_loopback_addresses_only(all_in_one):
    """Told by the ports of the APIs, and of other processes by the directory in their command lines."""
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True, timeout=60).stdout
    own = _processes_naming(str(all_in_one._directory))
    apis = {str(port) for port in json.loads((all_in_one._directory / "site.json").read_text())["ports"].values()}
    seen = set()
    for line in listening.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if port in apis or any(f"pid={pid}," in line for pid in own):
            assert address.startswith(("127.", "[::1]", "[::ffff:127.")), line
            seen.add(port)
    assert apis < seen


def _processes_naming(text: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text in (process / "cmdline").read_text():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("host", ["fake-1", "libvirt-1"])
def test_a_stock_flavor_boots_on_every_kind_of_compute(all_in_one, host):
    admin = Tenant(all_in_one.environment(), "admin")
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
