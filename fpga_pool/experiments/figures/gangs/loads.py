"""Figures 6, 7 and 9 to 12, and ours 15 and 16: response time and bounded slowdown over the load (section 3.4, 3.5)."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fpga_pool.core.gangs.progress import ProgressParams, UsageSaid
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
    most_over_easy,
    others_over_ours,
    ours_over_measy,
    over_easy,
    results,
)

ALL, THREE = (EASY, KEASY, REASY, MEASY, OURS), (EASY, KEASY, MEASY, OURS)
PANELS = (
    Panel(key=RESPONSE, title="mean response time", x_label="load", y_label="s"),
    Panel(key=SLOWDOWN, title="mean bounded slowdown", x_label="load", y_label="", log_y=True),
)
_BOTH = "MEASY, both workloads: "
_SHORT = "The model has the paper's means, and fewer very short gangs than its slowdowns speak of; runs are shorter."


def cases(settings: Settings) -> list[float]:
    """Return the loads."""
    return settings.thinned(LOADS)


def measure(setting: Setting, policies: Sequence[str], load: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    for name, found in results(setting, load, list(dict.fromkeys([*policies, *settings.also])), seed, settings):
        yield Sample(RESPONSE, load, name, seed, found.response_s)
        yield Sample(SLOWDOWN, load, name, seed, found.slowdown)


def _paper_claims(where: str, samples: Samples) -> list[Claim]:
    """Return what section 3.4 says of both workloads together."""
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
        cases=cases,
        measure=partial(measure, setting, policies),
        claims=claims,
        needs_trace=setting.workload == TRACE,
    )


_ALWAYS = "KEASY and MEASY better than EASY, MEASY than KEASY"
_UNKNOWN, _FULL = UsageSaid(unknown=True), ProgressParams(usage=(1.0, 1.0))

EXPERIMENTS = (
    _experiment(6, FEITELSON, "section 3.4", Setting(workload=FEITELSON), ALL, partial(_paper_claims, "section 3.4")),
    _experiment(7, JANN, "section 3.4", Setting(workload=JANN), ALL, partial(_paper_claims, "section 3.4")),
    *(
        _experiment(
            number,
            f"{workload}, usage unknown",
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
            f"{workload}, all processes use all of their processors",
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
