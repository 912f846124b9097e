"""Which shard a host joins, and which shard runs which job of a batch."""

import pytest

from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.rules.shared.sharding import BY_ZONE, Part, ShardRule, Work, assign, parts


def host(name, shard="default", ingress_bps=8e6):
    return Host(
        name=name, egress_bps=8e6, ingress_bps=ingress_bps, data_address="", data_port=0, heard_at=0.0, shard=shard
    )


def slot(host_name, region, kind, shard):
    return Slot(name=f"{host_name}/c/{region}", host=host_name, card="c", region=region, board="fast", kind=kind,
                shard=shard)  # fmt: skip


@pytest.mark.parametrize(("fields", "complaint"), [({"by": "colour"}, "shard_by"), ({"number": 0}, "shards")])
def test_a_rule_that_divides_nothing_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        ShardRule(**fields)


def test_a_pool_that_is_not_divided_has_one_shard():
    assert ShardRule().names() == ("default",)
    assert ShardRule().shard_for("anywhere", {}) == "default"


def test_a_new_host_joins_the_shard_with_the_fewest_hosts():
    rule = ShardRule(number=3)
    assert rule.names() == ("shard-1", "shard-2", "shard-3")
    assert rule.shard_for("", {"shard-1": 2, "shard-2": 1, "shard-3": 1}) == "shard-2"
    assert rule.shard_for("", {"shard-1": 1, "shard-2": 1}) == "shard-3"


def test_by_zone_a_host_joins_the_shard_of_its_zone():
    rule = ShardRule(by=BY_ZONE)
    assert (rule.names(), rule.shard_for("az1", {}), rule.shard_for("", {})) == ((), "az1", "default")


def test_a_part_is_what_its_slots_can_hold_and_its_responders_can_take(make_catalogue):
    catalogue = make_catalogue(
        {"sha256": (1.0, "small", "large"), "flow": (1.0, "large")}, slots=["small", "large"], load_s=1
    )
    slots = [slot("a", "0", "small", "x"), slot("a", "1", "large", "x"), slot("b", "0", "small", "y")]
    hosts = [host("a", "x"), host("b", "y", 4e6), host("requester", "y", 1e9)]
    found = parts(catalogue, slots, hosts, {"x": 3, "z": 9})
    assert found == {
        "x": Part(slots={"sha256": 2, "flow": 1}, ingress_bps=8e6, backlog=1.5),
        "y": Part(slots={"sha256": 1, "flow": 0}, ingress_bps=4e6, backlog=0.0),
    }


BUSY = Part(slots={"f": 4, "g": 1}, ingress_bps=8e6, backlog=2.0)
IDLE = Part(slots={"f": 2, "g": 0}, ingress_bps=8e6, backlog=0.0)


def test_an_undivided_batch_goes_to_the_least_busy_shard_that_can_run_all_of_it():
    shards = {"busy": BUSY, "idle": IDLE}
    assert assign([Work("f", 1.0, 1)] * 2, shards, split=False) == ["idle", "idle"]
    assert assign([Work("f", 1.0, 1), Work("g", 1.0, 1)], shards, split=False) == ["busy", "busy"]


def test_functions_that_no_shard_has_together_part_ways():
    shards = {"busy": BUSY, "other": Part(slots={"h": 1}, ingress_bps=1.0, backlog=0.0)}
    assert assign([Work("f", 1.0, 1), Work("h", 1.0, 1)], shards, split=False) == ["busy", "other"]


def test_a_divided_batch_fills_the_shards_by_what_they_can_compute():
    # Six jobs of 4 s on 4 slots and 2 slots: 4 and 2 of them end together after 4 s.
    work = [Work("f", 4.0, 0)] * 6
    places = assign(work, {"busy": BUSY, "idle": IDLE}, split=True)
    assert (places.count("busy"), places.count("idle")) == (4, 2)


def test_a_divided_batch_fills_the_shards_by_what_they_can_receive():
    # 1 MB takes 1 s into 8 Mbit/s and 0.5 s into 16 Mbit/s: 2 and 4 of six end together.
    shards = {name: Part(slots={"f": 1}, ingress_bps=bps, backlog=0.0) for name, bps in (("a", 8e6), ("b", 16e6))}
    places = assign([Work("f", 0.0, 10**6)] * 6, shards, split=True)
    assert (places.count("a"), places.count("b")) == (2, 4)
