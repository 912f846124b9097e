"""Workloads and simulations of the figures of the two-tier paper, and the values drawn from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.gangs.gangs import Gangs
from fpga_pool.core.gangs.progress import Shares, UsageSaid
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.intervals import half_width
from fpga_pool.core.types import Floats
from fpga_pool.experiments.figures.figure import Claim, Samples, Settings, X
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.gangs.models import synthetic
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.swf import read_swf
from fpga_pool.sim.gangs.trace import Trace, batch_means, bounded_slowdown, draw, response_s, trace_of

EASY, KEASY, REASY, MEASY, OURS = "easy", "keasy", "reasy", "measy", "measy_plus"
#: The paper's two workloads, as models calibrated to its figures; Lublin's model, which is exact; a trace from a file.
FEITELSON, JANN, LUBLIN, TRACE = "feitelson_calibrated", "jann_calibrated", "lublin", "trace"
#: Section 3.4.
LOADS: Final = (0.5, 0.6, 0.7, 0.8, 0.9)
PROCESSORS, MIGRATION_S = 320, 20.0
#: Gangs of a run, with a scale of 1; the paper has 200,000 and 100,000.
GANGS = 3000
#: Gangs of a part of a trace; parts differ more than runs of a model.
TRACE_GANGS = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The parameters of a simulation except the load and the policy."""

    workload: str
    progress: ProgressParams = field(default_factory=ProgressParams)
    said: UsageSaid = field(default_factory=UsageSaid)


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one run: means over the middle 80 % of the gangs, and migrations per gang."""

    response_s: float
    slowdown: float
    migrations: float


def results(
    setting: Setting,
    load: float,
    policies: Sequence[str],
    seed: int,
    settings: Settings,
    migration_s: float = MIGRATION_S,
) -> Iterator[tuple[str, Found]]:
    """Yield the outcome of each policy on the same gangs: the given policies and those requested with `--also`."""
    count = settings.scaled(TRACE_GANGS if setting.workload == TRACE else GANGS)
    for name in dict.fromkeys([*policies, *settings.also]):
        yield name, _found(setting, load, name, seed, count, settings.trace, migration_s)


@cache
def _found(
    setting: Setting, load: float, policy: str, seed: int, count: int, path: Path | None, migration_s: float
) -> Found:
    """Return the outcome of one run; cached, because several figures show it."""
    trace, processors, gangs, shares = _drawn(setting, load, seed, count, path)
    outcome = simulate(
        processors,
        trace,
        gangs,
        shares,
        policy_as("gang", policy),
        params=setting.progress,
        migration_s=migration_s,
        seed=seed,
    )
    mean_s = batch_means(response_s(trace, outcome)).mean
    slowdown = batch_means(bounded_slowdown(trace, outcome)).mean
    return Found(mean_s, slowdown, outcome.migrations / len(trace.job))


@lru_cache(maxsize=1)
def _drawn(setting: Setting, load: float, seed: int, count: int, path: Path | None) -> tuple[Trace, int, Gangs, Shares]:
    """Return the trace at a load, the number of processors, and the gangs with their random shares."""
    trace, processors = _workload(setting.workload, count, seed, path)
    trace = trace.with_load(load, processors)
    gangs, shares = draw(trace, setting.progress, np.random.default_rng(seed), said=setting.said)
    return trace, processors, gangs, shares


@lru_cache(maxsize=8)
def _workload(name: str, count: int, seed: int, path: Path | None) -> tuple[Trace, int]:
    """Return a workload and its number of processors; of a trace, a part whose begin depends on the seed."""
    if name != TRACE:
        return synthetic(name, count, PROCESSORS, seed), PROCESSORS
    trace, processors = _read(path)
    first = int(np.random.default_rng(seed).integers(max(1, len(trace.job) - count + 1)))
    part = slice(first, first + count)
    columns = ("job", "submit_s", "run_s", "estimate_s", "width", "user")
    return replace(trace, **{column: getattr(trace, column)[part] for column in columns}), processors


@lru_cache(maxsize=1)
def _read(path: Path | None) -> tuple[Trace, int]:
    swf = read_swf(str(path))
    said = dict(swf.header)
    text = said.get("MaxProcs") or said.get("MaxNodes") or ""
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(f"{path}: MaxProcs: expected the number of processors in the header, found {text!r}")
    trace, _ = trace_of(swf, int(text))
    if len(trace.job) < 2:
        raise InvalidInput(f"{path}: too few jobs for a figure")
    return trace, int(text)


RESPONSE, SLOWDOWN = "response", "slowdown"
NAMES = {RESPONSE: "mean response time", SLOWDOWN: "mean bounded slowdown"}


def gain(samples: Samples, panel: str, series: str, over: str, x: X) -> float:
    """Return the improvement of a policy over another one at a place, in percent, as the mean over the seeds."""
    one, other = samples.values(panel, series, x), samples.values(panel, over, x)
    return float(np.mean([100 * (1 - one[seed] / other[seed]) for seed in one]))


def improvements(samples: Samples, panel: str, series: str, over: str = EASY) -> Floats:
    """Return the (seeds,) improvements of a policy over another one, in percent, each the mean over the loads."""
    places = samples.places(panel, series)
    seeds = sorted(samples.values(panel, series, places[0]))
    return np.array(
        [
            np.mean([100 * (1 - samples.values(panel, series, x)[seed] / samples.values(panel, over, x)[seed])
                     for x in places])
            for seed in seeds
        ]
    )  # fmt: skip


def most(samples: Samples, panel: str, series: str) -> float:
    """Return the greatest improvement over EASY at any load, where each is the mean over the seeds."""
    return max(gain(samples, panel, series, EASY, x) for x in samples.places(panel, series))


def over_easy(samples: Samples, panel: str, where: str, paper: str, why: str = "") -> Claim:
    """Return the improvement of each policy over EASY, with confidence intervals for MEASY and our policy."""
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
    """Return the improvement of MEASY and our policy over EASY at each load, as the mean over the seeds."""
    ours = {
        f"{name}, {float(x):g}": gain(samples, panel, name, EASY, x)
        for name in (MEASY, OURS)
        for x in samples.places(panel, name)
    }
    return Claim(
        key=f"{panel}-by-load",
        text=f"{NAMES[panel]}: improvement over EASY, by load",
        where="section 3.4",
        paper="not in its text",
        ours=ours,
    )


def ours_over_measy(samples: Samples, panels: Sequence[str] = (RESPONSE, SLOWDOWN)) -> Claim:
    """Return by how many points our improvement over EASY exceeds that of MEASY, paired by seed."""
    return _more("ours-over-measy", samples, OURS, MEASY, "MEASY", panels)


def others_over_ours(samples: Samples, panels: Sequence[str] = (RESPONSE, SLOWDOWN)) -> list[Claim]:
    """Return the same for each policy requested with `--also`, compared with ours."""
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
        ours=ours,
        unit="points",
    )
