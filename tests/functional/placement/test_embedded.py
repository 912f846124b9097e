"""A whole pool in one process, and Placement: the inventory that its schedulers report."""

import uuid

import pytest
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts
from fpga_pool.model.flavor import RESOURCE_CLASS, AcceleratorRequest, provider_uuid
from fpga_pool.services.embedded import StandalonePool
from support.waiting import wait_until

PATIENCE_S = 180.0


@pytest.fixture
def pool(tmp_path, cloud, placement_section):
    path = tmp_path / "pool.conf"
    lines = "".join(f"{name} = {value}\n" for name, value in placement_section.items())
    state = f"[standalone]\nstate_dir = {tmp_path / 'state'}\nhosts = 1\nrequesters = 0\n"
    path.write_text(f"{state}[driver_simulated]\ncards = 1\n[placement]\n{lines}")
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([f"--config-file={path}"], project="fpga_pool")
    # Its hosts have the same names in every pool.
    for provider in cloud.tree(root := cloud.named_node("node-1")).values():
        cloud.ask("DELETE", f"/resource_providers/{provider['uuid']}")
    pool = StandalonePool(conf)
    pool.root = root
    pool.start()
    yield pool
    pool.stop()


def eventually(condition):
    wait_until(condition, "what the test waits for", PATIENCE_S)


def test_placement_follows_the_pool_and_a_machine_gets_what_it_was_allocated(cloud, pool):
    slot = next(slot for slot in pool.scheduler_api.slots() if slot.kind == "small")
    small = provider_uuid("node-1", slot.card, "small")
    eventually(lambda: {provider["uuid"] for provider in cloud.tree(pool.root).values()} >= {small})
    eventually(lambda: cloud.inventory(small) == {RESOURCE_CLASS: (3, 0)})
    pool.scheduler_api.drain_slot(slot.uuid, "repair")
    eventually(lambda: cloud.inventory(small) == {RESOURCE_CLASS: (3, 1)})
    instance = str(uuid.uuid4())
    cloud.allocate(instance, {small: 2})
    agent_id = pool.agents[0].heartbeat().agent_id
    wanted = AcceleratorRequest(function="sha256", count=2)
    agent = pool.agent_apis["node-1"]
    claimed = agent.claim_slots("node-1", agent_id, instance, "p", wanted)
    assert len(claimed) == 2
    assert slot.name not in {found.name for found in claimed}
    held = agent.instance_leases("node-1")[instance]
    agent.release_slots("node-1", agent_id, {lease.uuid: lease.generation for lease in held})
    assert agent.instance_leases("node-1") == {}
    cloud.allocate(instance, {})
