"""Figures 9 to 11: use of the accelerators, and the degree of load balancing."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.learned import runs
from fpga_pool.experiments.figures.learned.runs import PAPER, RANDOM, Case
from fpga_pool.sim.cluster.workload import all_nodes

TASK_COUNTS = (250, 500, 750, 1000, 1250, 1500)
_BUSY = "An accelerator that executes anything is busy, and one that thrashes is busy longer."


def busy(node: int | None, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the share of accelerators in use, of one node or of all, in parts of the time of arrivals."""
    for name, run in runs.of_each_stack(Case(), seed, settings):
        usage = run.stable_usage()[:, :, 2]
        counts = np.array([run.world.nodes[kind].accelerators for kind in all_nodes(run.world)])
        shares = usage[:, node] if node is not None else usage @ counts / counts.sum()
        for part, mean in enumerate(np.array_split(shares, 8), start=1):
            yield Sample("use", part / 8, name, seed, 100 * float(mean.mean()))


def _busy_experiment(number: int, node: int | None, paper: str) -> Experiment:
    title = f"use of the accelerators of {'the cluster' if node is None else 'node 1'}"

    def claims(samples: Samples) -> list[Claim]:
        ours = {
            name: float(np.mean([samples.mean("use", name, x) for x in samples.places("use", name)]))
            for name in samples.series("use")
        }
        where = f"section 5.3.3, figure {number}"
        return [Claim(key="use", text=f"mean {title}", where=where, paper=paper, ours=ours, why=_BUSY)]

    return Experiment(
        number=number,
        title=title,
        where="section 5.3.3",
        panels=(Panel(key="use", title=title, x_label="part of the time of arrivals", y_label="%"),),
        cases=lambda _: [node],
        measure=busy,
        claims=claims,
    )


CLUSTER = _busy_experiment(9, None, "IAWP 83, 14.7 more than the others")
NODE_1 = _busy_experiment(10, 0, "IAWP 87")


def balance(tasks: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield 1 less the standard deviation between nodes of their mean use (equations 7 to 10)."""
    for name, run in runs.of_each_stack(Case(tasks=tasks), seed, settings):
        load = np.minimum(run.stable_usage(), 1.0).mean(axis=2)
        yield Sample("balance", tasks, name, seed, float((1 - load.std(axis=1)).mean()))


def balance_claims(samples: Samples) -> list[Claim]:
    """Return the degree at the greatest number of tasks."""
    x = max(float(place) for place in samples.places("balance", PAPER))
    ours = {name: samples.mean("balance", name, x) for name in (PAPER, RANDOM, *samples.series("balance"))}
    return [
        Claim(
            key="balance", text="degree of load balancing at the greatest number of tasks",
            where="section 5.3.4, figure 11", paper="IAWP the highest; no values in the text", ours=ours, unit="",
            why="A cluster that is idle, or thrashes everywhere, has the highest degree: it is no goal.",
        )
    ]  # fmt: skip


BALANCE = Experiment(
    number=11,
    title="degree of load balancing by tasks",
    where="section 5.3.4",
    panels=(Panel(key="balance", title="load balancing", x_label="tasks", y_label="1 - standard deviation"),),
    cases=lambda settings: settings.thinned(TASK_COUNTS),
    measure=balance,
    claims=balance_claims,
)
EXPERIMENTS = (CLUSTER, NODE_1, BALANCE)
