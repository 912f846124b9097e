"""Figures 3 and 4 of the benefit paper, and our figures from 5 on, reduced and checked by the ranges of `benefit.toml`.

The values do not depend on the machine; ranges leave room for other libraries, not for other algorithms.
"""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fpga_pool.experiments.figures.benefit import EXPERIMENTS
from fpga_pool.experiments.figures.benefit.optimal import LONG
from fpga_pool.experiments.figures.command import make
from fpga_pool.experiments.figures.figure import Settings

#: The first test of a figure computes it, which takes half a minute at most on idle processors.
pytestmark = pytest.mark.timeout(1800)

RANGES = tomllib.loads((Path(__file__).parent / "benefit.toml").read_text())["range"]
EXPERIMENT = {experiment.number: experiment for experiment in EXPERIMENTS}
SEEDS = (0, 1, 2)
#: How each figure is reduced; those with the same scale share their traces.
REDUCED = {
    3: Settings(seeds=SEEDS, scale=0.5, points=5), 4: Settings(seeds=SEEDS, scale=0.5, points=5),
    5: Settings(seeds=SEEDS, scale=0.3, points=2), 6: Settings(seeds=SEEDS, scale=0.25, points=3),
    7: Settings(seeds=SEEDS, scale=0.25, points=2), 8: Settings(seeds=SEEDS, scale=0.2, points=3),
    9: Settings(seeds=SEEDS, scale=0.3, points=2), 10: Settings(seeds=SEEDS, scale=0.25, points=3),
    11: Settings(seeds=SEEDS, scale=0.5),
}  # fmt: skip
#: Scale of the long traces of figure 9, whose linear programs are large: as long as the short ones at full scale.
LONG_SCALE = 0.1
#: Numbers of jobs of figure 11 without the sixth job, which takes as long as all others.
NUMBERS_OF_JOBS = (4, 5)


@cache
def figure(number):
    experiment = EXPERIMENT[number]
    if number == 9:
        experiment = replace(experiment, measure=shortened)
    if number == 11:
        experiment = replace(experiment, places=dict.fromkeys(experiment.places, NUMBERS_OF_JOBS))
    return make(experiment, REDUCED[number])


def shortened(subject, alpha, seed, settings):
    scale = LONG_SCALE if subject[0] == LONG else settings.scale
    return EXPERIMENT[9].measure(subject, alpha, seed, replace(settings, scale=scale))


@pytest.mark.parametrize("wanted", RANGES, ids=lambda r: f"figure {r['figure']}: {r['claim']}: {r['curve']}")
def test_is_in_the_range(wanted):
    claims = {claim.key: claim for claim in figure(wanted["figure"]).claims}
    assert wanted["least"] <= claims[wanted["claim"]].ours[wanted["curve"]] <= wanted["most"]


@pytest.mark.parametrize("number", [3, 4, 6])
def test_nothing_exceeds_the_bound(number):
    samples = figure(number).samples
    for panel in EXPERIMENT[number].panels:
        for name in samples.series(panel.key):
            for x in samples.places(panel.key, name):
                bounds = samples.values(panel.key, "bound", x)
                for seed, benefit_vcpus in samples.values(panel.key, name, x).items():
                    assert benefit_vcpus <= bounds[seed] * (1 + 1e-9), f"{name}, panel {panel.key}, {x}, seed {seed}"


def test_every_claim_has_a_range():
    known = {(wanted["figure"], wanted["claim"]) for wanted in RANGES}
    missing = {
        (number, claim.key) for number in REDUCED for claim in figure(number).claims if (number, claim.key) not in known
    }
    assert not missing
