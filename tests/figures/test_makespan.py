"""Figures 2 to 8 of the makespan paper in a reduced form, checked by the ranges of `makespan.toml`.

The values do not depend on the machine; ranges leave room for other libraries, not for other algorithms.
"""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fpga_pool.experiments.figures.command import make
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.experiments.figures.makespan import EXPERIMENTS
from fpga_pool.experiments.figures.makespan.workload import Form

#: The first test of a figure computes it, which takes a minute at most on idle processors.
pytestmark = pytest.mark.timeout(1800)

RANGES = tomllib.loads((Path(__file__).parent / "makespan.toml").read_text())["range"]
EXPERIMENT = {experiment.number: experiment for experiment in EXPERIMENTS}
SEEDS = (0, 1, 2)

#: The places named in the text of section 5.2, and the ends of the curves.
_HOSTS = {
    (Form.COMPUTE, "responders"): (20, 40, 100), (Form.COMPUTE, "requesters"): (50, 400),
    (Form.NETWORK, "responders"): (20, 40, 100), (Form.NETWORK, "requesters"): (50, 150, 400),
    (Form.JOINT, "responders"): (20, 40, 100), (Form.JOINT, "requesters"): (50, 350),
}  # fmt: skip
#: How each figure is reduced; figure 9 depends on the machine.
REDUCED = {
    2: Settings(seeds=SEEDS), 3: Settings(seeds=SEEDS), 4: Settings(seeds=SEEDS, scale=0.05, points=3),
    5: Settings(seeds=SEEDS, scale=0.2, points=3), 6: Settings(seeds=SEEDS, points=2),
    7: Settings(seeds=SEEDS), 8: Settings(seeds=SEEDS, points=2),
}  # fmt: skip


#: Places that the paper names, instead of evenly spaced ones.
_NAMED = {3: _HOSTS, 7: {"last": (1, 6, 10)}}


@cache
def figure(number):
    experiment = EXPERIMENT[number]
    if number in _NAMED:
        experiment = replace(experiment, places=_NAMED[number])
    return make(experiment, REDUCED[number])


@pytest.mark.parametrize("wanted", RANGES, ids=lambda r: f"figure {r['figure']}: {r['claim']}: {r['curve']}")
def test_is_in_the_range(wanted):
    claims = {claim.key: claim for claim in figure(wanted["figure"]).claims}
    assert wanted["least"] <= claims[wanted["claim"]].ours[wanted["curve"]] <= wanted["most"]


@pytest.mark.parametrize("number", [3, 4])
def test_ours_is_nowhere_longer_than_any_other(number):
    samples = figure(number).samples
    for panel in EXPERIMENT[number].panels:
        for name in samples.series(panel.key):
            if name == "bound":
                continue
            for x in samples.places(panel.key, "makespan"):
                ours, others = (samples.values(panel.key, series, x) for series in ("makespan", name))
                for seed, makespan_s in ours.items():
                    assert makespan_s <= others[seed] * (1 + 1e-5), f"{name}, panel {panel.key}, {x}, seed {seed}"


def test_every_claim_has_a_range_but_those_on_time():
    known = {(wanted["figure"], wanted["claim"]) for wanted in RANGES}
    missing = {
        (number, claim.key) for number in REDUCED for claim in figure(number).claims if (number, claim.key) not in known
    }
    assert not missing
