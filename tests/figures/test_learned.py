"""Figures 3 to 13 of the learned placement paper in a reduced form, checked by the ranges of `learned.toml`.

The values do not depend on the machine; ranges leave room for other libraries, not for other algorithms.
"""

import tomllib
from functools import cache
from pathlib import Path

import pytest

from fpga_pool.experiments.figures.command import make
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.experiments.figures.learned import EXPERIMENTS
from fpga_pool.experiments.figures.learned.runs import ECT, PAPER, RANDOM

pytestmark = pytest.mark.timeout(1800)

RANGES = tomllib.loads((Path(__file__).parent / "learned.toml").read_text())["range"]
EXPERIMENT = {experiment.number: experiment for experiment in EXPERIMENTS}
#: How each figure is reduced: to 45 tasks, or 90 in figures of convergence and changes.
REDUCED = {number: Settings(seeds=(0, 1), points=2, scale=0.03) for number in EXPERIMENT}
#: Half the worlds of each seed.
REDUCED[14] = Settings(seeds=(0, 1), scale=0.5)


@cache
def figure(number):
    return make(EXPERIMENT[number], REDUCED[number])


@pytest.mark.parametrize("wanted", RANGES, ids=lambda r: f"figure {r['figure']}: {r['claim']}: {r['curve']}")
def test_is_in_the_range(wanted):
    claims = {claim.key: claim for claim in figure(wanted["figure"]).claims}
    assert wanted["least"] <= claims[wanted["claim"]].ours[wanted["curve"]] <= wanted["most"]


def test_the_papers_stack_is_not_better_than_ect_in_so_short_a_run():
    samples = figure(7).samples
    for x in samples.places("throughput", PAPER):
        assert samples.mean("throughput", PAPER, x) <= samples.mean("throughput", ECT, x)


def test_every_stack_is_measured_with_the_same_tasks():
    for number in (5, 7, 11):
        samples = figure(number).samples
        panel = EXPERIMENT[number].panels[0].key
        assert {samples.places(panel, name) for name in samples.series(panel)} == {samples.places(panel, RANDOM)}


def test_every_claim_has_a_range():
    known = {(wanted["figure"], wanted["claim"]) for wanted in RANGES}
    assert {(number, claim.key) for number in REDUCED for claim in figure(number).claims} <= known
