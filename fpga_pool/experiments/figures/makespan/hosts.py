"""Figures 3 and 4: makespan over the numbers of responders and requesters (section 5.2), and of jobs (section 5.3)."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import (
    BOUND,
    OURS,
    PAPERS_OWN,
    TITLES,
    Form,
    Shape,
    batch,
    curves,
    improvements,
    makespans,
    ratios,
)

# ---- Figure 3

#: The paper names 20, 30, 40 responders and 150, 200, 350 requesters.
RESPONDERS = (5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100)
REQUESTERS = (50, 100, 150, 200, 250, 300, 350, 400)
_WHERE = "section 5.2"
_ROUNDING = "Algorithm 2 may add a whole job to an accelerator that is full; with few jobs on each that is much."


def _panel(form: Form, axis: str) -> str:
    return f"{form}-{axis}"


def _measure(subject: tuple[Form, str], hosts: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    form, axis = subject
    shape = Shape(responders=hosts) if axis == "responders" else Shape(requesters=hosts)
    problem = batch(form, shape.scaled(settings), seed)
    yield from makespans(_panel(form, axis), hosts, curves(PAPERS_OWN[form], settings), problem, seed)


def _claims(samples: Samples) -> list[Claim]:
    """Return the claims of section 5.2."""
    return [*_compute(samples), *_network(samples), *_joint(samples)]


def _compute(samples: Samples) -> Iterator[Claim]:
    panel, own = _panel(Form.COMPUTE, "responders"), PAPERS_OWN[Form.COMPUTE]
    places = samples.places(panel, OURS)
    if 40 in places:
        gains = improvements(samples, panel, (own, OURS), "sjf", [40])
        yield Claim(
            key="compute-over-sjf-at-40", text="improvement over SJF with 40 responders, the largest", where=_WHERE,
            paper="27.81 %", ours={name: values[0] for name, values in gains.items()},
            why="Which vertex of CIM-LP is rounded is not said; ours is one of least total computation.",
        )  # fmt: skip
    gains = improvements(samples, panel, (own, OURS), "sjf", places)
    yield Claim(
        key="compute-largest-over-sjf", text="largest improvement over SJF, all numbers of responders", where=_WHERE,
        paper="27.81 %", ours={name: max(values) for name, values in gains.items()},
    )  # fmt: skip
    yield Claim(
        key="compute-ljf-over-sjf", text="LJF performs worst: makespan of LJF over that of SJF", where=_WHERE,
        paper="> 1", ours={"ljf": float(np.mean(ratios(samples, panel, ["ljf"], "sjf")["ljf"]))}, unit="x",
        why="Not so with the definition given: LJF leaves small jobs to the end, and they fill the gaps. It is worse "
        "only where accelerators are many.",
    )  # fmt: skip
    yield _near_bound("compute", samples, panel, own, "very close to the bound", _ROUNDING)
    flat = _panel(Form.COMPUTE, "requesters")
    means = [samples.mean(flat, own, x) for x in samples.places(flat, own)]
    yield Claim(
        key="compute-flat-in-requesters", text="makespan does not depend on the requesters: largest over least",
        where=_WHERE, paper="1", ours={own: max(means) / min(means)}, unit="x",
    )  # fmt: skip


def _network(samples: Samples) -> Iterator[Claim]:
    own = PAPERS_OWN[Form.NETWORK]
    for axis, knee in (("responders", 20), ("requesters", 150)):
        panel = _panel(Form.NETWORK, axis)
        places = samples.places(panel, own)
        if knee in places:
            yield Claim(
                key=f"network-knee-{axis}", text=f"no gain beyond {knee} {axis}: makespan there over the last one",
                where=_WHERE, paper="about 1", unit="x",
                ours={name: samples.mean(panel, name, knee) / samples.mean(panel, name, places[-1])
                      for name in (own, OURS)},
                why="" if axis == "responders" else "The busiest requester decides: with more of them each has fewer "
                "jobs, and its egress bounds the makespan still at 400.",
            )  # fmt: skip
    panel = _panel(Form.NETWORK, "responders")
    many = [x for x in samples.places(panel, own) if float(x) >= 30]
    if many:
        yield Claim(
            key="network-at-bound", text="at the bound with many responders (30 or more): worst ratio", where=_WHERE,
            paper="1", ours={name: max(samples.ratio(panel, name, BOUND, x) for x in many) for name in (own, OURS)},
            unit="x",
        )  # fmt: skip
    panel = _panel(Form.NETWORK, "requesters")
    first, *_, last = samples.places(panel, own)
    gains = improvements(samples, panel, (own, OURS), "sjf", (first, last))
    yield Claim(
        key="network-gain-grows", text="improvement over SJF grows with the requesters: first and last number of them",
        where=_WHERE, paper="grows",
        ours={f"{name} {when}": values[k] for name, values in gains.items() for k, when in ((0, "first"), (1, "last"))},
    )  # fmt: skip
    panel = _panel(Form.NETWORK, "responders")
    yield Claim(
        key="network-ljf-over-sjf", text="LJF performs worst: makespan of LJF over that of SJF", where=_WHERE,
        paper="> 1", ours={"ljf": float(np.mean(ratios(samples, panel, ["ljf"], "sjf")["ljf"]))}, unit="x",
        why="Running flows take what becomes free, so a large job that is sent first wastes nothing.",
    )  # fmt: skip


def _joint(samples: Samples) -> Iterator[Claim]:
    own = PAPERS_OWN[Form.JOINT]
    panel = _panel(Form.JOINT, "requesters")
    if 350 in samples.places(panel, own):
        for other, paper, why in (
            (
                "sjf",
                "36.25 %",
                "The baseline decides: SJF here sends one job ahead, and running transfers take what becomes free.",
            ),
            ("ljf", "46.81 %", "LJF sends large jobs first and is near the bound here."),
        ):
            gains = improvements(samples, panel, (own, OURS), other, [350])
            yield Claim(
                key=f"joint-over-{other}-at-350", text=f"improvement over {other.upper()} with 350 requesters",
                where=_WHERE, paper=paper, ours={name: values[0] for name, values in gains.items()}, why=why,
            )  # fmt: skip
    panel = _panel(Form.JOINT, "responders")
    parts = [(_panel(form, "responders"), PAPERS_OWN[form]) for form in (Form.COMPUTE, Form.NETWORK)]
    shared = [x for x in samples.places(panel, own) if all(x in samples.places(*part) for part in parts)]
    of_sum = [samples.mean(panel, own, x) / sum(samples.mean(*part, x) for part in parts) for x in shared]
    yield Claim(
        key="joint-less-than-sum", text="less than the sum of the other two cases: worst ratio", where=_WHERE,
        paper="< 1", ours={own: max(of_sum)}, unit="x",
    )  # fmt: skip
    yield _near_bound("joint", samples, panel, own, "close to the bound", "Algorithm 4 places by computation alone.")


def _near_bound(form: str, samples: Samples, panel: str, own: str, paper: str, why: str) -> Claim:
    near = ratios(samples, panel, (own, OURS), BOUND)
    values = {f"{name} {what}": float(of(near[name])) for name in near for what, of in _MEAN_AND_WORST}
    return Claim(
        key=f"{form}-near-bound", text="makespan over the bound, over all numbers of responders", where=_WHERE,
        paper=paper, ours=values, unit="x", why=why,
    )  # fmt: skip


_MEAN_AND_WORST = (("mean", np.mean), ("worst", np.max))


EXPERIMENT = Experiment(
    number=3,
    title="makespan over the number of responders and requesters",
    where=_WHERE,
    panels=tuple(
        Panel(key=_panel(form, axis), title=f"{TITLES[form]}, {fixed}", x_label=axis)
        for form in Form
        for axis, fixed in (("responders", "200 requesters"), ("requesters", "30 responders"))
    ),
    places={
        (form, axis): places
        for form in Form
        for axis, places in (("responders", RESPONDERS), ("requesters", REQUESTERS))
    },
    measure=_measure,
    claims=_claims,
)


# ---- Figure 4

_LOAD_WHERE = "section 5.3"
#: "2000 requester hosts and 300 responder hosts"; the numbers of jobs are not in the text.
JOBS = (2000, 5000, 10_000, 15_000, 20_000)
LOAD_REQUESTERS, LOAD_RESPONDERS = 2000, 300


def _measure_load(form: Form, jobs: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    shape = Shape(jobs=jobs, requesters=LOAD_REQUESTERS, responders=LOAD_RESPONDERS).scaled(settings)
    problem = batch(form, shape, seed)
    yield from makespans(form, jobs, curves(PAPERS_OWN[form], settings), problem, seed)


def _linear(samples: Samples, form: Form) -> Claim:
    """Return the claim of section 5.3."""
    why = (
        "Below some 10 jobs per accelerator the longest job decides, and a good plan is not longer with more of them."
        if form is Form.COMPUTE
        else ""
    )
    return Claim(
        key=f"{form}-linear",
        text=f"{TITLES[form]}: almost linear in the number of jobs; correlation",
        where=_LOAD_WHERE,
        paper="almost 1",
        ours={name: _correlation(samples, form, name) for name in ("sjf", PAPERS_OWN[form], OURS)},
        unit="",
        why=why,
    )


def _correlation(samples: Samples, panel: str, series: str) -> float:
    places = samples.places(panel, series)
    means = [samples.mean(panel, series, x) for x in places]
    return float(np.corrcoef([float(x) for x in places], means)[0, 1])


LOAD_EXPERIMENT = Experiment(
    number=4, title="makespan over the number of jobs, 2000 requesters, 300 responders", where=_LOAD_WHERE,
    panels=tuple(Panel(key=form, title=TITLES[form], x_label="jobs") for form in Form),
    places=dict.fromkeys(Form, JOBS), measure=_measure_load,
    claims=lambda samples: [_linear(samples, form) for form in Form],
)  # fmt: skip
