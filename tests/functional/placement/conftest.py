"""A real Placement with its own database, and the requests of Nova to it."""

import contextlib
import uuid

import pytest
import requests
from oslo_config import cfg

from fpga_pool.model.flavor import RESOURCE_CLASS
from fpga_pool.placement.client import open_placement
from support.placement import Placement

TIMEOUT_S = 180.0


class Cloud(Placement):
    """Placement, and Nova's part: root providers and allocations."""

    @contextlib.contextmanager
    def away(self):
        self.stop()
        yield
        self.start()

    def ask(self, method, path, body=None):
        headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.37"}
        answer = requests.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    def node(self, name):
        """Create the root provider of a compute node; return its uuid."""
        body = {"name": name, "uuid": str(uuid.uuid4())}
        return self.ask("POST", "/resource_providers", body)["uuid"]

    def named_node(self, name):
        """Return the uuid of a compute node, which is created if there is none."""
        found = self.ask("GET", f"/resource_providers?name={name}")["resource_providers"]
        return found[0]["uuid"] if found else self.node(name)

    def tree(self, root):
        """Return the providers below a root, by name."""
        found = self.ask("GET", f"/resource_providers?in_tree={root}")["resource_providers"]
        return {provider["name"]: provider for provider in found if provider["uuid"] != root}

    def inventory(self, uuid):
        found = self.ask("GET", f"/resource_providers/{uuid}/inventories")["inventories"]
        return {name: (entry["total"], entry["reserved"]) for name, entry in found.items()}

    def traits(self, uuid):
        return set(self.ask("GET", f"/resource_providers/{uuid}/traits")["traits"])

    def allocate(self, consumer, slots, project="p"):
        """Allocate this many slots of each provider to a consumer, instead of its previous allocation."""
        known = self.ask("GET", f"/allocations/{consumer}")
        body = {
            "allocations": {uuid: {"resources": {RESOURCE_CLASS: count}} for uuid, count in slots.items()},
            "consumer_generation": known.get("consumer_generation"),
            "project_id": project,
            "user_id": "u",
        }
        self.ask("PUT", f"/allocations/{consumer}", body)

    def offered(self, trait):
        """Return the providers that currently offer one slot with a trait."""
        query = f"resources={RESOURCE_CLASS}:1&required={trait}"
        found = self.ask("GET", f"/allocation_candidates?{query}")["allocation_requests"]
        return {provider for request in found for provider in request["allocations"]}


@pytest.fixture(scope="session")
def cloud(tmp_path_factory):
    pytest.importorskip("placement")
    directory = tmp_path_factory.mktemp("placement")
    cloud = Cloud(f"sqlite:///{directory}/placement.sqlite", directory / "placement.log")
    cloud.start()
    yield cloud
    cloud.stop()


@pytest.fixture
def placement_section(cloud):
    """[placement] of a configuration file."""
    return cloud.section


@pytest.fixture
def client(tmp_path, placement_section):
    conf = cfg.ConfigOpts()
    path = tmp_path / "pool.conf"
    lines = [f"{name} = {value}\n" for name, value in placement_section.items()]
    path.write_text("[placement]\n" + "".join(lines))
    conf([f"--config-file={path}"], project="fpga_pool")
    return open_placement(conf)
