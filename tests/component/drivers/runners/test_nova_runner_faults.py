"""The Nova runner when answers are lost, requests are refused, or parts of the cloud do not answer."""

import pytest
import requests
from keystoneauth1.exceptions import BadGateway, ConnectTimeout, Forbidden
from keystoneauth1.exceptions import EndpointNotFound as CatalogEndpointNotFound
from openstack.exceptions import DuplicateResource, EndpointNotFound, HttpException

from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable

pytest.importorskip("libvirt")


from .compute_api import SHUTDOWN, Answer
from .nova_host import FRONT, KEY, OTHER, SPEC


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
    api.servers.clear()  # Nova has not stored the server yet
    api.lost = ""
    for act in (lambda: host.runner.launch(SPEC, 1, FRONT), lambda: host.runner.end(KEY)):
        with pytest.raises(ServiceUnavailable, match="waits for an earlier request to Nova"):
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
    # Nova lists the second server first, because it has no host yet.
    api.servers["second"] = {**first, "id": "second", "created": "2026-11-22T00:01:00Z", "status": "BUILD"}
    assert set(host.observe()) == {KEY}
    assert list(api.servers) == [first["id"]]


def test_a_second_server_that_nova_refuses_to_delete_keeps_nobody_from_looking(host, api):
    first = host.launched()
    api.servers["second"] = {**first, "id": "second", "created": "2026-11-22T00:01:00Z"}
    api.refused["POST /servers/second/action"] = Answer(409, {"conflict": {"message": "server is locked"}})
    host.restarted()
    assert host.observe()[KEY].phase is Phase.RUNNING
    api.refused.clear()
    host.observe()
    assert list(api.servers) == [first["id"]]


def test_a_server_of_a_cell_that_does_not_answer_is_not_gone(host, api):
    server = host.launched()
    api.unheard = {server["id"]}
    assert host.observe()[KEY].phase is Phase.RUNNING
    host.domain().end(SHUTDOWN)  # it may be a reboot: Nova does not tell which
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
    """If nova-compute does not answer, Nova deletes only its record of the server."""
    host.launched()
    domain, api.compute_down = host.domain(), True
    host.runner.end(KEY)
    assert domain.is_off
    assert host.observe() == {}


def test_a_guest_that_was_left_behind_before_the_agent_started_is_destroyed_and_another_hosts_is_not(host, api, clock):
    gone = host.launched()
    host.launched_beside(OTHER, 2)
    [other] = [server for server in api.servers.values() if server is not gone]
    other["metadata"]["fpga_pool.home"] = "two"  # another host continues it, and has not migrated it yet
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
