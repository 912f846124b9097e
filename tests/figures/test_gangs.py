"""Figures 6 to 14 of the two-tier paper, and our figures from 15 on, reduced and checked by the ranges of `gangs.toml`.

The values do not depend on the machine; ranges leave room for other libraries, not for other algorithms.
"""

import itertools
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.core.gangs.progress import UsageSaid
from fpga_pool.experiments.figures.command import make
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.experiments.figures.gangs import EXPERIMENTS
from fpga_pool.experiments.figures.gangs.runs import EASY, FEITELSON, JANN, Setting, results

#: The first test of a figure computes it, which takes ten seconds at most on idle processors.
pytestmark = pytest.mark.timeout(1800)

RANGES = tomllib.loads((Path(__file__).parent / "gangs.toml").read_text())["range"]
EXPERIMENT = {experiment.number: experiment for experiment in EXPERIMENTS}
#: How each figure is reduced: 6 and 7, which README shows, and 8, which uses the same runs, have all gangs.
FULL, FEWER = (Settings(seeds=tuple(range(10)), points=2, scale=scale) for scale in (1.0, 0.4))
#: Figure 16 needs a trace.
REDUCED = {
    number: FULL if number in (6, 7, 8) else FEWER for number in EXPERIMENT if not EXPERIMENT[number].needs_trace
}


@cache
def figure(number):
    return make(EXPERIMENT[number], REDUCED[number])


@pytest.mark.parametrize("wanted", RANGES, ids=lambda r: f"figure {r['figure']}: {r['claim']}: {r['curve']}")
def test_is_in_the_range(wanted):
    claims = {claim.key: claim for claim in figure(wanted["figure"]).claims}
    assert wanted["least"] <= claims[wanted["claim"]].ours[wanted["curve"]] <= wanted["most"]


@pytest.mark.parametrize("number", [11, 12])
def test_with_all_processors_in_full_use_policies_differ_little_from_easy_where_load_is_low(number):
    # No gang starts behind a running one then: two tiers only help gangs that start while the foreground is idle.
    samples = figure(number).samples
    for name in ("keasy", "measy"):
        found = samples.mean("response", name, 0.5) / samples.mean("response", EASY, 0.5)
        assert 0.8 < found < 1.05


@pytest.mark.parametrize("number", [6, 7, 9, 10, 11, 12])
def test_keasy_and_measy_are_better_than_easy_and_measy_than_keasy(number):
    """Sections 3.4 and 3.5; the mean slowdowns of KEASY and MEASY in figures 10 and 11 are too close to each other."""
    claims = {claim.key: claim.ours for claim in figure(number).claims}
    for panel in ("response", "slowdown"):
        better = claims[f"{panel}-over-easy"]
        assert better["keasy"] > 0, panel
        assert better["measy"] > 0, panel
        if (number, panel) not in {(10, "slowdown"), (11, "slowdown")}:
            assert better["measy"] > better["keasy"], panel


def test_easy_takes_longer_the_higher_the_load():
    for number, panel in itertools.product((6, 7, 15), ("response", "slowdown")):
        samples = figure(number).samples
        means = [samples.mean(panel, EASY, x) for x in samples.places(panel, EASY)]
        assert (np.diff(means) > 0).all(), f"figure {number}, {panel}"


@pytest.mark.parametrize("workload", [FEITELSON, JANN])
def test_what_policies_know_of_usages_does_not_change_easy(workload):
    known, unknown = (
        [next(results(Setting(workload=workload, said=said), 0.9, (EASY,), seed, FEWER)) for seed in FEWER.seeds]
        for said in (UsageSaid(), UsageSaid(unknown=True))
    )
    assert known == unknown


def test_every_claim_has_a_range():
    known = {(wanted["figure"], wanted["claim"]) for wanted in RANGES}
    missing = {
        (number, claim.key) for number in REDUCED for claim in figure(number).claims if (number, claim.key) not in known
    }
    assert not missing
