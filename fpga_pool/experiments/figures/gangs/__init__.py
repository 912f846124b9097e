"""The figures of the two-tier paper, section 3, with our policy, Lublin's model and a trace added.

Figures 6, 7 and 9 to 12, and ours 15 and 16, show response time and bounded slowdown over the load (sections 3.4 and
3.5); figure 8 shows migrations per gang (section 3.4), figures 13 and 14 their cost (section 3.5.3).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fpga_pool.core.gangs.progress import UsageSaid
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.gangs.runs import (
    EASY,
    FEITELSON,
    JANN,
    KEASY,
    LOADS,
    LUBLIN,
    MEASY,
    OURS,
    REASY,
    RESPONSE,
    SLOWDOWN,
    TRACE,
    Setting,
    by_load,
    gain,
    most_over_easy,
    others_over_ours,
    ours_over_measy,
    over_easy,
    results,
)

#: Titles of the paper's workloads in pictures.
MODELS = {FEITELSON: "Feitelson's model, calibrated", JANN: "Jann's model, calibrated"}

# ---- Figure 8

_MOVES_WHERE = "section 3.4, figure 8"


def _measure_moves(workload: str, load: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under the policies that migrate."""
    for name, found in results(Setting(workload=workload), load, (MEASY, OURS), seed, settings):
        yield Sample(workload, load, name, seed, found.migrations)


def _moves_claims(samples: Samples) -> list[Claim]:
    """Return the claims of observation 3."""
    low, high = (pick(samples.places(JANN, MEASY), key=float) for pick in (min, max))
    return [
        Claim(
            key=f"{place}-load-jann-over-feitelson",
            text=f"{place} load: migrations per gang on Jann's workload over those on Feitelson's",
            where=_MOVES_WHERE,
            paper=paper,
            ours={name: samples.mean(JANN, name, x) / samples.mean(FEITELSON, name, x) for name in (MEASY, OURS)},
            unit="x",
            why="Counted per gang; the paper's axis is not in its text.",
        )
        for place, x, paper in (("low", low, "below 1"), ("high", high, "above 1"))
    ]


MOVES_EXPERIMENT = Experiment(
    number=8,
    title="migrations",
    where=_MOVES_WHERE,
    panels=tuple(Panel(key=key, title=title, x_label="load", y_label="per gang") for key, title in MODELS.items()),
    places=dict.fromkeys((FEITELSON, JANN), LOADS),
    measure=_measure_moves,
    claims=_moves_claims,
)


# ---- Figures 13 and 14

_COSTS_WHERE = "section 3.5.3"
#: Costs of a migration: 20 s is the default; the text names 480, 900 and 1500 s.
COSTS_S = (20.0, 120.0, 480.0, 900.0, 1500.0, 3000.0)
#: The load of figures 13 and 14, which the text does not give.
LOAD = 0.8


def _measure_costs(workload: str, cost_s: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under each policy."""
    for name, found in results(Setting(workload=workload), LOAD, (KEASY, MEASY, OURS), seed, settings, cost_s):
        yield Sample(RESPONSE, cost_s, name, seed, found.response_s)
        yield Sample(SLOWDOWN, cost_s, name, seed, found.slowdown)


def _costs_claims(paper: str, samples: Samples) -> list[Claim]:
    """Return the improvement of the policies that migrate over the one that kills, by cost."""
    return [
        Claim(
            key=f"{name.replace('_', '-')}-over-keasy",
            text=f"mean response time: improvement of {name} over KEASY, by the cost of a migration",
            where=_COSTS_WHERE,
            paper=said,
            ours={f"{float(x):g} s": gain(samples, RESPONSE, name, KEASY, x) for x in samples.places(RESPONSE, name)},
            why=f"At load {LOAD:g}; the text names none.",
        )
        for name, said in ((MEASY, paper), (OURS, "not given"))
    ]


COSTS_EXPERIMENTS = tuple(
    Experiment(
        number=number,
        title=f"{MODELS[workload]}, the cost of a migration, load {LOAD:g}",
        where=_COSTS_WHERE,
        panels=tuple(
            Panel(key=key, title=title, x_label="cost, s", y_label=unit)
            for key, title, unit in (
                (RESPONSE, "mean response time", "response time, s"),
                (SLOWDOWN, "mean bounded slowdown", "slowdown"),
            )
        ),
        places={workload: COSTS_S},
        measure=_measure_costs,
        claims=partial(_costs_claims, paper),
    )
    for number, workload, paper in (
        (13, FEITELSON, "better below 900 s, a little worse beyond 1500 s"),
        (14, JANN, "better below 480 s, a little worse beyond 900 s"),
    )
)


# ---- Figures over the load

ALL, THREE = (EASY, KEASY, REASY, MEASY, OURS), (EASY, KEASY, MEASY, OURS)
PANELS = (
    Panel(key=RESPONSE, title="mean response time", x_label="load", y_label="response time, s"),
    Panel(key=SLOWDOWN, title="mean bounded slowdown", x_label="load", y_label="slowdown", log_y=True),
)
_BOTH = "MEASY, both workloads: "
_SHORT = "The model has the paper's means, and fewer very short gangs than its slowdowns speak of; runs are shorter."


def _measure(policies: Sequence[str], setting: Setting, load: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under each policy."""
    for name, found in results(setting, load, policies, seed, settings):
        yield Sample(RESPONSE, load, name, seed, found.response_s)
        yield Sample(SLOWDOWN, load, name, seed, found.slowdown)


def _paper_claims(where: str, samples: Samples) -> list[Claim]:
    """Return the claims of section 3.4 about both workloads together."""
    return [
        over_easy(samples, RESPONSE, where, f"{_BOTH}23.1 on average"),
        over_easy(samples, SLOWDOWN, where, f"{_BOTH}69.3 on average", _SHORT),
        most_over_easy(samples, RESPONSE, where, f"{_BOTH}up to 41.1"),
        most_over_easy(samples, SLOWDOWN, where, f"{_BOTH}up to 82.9"),
        *_ours(samples),
    ]


def _ours(samples: Samples) -> list[Claim]:
    claims = [by_load(samples, RESPONSE), by_load(samples, SLOWDOWN), ours_over_measy(samples)]
    return claims + others_over_ours(samples)


def _claims(where: str, paper: str, samples: Samples) -> list[Claim]:
    return [*(over_easy(samples, panel, where, paper) for panel in (RESPONSE, SLOWDOWN)), *_ours(samples)]


def _experiment(
    number: int,
    title: str,
    where: str,
    setting: Setting,
    policies: Sequence[str],
    claims: Callable[[Samples], Sequence[Claim]],
) -> Experiment:
    return Experiment(
        number=number,
        title=title,
        where=where,
        panels=PANELS,
        places={setting: LOADS},
        measure=partial(_measure, policies),
        claims=claims,
        needs_trace=setting.workload == TRACE,
    )


_ALWAYS = "KEASY and MEASY better than EASY, MEASY than KEASY"
_UNKNOWN, _FULL = UsageSaid(unknown=True), ProgressParams(usage=(1.0, 1.0))

LOADS_EXPERIMENTS = (
    _experiment(
        6, MODELS[FEITELSON], "section 3.4", Setting(workload=FEITELSON), ALL, partial(_paper_claims, "section 3.4")
    ),
    _experiment(7, MODELS[JANN], "section 3.4", Setting(workload=JANN), ALL, partial(_paper_claims, "section 3.4")),
    *(
        _experiment(
            number,
            f"{MODELS[workload]}, usage unknown",
            "section 3.5.1",
            Setting(workload=workload, said=_UNKNOWN),
            THREE,
            partial(_claims, "section 3.5.1", _ALWAYS),
        )
        for number, workload in ((9, FEITELSON), (10, JANN))
    ),
    *(
        _experiment(
            number,
            f"{MODELS[workload]}, all processes use all of their processors",
            "section 3.5.2",
            Setting(workload=workload, progress=_FULL),
            THREE,
            partial(_claims, "section 3.5.2", _ALWAYS),
        )
        for number, workload in ((11, FEITELSON), (12, JANN))
    ),
    _experiment(15, "Lublin's model", "ours", Setting(workload=LUBLIN), ALL, partial(_claims, "ours", "not given")),
    _experiment(16, "a trace", "ours", Setting(workload=TRACE), ALL, partial(_claims, "ours", "not given")),
)

#: In order of their numbers.
EXPERIMENTS = tuple(
    sorted((*LOADS_EXPERIMENTS, MOVES_EXPERIMENT, *COSTS_EXPERIMENTS), key=lambda experiment: experiment.number)
)
