"""Figure 14: our policy and heuristics, in random worlds."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.rollouts import Run, result_of

#: Worlds of each seed, and tasks of a run.
WORLDS, WORLD_TASKS = 20, 200
_ECT, _OURS = "ect", "learned"
#: The heuristics do not calibrate, because calibration is the first stage of our policy.
_COMPARED = (_ECT, "jsq", "pats", _OURS)
_SUITES = ("held_out", "overload", "unseen_law", "unseen_kinds")
_METRICS = {"mean": "mean_response_s", "p95": "p95_response_s", "goodput": "goodput_per_minute"}


def compared(_: str, suite: str, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the geometric mean, over the worlds of a seed, of each metric of each policy."""
    numbers = range(seed * WORLDS, seed * WORLDS + settings.scaled(WORLDS))
    for name in _COMPARED:
        results = [result_of(Run(suite=suite, world=n, seed=seed, tasks=WORLD_TASKS, policy=name)) for n in numbers]
        for panel, metric in _METRICS.items():
            yield Sample(panel, suite, name, seed, float(np.exp(np.mean(np.log([each[metric] for each in results])))))


def compared_claims(samples: Samples) -> list[Claim]:
    """Return how much shorter our response times are than those of ECT, and how much higher our goodput is."""
    others = [name for name in _COMPARED if name != _OURS]
    suites = [str(suite) for suite in samples.places("mean", _OURS)]
    below = {
        panel: {suite: samples.improvement_percent(panel, _OURS, _ECT, suite) for suite in suites}
        for panel in ("mean", "p95")
    }
    most = {suite: max(samples.mean("goodput", name, suite) for name in others) for suite in suites}
    return [
        Claim(key="mean-below-ect", text="mean response of ours below that of ect", ours=below["mean"]),
        Claim(key="p95-below-ect", text="95th percentile of the response of ours below that of ect", ours=below["p95"]),
        Claim(
            key="goodput-over-heuristics", text="goodput of ours over that of the best of ect, jsq and pats",
            ours={suite: 100 * (samples.mean("goodput", _OURS, suite) / most[suite] - 1) for suite in most},
        ),
    ]  # fmt: skip


COMPARED = Experiment(
    number=14,
    title="ours and heuristics in random worlds",
    where="ours",
    panels=(
        Panel(key="mean", title="mean response", x_label="suite", y_label="s"),
        Panel(key="p95", title="95th percentile of the response", x_label="suite", y_label="s"),
        Panel(key="goodput", title="goodput", x_label="suite", y_label="tasks per minute"),
    ),
    places={"": _SUITES},
    measure=compared,
    claims=compared_claims,
)
