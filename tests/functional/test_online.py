"""A pool that runs an online policy on a changing mix: it swaps accelerators, and nothing is lost or done twice."""

import hashlib
import random
import threading
import time

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.model.objects.pool import JobState, SlotState, is_cpu
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace, uniform_pool

POLICY = "benefit_plus"
BYTES = 10_000
#: Seconds that a job of each function computes on a slot, and on a CPU.
SLOT_S = 0.4
CPU_S = {"bytecount": 0.8, "wordcount": 1.2, "sha256": 12.0}
LOAD_S = 0.1
SLOTS = 2
#: How long a slot keeps its function, where a policy holds it.
HOLD_S = 3.0

CATALOGUE = """format_version = 1

[boards.small]
slots = ["small", "small"]
configuration_bps = 8e6
dma_bps = 1e10
source = "test"
regions.small = {{bitstream_bytes = {load_bytes}}}
{functions}"""

FUNCTION = """
[functions.{name}]
version = "1.0"
slot_kinds = ["small"]
io_bps = 1e6
preemptible = true
progress_kept = true
cpu_time = {{a_s = 0.0, b_s_per_byte = {cpu_s_per_byte}}}
fpga_time.small = {{a_s = 0.0, b_s_per_byte = {slot_s_per_byte}}}
source = "test"
"""


@pytest.fixture
def catalogue(tmp_path):
    """A file: one card of two slots, which load in 0.1 s; speedups 2, 3 and 30."""
    functions = "".join(
        FUNCTION.format(name=name, cpu_s_per_byte=seconds / BYTES, slot_s_per_byte=SLOT_S / BYTES)
        for name, seconds in CPU_S.items()
    )
    path = tmp_path / "catalogue.toml"
    path.write_text(CATALOGUE.format(load_bytes=int(LOAD_S * 1e6), functions=functions))
    return path


class Users:
    """Jobs of known results, each a batch of its own, at given moments."""

    def __init__(self, client, directory, policy=POLICY):
        self._client, self._directory, self._policy = client, directory, policy
        self._rng = random.Random(5)
        self._threads = []
        self.payloads, self.results = {}, {}

    def submit(self, function, jobs=1, size=BYTES):
        name = f"{len(self._threads)}"
        self.payloads[name] = [self._rng.randbytes(size) for _ in range(jobs)]
        self._threads.append(threading.Thread(target=self._run, args=(name, function), daemon=True))
        self._threads[-1].start()

    def _run(self, name, function):
        specs = [JobSpec(function, data, "node-1") for data in self.payloads[name]]
        self.results[name] = self._client.run_jobs(specs, policy=self._policy, output_dir=self._directory / name)

    def wait(self, timeout_s=240.0):
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))

    def wrong(self):
        """Return what has no result, or another than it should have."""
        found = []
        for name, payloads in self.payloads.items():
            jobs = self.results[name].jobs if name in self.results else [None] * len(payloads)
            for data, job in zip(payloads, jobs, strict=True):
                if job is None or job.result is None or digest(job.result) != expected(job.job.function, data):
                    found.append((name, job))
        return found

    def jobs(self):
        return [outcome.job for result in self.results.values() for outcome in result.jobs]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def expected(function, data):
    result = {
        "sha256": lambda: hashlib.sha256(data).hexdigest().encode() + b"\n",
        "wordcount": lambda: b"%d\n" % len(data.split()),
        "bytecount": lambda: b"%d\n" % len(data),
    }[function]()
    return hashlib.sha256(result).hexdigest()


def simulated(catalogue, jobs, *, preloads):
    """Return what the simulator makes of the same arrivals: reconfigurations, and what the last of each slot loaded."""
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


def slots_of(client):
    return [slot for slot in client.slots() if not is_cpu(slot.name)]


def options(catalogue, **scheduler):
    return {
        "standalone": {"hosts": 1, "catalogue": catalogue},
        "functions": {"catalogue": catalogue},
        "driver_simulated": {"board": "small", "cards": 1},
        "scheduler": {"online_interval_s": 0.1} | scheduler,
        "agent": {"cpu_workers": 3, "hang_factor": 20.0},
    }


@pytest.mark.long
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "for-jobs"])
def test_a_changing_mix_swaps_accelerators_as_the_simulator_predicts(
    make_pool, catalogue, end_and_audit_embedded, tmp_path, ahead
):
    pool = make_pool(options(catalogue, load_ahead=ahead))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # First there is work of little benefit for all slots, then more of much benefit than they can do.
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
    # Each load but the first is for a job that no slot would take in time, so a slot is loaded again after a load and a
    # job at least.
    assert loads <= SLOTS * (1 + took_s / (LOAD_S + SLOT_S))
    # One at least had another function before; the first work, where it comes slowly, needs no more than one.
    assert loads > SLOTS
    assert abs(loads - predicted) <= SLOTS


def wait_for_slots(client, state, timeout_s=180.0):
    """Wait until all slots are in a state; return them."""
    until_s = time.monotonic() + timeout_s
    while True:
        slots = slots_of(client)
        if {slot.state for slot in slots} == {state}:
            return slots
        assert time.monotonic() < until_s, slots
        time.sleep(0.05)


def test_where_all_work_is_online_slots_load_before_the_first_job_once_and_it_starts_at_once(
    make_pool, catalogue, end_and_audit_embedded, tmp_path
):
    pool = make_pool(options(catalogue, default_policy=POLICY))
    client = pool.client()
    functions = {slot.function for slot in wait_for_slots(client, SlotState.READY)}
    # Nobody has asked for anything: what is most useful is there.
    assert "sha256" in functions
    users = Users(client, tmp_path / "out")
    users.submit("sha256")
    users.wait()
    time.sleep(1.0)
    slots = slots_of(client)
    assert users.wrong() == []
    assert [slot.reconfigurations for slot in slots] == [1] * SLOTS
    (job,) = end_and_audit_embedded(pool)
    assert job.start_s == 0.0


@pytest.mark.long
@pytest.mark.parametrize("policy", ["benefit", "throughput"])
def test_an_idle_slot_that_holds_another_function_is_loaded_again_after_the_hold(
    make_pool, catalogue, end_and_audit_embedded, tmp_path, policy
):
    wanted = options(catalogue, online_policy=policy, online_patience_s=60.0)
    pool = make_pool(wanted | {f"policy_{policy}": {"hold_s": HOLD_S}})
    client = pool.client()
    users = Users(client, tmp_path / "out", policy)
    users.submit("wordcount", jobs=2 * SLOTS)
    users.wait()
    held = {slot.name: slot for slot in slots_of(client)}
    assert {slot.function for slot in held.values()} == {"wordcount"}
    users.submit("sha256")
    users.wait()
    assert users.wrong() == []
    (job,) = (job for job in end_and_audit_embedded(pool) if job.function == "sha256")
    assert job.dispatched_at - held[job.slot].loaded_at >= HOLD_S - 1e-3  # shown in microseconds


def wait_for_computing(client, count, timeout_s=180.0):
    """Wait until so many jobs compute on slots."""
    until_s = time.monotonic() + timeout_s
    while True:
        jobs = [job for batch in client.batches() for job in client.jobs(batch.uuid, states=[JobState.RUNNING])]
        if sum(not is_cpu(job.slot) for job in jobs) == count:
            return
        assert time.monotonic() < until_s, jobs
        time.sleep(0.05)


@pytest.mark.long
def test_a_running_job_gives_its_slot_to_one_of_more_benefit_goes_on_elsewhere_and_is_done_once(
    make_pool, catalogue, end_and_audit_embedded, tmp_path
):
    pool = make_pool(options(catalogue))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # Both slots compute for 12 s, which a CPU takes 36 s for; a part is done when jobs of ten times the benefit arrive.
    users.submit("wordcount", SLOTS, size=30 * BYTES)
    wait_for_computing(client, SLOTS)
    time.sleep(2.0)
    users.submit("sha256", 2 * SLOTS)
    users.wait()
    assert users.wrong() == []
    jobs = end_and_audit_embedded(pool)
    assert len(jobs) == 3 * SLOTS
    evictions = dict.fromkeys((job.uuid for job in jobs if job.function == "wordcount"), 0)
    for job in jobs:
        # However often it left a place, it ended once.  (Of a long history the beginning is not kept.)
        history = [(entry.event, entry.before) for entry in job.history]
        events = [event for event, _ in history]
        left = history.count(("JobEvicted", JobState.RUNNING))
        print(f"{job.function}: left {left} places, ended on {job.slot} after {job.compute_s:.2f} s there")
        assert events.count("JobFinished") == 1
        assert job.attempt > left
        if job.uuid in evictions:
            evictions[job.uuid] = left
            # What it had done counted: at its last place it computed for less than it would have from the beginning.
            whole_s = 30 * (CPU_S["wordcount"] if is_cpu(job.slot) else SLOT_S)
            assert left == 0 or job.compute_s < whole_s
    assert any(evictions.values())


@pytest.mark.long
def test_an_agent_that_is_killed_amid_evictions_loses_nothing_and_doubles_nothing(
    deployment, rabbitmq, mariadb_url, catalogue, end_and_audit, tmp_path
):
    pool = deployment(rabbitmq.url, mariadb_url, agents=1, options=options(catalogue))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # Each takes 6 s on a slot, where others come that gain more.
    users.submit("bytecount", 6, size=15 * BYTES)
    wait_for_computing(client, SLOTS)
    users.submit("sha256", 6)
    time.sleep(0.8)
    pool.kill("node-1")
    users.submit("wordcount", 3)
    pool.restart("node-1")
    users.wait()
    assert users.wrong() == []
    jobs = end_and_audit(pool, mariadb_url)
    assert len(jobs) == 15
    events = [entry.event for job in jobs for entry in job.history]
    print(
        {event: events.count(event) for event in sorted(set(events))},
        [(job.function, job.slot, job.attempt) for job in jobs],
    )
    assert any(job.attempt > 1 for job in jobs)
