"""The paper's claims about its policies beside our findings, with intervals over the seeds."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from fpga_pool.core.types import Floats
from fpga_pool.experiments.figures.figure import Claim, Samples
from fpga_pool.experiments.figures.gangs.runs import EASY, KEASY, MEASY, OURS, REASY

RESPONSE, SLOWDOWN = "response", "slowdown"
NAMES = {RESPONSE: "mean response time", SLOWDOWN: "mean bounded slowdown"}
_CONFIDENCE = 0.95


def improvements(samples: Samples, panel: str, series: str, over: str = EASY) -> Floats:
    """Return (seeds,) by how much a policy is better than another one, percent of it, each the mean of all loads."""
    places = samples.places(panel, series)
    seeds = sorted(samples.values(panel, series, places[0]))
    return np.array(
        [
            np.mean([100 * (1 - samples.values(panel, series, x)[seed] / samples.values(panel, over, x)[seed])
                     for x in places])
            for seed in seeds
        ]
    )  # fmt: skip


def most(samples: Samples, panel: str, series: str, over: str = EASY) -> float:
    """Return the greatest improvement at any load, each the mean of all seeds."""
    places = samples.places(panel, series)
    found = []
    for x in places:
        one, other = samples.values(panel, series, x), samples.values(panel, over, x)
        found.append(float(np.mean([100 * (1 - one[seed] / other[seed]) for seed in one])))
    return max(found)


def half_width(values: Floats) -> float:
    """Return half the width of the 95 % confidence interval of the mean; not a number for less than two values."""
    if len(values) < 2:
        return float("nan")
    deviation = float(values.std(ddof=1)) / len(values) ** 0.5
    return deviation * float(special.stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2))


def over_easy(samples: Samples, panel: str, where: str, paper: str, why: str = "") -> Claim:
    """Return the improvement of each policy over EASY, and the interval of MEASY's and ours."""
    ours: dict[str, float] = {}
    for name in samples.series(panel):
        if name == EASY:
            continue
        found = improvements(samples, panel, name)
        ours[name] = float(found.mean())
        if len(found) > 1 and name in (MEASY, OURS):
            ours[f"{name}, half width"] = half_width(found)
    return Claim(
        key=f"{panel}-over-easy",
        text=f"{NAMES[panel]}: improvement over EASY, mean of the loads",
        where=where,
        paper=paper,
        ours=ours,
        why=why,
    )


def most_over_easy(samples: Samples, panel: str, where: str, paper: str) -> Claim:
    """Return the improvement over EASY at the load where it is greatest."""
    return Claim(
        key=f"{panel}-most-over-easy",
        text=f"{NAMES[panel]}: improvement over EASY, the most at any load",
        where=where,
        paper=paper,
        ours={name: most(samples, panel, name) for name in samples.series(panel) if name != EASY},
    )


def by_load(samples: Samples, panel: str) -> Claim:
    """Return the improvement of MEASY and ours over EASY at each load, the mean of all seeds."""
    ours = {}
    for name in (MEASY, OURS):
        for x in samples.places(panel, name):
            one, other = samples.values(panel, name, x), samples.values(panel, EASY, x)
            ours[f"{name}, {float(x):g}"] = float(np.mean([100 * (1 - one[seed] / other[seed]) for seed in one]))
    return Claim(
        key=f"{panel}-by-load",
        text=f"{NAMES[panel]}: improvement over EASY, by load",
        where="section 3.4",
        paper="not in its text",
        ours=ours,
    )


def ours_over_measy(samples: Samples, panels: Sequence[str] = (RESPONSE, SLOWDOWN)) -> Claim:
    """Return how many points of improvement over EASY ours has more than MEASY, paired by seed."""
    return _more("ours-over-measy", samples, OURS, MEASY, "MEASY", panels)


def others_over_ours(samples: Samples, panels: Sequence[str] = (RESPONSE, SLOWDOWN)) -> list[Claim]:
    """Return the same of each policy that was asked for (`--also`), over ours."""
    known = (EASY, KEASY, REASY, MEASY, OURS)
    others = [name for name in samples.series(panels[0]) if name not in known]
    return [_more(f"{name}-over-ours", samples, name, OURS, OURS, panels) for name in others]


def _more(key: str, samples: Samples, name: str, over: str, called: str, panels: Sequence[str]) -> Claim:
    ours: dict[str, float] = {}
    for panel in panels:
        points = improvements(samples, panel, name) - improvements(samples, panel, over)
        ours[panel] = float(points.mean())
        if len(points) > 1:
            ours[f"{panel}, half width"] = half_width(points)
    return Claim(
        key=key,
        text=f"points by which {name} improves more than {called}, paired by seed",
        where="ours",
        paper="not given",
        ours=ours,
        unit="points",
    )
