"""Two tenants who have nothing but `openstack`: each sees what is its own, and nothing of the other."""

import hashlib
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from fpga_pool.model.objects.gangs import ENDED_GANGS
from support.waiting import wait_until

from .conftest import BOOT_TIMEOUT_S, FICTION, IMAGE_BYTES, a_name, program
from .test_jobs import GANG_TIMEOUT_S, requester
from .test_pool import assert_has

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("default")]

#: For one command, with what it waits for.
COMMAND_TIMEOUT_S = 2 * BOOT_TIMEOUT_S
#: How much of each kind of work a tenant has; pipelines and tasks are batches, too.
WORK = {"batch": 3, "pipeline": 1, "task": 1, "gang": 1}
PIPELINE = """
requester = "{}"
[[subtasks]]
name = "first"
function = "sha256"
input = "input"
[[subtasks]]
name = "second"
function = "sha256"
after = ["first"]
"""


class Tenant:
    """A member of a project at a terminal."""

    def __init__(self, openstack, environment, directory):
        self._openstack, self._environment, self.directory = openstack, environment, directory
        self.name = a_name("tenant")
        self.made = []

    def call(self, *words):
        place = {"env": self._environment, "cwd": self.directory}
        command = [self._openstack, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, **place)

    def run(self, *words, code=0):
        """Run `openstack`, and return what it prints, or what it says is wrong."""
        done = self.call(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stderr if code else done.stdout

    def read(self, *words):
        return json.loads(self.run(*words, "-f", "json"))

    def make(self, what, *words):
        """Make what is to be deleted at the end, and return it."""
        self.made.append((what, self.name))
        return self.read(what, "create", *words, self.name)

    def boot(self, flavor, kind):
        """Boot a machine from an image and on a network of its own; return its id."""
        (self.directory / "disk").write_bytes(bytes(IMAGE_BYTES))
        formats = ("--disk-format", "raw", "--container-format", "bare")
        self.make("image", *formats, "--property", "hw_qemu_guest_agent=yes", *kind, "--file", "disk")
        self.make("network")
        self.run("subnet", "create", "--network", self.name, "--subnet-range", "10.253.0.0/24", "--no-dhcp", self.name)
        parts = ("--image", self.name, "--flavor", flavor, "--network", self.name)
        server = self.make("server", *parts, "--wait")
        assert server["status"] == "ACTIVE"
        return server["id"]

    def compute(self, sender):
        """Run a batch, a pipeline and a task to their ends, and check their results."""
        data = os.urandom(100_000)
        (self.directory / "input").write_bytes(data)
        (self.directory / "pipeline.toml").write_text(PIPELINE.format(sender))
        once = hashlib.sha256(data).hexdigest()
        twice = hashlib.sha256(f"{once}\n".encode()).hexdigest()
        asked = ("--function", "sha256", "--requester", sender, "input")
        for kind, words, result in (
            ("batch", asked, once),
            ("pipeline", ("pipeline.toml",), twice),
            ("task", ("--topology", "line", *asked, "input"), once),
        ):
            rows = self.read("fpga", kind, "create", *words)
            assert rows[-1]["result"] == result, rows

    def gang(self, image):
        """Run a gang to its end; False where the pool has no processors for it."""
        words = ("--processes", "1", "--runtime", "60", "--work", "1", *(("--image", image) if image else ()))
        done = self.call("fpga", "gang", "create", *words, "-f", "json")
        if "no host of the pool offers processors" in done.stderr:
            return False
        assert done.returncode == 0, done.stderr
        uuid = json.loads(done.stdout)["uuid"]

        def ended():
            found = self.read("fpga", "gang", "show", uuid)
            return found if found["state"] in ENDED_GANGS else None

        found = wait_until(ended, f"gang {uuid} ends", GANG_TIMEOUT_S)
        assert found["state"] == "COMPLETED", found
        return True

    def listed(self, *kind):
        return {row.get("uuid") or row["ID"] for row in self.read(*kind, "list")}

    def leave(self):
        for what, name in reversed(self.made):
            wait = ("--wait",) if what == "server" else ()
            self.run(what, "delete", *wait, name)


@pytest.fixture
def tenants(account, tmp_path):
    openstack = program("openstack")
    if openstack is None or subprocess.run([openstack, "fpga", "batch", "list", "--help"], check=False).returncode:
        pytest.skip("no `openstack fpga` in PATH: python-openstackclient in an environment with fpga_pool")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    made = []
    for _ in range(2):
        login = {f"OS_{name.upper()}": value for name, value in account().items()}
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Tenant(openstack, {**plain, **login, "OS_IDENTITY_API_VERSION": "3"}, directory))
    yield made
    for each in made:
        each.leave()


def test_each_of_two_tenants_sees_its_own_machine_and_work_only(cloud, tenants, flavor, counting):
    cloud.free()
    kind = ("--property", f"img_hv_type={FICTION}") if cloud.hosts(real=False) else ()
    sha256, sender = flavor("sha256").name, requester(cloud.pool)

    def work_of(tenant):
        server = tenant.boot(sha256, kind)
        tenant.compute(sender)
        return server, tenant.gang(counting)

    with ThreadPoolExecutor(len(tenants)) as both:
        servers, gangs = zip(*both.map(work_of, tenants), strict=True)
    for server in servers:
        assert_has(cloud, cloud.compute.get_server(server), 1)
    asked = WORK if all(gangs) else {kind: count for kind, count in WORK.items() if kind != "gang"}
    work = [{kind: tenant.listed("fpga", kind) for kind in asked} for tenant in tenants]
    for number, tenant in enumerate(tenants):
        assert tenant.listed("server") == {servers[number]}
        assert {kind: len(uuids) for kind, uuids in work[number].items()} == asked
        other = 1 - number
        assert "No Server found" in tenant.run("server", "show", servers[other], code=1)
        for kind, uuids in work[other].items():
            uuid = min(uuids)
            for act in ("show", "cancel"):
                assert f"no {kind} {uuid}" in tenant.run("fpga", kind, act, uuid, code=1)
    jobs = [tenant.listed("fpga", "job") for tenant in tenants]
    assert jobs[0]
    assert jobs[1]
    assert not jobs[0] & jobs[1]
