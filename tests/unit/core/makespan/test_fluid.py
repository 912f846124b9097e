import numpy as np
import pytest

from fpga_pool.core.makespan.fluid import FluidNetwork, moves_over_network, transmit
from fpga_pool.core.types import BatchProblem


def network(egress_bps, ingress_bps, flows):
    return FluidNetwork(np.array(egress_bps, float), np.array(ingress_bps, float), flows)


def add(fluid, flow, requester, responder, bits):
    fluid.add(np.array([flow]), np.array([requester]), np.array([responder]), np.array([float(bits)]))


def test_higher_priority_takes_all_and_lower_follows():
    # 100 bits each over one link at 10 bps: the first flow until 10 s, the second one from then until 20 s.
    fluid = network([10], [10], 2)
    add(fluid, 0, 0, 0, 100)
    add(fluid, 1, 0, 0, 100)
    assert fluid.next_s() == 10.0
    assert fluid.advance(10.0).tolist() == [0]
    assert fluid.next_s() == 20.0
    assert fluid.advance(20.0).tolist() == [1]
    pieces = fluid.segments()
    assert list(zip(pieces.flow, pieces.begin_s, pieces.end_s, pieces.bps, strict=True)) == [
        (0, 0.0, 10.0, 10.0),
        (1, 10.0, 20.0, 10.0),
    ]


def test_flow_that_arrives_later_with_higher_priority_interrupts():
    # Flow 1 runs alone until 4 s (40 bits).  Flow 0 needs 30 bits, 4..7 s.  Flow 1 ends its other 60 bits at 13 s.
    fluid = network([10, 10], [10], 2)
    add(fluid, 1, 0, 0, 100)
    fluid.advance(4.0)
    add(fluid, 0, 1, 0, 30)
    ended_s = []
    while np.isfinite(fluid.next_s()):
        fluid.advance(fluid.next_s())
        ended_s.append(fluid.now_s)
    assert ended_s == [7.0, 13.0]
    assert fluid.segments().begin_s.tolist() == [4.0, 0.0, 7.0]


def test_flow_of_lower_priority_uses_what_the_other_link_leaves():
    # Flow 0 is limited to 4 bps by its egress; flow 1 gets the other 6 bps of the ingress.
    fluid = network([4, 100], [10], 2)
    add(fluid, 0, 0, 0, 40)
    add(fluid, 1, 1, 0, 60)
    assert fluid.advance(fluid.next_s()).tolist() == [0, 1]
    assert fluid.now_s == 10.0
    assert fluid.segments().bps.tolist() == [4.0, 6.0]


def test_end_of_another_flow_does_not_cut_a_flow_whose_rate_stays():
    fluid = network([4, 6], [10], 2)
    add(fluid, 0, 0, 0, 4)
    add(fluid, 1, 1, 0, 60)
    while np.isfinite(fluid.next_s()):
        fluid.advance(fluid.next_s())
    assert fluid.segments().flow.tolist() == [0, 1]


def test_time_never_skips_the_end_of_a_flow():
    fluid = network([10], [10], 1)
    add(fluid, 0, 0, 0, 100)
    with pytest.raises(ValueError, match="to_s"):
        fluid.advance(11.0)


def test_one_unlimited_side_leaves_the_other_to_decide():
    fluid = network([np.inf, np.inf], [10], 2)
    add(fluid, 0, 0, 0, 10)
    add(fluid, 1, 1, 0, 10)
    fluid.advance(fluid.next_s())
    assert fluid.next_s() == 2.0


def test_short_transfer_late_on_the_clock_still_carries_its_bytes():
    # At 1e9 s the clock has a resolution of 1.2e-7 s, and the transfer takes 1e-9 s.
    fluid = network([1e12], [1e12], 1)
    fluid.advance(1e9)
    add(fluid, 0, 0, 0, 1000)
    fluid.advance(fluid.next_s())
    pieces = fluid.segments()
    assert pieces.bps * (pieces.end_s - pieces.begin_s) == pytest.approx([1000.0])


def problem(**changes) -> BatchProblem:
    arrays = {
        "seconds": np.zeros((3, 2)), "input_bytes": [125, 125, 125], "requester": [0, 0, 1],
        "egress_bps": [1000.0, np.inf], "responder": [0, 1], "ingress_bps": [1000.0, np.inf],
    }  # fmt: skip
    return BatchProblem(**(arrays | changes))


def test_nothing_moves_without_bytes_or_limits_or_on_one_host():
    accelerator = np.array([0, 1, 1])
    assert moves_over_network(problem(), accelerator).tolist() == [True, True, False]
    assert moves_over_network(problem(input_bytes=[0, 1, 1]), accelerator).tolist() == [False, True, False]
    assert moves_over_network(problem(local_host=[1, -1]), accelerator).tolist() == [True, False, False]


def test_transmit_starts_each_input_at_its_release():
    # 1000 bits at 1000 bps.  Job 1 is released at 0.5 s and has the higher priority: 0.5..1.5 s.  Job 0 sends 0..0.5 s
    # and 1.5..2 s.  Job 2 needs no time and arrives at its release.
    moved = transmit(problem(release_s=[0.0, 0.5, 0.25]), np.array([0, 0, 1]), np.array([2, 1, 0]))
    assert moved.arrived_s == pytest.approx([2.0, 1.5, 0.25])
    assert moved.segments.flow.tolist() == [0, 0, 1]
    assert moved.segments.begin_s == pytest.approx([0.0, 1.5, 0.5])
    assert moved.segments.end_s == pytest.approx([0.5, 2.0, 1.5])


@pytest.mark.parametrize("seed", range(5))
def test_rates_are_those_of_strict_priority_at_every_time(seed):
    # Compared with the definition, flow by flow: the minimum of the remaining egress and the remaining ingress.
    rng = np.random.default_rng(seed)
    jobs, requesters, responders = 40, 5, 4
    batch = BatchProblem(
        seconds=np.zeros((jobs, responders)),
        input_bytes=rng.integers(1, 10**6, jobs),
        requester=rng.integers(0, requesters, jobs),
        egress_bps=rng.uniform(1e6, 2e6, requesters),
        responder=np.arange(responders),
        ingress_bps=rng.uniform(1e6, 3e6, responders),
        release_s=rng.choice([0.0, 1.0, 2.0], jobs),
    )
    accelerator, order = rng.integers(0, responders, jobs), rng.permutation(jobs)
    moved = transmit(batch, accelerator, order)
    pieces = moved.segments
    for now_s in rng.uniform(0, moved.arrived_s.max(), 20):
        found_bps = np.zeros(jobs)
        now = (pieces.begin_s <= now_s) & (now_s < pieces.end_s)
        found_bps[pieces.flow[now]] = pieces.bps[now]
        egress_bps, ingress_bps = batch.egress_bps.copy(), batch.ingress_bps.copy()
        for job in order:
            if batch.release_s[job] <= now_s < moved.arrived_s[job]:
                u, h = batch.requester[job], accelerator[job]
                expected_bps = min(egress_bps[u], ingress_bps[h])
                assert found_bps[job] == pytest.approx(expected_bps, rel=1e-9, abs=1e-2)
                egress_bps[u] -= expected_bps
                ingress_bps[h] -= expected_bps
