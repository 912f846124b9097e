"""Figures 2 and 10: the testbed in the fluid model (section 5.1), and, ours, small batches beside the optimum."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.core.integer import ExactParams
from fpga_pool.core.makespan.search.exact import Exact
from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import (
    BASELINES,
    DEVIATION,
    MEAN_MB,
    OURS,
    PAPERS_OWN,
    SECONDS_PER_MB,
    Form,
    curves,
    decide,
)
from fpga_pool.experiments.testbed import DNN, WORDCOUNT, Case, planned

# ---- Figure 10: makespan over the optimum, which `exact` proves

JOBS = (4, 6, 8)
REQUESTERS, RESPONDERS, ACCELERATORS = 2, 2, 4
LINK_BPS = 1e9
#: An optimum counts as found if no plan is shorter by more than this share; nodes after which the search gives up.
GAP, NODES = 0.01, 300
#: Share of the batches whose optimum was found.
SOLVED = "share solved"
FORMS = (Form.COMPUTE, Form.JOINT)


def small_batch(form: Form, jobs: int, seed: int) -> BatchProblem:
    """Return a batch with sizes as in section 5.2 on few hosts: sending a job takes about as long as computing it."""
    rng = np.random.default_rng((seed, jobs))
    megabits = rng.exponential(MEAN_MB, jobs)
    deviation = rng.uniform(1 - DEVIATION, 1 + DEVIATION, (jobs, ACCELERATORS))
    bps = np.inf if form is Form.COMPUTE else LINK_BPS
    return BatchProblem(
        seconds=SECONDS_PER_MB * megabits[:, None] * deviation * RESPONDERS,
        input_bytes=np.rint(megabits * 1e6 / 8).astype(np.int64),
        requester=rng.integers(0, REQUESTERS, jobs),
        egress_bps=np.full(REQUESTERS, bps),
        responder=np.arange(ACCELERATORS) % RESPONDERS,
        ingress_bps=np.full(RESPONDERS, bps),
    )


def measure(form: Form, jobs: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy, if its optimum is found."""
    problem = small_batch(form, jobs, seed)
    best = Exact(ExactParams(effort=NODES, gap=GAP)).decide(problem, None, 0.0, np.random.default_rng(seed))
    solved = best.lower_bound_s >= best.makespan_s * (1 - 1.01 * GAP)
    yield Sample(form, jobs, SOLVED, seed, float(solved))
    if solved:
        for name in curves(PAPERS_OWN[form], settings):
            yield Sample(form, jobs, name, seed, decide(name, problem, seed).makespan_s / best.makespan_s)


def _claims(samples: Samples) -> list[Claim]:
    """Return how far each policy is from the optimum."""
    return [
        Claim(
            key=f"{form}-over-optimum",
            text=f"small batches, {form}: mean makespan over the proven optimum, all sizes",
            paper="1 to 2 (Theorem 1)" if form is Form.COMPUTE else "not given",
            ours={name: samples.overall(form, name) for name in samples.series(form) if name != SOLVED},
            unit="",
        )
        for form in FORMS
        if OURS in samples.series(form)
    ]


EXPERIMENT = Experiment(
    number=10,
    title="makespan over the optimum of small batches",
    where="ours",
    panels=tuple(
        Panel(key=form, title=f"{form}, 4 accelerators", x_label="jobs", y_label="over the optimum", least_y=1.0)
        for form in FORMS
    ),
    places=dict.fromkeys(FORMS, JOBS),
    measure=measure,
    claims=_claims,
)


# ---- Figure 2, which `fpga-pool-sim testbed` measures

_PANEL, _WHERE = "testbed", "section 5.1"
#: The two experiments, and the algorithm that the paper uses for each.
_OWN = {WORDCOUNT.name: "nim", DNN.name: "cim"}


def _measure_testbed(_: str, case: Case, seed: int, __: Settings) -> Iterator[Sample]:
    """Predict one experiment under each policy; the predictions are deterministic."""
    for series, policy in (*((name, name) for name in BASELINES), ("paper's", _OWN[case.name]), (OURS, OURS)):
        yield Sample(_PANEL, case.name, series, seed, planned(case, policy).makespan_s)


def _testbed_claims(samples: Samples) -> Iterator[Claim]:
    """Return the claims of section 5.1."""
    for case in (WORDCOUNT, DNN):
        for other, percent in case.paper_percent.items():
            yield Claim(
                key=f"{case.name}-over-{other}", text=f"improvement over {other.upper()}, {case.name}", where=_WHERE,
                paper=f"{percent:g} %",
                ours={name: samples.improvement_percent(_PANEL, name, other, case.name) for name in ("paper's", OURS)},
                why="The paper measured on real machines; this is fluid." if percent else "",
            )  # fmt: skip


TESTBED_EXPERIMENT = Experiment(
    number=2,
    title="the testbed, as fluid",
    where=_WHERE,
    panels=(Panel(key=_PANEL, title="word count and DNN", x_label="experiment"),),
    places={_PANEL: (WORDCOUNT, DNN)},
    measure=_measure_testbed,
    claims=_testbed_claims,
)
