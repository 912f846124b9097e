"""One request through its passes: claims, refusals, and the values that weighers read."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from nova_hosts import FREE, POOL, Host, candidate, claim, empty, fitting

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.flavor import AcceleratorRequest, provider_uuid
from fpga_pool.model.rules.instance.fitting import NOT_HAD
from fpga_pool.nova_plugin.pool import DeclaredRunTimes
from fpga_pool.nova_plugin.registry import Requests
from fpga_pool.nova_plugin.request import Request


def test_a_card_that_the_instances_before_have_filled_is_not_offered_again():
    host = Host("a", [candidate("a", "c0"), candidate("a", "c1")])
    request = Request(AcceleratorRequest(function="sha256"), fitting(empty("a", "c0"), empty("a", "c1")), 3)
    assert request.first_pass([host]) == [host]
    first = host.allocation_candidates[0]
    claim(host)
    assert request.next_pass([host]) == [host]
    assert host.allocation_candidates == [
        other for other in (candidate("a", "c0"), candidate("a", "c1")) if other != first
    ]
    claim(host)
    assert request.next_pass([host]) == []


def test_what_placement_refused_is_not_offered_again():
    hosts = [Host("a", [candidate("a", "c0"), candidate("a", "c1")]), Host("b", [candidate("b", "c0")])]
    slots = [empty("a", "c0"), empty("a", "c1"), empty("b", "c0"), empty("b", "c0")]
    request = Request(AcceleratorRequest(function="sha256"), fitting(*slots), 2)
    request.first_pass(hosts)
    refused = hosts[0].allocation_candidates[0]
    claim(hosts[1])  # since a comes first, the claim on a was tried before and refused
    assert request.next_pass(hosts) == hosts
    assert refused not in hosts[0].allocation_candidates


def test_what_placement_has_left_is_all_that_is_offered():
    host = Host("a", [candidate("a", "c0"), candidate("a", "c1")])
    slots = [empty("a", "c0"), empty("a", "c0"), empty("a", "c1")]
    left = {provider_uuid("a", "c0", "small"): 1, provider_uuid("a", "c1", "small"): 1, "another": 7}
    request = Request(AcceleratorRequest(function="sha256"), fitting(*slots), 3, left)
    request.first_pass([host])
    claim(host)
    assert request.next_pass([host]) == [host]
    claim(host)
    assert request.next_pass([host]) == []


def test_one_instance_takes_the_card_with_the_fewest_slots_and_several_the_one_with_most():
    slots = [empty("a", "c0"), empty("a", "c0"), empty("a", "c1")]
    chosen = {}
    for instances in (1, 2):
        host = Host("a", [candidate("a", "c0"), candidate("a", "c1")])
        Request(AcceleratorRequest(function="sha256"), fitting(*slots), instances).first_pass([host])
        chosen[instances] = host.allocation_candidates[0]
    assert chosen == {1: candidate("a", "c1"), 2: candidate("a", "c0")}


@pytest.mark.parametrize("instances", [1, 3])
def test_a_slot_that_another_function_cannot_do_without_is_taken_last(instances):
    """optical_flow fits only large slots, so sha256 leaves them, even one alone on its card or with sha256 loaded."""
    slots = [("a", "large", "READY", "sha256", FREE), empty("a", "c0"), empty("a", "c0")]
    host = Host("a", [candidate("a", "large"), candidate("a", "c0")])
    request = Request(AcceleratorRequest(function="sha256"), fitting(*slots), instances)
    request.first_pass([host])
    assert host.allocation_candidates == [candidate("a", "c0"), candidate("a", "large")]
    if instances == 1:
        return
    claim(host)
    request.next_pass([host])
    claim(host)
    request.next_pass([host])
    assert host.allocation_candidates == [candidate("a", "large")]


def test_a_slot_that_others_need_is_taken_before_a_job_is_evicted():
    slots = [("a", "c0", "BUSY", "aes", POOL), empty("a", "large")]
    host = Host("a", [candidate("a", "c0"), candidate("a", "large")])
    Request(AcceleratorRequest(function="sha256"), fitting(*slots)).first_pass([host])
    assert host.allocation_candidates[0] == candidate("a", "large")


def test_a_host_whose_candidates_have_no_slots_is_judged_by_the_pool_alone():
    hosts = [Host("a", [candidate("a")]), Host("b", []), Host("c", [])]
    request = Request(
        AcceleratorRequest(function="sha256"), fitting(empty("a", "c0"), ("b", "c0", "FAULTED", "", FREE)), 2
    )
    assert request.first_pass(hosts) == hosts[:1]
    claim(hosts[0])
    assert request.next_pass(hosts[:1]) == []


def test_benefit_is_less_where_a_job_is_evicted():
    hosts = [Host("a", [candidate("a", "c0")]), Host("b", [candidate("b", "c0")])]
    slots = [("a", "c0", "READY", "sha256", FREE), ("b", "c0", "BUSY", "aes", POOL)]
    found = fitting(*slots)
    request = Request(AcceleratorRequest(function="sha256"), found)
    request.first_pass(hosts)
    catalogue = load_catalogue(installed_catalogue())
    speedup, evicted = (catalogue.functions[name].speedup_on("demo") for name in ("sha256", "aes"))
    load_s = catalogue.boards["demo"].load_s("small")
    assert request.benefits(hosts)[0] == pytest.approx(speedup)
    assert request.benefits(hosts)[1] == pytest.approx(speedup * 3600 / (3600 + load_s) - evicted)


def test_hosts_are_later_where_a_job_is_evicted_and_not_where_a_function_is_loaded_in_a_moment():
    hosts = [Host(name, [candidate(name, "c0")]) for name in ("a", "b", "c")]
    ready, busy = ("a", "c0", "READY", "sha256", FREE), ("c", "c0", "BUSY", "aes", POOL)
    request = Request(AcceleratorRequest(function="sha256"), fitting(ready, ready, empty("b", "c0"), busy), 3)
    request.first_pass(hosts)
    loaded, not_loaded, evicted = request.latenesses(hosts)
    assert loaded == not_loaded
    assert evicted == pytest.approx(loaded + 1.0)
    claim(hosts[0])
    request.next_pass(hosts)
    assert request.latenesses(hosts) == [loaded, not_loaded, evicted]
    claim(hosts[0])
    request.next_pass(hosts)
    assert request.latenesses(hosts) == [NOT_HAD, not_loaded, evicted]


def test_results_of_the_filter_are_kept_as_long_as_the_request():
    class Spec:
        pass

    kept, spec, other = Requests(), Spec(), Spec()
    request = Request(AcceleratorRequest(function="sha256"), fitting(empty("a", "c0")))
    kept.keep(spec, request)
    assert kept.get(spec) is request
    assert kept.get(other) is None
    kept.drop(spec)
    assert kept.get(spec) is None
    kept.keep(other, request)
    gone = id(other)
    del other
    gc.collect()
    assert gone not in kept._of


def test_run_times_of_other_functions_are_the_mean_of_what_flavors_declare():
    declared = DeclaredRunTimes()
    assert declared.means_s() == {}
    for run_time_s in (100.0, 200.0):
        declared.note("aes", run_time_s)
    declared.note("sha256", 7.0)
    # The newest value has a weight of a tenth.
    assert declared.means_s() == {"aes": pytest.approx(110.0), "sha256": 7.0}


def test_new_hosts_are_another_request():
    host = Host("a", [candidate("a", "c0")])
    request = Request(AcceleratorRequest(function="sha256"), fitting(empty("a", "c0")))
    request.first_pass([host])
    assert request.is_about([host])
    assert not request.is_about([Host("a")])
