"""A pool with an online policy and a changing workload: it swaps accelerators as its simulator predicts."""

import time

import pytest

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.model.objects.pool import is_cpu
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace, uniform_pool
from support.online import LOAD_S, SLOT_S, SLOTS, Users, options, slots_of, write_catalogue


@pytest.fixture
def catalogue(tmp_path):
    return write_catalogue(tmp_path)


def simulated(catalogue, jobs, *, preloads):
    """Simulate the same arrivals; return the number of reconfigurations, and the last function of each slot."""
    loaded = load_catalogue(catalogue)
    pool = uniform_pool(loaded, loaded.board("small"), 1, 1)
    jobs = sorted(jobs, key=lambda job: job.created_at)
    begin_at = jobs[0].created_at
    trace = Trace(
        jobs=tuple(job.uuid for job in jobs),
        function=[pool.functions.index(job.function) for job in jobs],
        arrival_s=[job.created_at - begin_at for job in jobs],
        work_s=[SLOT_S] * len(jobs),
        patience_s=[SLOT_S] * len(jobs),
    )
    record = simulate(pool, trace, BenefitPlus(), interval_s=0.1, preloads=preloads).record
    loads = sorted(
        (begin_s, slot, -1 - job)
        for job, slot, begin_s in zip(record.job, record.slot, record.from_s, strict=True)
        if job < 0
    )
    held = {slot: pool.functions[function] for _, slot, function in loads}
    return record.reconfigurations, sorted(held.values())


@pytest.mark.parametrize(
    "ahead", [pytest.param(True, marks=pytest.mark.long, id="ahead"), pytest.param(False, id="for-jobs")]
)
def test_a_changing_mix_swaps_accelerators_as_the_simulator_predicts(
    make_pool, catalogue, end_and_audit_embedded, tmp_path, ahead
):
    pool = make_pool(options(catalogue, load_ahead=ahead))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # First there are jobs of little benefit for all slots, then more jobs of great benefit than the slots can run.
    for function, jobs in (("wordcount", 8), ("sha256", 14)):
        for _ in range(jobs):
            users.submit(function)
            time.sleep(0.25)
    users.wait()
    assert users.wrong() == []
    slots = slots_of(client)
    jobs = users.jobs()
    end_and_audit_embedded(pool)
    predicted, held = simulated(catalogue, jobs, preloads=ahead)
    loads = sum(slot.reconfigurations for slot in slots)
    took_s = max(job.finished_at for job in jobs) - min(job.created_at for job in jobs)
    on_cpu = sum(is_cpu(job.slot) for job in jobs)
    print(f"{loads} loads, simulated {predicted}; {len(jobs)} jobs in {took_s:.1f} s, {on_cpu} ended on a CPU")
    assert sorted(slot.function for slot in slots) == held == ["sha256", "sha256"]
    # Each load but a slot's first is for a job that no slot could take in time, so a slot is loaded again no sooner
    # than after a load and a job.
    assert loads <= SLOTS * (1 + took_s / (LOAD_S + SLOT_S))
    # At least one slot had another function before.  The first jobs need only one slot if they arrive slowly.
    assert loads > SLOTS
    assert abs(loads - predicted) <= SLOTS
