"""The Nova runner: the server of a process, and the end of a process."""

import pytest

from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, InvalidInput

pytest.importorskip("libvirt")

from fpga_pool.drivers.runners.nova_servers import Servers

from .compute_api import DESTROYED, SHUTDOWN, Answer
from .nova_host import BEHIND, FRONT, KEY, OTHER, SPEC


def test_a_process_is_a_server_on_its_host_in_its_place_and_ends_by_powering_off(host, api):
    server = host.launched()
    assert (server["name"], server["host"], server["tags"]) == ("fpga-pool-a.1.0", "one", ["fpga_pool.one"])
    assert server["networks"] == [{"uuid": "net-net"}]
    assert host.tiers.placed == {server["id"]: (FRONT, [1])}
    domain = host.domain()
    assert domain.key == ("a", 0, 1)
    domain.cpu_s = 3.0
    host.observe()
    domain.end(SHUTDOWN)
    seen = host.observe()[KEY]
    assert (seen.phase, seen.cpu_s, seen.done_s) == (Phase.EXITED, 3.0, 6.0)  # 3 s of CPU time at a usage of 0.5
    host.runner.end(KEY)
    assert api.servers == host.observe() == {}


def test_nothing_is_launched_into_a_place_that_another_has(host):
    host.launched()
    host.later(10.0)
    other = ProcessSpec(key=Key("b", 0, 1), processes=1, cpu_usage=0.5, work_s=60.0)
    with pytest.raises(Conflict, match=r"process a\.1\.0 is in its foreground"):
        host.runner.launch(other, 1, FRONT)
    host.runner.launch(other, 1, BEHIND)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda api: setattr(api.flavor, "vcpus", 2), "must have one shared vCPU"),
        (lambda api: api.specs.update({"fpga_pool:tier": "auto"}), "no extra specs of fpga_pool"),
        (lambda api: api.specs.update({"hw:cpu_policy": "dedicated"}), "one shared vCPU"),
        (
            lambda api: setattr(api.compute, "find_flavor", lambda _: None),
            "flavor: no gang, or the pool has no access to it",
        ),
        (
            lambda api: setattr(api.network, "find_network", lambda _: None),
            "networks: no net, or the pool has no access to it",
        ),
        (lambda api: setattr(api.images[0], "visibility", "private"), "0 active images"),
        (lambda api: api.images.append(api.images[0]), "2 active images"),
    ],
)
def test_what_servers_cannot_be_made_of_is_refused_and_says_why(host, api, change, why):
    host.later(10.0)
    change(api)
    with pytest.raises(InvalidInput, match=why):
        host.runner.launch(SPEC, 1, FRONT)
    assert api.servers == {}


def test_a_private_image_of_the_pools_own_project_may_be_used(host, api):
    api.images[0].visibility, api.images[0].owner_id = "private", "pool"
    assert host.launched()["imageRef"] == "i1"


def test_a_refusal_is_told_with_novas_reason(host, api):
    host.later(10.0)
    api.refused["POST /servers"] = Answer(403, {"forbidden": {"message": "Quota exceeded for cores"}})
    with pytest.raises(Conflict, match="403 Quota exceeded for cores"):
        host.runner.launch(SPEC, 1, FRONT)


def test_a_server_in_error_has_failed_with_its_fault(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, FRONT)
    fault = {"message": "No valid host was found."}
    host.server().update({"status": "ERROR", "OS-EXT-STS:task_state": None, "fault": fault})
    seen = host.observe()[KEY]
    assert (seen.phase, seen.reason) == (Phase.FAILED, "Nova: No valid host was found.")


def test_a_server_that_is_never_built_has_failed_in_the_end(host):
    host.later(10.0)
    host.runner.launch(SPEC, 1, FRONT)
    assert host.observe()[KEY].phase is Phase.RUNNING
    host.later(590.0)
    seen = host.observe()[KEY]
    assert (seen.phase, "has been scheduling for 600 s" in seen.reason) == (Phase.FAILED, True)


def test_a_server_that_somebody_deletes_is_gone_and_one_whose_guest_is_destroyed_has_failed(host, api):
    server = host.launched()
    host.domain().end(DESTROYED)
    assert host.observe()[KEY].reason == "its guest was destroyed"
    server["OS-EXT-STS:task_state"] = "deleting"
    assert "was deleted" in host.observe()[KEY].reason
    api.forceDelete(server, None)
    assert host.observe() == {}


def test_a_reboot_that_somebody_asked_nova_for_is_no_end(host, api):
    server = host.launched()
    server["OS-EXT-STS:task_state"] = "rebooting_hard"
    host.domain().end(DESTROYED)
    assert host.observe()[KEY].phase is Phase.RUNNING
    server["OS-EXT-STS:task_state"] = None
    api.hypervisors["one"].domains.clear()
    host.tiers.placed.clear()
    server["status"] = "BUILD"
    api.build()  # its domain is a new one, without metadata
    assert host.observe()[KEY].phase is Phase.RUNNING
    assert host.domain().key == ("a", 0, 1)
    host.observe()
    assert host.observe()[KEY].tier is None  # it has to be put into its tier again


@pytest.mark.parametrize("reason", [SHUTDOWN, DESTROYED])
@pytest.mark.parametrize("begins", ["before Nova is asked", "after that"])
def test_a_reboot_while_nova_is_asked_is_no_end(host, api, reason, begins):
    """A soft reboot looks like the end of the work. Nova does not show one that is over or has just begun."""
    host.launched()
    domain = host.domain()
    domain.cpu_s = 5.0
    host.observe()
    running = domain.state

    def change(method, path):
        if path != "/servers/detail":
            return
        if begins == "after that":
            domain.end(reason)
        else:
            domain.state, domain.reason = running, 0

    if begins != "after that":
        domain.end(reason)
    api.meanwhile = change
    seen = host.observe()[KEY]
    assert (seen.phase, seen.cpu_s) == (Phase.RUNNING, 5.0)
    api.meanwhile = lambda *_: None
    domain.end(SHUTDOWN)
    assert host.observe()[KEY].phase is Phase.EXITED


def test_a_reboot_that_makes_the_guest_again_while_nova_is_asked_is_no_end(host, api):
    host.launched()
    host.domain().end(DESTROYED)
    api.meanwhile = lambda *_: api.hypervisors["one"].domains.clear()
    assert host.observe()[KEY].phase is Phase.RUNNING
    api.meanwhile = lambda *_: None
    seen = host.observe()[KEY]
    assert (seen.phase, "but unknown to libvirt" in seen.reason) == (Phase.FAILED, True)


def test_one_that_is_not_built_yet_begins_in_the_tier_that_it_is_swapped_to(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, BEHIND)
    assert host.observe()[KEY].tier is BEHIND
    host.runner.set_tier(KEY, FRONT)
    assert host.observe()[KEY].tier is FRONT


def test_a_guest_that_was_not_placed_yet_has_its_place(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, FRONT)
    api.build()
    host.observe()
    host.observe()
    assert host.observe()[KEY].tier is None
    with pytest.raises(Conflict, match=r"process a\.1\.0 is in its foreground"):
        host.runner.launch(OTHER, 1, FRONT)


def test_a_host_whose_name_no_tag_can_have_is_refused(api):
    with pytest.raises(InvalidInput, match="is not a valid tag"):
        Servers(api, "x" * 60, "gang", [])
