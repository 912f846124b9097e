"""Batches that arrive while inputs of earlier ones move (makespan paper, section 3.4), with every policy."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan import Ect
from fpga_pool.core.makespan.execution import complete_plan
from fpga_pool.core.makespan.fluid import transmit
from fpga_pool.core.makespan.underway import plan_arriving
from fpga_pool.core.policy import PlanningAround
from fpga_pool.core.types import BatchProblem, EarlierTransfers
from support.seeds import names, seeds

RNG = np.random.default_rng(0)


class Stranger:
    """A policy that ignores earlier transfers: each job in turn goes where it would end first without any input."""

    name = "stranger"

    def decide(self, view, state, now_s, rng):
        order, accelerator, free_s = np.arange(view.jobs), np.zeros(view.jobs, np.int64), np.array(view.ready_s)
        for job in order:
            accelerator[job] = slot = int((free_s + view.seconds[job]).argmin())
            free_s[slot] += view.seconds[job, slot]
        return complete_plan(view, accelerator, order, transmit(view, accelerator, order), self.name)


@pytest.fixture(params=[*names(policy_names("batch"), {"exact"}), "stranger"])
def policy(request):
    return Stranger() if request.param == "stranger" else load_policy("batch", request.param)


def hosts(seconds, megabits, requester, egress_mbps, ingress_mbps, **more):
    """Return a problem with one accelerator on each responder."""
    return BatchProblem(
        seconds=seconds, input_bytes=np.array(megabits) * 125_000, requester=requester,
        egress_bps=np.array(egress_mbps) * 1e6, responder=np.arange(len(ingress_mbps)),
        ingress_bps=np.array(ingress_mbps) * 1e6, **more,
    )  # fmt: skip


def moves(begin_s, end_s, mbps, requester=0, responder=0):
    """Return an earlier transfer at a constant rate."""
    return EarlierTransfers(
        requester=[requester], responder=[responder], begin_s=[begin_s], end_s=[end_s], bps=[1e6 * mbps]
    )


def test_jobs_that_only_compute_never_wait_for_the_network(policy):
    problem = hosts([[2.0, 9.0], [9.0, 2.0]], [0, 0], [0, 0], [100], [100, 100])
    found = plan_arriving(policy, problem, moves(0.0, 50.0, 100), None, RNG)
    assert found.start_s.tolist() == [0.0, 0.0]


def test_jobs_whose_input_is_at_home_do_not_wait_for_the_network(policy):
    problem = hosts([[2.0, np.inf]], [100], [0], [100, 100], [100, 100], local_host=[0, 1])
    found = plan_arriving(policy, problem, moves(0.0, 50.0, 100, requester=0, responder=1), None, RNG)
    assert found.start_s.tolist() == [0.0]


def test_an_input_moves_in_the_bandwidth_that_earlier_ones_leave(policy):
    # The requester sends 60 of its 100 Mbps elsewhere for 10 s: 200 Mb at 40 Mbps take 5 s, and the job 1 s.
    problem = hosts([[np.inf, 1.0]], [200], [0], [100], [100, 100])
    found = plan_arriving(policy, problem, moves(0.0, 10.0, 60), None, RNG)
    assert found.makespan_s == pytest.approx(6.0)
    assert found.segment_bps.max() <= 40e6 * (1 + 1e-9)


def test_an_input_waits_where_earlier_ones_leave_nothing(policy):
    problem = hosts([[1.0]], [200], [0], [100], [100])
    found = plan_arriving(policy, problem, moves(0.0, 3.0, 100), None, RNG)
    # From 3 s on, 200 Mb at 100 Mbps, then the job.
    assert found.makespan_s == pytest.approx(6.0)
    assert found.lower_bound_s <= 3.0 * (1 + 1e-9)


def test_without_earlier_transfers_it_is_the_policys_own_plan(policy):
    problem = hosts([[1.0, 2.0], [2.0, 1.0], [1.5, 1.5]], [100, 50, 0], [0, 0, 0], [100], [80, 80])
    alone = policy.decide(problem, None, 0.0, np.random.default_rng(1))
    found = plan_arriving(policy, problem, EarlierTransfers(), None, np.random.default_rng(1))
    assert np.array_equal(found.start_s, alone.start_s)
    assert np.array_equal(found.segment_end_s, alone.segment_end_s)


def test_where_waiting_ends_sooner_the_batch_waits():
    class Chooses(Stranger):
        def decide(self, view, state, now_s, rng):
            # The first slot, unless there is a release to wait for.
            accelerator = np.full(view.jobs, int(view.release_s.any()))
            order = np.arange(view.jobs)
            return complete_plan(view, accelerator, order, transmit(view, accelerator, order), self.name)

    problem = hosts([[5.0, 0.5]], [100], [0], [1000], [100, 100])
    # The first responder receives at its limit until 10 s: 10 + 1 + 5 s.  The second one after that: 10 + 1 + 0.5 s.
    found = plan_arriving(Chooses(), problem, moves(0.0, 10.0, 100), None, RNG)
    assert (found.accelerator.tolist(), found.makespan_s) == ([1], pytest.approx(11.5))


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_checker_accepts_both_plans_together(policy, verdict, seed):
    rng = np.random.default_rng(seed)

    def batch(jobs, **more):
        return BatchProblem(
            seconds=rng.uniform(0.2, 2.0, (jobs, 4)), input_bytes=rng.choice([0, 10**6, 10**7, 3 * 10**7], jobs),
            requester=rng.integers(0, 2, jobs), egress_bps=egress_bps, responder=[0, 0, 1, 1], ingress_bps=ingress_bps,
            **more,
        )  # fmt: skip

    egress_bps, ingress_bps = rng.uniform(0.5e8, 2e8, (2, 2))
    first = batch(7)
    planned = Ect().decide(first, None, 0.0, rng)
    ends_s = planned.start_s + first.seconds[np.arange(first.jobs), planned.accelerator]
    ready_s = np.zeros(4)
    np.maximum.at(ready_s, planned.accelerator, ends_s)
    earlier = EarlierTransfers(
        requester=first.requester[planned.segment_job],
        responder=first.responder[planned.accelerator[planned.segment_job]],
        begin_s=planned.segment_begin_s, end_s=planned.segment_end_s, bps=planned.segment_bps,
    )  # fmt: skip
    second = batch(5, ready_s=ready_s)
    found = plan_arriving(policy, second, earlier, None, rng)
    assert found.lower_bound_s <= found.makespan_s
    both = BatchProblem(
        seconds=np.concatenate((first.seconds, second.seconds)),
        input_bytes=np.concatenate((first.input_bytes, second.input_bytes)),
        requester=np.concatenate((first.requester, second.requester)),
        egress_bps=egress_bps, responder=first.responder, ingress_bps=ingress_bps,
    )  # fmt: skip
    together = replace(
        found,
        accelerator=np.concatenate((planned.accelerator, found.accelerator)),
        start_s=np.concatenate((planned.start_s, found.start_s)),
        segment_job=np.concatenate((planned.segment_job, found.segment_job + first.jobs)),
        **{
            name: np.concatenate((getattr(planned, name), getattr(found, name)))
            for name in ("segment_begin_s", "segment_end_s", "segment_bps")
        },
        makespan_s=max(planned.makespan_s, found.makespan_s), completion_s=max(planned.makespan_s, found.makespan_s),
        lower_bound_s=0.0, completion_bound_s=0.0, bound_prices=np.zeros(0),
    )  # fmt: skip
    assert verdict(both, together)["faults"] == []


def test_the_papers_own_policies_plan_in_what_is_left_by_themselves():
    able = {name for name in policy_names("batch") if isinstance(load_policy("batch", name), PlanningAround)}
    assert able == {"cim", "ncjm", "nim", "waves"}
