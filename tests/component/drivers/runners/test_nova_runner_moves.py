"""The Nova runner: a process is continued on another host from its server."""

from datetime import UTC, datetime

import pytest

from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable

pytest.importorskip("libvirt")

from fpga_pool.drivers.runners.nova_servers import Servers

from .compute_api import Answer
from .nova_host import BEHIND, FRONT, KEY, OTHER, Host


def saved(host):
    """Save the process of a host like its agent, by repeated requests until it is saved."""
    for _ in range(6):
        seen = host.observe()[KEY]
        if seen.phase is Phase.SAVED:
            break
        host.runner.save(KEY)
    assert seen.phase is Phase.SAVED
    host.runner.leave(KEY)
    return seen


def arrived(host, spec, processor):
    host.later(10.0)
    host.runner.launch(spec, processor, FRONT)
    for _ in range(6):  # Nova is asked each second until the server is here
        host.later(1.0)
        seen = host.runner.observe()[spec.key]
        assert seen.phase is Phase.RUNNING
    return seen


def going_on(saved):
    return ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, saved=saved)


@pytest.mark.parametrize("there", ["one", "two"])
def test_a_process_goes_on_elsewhere_from_its_server_and_its_cpu_time_counts_once(host, api, clock, there):
    server = host.launched()
    host.domain().cpu_s = 5.0
    seen = saved(host)
    assert (seen.saved, seen.done_s, seen.cpu_s) == (server["id"], 10.0, 5.0)
    assert host.tiers.placed == {}  # the server has its own CPU pins again, which suit another host
    target = host if there == "one" else Host(api, there, clock)
    spec = ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, done_s=10.0, saved=seen.saved)
    seen = arrived(target, spec, 0)
    target.runner.discard(seen.saved or server["id"])  # the agent also discards the source of the continued process
    assert (server["OS-EXT-SRV-ATTR:host"], server["status"]) == (there, "ACTIVE")
    assert target.tiers.placed == {server["id"]: (FRONT, [0])}
    assert (seen.done_s, seen.cpu_s) == (10.0, 0.0)
    target.domain().cpu_s += 1.0
    assert target.observe()[spec.key].cpu_s == 1.0
    if there == "two":
        assert host.observe() == {}
        assert host.restarted().observe() == {}
    target.runner.end(spec.key)
    assert api.servers == {}


def test_one_that_cannot_have_its_place_keeps_no_other_from_being_seen_and_fails_in_the_end(host, api):
    host.launched()
    seen = saved(host)
    host.launched_beside(OTHER, 2)
    place = host.tiers.place

    def offline(instance, tier, pcpus):
        if pcpus == [7]:
            raise InvalidInput("this host has no pCPU 7 online")
        place(instance, tier, pcpus)

    host.tiers.place = offline
    spec = going_on(seen.saved)
    host.runner.launch(spec, 7, FRONT)
    for _ in range(3):
        assert {key: one.phase for key, one in host.observe().items()} == dict.fromkeys(
            (spec.key, OTHER.key), Phase.RUNNING
        )
    host.later(600.0)
    found = host.observe()
    assert found[spec.key].phase is Phase.FAILED
    assert found[OTHER.key].phase is Phase.RUNNING


@pytest.mark.parametrize("lost", ["PUT /servers/[^/]*/tags/.*", "POST /servers/.*/metadata", "PUT /servers/.*/tags"])
@pytest.mark.parametrize("done", [False, True])
def test_a_server_that_is_being_taken_over_is_always_somebodys(host, api, clock, lost, done):
    server = host.launched()
    seen = saved(host)
    two = Host(api, "two", clock)
    two.later(10.0)
    if done:
        api.lost = lost
    else:
        api.refused[lost] = Answer(503, {})
    with pytest.raises(ServiceUnavailable):
        two.runner.launch(going_on(seen.saved), 0, FRONT)
    owners = [name for name in ("one", "two") if Servers(api, name, "gang", []).list()]
    assert owners == [server["metadata"]["fpga_pool.home"]]
    api.lost, api.refused = "", {}
    assert arrived(two, going_on(seen.saved), 0).tier is FRONT


def test_a_saved_server_that_nobody_goes_on_from_is_deleted_when_it_is_old(host, api, clock):
    server = host.launched()
    saved(host)
    server["updated"] = datetime.fromtimestamp(clock[0], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    host.later(86300.0)
    host.observe()
    assert api.servers != {}
    host.later(100.0)
    host.observe()
    assert api.servers == {}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_process_that_goes_on_where_it_was_has_the_place_that_it_is_given_now(host, swapped):
    """It must not get the tier that its server had before, nor the processor that its guest still reports."""
    host.launched()
    host.runner.set_tier(KEY, BEHIND)
    seen = saved(host)
    host.later(10.0)
    host.runner.launch(going_on(seen.saved), 0, FRONT)
    if swapped:
        host.runner.set_tier(Key("a", 0, 2), BEHIND)
        assert list(host.tiers.placed.values()) == [(BEHIND, [0])]
    for _ in range(4):
        host.observe()
    assert list(host.tiers.placed.values()) == [(BEHIND if swapped else FRONT, [0])]


def test_the_cpu_time_of_one_that_went_on_and_was_rebooted_counts_from_its_reboot(host):
    host.launched()
    host.domain().cpu_s = 5.0
    seen = saved(host)
    arrived(host, going_on(seen.saved), 0)
    key = Key("a", 0, 2)
    host.domain().cpu_s = 6.0
    assert host.observe()[key].cpu_s == 1.0
    host.domain().cpu_s = 2.0  # CPU time of a new QEMU process
    assert host.observe()[key].cpu_s == 2.0
    host.domain().cpu_s = 7.0
    assert host.observe()[key].cpu_s == 7.0
    host.restarted()
    assert host.observe()[key].cpu_s == 7.0


def test_a_saved_server_that_nobody_goes_on_from_is_discarded(host, api):
    host.launched()
    seen = saved(host)
    assert host.observe() == {}
    host.runner.discard(seen.saved)
    assert api.servers == {}
    host.runner.discard(seen.saved)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ({}, "from one"),
        ({"status": "ERROR"}, "from one"),
        ({"status": "ERROR", "fault": {"message": "no"}}, "from one: no"),
    ],
)
def test_a_migration_that_fails_leaves_one_server_that_has_failed(host, api, clock, left, told):
    """Nova 34 leaves the server in status ERROR if the migration fails after the request to libvirt."""
    server = host.launched()
    seen = saved(host)
    api.os_migrateLive = lambda *_: server.update(left)  # Nova gives up and leaves the server where it was
    two = Host(api, "two", clock)
    two.later(10.0)
    spec = going_on(seen.saved)
    two.runner.launch(spec, 0, FRONT)
    for _ in range(3):
        seen = two.observe()[spec.key]
    assert (seen.phase, seen.reason.partition("could not be moved here ")[2]) == (Phase.FAILED, told)
    two.runner.end(spec.key)
    assert api.servers == {}


def test_nobody_goes_on_from_a_server_that_is_gone_or_anothers(host, api):
    server = host.launched()
    host.later(10.0)
    for uuid in ("gone", server["id"]):
        spec = ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, saved=uuid)
        with pytest.raises(Conflict, match=r"it was saved is gone|does not hold its saved state"):
            host.runner.launch(spec, 0, FRONT)
    assert server["metadata"]["fpga_pool.attempt"] == "1"
