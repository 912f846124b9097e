"""Users at a terminal who only use `openstack`."""

import hashlib
import json
import os
from functools import cached_property

import openstack
from keystoneauth1.adapter import Adapter

from fpga_pool.client.session import SERVICE_TYPE
from fpga_pool.model.objects.gangs import ENDED_GANGS
from support.openstack_commands import OpenStackCommands
from support.waiting import wait_until

from .conftest import BOOT_TIMEOUT_S, IMAGE_BYTES, a_name
from .test_jobs import GANG_TIMEOUT_S

#: For one command, including what it waits for.
COMMAND_TIMEOUT_S = 2 * BOOT_TIMEOUT_S
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
DESIGN = """
name = "{}"
board = "{}"
kind = "{}"
simulates = "sha256"
io_bps = 1e9
b_s_per_byte = 1e-9
"""


class Terminal:
    """`openstack` with one login, in one directory."""

    def __init__(self, program, environment, directory):
        self.directory = directory
        self._commands = OpenStackCommands(program, environment, directory, COMMAND_TIMEOUT_S)

    def close(self):
        self._commands.close()

    def call(self, *words):
        """Run `openstack`; return its exit status, output and errors."""
        return self._commands.run(words)

    def run(self, *words, code=0):
        """Run `openstack`; return its output, or its errors if they are expected."""
        status, out, err = self.call(*words)
        assert status == code, (words, out, err)
        return err if code else out

    def read(self, *words):
        return json.loads(self.run(*words, "-f", "json"))

    def read_all(self, *commands):
        """Run several commands; return the output of each."""
        return [self.read(*words) for words in commands]


class Tenant(Terminal):
    """A member of a project."""

    def __init__(self, program, login, directory):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        environment = plain | {f"OS_{name.upper()}": value for name, value in login.items()}
        super().__init__(program, environment | {"OS_IDENTITY_API_VERSION": "3"}, directory)
        self._login = login
        self.project = login["project_id"]
        self.name = a_name("tenant")
        self.made = []
        #: By kind, the uuid of one object of the tenant.
        self.ids = {}

    @cached_property
    def api(self):
        """The pool's REST API, for any client; requests that come too soon after others are repeated."""
        session = openstack.connect(load_envvars=False, load_yaml_config=False, **self._login).session
        again = {"retriable_status_codes": [429], "status_code_retries": 5, "status_code_retry_delay": 1.0}
        return Adapter(session, service_type=SERVICE_TYPE, region_name=self._login["region_name"], **again)

    def make(self, what, *words):
        """Create an object that is deleted at the end; return it."""
        self.made.append((what, self.name))
        return self.read(what, "create", *words, self.name)

    def boot(self, flavor, kind):
        """Boot a machine from a new image and on a new network."""
        (self.directory / "disk").write_bytes(bytes(IMAGE_BYTES))
        formats = ("--disk-format", "raw", "--container-format", "bare")
        self.make("image", *formats, "--property", "hw_qemu_guest_agent=yes", *kind, "--file", "disk")
        self.make("network")
        self.run("subnet", "create", "--network", self.name, "--subnet-range", "10.253.0.0/24", "--no-dhcp", self.name)
        parts = ("--image", self.name, "--flavor", flavor, "--network", self.name)
        server = self.make("server", *parts, "--wait")
        assert server["status"] == "ACTIVE"
        self.ids["instance"] = server["id"]

    def compute(self, sender):
        """Run a batch, a pipeline and a task to completion, and check their results."""
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
            rows = self.read("fpga", kind, "create", "--name", f"{self.name}-{kind}", *words)
            assert rows[-1]["result"] == result, rows
            self.ids[kind] = self.read("fpga", kind, "show", f"{self.name}-{kind}")["uuid"]

    def hold(self, sender):
        """Create a held batch, the newest of all."""
        name = f"{self.name}-held"
        words = ("--hold", "--name", name, "--function", "sha256", "--requester", sender)
        self.run("fpga", "batch", "create", *words, "input")
        self.ids["batch"] = self.read("fpga", "batch", "show", name)["uuid"]
        self.ids["job"] = self.read("fpga", "job", "list")[0]["uuid"]

    def submit(self, board, kind):
        """Submit a design of the tenant."""
        (self.directory / "design.toml").write_text(DESIGN.format(f"own_{self.project}", board, kind))
        self.ids["design"] = self.read("fpga", "design", "create", "design.toml", "input")["uuid"]

    def gang(self, image):
        """Run a gang to its end, if the pool has processors for it."""
        words = ("--processes", "1", "--runtime", "60", "--work", "1", *(("--image", image) if image else ()))
        status, out, err = self.call("fpga", "gang", "create", "--name", f"{self.name}-gang", *words, "-f", "json")
        if "no host of the pool offers processors" in err:
            return
        assert status == 0, err
        uuid = self.ids["gang"] = json.loads(out)["uuid"]

        def ended():
            found = self.read("fpga", "gang", "show", uuid)
            return found if found["state"] in ENDED_GANGS else None

        found = wait_until(ended, f"gang {uuid} ends", GANG_TIMEOUT_S)
        assert found["state"] == "COMPLETED", found

    def everything(self):
        """Return all objects of the tenant, as they are shown."""
        limits = [(one["resource"], one["limit"]) for one in self.api.get("/v1/quotas").json()["quota"]["resources"]]
        found = {nouns: self.api.get(f"/v1/{nouns}").json()[nouns] for nouns in LISTS}
        return found | {"quota": limits, "servers": self.read("server", "list", "--long")}

    def leave(self):
        """Delete the tenant's objects."""
        self.call("fpga", "batch", "cancel", self.ids.get("batch", ""))
        self.call("fpga", "design", "delete", self.ids.get("design", ""))
        for what, name in reversed(self.made):
            wait = ("--wait",) if what == "server" else ()
            self.run(what, "delete", *wait, name)


#: Lists of the objects that projects have in the pool.
LISTS = ("batches", "designs", "gangs", "jobs", "pipelines", "tasks")
