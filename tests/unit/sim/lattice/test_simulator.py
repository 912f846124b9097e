import importlib.util
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.paper import Fifo, Heft, HeftShortest, Lattice, Mfit
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.sim.lattice.files import write_problem, write_schedule
from fpga_pool.sim.lattice.simulator import Outage, simulate
from fpga_pool.sim.lattice.workloads import Wanted, generate

CHECKER = Path(__file__).parents[3] / "checkers" / "check_schedule.py"
POLICIES = [Fifo(), Heft(), HeftShortest(), Mfit(), Lattice()]


def ring(tasks, **more):
    """Return a problem of one ring of 8 FPGAs and tasks (FPGAs, seconds, arrival)."""
    return TaskProblem(
        enclosure_fpgas=[8], enclosure_links=[int(Topology.RING)], shape_begin=range(len(tasks) + 1),
        shape_fpgas=[fpgas for fpgas, *_ in tasks], shape_seconds=[seconds for _, seconds, _ in tasks],
        links=[int(Links.LINE)] * len(tasks), arrival_s=[arrival_s for *_, arrival_s in tasks], **more,
    )  # fmt: skip


def faults(file, outcome, directory):
    """Return the faults that the independent checker finds."""
    problem = file.problem
    schedule = outcome.schedule(paper_bound_s(problem), tight_bound_s(problem))
    write_problem(directory / "problem.json", file)
    write_schedule(directory / "schedule.json", file.ids, schedule)
    spec = importlib.util.spec_from_file_location("check_schedule", CHECKER)
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    checker.open = lambda path: io.StringIO(Path(path).read_text())
    with redirect_stdout(io.StringIO()) as said:
        checker.main(["", str(directory / "problem.json"), str(directory / "schedule.json")])
    assert schedule.bound_tight_s <= schedule.wct_s
    return json.loads(said.getvalue())["faults"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_task_runs_once_however_many_fpgas_fail(policy, tmp_path):
    file = generate("rtmw", Wanted(workloads=6, interval_s=8.0, enclosures=2), np.random.default_rng(4))
    rng = np.random.default_rng(0)
    outages = tuple(
        Outage(enclosure=int(e), fpga=int(f), from_s=float(begin_s), until_s=float(begin_s + lasts_s))
        for e, f, begin_s, lasts_s in zip(
            rng.integers(0, 2, 12), rng.integers(0, 8, 12), rng.uniform(0, 60, 12), rng.uniform(1, 30, 12), strict=True
        )
    )
    outcome = simulate(file.problem, policy, outages=outages, patience_s=40.0)
    assert faults(file, outcome, tmp_path) == []
    assert outcome.lost_runs > 0
    for outage in outages:
        for task in range(file.problem.tasks):
            if outcome.enclosure[task] == outage.enclosure and outage.fpga in outcome.members[task]:
                assert outcome.end_s[task] <= outage.from_s or outcome.begin_s[task] >= outage.until_s


@pytest.mark.parametrize("policy", [Fifo(), Heft(), HeftShortest()], ids=lambda policy: policy.name)
def test_lists_that_do_not_change_give_the_schedule_that_knew_of_all_arrivals(policy):
    problem = generate("f11", Wanted(workloads=15, interval_s=4.0), np.random.default_rng(1)).problem
    known = policy.decide(problem, None, 0.0, np.random.default_rng(0))
    outcome = simulate(problem, policy)
    assert outcome.begin_s == pytest.approx(known.begin_s)
    assert outcome.plans > 15


def test_nobody_knows_what_is_yet_to_arrive():
    # The wide task arrives at 1 s; it would end sooner if the ring had been left empty for it.
    outcome = simulate(ring([(1, 9.0, 0.0), (8, 1.0, 1.0)]), Lattice())
    assert outcome.begin_s.tolist() == [0.0, 9.0]


def test_a_run_that_fails_begins_again_where_fpgas_are_left():
    # FPGA 0 fails under the task at 2 s; five other FPGAs in a line remain.
    problem = ring([(5, 4.0, 0.0)])
    outcome = simulate(problem, Lattice(), outages=(Outage(enclosure=0, fpga=0, from_s=2.0, until_s=50.0),))
    assert (outcome.begin_s.tolist(), outcome.lost_runs) == ([2.0], 1)
    assert 0 not in outcome.members[0]


def test_what_needs_the_failed_fpga_waits_for_it_and_lets_others_go():
    problem = ring([(8, 4.0, 0.0), (2, 1.0, 0.0), (2, 1.0, 3.0)])
    outcome = simulate(problem, Fifo(), outages=(Outage(enclosure=0, fpga=3, from_s=0.0, until_s=10.0),))
    assert outcome.begin_s.tolist() == [10.0, 0.0, 3.0]


def test_a_malleable_task_shrinks_to_what_is_left():
    problem = TaskProblem(
        enclosure_fpgas=[8], enclosure_links=[int(Topology.RING)], shape_begin=[0, 2], shape_fpgas=[8, 2],
        shape_seconds=[1.0, 3.0], links=[int(Links.LINE)],
    )  # fmt: skip
    whole = simulate(problem, Lattice())
    assert (whole.shape.tolist(), whole.end_s.tolist()) == ([0], [1.0])
    less = simulate(problem, Lattice(), outages=(Outage(enclosure=0, fpga=3, from_s=0.0, until_s=10.0),))
    assert (less.shape.tolist(), less.end_s.tolist()) == ([1], [3.0])


def test_what_returns_is_empty():
    problem = ring([(8, 1.0, 0.0), (8, 1.0, 5.0)], function=[0, 1], load_s=0.5)
    assert simulate(problem, Lattice()).begin_s.tolist() == [0.0, 5.5]
    outages = tuple(Outage(enclosure=0, fpga=fpga, from_s=2.0, until_s=3.0) for fpga in range(8))
    assert simulate(problem, Lattice(), outages=outages).begin_s.tolist() == [0.0, 5.0]


def narrow_stream(until_s):
    """Return tasks of 4 FPGAs for 2 s, each begun while the other half runs: all 8 are never free together."""
    return [(4, 2.0, float(arrival_s)) for arrival_s in range(until_s)]


@pytest.mark.parametrize("policy", [HeftShortest(), Mfit(), Heft()], ids=lambda policy: policy.name)
def test_a_wide_task_does_not_starve(policy):
    problem = ring([*narrow_stream(40), (8, 1.0, 1.5)])
    patient = simulate(problem, policy, patience_s=6.0)
    # Its patience ends at 7.5 s; tasks that run then end by 9.5 s.
    assert patient.begin_s[-1] <= 9.5


def test_without_patience_it_does():
    problem = ring([*narrow_stream(40), (8, 1.0, 1.5)])
    assert simulate(problem, Heft()).begin_s[-1] > 40


def test_reservations_keep_only_what_they_need():
    # From 3 s on six FPGAs are reserved for the task of 6, which begins at 10 s; tasks of 2 continue beside it.
    problem = ring([(6, 10.0, 0.0), (6, 1.0, 1.0), *[(2, 1.0, float(at)) for at in range(2, 9)]])
    outcome = simulate(problem, HeftShortest(), patience_s=2.0)
    assert outcome.begin_s.tolist() == [0.0, 10.0, *range(2, 9)]


def test_tasks_whose_fpgas_are_never_back_together_do_not_end():
    problem = ring([(1, 1.0, 0.0)])
    outages = tuple(Outage(enclosure=0, fpga=fpga, from_s=0.5, until_s=9.0) for fpga in range(8))
    outcome = simulate(problem, Fifo(), outages=outages)
    assert (outcome.begin_s.tolist(), outcome.lost_runs) == ([9.0], 1)


@pytest.mark.parametrize(
    ("outage", "message"),
    [
        ({"enclosure": 1}, "outage: enclosure 1 is out of range, expected 0..0"),
        ({"fpga": 8}, "outage: enclosure 0 has FPGAs 0..7, got 8"),
        ({"until_s": 0.0}, "outage: expected an end after the beginning, got 0 to 0 s"),
    ],
)
def test_wrong_outages_are_refused(outage, message):
    given = {"enclosure": 0, "fpga": 0, "from_s": 0.0, "until_s": 1.0} | outage
    with pytest.raises(ValueError, match=message):
        simulate(ring([(1, 1.0, 0.0)]), Fifo(), outages=(Outage(**given),))
