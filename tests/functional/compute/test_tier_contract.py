"""The contract of tier drivers: one suite for all of them."""

import contextlib

import pytest

from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.flavor import Tier

from .tier_machines import SimulatedMachines

FOREGROUND = {"fpga_pool:tier": "foreground"}
BACKGROUND = {"fpga_pool:tier": "background"}


@pytest.fixture(params=["simulated", "libvirt"])
def machines(request, tmp_path):
    if request.param == "libvirt":
        yield request.getfixturevalue("tier_machines")
    else:
        yield SimulatedMachines(tmp_path)


@pytest.fixture
def driver(machines):
    with contextlib.closing(machines.new_driver()) as made:
        yield made


def found(driver, instance):
    return next((guest for guest in driver.guests() if guest.instance == instance), None)


def test_guests_are_those_that_ask_for_a_tier_in_novas_words_or_the_pools_own(machines, driver):
    nova = machines.start(BACKGROUND, vcpus=2)
    own = machines.start({}, own_wish="auto")
    other = machines.start({"hw:cpu_policy": "shared"})
    wrong = machines.start({"fpga_pool:tier": "third"})
    assert {(guest.instance, guest.wanted, guest.vcpus) for guest in driver.guests()} == {
        (nova, Tier.BACKGROUND, 2),
        (own, Tier.AUTO, 1),
    }
    assert not any(guest.touched or guest.tier or guest.pcpus for guest in driver.guests())
    for stranger in (other, wrong):
        before = machines.seen(stranger)
        with pytest.raises((NotFound, InvalidInput)):
            driver.place(stranger, Tier.BACKGROUND, [0])
        with pytest.raises((NotFound, InvalidInput)):
            driver.release(stranger)
        assert machines.seen(stranger) == before
    machines.stop(nova)
    assert found(driver, nova) is None
    with pytest.raises(NotFound):
        driver.place(nova, Tier.BACKGROUND, [0, 1])


def test_a_guest_is_placed_changed_found_by_the_next_process_and_released_as_it_was(machines, driver):
    instance = machines.start(BACKGROUND, vcpus=2)
    before = machines.seen(instance)
    with pytest.raises(Conflict):
        driver.set_tiers({instance: Tier.FOREGROUND})
    driver.release(instance)  # has no effect
    assert machines.seen(instance) == before

    driver.place(instance, Tier.BACKGROUND, [1, 0])
    driver.place(instance, Tier.BACKGROUND, [1, 0])
    assert machines.seen(instance) != before
    guest = found(driver, instance)
    assert (guest.tier, guest.pcpus, guest.touched, guest.wanted) == (Tier.BACKGROUND, (1, 0), True, Tier.BACKGROUND)

    with contextlib.closing(machines.new_driver()) as next_process:
        next_process.set_tiers({instance: Tier.FOREGROUND})
        assert (found(next_process, instance).tier, found(next_process, instance).pcpus) == (Tier.FOREGROUND, (1, 0))
        next_process.place(instance, Tier.FOREGROUND, [0, 1])
        next_process.place(instance, Tier.BACKGROUND, [0, 1])
        assert (found(next_process, instance).tier, found(next_process, instance).pcpus) == (Tier.BACKGROUND, (0, 1))
        next_process.release(instance)
    assert machines.seen(instance) == before
    guest = found(driver, instance)
    assert (guest.tier, guest.pcpus, guest.touched) == (None, (), False)


def test_two_guests_on_a_pcpu_swap_in_one_call(machines, driver):
    first, second = machines.start(FOREGROUND), machines.start(BACKGROUND)
    driver.place(first, Tier.FOREGROUND, [1])
    driver.place(second, Tier.BACKGROUND, [1])
    driver.set_tiers({first: Tier.BACKGROUND, second: Tier.FOREGROUND})
    assert (found(driver, first).tier, found(driver, second).tier) == (Tier.BACKGROUND, Tier.FOREGROUND)
    assert found(driver, first).pcpus == found(driver, second).pcpus == (1,)


def test_places_that_cannot_be_are_refused_and_change_nothing(machines, driver):
    instance = machines.start(FOREGROUND, vcpus=2)
    pins = "<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>"
    dedicated = machines.start(FOREGROUND, pins=pins)
    flavored = machines.start(FOREGROUND | {"hw:cpu_policy": "mixed"})
    before = [machines.seen(each) for each in (instance, dedicated, flavored)]
    for pcpus in ([0], [0, 0], [0, 1, 2], [0, 4000]):
        with pytest.raises(InvalidInput):
            driver.place(instance, Tier.FOREGROUND, pcpus)
    with pytest.raises(InvalidInput, match="expected one of foreground, background"):
        driver.place(instance, Tier.AUTO, [0, 1])
    for each in (dedicated, flavored):
        assert found(driver, each).dedicated
        with pytest.raises(InvalidInput, match="hw:cpu_policy"):
            driver.place(each, Tier.FOREGROUND, [0])
    assert [machines.seen(each) for each in (instance, dedicated, flavored)] == before


def test_cpu_time_is_told_per_vcpu_and_grows(machines, driver, until):
    instance = machines.start(FOREGROUND, vcpus=2)
    driver.place(instance, Tier.FOREGROUND, [0, 1])
    first = driver.cpu_times_s(instance)
    assert len(first) == 2

    def both_grew():
        return all(now_s > then_s for now_s, then_s in zip(driver.cpu_times_s(instance), first, strict=True))

    until(both_grew, "both vCPUs use CPU time")
    with pytest.raises(NotFound):
        driver.cpu_times_s("00000000-0000-0000-0000-000000000000")
