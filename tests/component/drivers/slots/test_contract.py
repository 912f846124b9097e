"""The contract of all slot drivers (`SlotDriver`), tested on all drivers of the entry-point group."""

import hashlib
import re
from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from fpga_pool.drivers.slots.base import RunStopped, SlotAddress, SlotDriver
from fpga_pool.model.exceptions import BitstreamRefused, Conflict, InvalidInput, NotFound
from fpga_pool.model.objects.pool import SlotState

DRIVERS = sorted(point.name for point in entry_points(group="fpga_pool.slot_drivers"))


@pytest.fixture(params=DRIVERS)
def driver(request):
    """Return a driver from the fixture of its name. `inventory` lists its slots."""
    return request.getfixturevalue(request.param)()


@pytest.fixture
def small(driver):
    return next(
        SlotAddress(card.serial, slot.region)
        for card in driver.inventory()
        for slot in card.slots
        if slot.kind == "small"
    )


def run(driver, slot, files, function="sha256", project="p1"):
    return driver.run(slot, function, files.input_bytes, files.source, files.sink, project)


def test_drivers_are_registered_by_their_class():
    assert "simulated" in DRIVERS
    assert all(issubclass(point.load(), SlotDriver) for point in entry_points(group="fpga_pool.slot_drivers"))


def test_inventory_names_each_slot_once_and_stays_the_same(driver):
    cards = driver.inventory()
    addresses = [(card.serial, slot.region) for card in cards for slot in card.slots]
    assert addresses
    assert len(set(addresses)) == len(addresses)
    assert all(card.present for card in cards)
    assert driver.inventory() == cards


def test_a_slot_that_guests_drive_has_an_address_of_its_own(driver):
    slots = [SlotAddress(card.serial, slot.region) for card in driver.inventory() for slot in card.slots]
    addresses = [address for address in map(driver.virtual_function, slots) if address]
    assert all(re.fullmatch("[0-9a-f]{4}(:[0-9a-f]{2}){2}[.][0-7]", address) for address in addresses)
    assert len(set(addresses)) == len(addresses)
    assert [address for address in map(driver.virtual_function, slots) if address] == addresses


def test_slots_start_empty(driver):
    for card in driver.inventory():
        for slot in card.slots:
            assert driver.state(SlotAddress(card.serial, slot.region)).state is SlotState.EMPTY


def test_a_loaded_slot_is_ready_and_computes(driver, small, build, files):
    driver.load(small, build("sha256"))
    assert (driver.state(small).state, driver.state(small).function) == (SlotState.READY, "sha256")
    result = run(driver, small, files)
    assert files.sink.read_text() == hashlib.sha256(files.source.read_bytes()).hexdigest() + "\n"
    assert result.seconds > 0
    assert driver.state(small).state is SlotState.READY


def test_a_slot_can_be_loaded_again(driver, small, build):
    driver.load(small, build("sha256"))
    driver.load(small, build("aes"))
    assert driver.state(small).function == "aes"


def test_refused_bitstreams_leave_the_slot_as_it_was(driver, small, build):
    driver.load(small, build("sha256"))
    good = build("aes")
    unsigned = replace(good, signature=b"")
    altered = replace(good, payload=bytes(len(good.payload)))
    for_another_kind = build("aes", "large")
    for wrong in (unsigned, altered, for_another_kind):
        with pytest.raises(BitstreamRefused):
            driver.load(small, wrong)
        assert driver.state(small).function == "sha256"


def test_a_slot_that_holds_another_function_refuses_to_run(driver, small, build, files):
    with pytest.raises(Conflict, match="EMPTY with nothing, expected READY with sha256"):
        run(driver, small, files)
    driver.load(small, build("aes"))
    with pytest.raises(Conflict, match="READY with aes, expected READY with sha256"):
        run(driver, small, files)


def test_a_bad_input_leaves_the_slot_ready_and_no_result(driver, small, build, files):
    driver.load(small, build("aes"))
    files.source.write_bytes(bytes(10))
    with pytest.raises(InvalidInput, match="key"):
        driver.run(small, "aes", 10, files.source, files.sink, "p1")
    assert driver.state(small).state is SlotState.READY
    assert not files.sink.exists()


def test_an_input_of_another_size_than_announced_is_refused(driver, small, build, files):
    driver.load(small, build("sha256"))
    with pytest.raises(InvalidInput, match="expected 999 bytes as announced, found 1000"):
        driver.run(small, "sha256", 999, files.source, files.sink, "p1")


def test_stop_ends_a_job_and_leaves_the_slot_ready(driver, small, build, files, in_background, until_busy):
    driver.load(small, build("wordcount"))
    job = in_background(run, driver, small, files, "wordcount")
    until_busy(driver, small)
    driver.stop(small)
    with pytest.raises(RunStopped):
        job.result(timeout=60)
    assert driver.state(small).state is SlotState.READY
    assert not files.sink.exists()


def test_stop_without_a_job_does_nothing(driver, small, build, files):
    driver.load(small, build("sha256"))
    driver.stop(small)
    run(driver, small, files)


def test_a_slot_does_one_thing_at_a_time(driver, small, build, files, in_background, until_busy):
    driver.load(small, build("wordcount"))
    job = in_background(run, driver, small, files, "wordcount")
    until_busy(driver, small)
    with pytest.raises(Conflict):
        run(driver, small, files, "wordcount")
    with pytest.raises(Conflict):
        driver.load(small, build("sha256"))
    with pytest.raises(Conflict):
        driver.scrub(small)
    driver.stop(small)
    with pytest.raises(RunStopped):
        job.result(timeout=60)


def test_memory_is_scrubbed_between_projects(driver, small, build, files):
    driver.load(small, build("sha256"))
    run(driver, small, files, project="p1")
    run(driver, small, files, project="p1")
    driver.load(small, build("sha256"))
    with pytest.raises(Conflict, match="data of another project"):
        run(driver, small, files, project="p2")
    driver.scrub(small)
    run(driver, small, files, project="p2")


def test_unknown_slots_are_not_found(driver, build):
    nowhere = SlotAddress("none", "slot0")
    for call in (driver.state, driver.stop, driver.scrub, lambda slot: driver.load(slot, build("sha256"))):
        with pytest.raises(NotFound, match="none/slot0"):
            call(nowhere)
