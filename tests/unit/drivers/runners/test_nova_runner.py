"""The Nova runner where answers are lost, requests are refused and servers fail, and how a process moves."""

from datetime import UTC, datetime

import pytest
import requests
from keystoneauth1.exceptions import BadGateway, ConnectTimeout, Forbidden
from keystoneauth1.exceptions import EndpointNotFound as CatalogEndpointNotFound
from openstack.exceptions import DuplicateResource, EndpointNotFound, HttpException

from fpga_pool.drivers.runners.base import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable
from fpga_pool.model.flavor import Tier

pytest.importorskip("libvirt")

from fpga_pool.drivers.runners.nova import NovaRunner, Times
from fpga_pool.drivers.runners.nova_servers import Servers
from fpga_pool.drivers.runners.process_guests import ProcessGuests

from .compute_api import DESTROYED, SHUTDOWN, Answer, ComputeApi, Hypervisor, Tiers

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
KEY = Key("a", 0, 1)
SPEC = ProcessSpec(key=KEY, processes=2, cpu_usage=0.5, work_s=60.0, command="solve")
TIMES = Times(poll_s=10.0, build_s=600.0, keep_saved_s=86400.0)


class Host:
    """One host and its agent's runner."""

    def __init__(self, api, name, clock):
        self.api, self.name, self.clock = api, name, clock
        self.tiers = Tiers(api.hypervisors[name])
        self.runner = self.restarted()

    def restarted(self):
        guests = ProcessGuests(self.api.hypervisors[self.name], self.tiers)
        servers = Servers(self.api, self.name, "gang", ["net"])
        now = self.clock.__getitem__
        self.runner = NovaRunner(servers, guests, "counts", TIMES, lambda: now(0), lambda: now(0))
        self.runner._pause = lambda length_s: self.later(length_s)
        return self.runner

    def later(self, length_s):
        self.clock[0] += length_s

    def observe(self):
        """Look again, when Nova is to be asked again."""
        self.later(10.0)
        return self.runner.observe()

    def launched(self, spec=SPEC, processor=1, tier=FRONT):
        """A process that runs in its place."""
        self.later(10.0)
        self.runner.launch(spec, processor, tier)
        self.api.build()
        for _ in range(3):
            found = self.observe()
            assert found[spec.key].phase is Phase.RUNNING
            if found[spec.key].tier is None:
                self.runner.set_tier(spec.key, tier)
        assert self.observe()[spec.key].phase is Phase.RUNNING
        return self.server()

    def launched_beside(self, spec, processor):
        """Another process, in the foreground of another processor."""
        self.later(10.0)
        self.runner.launch(spec, processor, FRONT)
        self.api.build()
        self.observe()
        self.observe()
        self.runner.set_tier(spec.key, FRONT)

    def server(self):
        [server] = self.api.servers.values()
        return server

    def domain(self):
        [domain] = self.api.hypervisors[self.name].domains.values()
        return domain


@pytest.fixture
def api():
    return ComputeApi({"one": Hypervisor(), "two": Hypervisor()})


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def host(api, clock):
    return Host(api, "one", clock)


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
    assert (seen.phase, seen.cpu_s, seen.done_s) == (Phase.EXITED, 3.0, 6.0)  # 3 s at half a processor
    host.runner.end(KEY)
    assert api.servers == host.observe() == {}


def test_a_server_whose_answer_was_lost_is_found_again_and_made_once(host, api):
    host.later(10.0)
    api.lost = "POST /servers"
    with pytest.raises(ServiceUnavailable, match="reset by peer"):
        host.runner.launch(SPEC, 1, FRONT)
    api.lost = ""
    host.runner.launch(SPEC, 1, FRONT)
    assert len(api.servers) == 1


def test_a_request_whose_answer_was_lost_is_not_repeated_while_it_may_still_be_at_work(host, api):
    host.later(10.0)
    api.lost = "POST /servers"
    with pytest.raises(ServiceUnavailable):
        host.runner.launch(SPEC, 1, FRONT)
    [late] = api.servers.values()
    api.servers.clear()  # Nova has not written it yet
    api.lost = ""
    for act in (lambda: host.runner.launch(SPEC, 1, FRONT), lambda: host.runner.end(KEY)):
        with pytest.raises(ServiceUnavailable, match="waits for what Nova was asked for before"):
            act()
    api.servers[late["id"]] = late
    host.runner.launch(SPEC, 1, FRONT)
    assert list(api.servers) == [late["id"]]


def test_an_agent_that_was_killed_after_its_request_finds_the_server(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, FRONT)
    host.restarted().launch(SPEC, 1, FRONT)
    assert len(api.servers) == 1


def test_of_two_servers_that_are_one_process_the_first_stays(host, api):
    first = host.launched()
    # Nova lists it first: it has no host yet.
    api.servers["second"] = {**first, "id": "second", "created": "2026-11-22T00:01:00Z", "status": "BUILD"}
    assert set(host.observe()) == {KEY}
    assert list(api.servers) == [first["id"]]


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
        (lambda api: setattr(api.flavor, "vcpus", 2), "has to have one vCPU"),
        (lambda api: api.specs.update({"fpga_pool:tier": "auto"}), "no extra specs of fpga_pool"),
        (lambda api: api.specs.update({"hw:cpu_policy": "dedicated"}), "shares its processor"),
        (lambda api: setattr(api.compute, "find_flavor", lambda _: None), "flavor: there is no gang"),
        (lambda api: setattr(api.network, "find_network", lambda _: None), "networks: there is no net"),
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


OTHER = ProcessSpec(key=Key("b", 0, 1), processes=1, cpu_usage=0.5, work_s=60.0)


def test_a_server_of_a_cell_that_does_not_answer_is_not_gone(host, api):
    server = host.launched()
    api.unheard = {server["id"]}
    assert host.observe()[KEY].phase is Phase.RUNNING
    host.domain().end(SHUTDOWN)  # it may be a reboot: Nova does not tell
    assert host.observe()[KEY].phase is Phase.RUNNING
    with pytest.raises(ServiceUnavailable):
        host.runner.end(KEY)
    with pytest.raises(ServiceUnavailable, match=r"the cell of server .* does not answer"):
        host.runner.discard(server["id"])
    api.unheard = set()
    assert host.observe()[KEY].phase is Phase.EXITED


def test_an_agent_that_starts_while_a_cell_does_not_answer_waits_for_it_where_a_guest_runs(host, api):
    server = host.launched()
    api.unheard = {server["id"]}
    host.restarted()
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        host.observe()
    api.unheard = set()
    assert host.observe()[KEY].phase is Phase.RUNNING
    assert not host.domain().is_off


def test_what_was_not_found_by_a_proxy_is_not_gone(host, api):
    server = host.launched()
    api.unheard = {server["id"]}
    api.refused[f"GET /servers/{server['id']}"] = Answer(404, {})
    assert host.observe()[KEY].phase is Phase.RUNNING


def test_a_guest_that_nova_has_left_behind_is_destroyed(host, api):
    """Where nova-compute does not answer Nova deletes what it knows of a server, and no more."""
    host.launched()
    domain, api.compute_down = host.domain(), True
    host.runner.end(KEY)
    assert domain.is_off
    assert host.observe() == {}


def test_a_guest_that_was_left_behind_before_the_agent_started_is_destroyed_and_another_hosts_is_not(host, api, clock):
    gone = host.launched()
    host.launched_beside(OTHER, 2)
    [other] = [server for server in api.servers.values() if server is not gone]
    other["metadata"]["fpga_pool.home"] = "two"  # it has gone on from it, and has not fetched it yet
    del api.servers[gone["id"]]
    host.restarted()
    assert host.observe() == {}
    domains = api.hypervisors["one"].domains
    assert (domains[gone["id"]].is_off, domains[other["id"]].is_off) == (True, False)


def test_while_a_guest_that_was_left_behind_cannot_be_destroyed_its_process_has_not_ended(host, api):
    host.launched()
    domain, api.compute_down = host.domain(), True
    domain.destroy = lambda: None
    with pytest.raises(ServiceUnavailable, match="its guest does not end"):
        host.runner.end(KEY)
    del domain.destroy
    host.runner.end(KEY)
    assert domain.is_off


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


@pytest.mark.parametrize("status", [403, 409])
def test_to_delete_what_nova_refuses_to_delete_is_tried_again(host, api, status):
    host.launched()
    api.refused["POST .*/action"] = Answer(status, {"conflict": {"message": "server is locked"}})
    with pytest.raises(ServiceUnavailable, match="server is locked"):
        host.runner.end(KEY)
    api.refused.clear()
    host.runner.end(KEY)
    assert api.servers == {}


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_nova_that_cannot_answer_now_has_refused_nothing(host, api, status):
    host.later(10.0)
    api.refused["POST /servers"] = Answer(status, {})
    with pytest.raises(ServiceUnavailable):
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
    api.build()  # its domain is a new one, which says nothing of itself
    assert host.observe()[KEY].phase is Phase.RUNNING
    assert host.domain().key == ("a", 0, 1)
    host.observe()
    assert host.observe()[KEY].tier is None  # it is to be placed again


@pytest.mark.parametrize("reason", [SHUTDOWN, DESTROYED])
@pytest.mark.parametrize("begins", ["before Nova is asked", "after that"])
def test_a_reboot_while_nova_is_asked_is_no_end(host, api, reason, begins):
    """Soft reboots look like the end of the work; of one that is over, or comes, Nova does not tell."""
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


def test_what_runs_is_told_without_nova_and_an_end_is_not(host, api):
    host.launched()
    api.down = True
    assert host.observe()[KEY].phase is Phase.RUNNING
    host.domain().end(SHUTDOWN)
    with pytest.raises(ServiceUnavailable):
        host.observe()
    api.down = False
    assert host.observe()[KEY].phase is Phase.EXITED


def test_what_runs_is_told_while_nova_refuses_to_tell(host, api):
    host.launched()
    api.refused["GET /servers/detail"] = Answer(403, {"forbidden": {"message": "policy"}})
    assert host.observe()[KEY].phase is Phase.RUNNING
    host.domain().end(SHUTDOWN)
    with pytest.raises(Conflict, match="policy"):
        host.observe()


def test_one_that_is_not_built_yet_begins_in_the_tier_that_it_is_swapped_to(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, BEHIND)
    assert host.observe()[KEY].tier is BEHIND
    host.runner.set_tier(KEY, FRONT)
    assert host.observe()[KEY].tier is FRONT


def test_a_server_that_was_asked_for_is_looked_for_each_second(host, api):
    host.launched()
    host.later(10.0)
    api.refused["POST /servers"] = Answer(503, {})
    with pytest.raises(ServiceUnavailable):
        host.runner.launch(OTHER, 2, FRONT)
    looks = len(api.asked)
    for _ in range(5):
        host.later(1.0)
        host.runner.observe()
    assert api.asked[looks:].count(("GET", "/servers/detail")) == 5


def test_a_guest_that_was_not_placed_yet_has_its_place(host, api):
    host.later(10.0)
    host.runner.launch(SPEC, 1, FRONT)
    api.build()
    host.observe()
    host.observe()
    assert host.observe()[KEY].tier is None
    with pytest.raises(Conflict, match=r"process a\.1\.0 is in its foreground"):
        host.runner.launch(OTHER, 1, FRONT)


def test_all_pages_of_a_list_are_read(host, api):
    for number in range(3):
        host.launched_beside(ProcessSpec(key=Key("a", number, 1), processes=3, cpu_usage=1.0, work_s=1.0), number)
    for api.page in (1, 2, 3):
        host.restarted()
        assert [key.index for key in host.observe()] == [0, 1, 2]


def test_an_answer_that_is_no_novas_is_none(host, api):
    host.launched()
    api.refused["GET /servers/detail"] = Answer(200, "<html>Please log in</html>")
    host.restarted()
    with pytest.raises(ServiceUnavailable, match="does not answer: Expecting value"):
        host.observe()


def refused(status):
    response = requests.Response()
    response.status_code, response.url = status, "http://nova.test/"
    return HttpException("refused", response=response)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (DuplicateResource("More than one flavor exists with the name 'gang'."), Conflict),
        (EndpointNotFound("public endpoint for compute service not found"), Conflict),
        (CatalogEndpointNotFound("internal endpoint for compute service not found"), Conflict),
        (refused(403), Conflict),
        (refused(404), Conflict),
        (Forbidden("forbidden"), Conflict),
        (refused(429), ServiceUnavailable),
        (refused(502), ServiceUnavailable),
        (BadGateway("bad gateway"), ServiceUnavailable),
        (ConnectTimeout("timed out"), ServiceUnavailable),
    ],
)
def test_a_final_refusal_of_the_cloud_is_not_asked_for_again(host, api, failure, kind):
    def find(_):
        raise failure

    host.later(10.0)
    api.compute.find_flavor = find
    with pytest.raises(kind):
        host.runner.launch(SPEC, 1, FRONT)


def saved(host):
    """Save the process of a host, as its agent does: ask until it is."""
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
    for _ in range(6):  # Nova is asked each second until it runs here
        host.later(1.0)
        seen = host.runner.observe()[spec.key]
        assert seen.phase is Phase.RUNNING
    return seen


@pytest.mark.parametrize("there", ["one", "two"])
def test_a_process_goes_on_elsewhere_from_its_server_and_its_cpu_time_counts_once(host, api, clock, there):
    server = host.launched()
    host.domain().cpu_s = 5.0
    seen = saved(host)
    assert (seen.saved, seen.done_s, seen.cpu_s) == (server["id"], 10.0, 5.0)
    assert host.tiers.placed == {}  # it has its own pins again, that suit another host
    target = host if there == "one" else Host(api, there, clock)
    spec = ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, done_s=10.0, saved=seen.saved)
    seen = arrived(target, spec, 0)
    target.runner.discard(seen.saved or server["id"])  # as the agent does with what was gone on from
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


def going_on(saved):
    return ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, saved=saved)


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
    """Not the tier that its server was put into before, nor the processor that its guest still tells of."""
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
    host.domain().cpu_s = 2.0  # of another QEMU
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


def test_a_migration_that_fails_leaves_one_server_that_has_failed(host, api, clock):
    host.launched()
    seen = saved(host)
    api.os_migrateLive = lambda *_: None  # Nova gives it up, and leaves the server where it was
    two = Host(api, "two", clock)
    two.later(10.0)
    spec = going_on(seen.saved)
    two.runner.launch(spec, 0, FRONT)
    for _ in range(3):
        seen = two.observe()[spec.key]
    assert (seen.phase, "could not be moved here from one" in seen.reason) == (Phase.FAILED, True)
    two.runner.end(spec.key)
    assert api.servers == {}


def test_nobody_goes_on_from_a_server_that_is_gone_or_anothers(host, api):
    server = host.launched()
    host.later(10.0)
    for uuid in ("gone", server["id"]):
        spec = ProcessSpec(key=Key("a", 0, 2), processes=2, cpu_usage=0.5, work_s=60.0, saved=uuid)
        with pytest.raises(Conflict, match="that it was saved in"):
            host.runner.launch(spec, 0, FRONT)
    assert server["metadata"]["fpga_pool.attempt"] == "1"


def test_a_host_whose_name_no_tag_can_have_is_refused(api):
    with pytest.raises(InvalidInput, match="cannot be in a tag"):
        Servers(api, "x" * 60, "gang", [])
