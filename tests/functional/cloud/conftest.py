"""A real OpenStack cloud on this machine, in which the script of the documentation has installed the pool."""

import configparser
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session
from oslo_config import cfg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from fpga_pool.conf.catalogue import private_key
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import NO_ANSWER, transport
from support.cloud.cloud import libvirts
from support.cloud.pool import HOOK, hosts_with_slots
from support.cloud.site import Site
from support.peers import identity
from support.servers import Libvirt, MariaDB, RabbitMQ
from support.waiting import wait_until

REPOSITORY = Path(__file__).parents[3]
TOOL = REPOSITORY / "tools" / "all-in-one"
FIRST_VM = REPOSITORY / "doc" / "source" / "admin" / "first-vm" / "first-vm.sh"
#: Includes the installation of packages.
START_TIMEOUT_S = 1200.0
STOP_TIMEOUT_S = 400.0
SCRIPT_TIMEOUT_S = 500.0
HOSTS_TIMEOUT_S = 360.0
BOOT_TIMEOUT_S = 300.0
#: How long to wait for a scheduler that has just started on a machine that is busy with a whole cloud.
ANSWER_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 360.0
#: In this cloud, hosts are both requesters and responders.
REQUESTER = "fake-1"


class Tenant:
    """A project of the cloud, and the actions of its user."""

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
        self.compute = self.adapter("compute", "2.74")
        self._ids: dict[str, str] = {}

    def adapter(self, service: str, microversion: str | None = None) -> Adapter:
        return Adapter(self._session, service_type=service, default_microversion=microversion)

    def boot(self, name: str, *, flavor: str = "small", image: str = "hello", **more: object) -> str:
        """Create a virtual machine; return its uuid."""
        server = {
            "name": name,
            "imageRef": self.id_of("image", "/v2/images", image),
            "flavorRef": self.id_of("compute", "/flavors", flavor),
            "networks": [{"uuid": self.id_of("network", "/v2.0/networks", "shared")}],
            **more,
        }
        return self.compute.post("/servers", json={"server": server}).json()["server"]["id"]

    def show(self, uuid: str) -> dict[str, Any]:
        return self.compute.get(f"/servers/{uuid}").json()["server"]

    def built(self, uuid: str) -> dict[str, Any]:
        """Wait until the machine is no longer in status BUILD; return it."""

        def look() -> dict[str, Any] | None:
            server = self.show(uuid)
            return None if server["status"] == "BUILD" else server

        return wait_until(look, f"{uuid} built", BOOT_TIMEOUT_S)

    def says(self, uuid: str, text: str, timeout_s: float = BOOT_TIMEOUT_S) -> str:
        """Wait until a text is on a guest's console; return the console output."""

        def look() -> str:
            body = {"os-getConsoleOutput": {}}
            said = self.compute.post(f"/servers/{uuid}/action", json=body).json()["output"]
            return said if text in said else ""

        return wait_until(look, f"{text!r} on the console of {uuid}", timeout_s)

    def delete(self, uuid: str) -> None:
        """Delete a virtual machine, and wait until it no longer exists."""
        self.compute.delete(f"/servers/{uuid}")

        def is_gone() -> bool:
            return self.compute.get(f"/servers/{uuid}", raise_exc=False).status_code == 404

        wait_until(is_gone, f"{uuid} deleted", BOOT_TIMEOUT_S)

    def id_of(self, service: str, path: str, name: str) -> str:
        """Return the id of an object with this name.  Ids are cached."""
        if name not in self._ids:
            answer = self.adapter(service).get(path).json()
            self._ids |= {found["name"]: found["id"] for found in answer[path.rpartition("/")[2]]}
        return self._ids[name]


class AllInOne:
    """The all-in-one tool, applied to one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, act: str, *more: str, timeout_s: float = STOP_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        command = [str(TOOL), act, *more, "--directory", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of the administrator's openrc file."""
        lines = self.run("env").stdout.splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))

    @property
    def libvirts(self) -> dict[str, Libvirt]:
        """The libvirtd of each host that runs real guests."""
        return libvirts(Site.open(self.directory))

    def virsh(self, host: str, *words: str) -> str:
        """Return the output of virsh on a host; "" if it fails."""
        command = [*self.libvirts[host].entrance, "virsh", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    @property
    def programs(self) -> Path:
        """The directory of the programs in the virtual environment of the cloud."""
        return Path(os.environ.get("FPGA_POOL_CLOUD_VENV", REPOSITORY / ".venv-cloud")) / "bin"

    @property
    def pool_file(self) -> Path:
        return self.directory / "etc" / "fpga_pool" / "fpga_pool.conf"


@pytest.fixture(scope="package")
def bare_cloud(servers_directory) -> Iterator[AllInOne]:
    """A running Nova with fake hosts and two hosts with real guests, and only the configuration of the pool."""
    for kind in (RabbitMQ, MariaDB, Libvirt):
        if problem := kind.missing():
            pytest.skip(problem)
    cloud = AllInOne(servers_directory / "all-in-one")
    try:
        started = cloud.run("start", "--no-pool", "--libvirt-computes", "2", timeout_s=START_TIMEOUT_S)
        print(started.stderr)
        assert started.returncode == 0, started.stderr
        yield cloud
    finally:
        cloud.run("stop")


def pool_environment(cloud: AllInOne) -> dict[str, str]:
    """Return the environment of the pool administrator's shell."""
    return os.environ | cloud.environment | {"PATH": f"{cloud.programs}:{os.environ['PATH']}"}


def hook_of(host: Libvirt) -> Path:
    """Return the path of the pool's libvirt hook on a host."""
    return host.directory / "etc" / "hooks" / "qemu.d" / "fpga_pool"


@pytest.fixture(scope="package")
def all_in_one(bare_cloud) -> AllInOne:
    """The cloud with the pool and a first accelerated machine, set up by the script of the documentation."""
    directory = bare_cloud.directory
    first, second = bare_cloud.libvirts.values()
    for host in (first, second):
        hook_of(host).parent.mkdir(parents=True, exist_ok=True)
    # The script installs the hook on one host only, but restarts both.
    shutil.copy(HOOK, hook_of(second))
    hook_of(second).chmod(0o755)
    environment = pool_environment(bare_cloud)
    script = ["bash", str(FIRST_VM)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    # The script ends when its machine runs, on whichever host was available first.  Nova schedules no machines to a
    # host that has lost its libvirtd until its next periodic check.
    site = Site.open(directory)
    hosts = [*site.fakes, *site.libvirts]
    placement = Tenant(bare_cloud.environment, "admin").adapter("placement")
    what = f"machines with slots can be put on {', '.join(hosts)}"
    manage = ["fpga-pool-manage", f"--config-file={bare_cloud.pool_file}", "host", "approve", "--all"]

    def complete() -> bool:
        subprocess.run(manage, env=environment, check=True, timeout=SCRIPT_TIMEOUT_S)
        return hosts_with_slots(placement) >= len(hosts)

    wait_until(complete, what, HOSTS_TIMEOUT_S)
    return bare_cloud


class CloudScheduler(SchedulerAPI):
    """A client of the scheduler with the API's identity; calls of agents are signed with the key of the agent."""

    def __init__(self, connection: Any, caller: Identity, agents: Path) -> None:
        """`agents` contains the state directory of each host's agent."""
        super().__init__(connection, caller)
        self._connection, self._agents = connection, agents

    def _call(self, *arguments: Any, **named: Any) -> Any:
        again = Retrying(
            retry=retry_if_exception_type(NO_ANSWER), stop=stop_after_delay(ANSWER_TIMEOUT_S), reraise=True
        )
        return again(super()._call, *arguments, **named)

    def instance_slots(self, host: str) -> dict[str, list[str]]:
        """Return the names of the slots that virtual machines hold on a host, by instance."""
        agent = Identity(Role.AGENT, host, private_key("key", str(self._agents / host / "agent.pem")))
        leases = SchedulerAPI(self._connection, agent).instance_leases(host)
        return {instance: [lease.slot for lease in held] for instance, held in leases.items()}


@pytest.fixture(scope="package")
def scheduler(all_in_one) -> Iterator[CloudScheduler]:
    """A client of the pool's scheduler, for tests to inspect the state of the pool."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(all_in_one.pool_file)
    connection = transport(cfg.CONF, settings["DEFAULT"]["transport_url"])
    caller = identity(Path(settings["api"]["key"]).parent, Role.API, "test")
    yield CloudScheduler(connection, caller, all_in_one.directory / "fpga_pool")
    connection.cleanup()


@pytest.fixture(scope="package")
def manage(all_in_one) -> Callable[..., str]:
    """Run `fpga-pool-manage` as the pool's administrator."""
    environment = pool_environment(all_in_one)

    def run(*words: str, check: bool = True) -> str:
        command = ["fpga-pool-manage", f"--config-file={all_in_one.pool_file}", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="package")
def admin(all_in_one) -> Tenant:
    return Tenant(all_in_one.environment, "admin")


@pytest.fixture(scope="package")
def tenant(all_in_one) -> Tenant:
    return Tenant(all_in_one.environment, "demo")


@pytest.fixture(scope="package")
def api(all_in_one, scheduler):
    """The cloud with its API running, which the script of the documentation does not start."""
    started = all_in_one.run("restart", "fpga-pool-api")
    assert started.returncode == 0, started.stderr
    scheduler.hosts()  # from now on a scheduler answers the API without delay
    return all_in_one


@pytest.fixture
def openstack(api):
    """Run `openstack fpga` as a user of a project; return the exit code, stdout and stderr."""

    def run(project, *words):
        environment = pool_environment(api) | {"OS_USERNAME": project, "OS_PROJECT_NAME": project}
        command = [str(api.programs / "openstack"), "fpga", *map(str, words)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run
