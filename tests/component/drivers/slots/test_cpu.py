"""CPU workers of a host (`drivers.slots.cpu`)."""

import hashlib
import time

import pytest

from fpga_pool.drivers.slots.base import RunStopped, SlotAddress
from fpga_pool.drivers.slots.cpu import CpuWorkers
from fpga_pool.model.exceptions import BitstreamRefused, Conflict, InvalidInput, NotFound

WORKER = SlotAddress("cpu", "worker0")


@pytest.fixture
def slow(make_catalogue):
    """Return a catalogue: wordcount takes 300 s of CPU time for 1000 bytes, and sha256 almost none."""
    entry = {"version": "1.0", "slot_kinds": ["small"], "io_bps": 8e6, "preemptible": True, "source": "test"}
    entry["fpga_time"] = {"fast": {"a_s": 0.01, "b_s_per_byte": 1e-9}}
    slow = entry | {"cpu_time": {"a_s": 0, "b_s_per_byte": 0.3}}
    quick = entry | {"cpu_time": {"a_s": 0, "b_s_per_byte": 1e-9}}
    return make_catalogue({"wordcount": slow, "sha256": quick}, slots=["small", "large"], load_s=0.001)


@pytest.fixture
def cpu(slow):
    return CpuWorkers(slow, 2, paced=True)


def run(cpu, files, function="sha256", worker=WORKER, **options):
    return cpu.run(worker, function, files.input_bytes, files.source, files.sink, "p", **options)


def busy(cpu, worker=WORKER):
    return cpu.state(worker).state.value == "BUSY"


def test_its_workers_are_one_card_and_none_are_none(cpu, slow):
    (card,) = cpu.inventory()
    assert (card.serial, card.board) == ("cpu", "cpu")
    assert [(worker.region, worker.kind) for worker in card.slots] == [("worker0", "cpu"), ("worker1", "cpu")]
    assert CpuWorkers(slow, 0, paced=True).inventory() == []
    with pytest.raises(InvalidInput, match="cpu_workers"):
        CpuWorkers(slow, -1, paced=True)


def test_it_computes_what_the_accelerator_would_and_needs_nothing_loaded(cpu, files):
    run(cpu, files)
    assert files.sink.read_text() == hashlib.sha256(files.source.read_bytes()).hexdigest() + "\n"
    with pytest.raises(BitstreamRefused):
        cpu.load(WORKER, None)


def test_a_paced_job_takes_the_time_of_the_catalogue_until_it_is_stopped(cpu, files, in_background, until):
    job = in_background(run, cpu, files, "wordcount")
    until(lambda: busy(cpu))
    with pytest.raises(Conflict):
        run(cpu, files)
    run(cpu, files, worker=SlotAddress("cpu", "worker1"))
    assert 0 <= cpu.progress(WORKER) < 0.5
    cpu.stop(WORKER)
    with pytest.raises(RunStopped):
        job.result(timeout=60)
    assert not busy(cpu)


def test_work_that_is_done_is_not_done_again(cpu, files, in_background, until):
    # All but 1e-6 of the 300 s is done: 0.3 ms are left.
    began_s = time.monotonic()
    run(cpu, files, "wordcount", done=1 - 1e-6)
    assert time.monotonic() - began_s < 150
    job = in_background(run, cpu, files, "wordcount", done=0.5)
    until(lambda: busy(cpu))
    assert 0.5 <= cpu.progress(WORKER) < 1
    cpu.stop(WORKER)
    with pytest.raises(RunStopped):
        job.result(timeout=60)


def test_without_pace_a_job_takes_as_long_as_the_software(slow, files):
    cpu = CpuWorkers(slow, 1, paced=False)
    assert run(cpu, files, "wordcount").seconds < 150
    assert cpu.progress(WORKER) == 0


def test_what_is_no_worker_is_not_found(cpu, files):
    with pytest.raises(NotFound, match="cpu/worker9"):
        run(cpu, files, worker=SlotAddress("cpu", "worker9"))
    files.input_bytes = 999
    with pytest.raises(InvalidInput, match="expected 999 bytes as announced, found 1000"):
        run(cpu, files)
