import threading
import time
from dataclasses import replace

import pytest
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts
from fpga_pool.core.lattice.topology import Topology
from fpga_pool.drivers.slots.base import RunStopped, SlotAddress
from fpga_pool.drivers.slots.faults import Faults
from fpga_pool.drivers.slots.simulated import SimulatedSlots
from fpga_pool.model.exceptions import BitstreamRefused, InvalidInput, NotFound, SlotFault
from fpga_pool.model.objects.links import ALONE, CardLinks
from fpga_pool.model.objects.pool import SlotState


def run(driver, slot, files, function="sha256"):
    return driver.run(slot, function, files.input_bytes, files.source, files.sink, "p1")


def test_cards_have_three_equal_slots_and_a_larger_one(simulated):
    cards = simulated(cards=2).inventory()
    assert [card.serial for card in cards] == ["sim0", "sim1"]
    assert [slot.kind for slot in cards[0].slots] == ["small", "small", "small", "large"]


@pytest.fixture
def configured(catalogue, signing_key, tmp_path):
    """Return a function that makes the driver of a host with four cards from the agent's configuration."""

    def configured(text):
        path = tmp_path / "fpga_pool.conf"
        path.write_text(f"[driver_simulated]\nboard = fast\ncards = 4\n[agent]\n{text}")
        conf = cfg.ConfigOpts()
        register_opts(conf)
        conf(["--config-file", str(path)], project="fpga_pool")
        return SimulatedSlots.from_conf(conf, catalogue, signing_key.public_key())

    return configured


def test_cards_say_how_they_are_linked_as_the_agent_is_configured(configured):
    driver = configured("enclosure = box ring sim3,sim0\nenclosure = pair full sim1\nslot_links = line")
    links = {card.serial: card.links for card in driver.inventory()}
    ring = CardLinks(enclosure="box", topology=Topology.RING, cards=2, slots=Topology.LINE)
    assert links["sim3"] == ring
    assert links["sim0"] == replace(ring, position=1)
    assert links["sim2"] == CardLinks(slots=Topology.LINE)
    assert all(card.links == ALONE for card in configured("").inventory())


def test_an_enclosure_of_a_card_that_there_is_not_is_refused(configured):
    with pytest.raises(InvalidInput) as refused:
        configured("enclosure = box ring sim0,sim4")
    assert str(refused.value) == ("[agent] enclosure: enclosure box: no card 'sim4'; available: sim0, sim1, sim2, sim3")


def test_a_negative_number_of_cards_is_refused(simulated):
    with pytest.raises(InvalidInput, match="cards must be >= 0, found -1"):
        simulated(cards=-1)


def test_a_run_is_never_shorter_than_its_time_model(simulated, slot, build, files):
    driver = simulated()
    driver.load(slot, build("sha256"))
    # 10 ms + 1000 bytes * 1 ns/byte
    assert run(driver, slot, files).seconds >= 0.010001


def test_software_slower_than_the_model_is_told(simulated, slot, build, files):
    def slow(source, sink):
        threading.Event().wait(0.05)
        sink.touch()

    driver = simulated(models=lambda name: slow)
    driver.load(slot, build("sha256"))
    assert run(driver, slot, files).seconds >= 0.05


def test_a_function_the_catalogue_does_not_know_is_refused(simulated, slot, build, catalogue):
    known = build("sha256")
    with pytest.raises(BitstreamRefused, match="'md5' is not in the catalogue"):
        simulated().load(slot, replace(known, manifest=replace(known.manifest, function="md5")))


def test_a_load_waits_for_the_configuration_port_of_its_card(catalogue, signing_key, build, in_background):
    # 4000 bytes at 320 kbit/s take 0.1 s. The three loads are sequential.
    slow = replace(catalogue.board("fast"), configuration_bps=3.2e5)
    driver = SimulatedSlots(replace(catalogue, boards={"fast": slow}), "fast", 1, signing_key.public_key())
    slots = [SlotAddress("sim0", f"slot{i}") for i in range(3)]
    began_s = time.monotonic()
    for load in [in_background(driver.load, slot, build("sha256")) for slot in slots]:
        load.result(timeout=60)
    assert time.monotonic() - began_s >= 0.3
    assert {driver.state(slot).state for slot in slots} == {SlotState.READY}


@pytest.mark.parametrize(("dma_bps", "cost"), [(8e6, 0.0), (1e12, 1.0)])
def test_a_job_slows_down_while_another_uses_the_dma_or_where_neighbours_cost(
    catalogue, signing_key, build, files, tmp_path, slot, in_background, until_busy, dma_bps, cost
):
    # Both functions demand 8 Mbit/s, the whole DMA bandwidth of the first card. On the other, neighbours cost as much.
    board = replace(catalogue.board("fast"), dma_bps=dma_bps)
    driver = SimulatedSlots(
        replace(catalogue, boards={"fast": board}), "fast", 1, signing_key.public_key(), neighbour_cost=cost
    )
    other = SlotAddress("sim0", "slot1")
    driver.load(other, build("wordcount"))
    driver.load(slot, build("sha256"))
    hog = in_background(driver.run, other, "wordcount", 1000, files.source, tmp_path / "words", "p1")
    until_busy(driver, other)
    # half speed: 2 * (10 ms + 1000 bytes * 1 ns/byte)
    assert run(driver, slot, files).seconds >= 2 * 0.010001
    driver.stop(other)
    with pytest.raises(RunStopped):
        hog.result(timeout=60)


def test_slot_memory_keeps_a_remnant_of_the_input_until_it_is_scrubbed(simulated, slot, build, files):
    driver = simulated()
    driver.load(slot, build("sha256"))
    run(driver, slot, files)
    assert driver.memory(slot).startswith(files.source.read_bytes())
    driver.scrub(slot)
    assert not any(driver.memory(slot))


def test_a_failed_load_leaves_the_slot_faulted_until_it_is_loaded_again(simulated, slot, build, files):
    driver = simulated()
    driver.fail_next_load(slot)
    with pytest.raises(SlotFault, match="sim0/slot0: loading sha256 failed"):
        driver.load(slot, build("sha256"))
    assert driver.state(slot).state is SlotState.FAULTED
    driver.load(slot, build("sha256"))
    run(driver, slot, files)


def test_a_hung_job_ends_only_when_it_is_stopped_and_leaves_the_slot_faulted(
    simulated, slot, build, files, in_background, until_busy
):
    driver = simulated()
    driver.load(slot, build("sha256"))
    driver.hang_next_run(slot)
    job = in_background(run, driver, slot, files)
    until_busy(driver, slot)
    # The job would take 10 ms, and still runs after 50 ms.
    with pytest.raises(TimeoutError):
        job.result(timeout=0.05)
    driver.stop(slot)
    with pytest.raises(SlotFault, match="hung") as error:
        job.result(timeout=60)
    assert not isinstance(error.value, RunStopped)
    assert driver.state(slot).state is SlotState.FAULTED
    assert not files.sink.exists()


def test_a_card_that_disappears_fails_its_jobs_and_comes_back_empty(
    simulated, slot, build, files, in_background, until_busy
):
    driver = simulated(cards=2)
    driver.load(slot, build("wordcount"))
    job = in_background(run, driver, slot, files, "wordcount")
    until_busy(driver, slot)
    driver.remove_card("sim0")
    with pytest.raises(SlotFault, match="does not answer"):
        job.result(timeout=60)
    assert [card.present for card in driver.inventory()] == [False, True]
    assert driver.state(slot).state is SlotState.FAULTED
    for call in (lambda: driver.load(slot, build("sha256")), lambda: run(driver, slot, files)):
        with pytest.raises(SlotFault, match="does not answer"):
            call()
    driver.restore_card("sim0")
    assert driver.inventory()[0].present
    assert driver.state(slot).state is SlotState.EMPTY
    assert not any(driver.memory(slot))


def test_a_lost_run_does_not_touch_the_slot_of_a_card_that_is_back(simulated, slot, build, files, in_background):
    begun, go_on = threading.Event(), threading.Event()

    def held_up(source, sink):
        begun.set()
        go_on.wait(60)
        sink.touch()

    driver = simulated(models=lambda name: held_up)
    driver.load(slot, build("sha256"))
    lost = in_background(run, driver, slot, files)
    begun.wait(60)
    driver.remove_card("sim0")
    driver.restore_card("sim0")
    driver.load(slot, build("aes"))
    go_on.set()
    with pytest.raises(SlotFault):
        lost.result(timeout=60)
    assert (driver.state(slot).state, driver.state(slot).function) == (SlotState.READY, "aes")


def test_a_card_can_disappear_in_the_middle_of_a_run_and_return(simulated, slot, build, files, until):
    driver = simulated(faults=Faults(card_disappears=1.0, card_returns_after_s=0.01))
    driver.load(slot, build("sha256"))
    with pytest.raises(SlotFault, match="does not answer"):
        run(driver, slot, files)
    until(lambda: driver.inventory()[0].present)
    assert driver.state(slot).state is SlotState.EMPTY


def outcomes(driver, slot, build, files):
    """Return the outcomes of 30 loads and runs of one slot."""
    seen = []
    for _ in range(30):
        try:
            driver.load(slot, build("sha256"))
        except SlotFault:
            seen.append("load")
            continue
        try:
            run(driver, slot, files)
        except SlotFault:
            seen.append("run")
            continue
        seen.append("done")
    return seen


def test_faults_are_the_same_for_the_same_seed(simulated, slot, build, files):
    def of(seed):
        faults = Faults(load_fails=0.3, card_disappears=0.3, card_returns_after_s=0.0, seed=seed)
        return outcomes(simulated(faults=faults), slot, build, files)

    first = of(1)
    assert set(first) == {"load", "run", "done"}
    assert of(1) == first
    assert of(2) != first


@pytest.mark.parametrize(
    ("option", "value"),
    [("load_fails", 1.1), ("job_hangs", -0.1), ("card_returns_after_s", float("inf")), ("seed", -1)],
)
def test_faults_that_cannot_be_are_refused(option, value):
    with pytest.raises(InvalidInput, match=f"faults.{option} must be"):
        Faults(**{option: value})


def test_many_jobs_on_all_slots_at_once_all_end_right(simulated, build, files, tmp_path, in_background):
    driver = simulated(cards=2)

    def work(slot):
        driver.load(slot, build("sha256", driver_kind[slot]))
        for i in range(5):
            sink = tmp_path / f"{slot.card}-{slot.region}-{i}"
            driver.run(slot, "sha256", files.input_bytes, files.source, sink, "p1")
            yield sink.read_text()

    driver_kind = {
        SlotAddress(card.serial, entry.region): entry.kind for card in driver.inventory() for entry in card.slots
    }
    jobs = [in_background(lambda slot=slot: list(work(slot))) for slot in driver_kind]
    results = {result for job in jobs for result in job.result(timeout=60)}
    assert len(results) == 1


def test_a_job_of_which_a_share_is_done_has_only_the_rest_to_do(simulated, build, files, slot, in_background, until):
    driver = simulated()
    driver.load(slot, build("wordcount"))
    arguments = (slot, "wordcount", files.input_bytes, files.source, files.sink, "p1")
    job = in_background(driver.run, *arguments, 0.5)
    until(lambda: driver.state(slot).state is SlotState.BUSY)
    until(lambda: driver.progress(slot) >= 0.5)
    assert driver.progress(slot) < 0.75
    driver.stop(slot)
    with pytest.raises(RunStopped):
        job.result(timeout=60)
    # All but 1e-6 of the 300 s is done: 0.3 ms are left.
    assert driver.run(*arguments, 1 - 1e-6).seconds < 150


def test_virtual_functions_are_told_where_they_are_configured(configured, simulated, slot):
    passing = configured("[driver_simulated]\nvirtual_functions = true")
    # The second card is bus 1, and its third slot is function 2.
    assert passing.virtual_function(SlotAddress("sim1", "slot2")) == "ffff:01:00.2"
    with pytest.raises(NotFound):
        passing.virtual_function(SlotAddress("sim9", "slot0"))
    assert simulated().virtual_function(slot) == ""
    cards = simulated(cards=2, virtual_functions=True)
    slots = [SlotAddress(card.serial, each.region) for card in cards.inventory() for each in card.slots]
    assert len({cards.virtual_function(each) for each in slots}) == len(slots) == 8
