"""The fast simulator of online jobs, with the rules of a pool, decides as the live pool does, faults included."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fpga_pool.conf.policies import policy_as, policy_names
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.benefit.live import PoolRules, simulate
from fpga_pool.sim.benefit.trace import Cancel, Drain, Failure, HostLoss, Outage, Trace, uniform_pool

from .online_pool import LivePool, host_name

#: Hundreds of traces take minutes.
pytestmark = pytest.mark.timeout(1800)

#: Policies with parameters that differ from their defaults.
OPTIONS = ["benefit:hold_s=0", "throughput:hold_s=1", "benefit_plus:loads_ahead=1,catch_up=1"]
JOBS, FUNCTIONS = 60, "abcd"
#: Times are multiples of this, and rates in bytes/s multiples of its inverse, so that sums are exact in any order.
TICK_S = 2.0**-20
INTERVAL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pool, its work and its faults."""

    catalogue: Catalogue
    pool: object
    slot_names: list
    slot_kinds: list
    trace: Trace
    input_bytes: np.ndarray
    settings: PoolSettings
    cpu_host: str
    cpu_workers: int
    faults: list


def ticks(seconds):
    return np.round(np.asarray(seconds) / TICK_S) * TICK_S


def random_case(seed):
    """Return a small overloaded pool, sometimes with many slots or workers out of service.

    The progress of a job is kept on its host only: if functions keep progress, there is one host, and its slots fail
    one by one.
    """
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(1, 4))
    cards, per_card = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    kinds = rng.choice(["small", "large"], per_card).tolist()
    catalogue = random_catalogue(rng, kinds, keeps=hosts == 1)
    pool = uniform_pool(catalogue, catalogue.boards["fast"], hosts, cards)
    names = [f"{host_name(h)}/c{c}/s{s}" for h in range(hosts) for c in range(cards) for s in range(per_card)]
    patience_s = float(rng.choice([0.0, 0.5, 2.0, 20.0]))
    work_s = ticks(rng.choice([0.3, 1.0, 3.0], JOBS) * rng.uniform(0.5, 1.5, JOBS))
    trace = Trace(
        jobs=tuple(f"j{number}" for number in range(JOBS)), function=rng.integers(0, len(FUNCTIONS), JOBS),
        arrival_s=ticks(np.cumsum(rng.exponential(rng.uniform(0.5, 2.0) / pool.slots, JOBS))), work_s=work_s,
        patience_s=np.full(JOBS, patience_s) if patience_s else work_s,
        project=tuple(rng.choice(["p", "q"], JOBS).tolist()),
    )  # fmt: skip
    settings = PoolSettings(
        online_patience_s=patience_s, tenant_share=float(rng.choice([1.0, 0.5])), load_ahead=bool(rng.random() < 0.7)
    )
    return Case(
        catalogue=catalogue, pool=pool, slot_names=names, slot_kinds=kinds * (hosts * cards), trace=trace,
        input_bytes=np.round(work_s / TICK_S), settings=settings, cpu_host=host_name(0) if hosts == 1 else "z",
        cpu_workers=int(rng.choice([1, 3, JOBS])), faults=random_faults(rng, hosts, pool.slots, trace.last_arrival_s),
    )  # fmt: skip


def random_catalogue(rng, kinds, *, keeps):
    there = sorted(set(kinds))

    def function():
        fitting = [kind for kind in there if rng.random() < 0.8] or [str(rng.choice(there))]
        return {
            "version": "1", "slot_kinds": fitting, "io_bps": float(rng.integers(1, 9)) * 2**27,
            "preemptible": bool(rng.random() < 0.6), "progress_kept": keeps and bool(rng.random() < 0.7),
            "cpu_time": {"a_s": 0, "b_s_per_byte": float(rng.integers(8, 80)) / 4 * TICK_S},
            "fpga_time": {"fast": {"a_s": 0, "b_s_per_byte": TICK_S}}, "source": "test",
        }  # fmt: skip

    regions = {kind: {"bitstream_bytes": int(rng.choice([0.0625, 0.5, 2.0]) * 2**20)} for kind in there}
    board = {
        "slots": kinds, "regions": regions, "configuration_bps": 8 * 2**20, "dma_bps": 2**34, "source": "test",
    }  # fmt: skip
    functions = {name: function() for name in FUNCTIONS}
    return Catalogue.from_mapping({"format_version": 1, "functions": functions, "boards": {"fast": board}}, "test")


def random_faults(rng, hosts, slots, end_s):
    """Return outages of slots, drains and lost hosts, at most one per slot, failing computations and cancellations."""
    faults = [Failure(at_s=rng.uniform(0, end_s), slot=int(rng.integers(slots))) for _ in range(rng.integers(0, 8))]
    faults += [
        Cancel(at_s=rng.uniform(end_s / 2, end_s * 1.2), job=int(job))
        for job in rng.choice(JOBS // 2, 6, replace=False)
    ]
    per_host = slots // hosts
    for host in range(hosts):
        own = range(host * per_host, (host + 1) * per_host)
        if hosts > 1 and rng.random() < 0.3:
            faults.append(HostLoss(**span(rng, end_s), slots=own))
            continue
        for slot in own:
            match rng.integers(0, 4):
                case 0:
                    faults.append(Outage(**span(rng, end_s), slots=[slot]))
                case 1:
                    faults.append(Drain(**span(rng, end_s), slot=slot))
    return faults


def span(rng, end_s):
    begin_s = rng.uniform(0, end_s)
    return {"begin_s": begin_s, "end_s": begin_s + rng.exponential(end_s / 4)}


def difference(name, case):
    """Return the first difference, or None, the number of expected decisions, and these decisions."""
    expected = []
    rules = PoolRules(settings=case.settings, cpu_workers=case.cpu_workers, faults=case.faults, watch=expected.append)
    simulate(case.pool, case.trace, policy_as("online", name), interval_s=INTERVAL_S, rules=rules)
    live = LivePool(policy_as("online", name), case, case.settings, case.faults).run(INTERVAL_S)
    for number, (said, (at_s, moves)) in enumerate(zip(expected, live, strict=False)):
        if said.moves != moves or not math.isclose(said.at_s, at_s, rel_tol=1e-9):
            return (number, said, (at_s, moves)), len(expected), expected
    if len(expected) != len(live):
        number = min(len(expected), len(live))
        return (number, expected[number:][:1], live[number:][:1]), len(expected), expected
    return None, len(expected), expected


@pytest.mark.parametrize("name", [*policy_names("online"), *OPTIONS])
def test_the_fast_simulator_decides_as_the_live_rules_do(name, traces):
    kinds = set()
    for seed in range(1, traces + 1):  # seeds 1 and 2 together produce all kinds of moves
        found, _, decisions = difference(name, random_case(seed))
        assert found is None, f"seed {seed}"
        kinds |= {what for decision in decisions for what, _, _ in decision.moves}
    assert {"start", "load", "cpu", "call back"} <= kinds
