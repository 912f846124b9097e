"""Figure 2: the testbed, as fluid (section 5.1); `fpga-pool-sim testbed` measures it."""

from collections.abc import Iterator

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import BASELINES, OURS
from fpga_pool.experiments.testbed.cases import DNN, WORDCOUNT, Case, predict

_PANEL, _WHERE = "testbed", "section 5.1"
#: The two experiments, and the algorithm that the paper uses for each.
_OWN = {WORDCOUNT.name: "nim", DNN.name: "cim"}


def testbed_cases(_: Settings) -> list[Case]:
    """Return both experiments; they have one size."""
    return [WORDCOUNT, DNN]


def testbed_measure(case: Case, seed: int, _: Settings) -> Iterator[Sample]:
    """Predict one experiment under each policy; there is nothing random in it."""
    for series, policy in (*((name, name) for name in BASELINES), ("paper's", _OWN[case.name]), (OURS, OURS)):
        yield Sample(_PANEL, case.name, series, seed, predict(case, policy).makespan_s)


def testbed_claims(samples: Samples) -> Iterator[Claim]:
    """Return what section 5.1 says."""
    for case in (WORDCOUNT, DNN):
        for other, percent in case.paper_percent.items():
            yield Claim(
                key=f"{case.name}-over-{other}", text=f"improvement over {other.upper()}, {case.name}", where=_WHERE,
                paper=f"{percent:g} %",
                ours={name: samples.improvement_percent(_PANEL, name, other, case.name) for name in ("paper's", OURS)},
                why="The paper measured on real machines; this is fluid." if percent else "",
            )  # fmt: skip


def _claims(samples: Samples) -> list[Claim]:
    return list(testbed_claims(samples))


TESTBED_EXPERIMENT = Experiment(
    number=2, title="the testbed, as fluid", where=_WHERE,
    panels=(Panel(key=_PANEL, title="word count and DNN", x_label="experiment"),),
    cases=testbed_cases, measure=testbed_measure, claims=_claims,
)  # fmt: skip
