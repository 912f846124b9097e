"""Figures 3 and 4 of the lattice paper in a reduced form, checked by the ranges of `lattice.toml`.

The values do not depend on the machine; ranges leave room for other libraries, not for other algorithms.
"""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fpga_pool.experiments.figures.command import make
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.experiments.figures.lattice import EXPERIMENTS, NUMBERS

pytestmark = pytest.mark.timeout(1800)

RANGES = tomllib.loads((Path(__file__).parent / "lattice.toml").read_text())["range"]
EXPERIMENT = {experiment.number: experiment for experiment in EXPERIMENTS}
SEEDS = (0, 1, 2)
#: How each figure is reduced.
REDUCED = {3: Settings(seeds=SEEDS, points=3), 4: Settings(seeds=SEEDS, points=5, scale=0.3)}
#: The subjects of the paper's claims, and for one of them the only place.
SUBJECTS = {3: [("rtm", "multi"), ("f11", "multi")], 4: [("rtmw", "single"), ("rtmw", "multi"), ("f11", "multi")]}
ONLY = {("rtmw", "multi"): NUMBERS[-1:]}


@cache
def figure(number):
    experiment = EXPERIMENT[number]
    places = {subject: ONLY.get(subject, experiment.places[subject]) for subject in SUBJECTS[number]}
    return make(replace(experiment, places=places), REDUCED[number])


@pytest.mark.parametrize("wanted", RANGES, ids=lambda r: f"figure {r['figure']}: {r['claim']}: {r['curve']}")
def test_is_in_the_range(wanted):
    claims = {claim.key: claim for claim in figure(wanted["figure"]).claims}
    assert wanted["least"] <= claims[wanted["claim"]].ours[wanted["curve"]] <= wanted["most"]


@pytest.mark.parametrize("number", REDUCED)
def test_nothing_exceeds_the_tight_bound(number):
    samples = figure(number).samples
    for panel in EXPERIMENT[number].panels:
        for name in set(samples.series(panel.key)) - {"bound_paper"}:
            for x in samples.places(panel.key, name):
                bounds = samples.values(panel.key, "bound", x)
                for seed, share in samples.values(panel.key, name, x).items():
                    assert share <= bounds[seed] * (1 + 1e-12), f"{name}, panel {panel.key}, {x}, seed {seed}"
                    assert bounds[seed] <= 100 * (1 + 1e-12)


def test_every_claim_of_the_paper_has_a_range():
    known = {(wanted["figure"], wanted["claim"]) for wanted in RANGES}
    claims = {(number, claim.key) for number in REDUCED for claim in figure(number).claims if claim.where != "ours"}
    assert claims <= known
