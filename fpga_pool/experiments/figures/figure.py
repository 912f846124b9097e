"""A figure: its panels, the samples that fill them, and the paper's claims beside our findings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.core.intervals import half_width

#: A place on the x axis: a number, or the name of a group of bars.
X = float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    key: str
    title: str
    x_label: str
    y_label: str = "makespan, s"
    log_y: bool = False
    #: Lower end of a linear y axis.
    least_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement of the paper's text about one of its curves: its values lie in a range, over a part of the x axis."""

    panel: str
    series: str
    low: float
    high: float
    from_x: float | None = None
    to_x: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one curve, measured with one seed."""

    panel: str
    x: X
    series: str
    seed: int
    value: float


class Samples:
    """The samples of a figure."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.rows: tuple[Sample, ...] = tuple(samples)
        self._values: dict[tuple[str, str], dict[X, dict[int, float]]] = {}
        for row in self.rows:
            self._values.setdefault((row.panel, row.series), {}).setdefault(row.x, {})[row.seed] = row.value

    def series(self, panel: str) -> tuple[str, ...]:
        """Return the names of the curves of a panel, in the order in which they were measured."""
        return tuple(name for where, name in self._values if where == panel)

    def places(self, panel: str, series: str) -> tuple[X, ...]:
        """Return the places at which a curve was measured, numbers in ascending order."""
        places = self._values.get((panel, series), {})
        return tuple(places) if any(isinstance(x, str) for x in places) else tuple(sorted(places, key=float))

    def values(self, panel: str, series: str, x: X) -> Mapping[int, float]:
        """Return the value of each seed."""
        return self._values[panel, series][x]

    def mean(self, panel: str, series: str, x: X) -> float:
        """Return the mean of the seeds."""
        return float(np.mean(list(self.values(panel, series, x).values())))

    def overall(self, panel: str, series: str) -> float:
        """Return the mean over all places of the means of the seeds."""
        return float(np.mean([self.mean(panel, series, x) for x in self.places(panel, series)]))

    def half_width(self, panel: str, series: str, x: X) -> float:
        """Return half the width of the confidence interval of the mean of the seeds."""
        return half_width(np.array(list(self.values(panel, series, x).values())))

    def improvement_percent(self, panel: str, series: str, over: str, x: X) -> float:
        """Return how much shorter a curve is than another one, percent of the other (makespan paper, equation 7)."""
        return 100.0 * (1.0 - self.mean(panel, series, x) / self.mean(panel, over, x))

    def ratio(self, panel: str, series: str, over: str, x: X) -> float:
        """Return the mean of the ratio of two curves over the seeds where the other is not 0; NaN if there are none."""
        one, other = self.values(panel, series, x), self.values(panel, over, x)
        ratios = [one[seed] / other[seed] for seed in one if other.get(seed)]
        return float(np.mean(ratios)) if ratios else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of the paper beside our results."""

    #: Identifier of the statement, for tests: letters, digits and hyphens.
    key: str
    #: The statement, its place in the paper, and the paper's own value.
    text: str
    where: str = "ours"
    paper: str = "not given"
    #: Our values, by curve.
    ours: Mapping[str, float]
    unit: str = "%"
    #: How and why our results differ; empty if they do not.
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that all figures of a run share."""

    seeds: tuple[int, ...]
    #: Maximum number of points on each x axis; None = all.
    points: int | None = None
    #: Factor on the full numbers of jobs and hosts.
    scale: float = 1.0
    #: Further policies to draw.
    also: tuple[str, ...] = ()
    #: Trace file for figures that need a real trace.
    trace: Path | None = None

    def scaled(self, number: int) -> int:
        """Return a number of jobs or hosts multiplied by the scale, at least 1."""
        return max(1, round(self.scale * number))

    def thinned(self, places: Sequence[Any]) -> list[Any]:
        """Return at most `points` of the places, evenly chosen, including the first and the last."""
        if self.points is None or len(places) <= self.points:
            return list(places)
        chosen = np.unique(np.linspace(0, len(places) - 1, max(2, self.points)).round().astype(int))
        return [places[i] for i in chosen.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The description of one figure: cases, each measured with every seed, and the claims about the samples.

    A case is a subject (a panel, or the subject of a panel) at one of its places on the x axis.
    """

    number: int
    title: str
    where: str
    panels: tuple[Panel, ...]
    #: Places on the x axis, by subject.
    places: Mapping[Any, Sequence[Any]]
    #: Measures a case; takes subject, place, seed and settings.
    measure: Callable[[Any, Any, int, Settings], Iterable[Sample]]
    claims: Callable[[Samples], Iterable[Claim]]
    #: Values of the paper's curves, as far as its text gives them.
    stated: tuple[Stated, ...] = ()
    #: Whether it needs a real trace, which the project does not include.
    needs_trace: bool = False

    def cases(self, settings: Settings) -> list[tuple[Any, Any]]:
        """Return the cases, subject by subject, with as many places as the settings allow."""
        return [(subject, x) for subject, places in self.places.items() for x in settings.thinned(places)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A completed figure: its description, samples and claims."""

    experiment: Experiment
    samples: Samples
    claims: tuple[Claim, ...] = field(default_factory=tuple)
