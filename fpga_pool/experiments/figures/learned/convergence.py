"""Figures 3 and 4: convergence of the cluster's network and of the nodes', with and without pre-training."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.core.learned.dqn import Ncf
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.learned import runs
from fpga_pool.sim.cluster.node import Profiler
from fpga_pool.sim.cluster.workload import draw

WITH, WITHOUT = "with pre-training", "without pre-training"
#: Parts of a run of which means are drawn.
PARTS = 10

# ---- Figure 3

_STACKS = {
    WITH: runs.Stack(cluster="ldwp", node="ect", pretrained=True),
    WITHOUT: runs.Stack(cluster="ldwp", node="ect"),
}


def reward(case: runs.Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield mean reward and mean response time of the decisions of each part of a run."""
    case = runs.scaled(case, settings)
    for name, stack in _STACKS.items():
        run = runs.simulated(case, stack, seed)
        response_s = run.outcome.end_s - run.workload.arrival_s
        for panel, values in (("reward", run.policy.rewards), ("response", response_s)):
            for part, mean in enumerate(part_means(values), start=1):
                yield Sample(panel, part * case.tasks / PARTS, name, seed, mean)


def part_means(values: object) -> list[float]:
    """Return the mean of each of `PARTS` parts."""
    return [float(np.mean(part)) for part in np.array_split(np.asarray(values, dtype=np.float64), PARTS)]


def reward_claims(samples: Samples) -> list[Claim]:
    """Return how much the last half of a run is better than the first fifth."""
    ours = {}
    for name in _STACKS:
        places = samples.places("response", name)
        early = np.mean([samples.mean("response", name, x) for x in places[:2]])
        late = np.mean([samples.mean("response", name, x) for x in places[PARTS // 2 :]])
        ours[name] = float(late / early)
    rewards = {
        name: float(np.mean([samples.mean("reward", name, x) for x in samples.places("reward", name)]))
        for name in _STACKS
    }
    why = "Throughput is the arrival rate in the long run, so its increases have a mean of 0 whatever is decided."
    return [
        Claim(
            key="late-over-early", text="mean response time, last half of the decisions over the first fifth",
            where="section 5.2, figure 3", paper="reward stable after 700 decisions with, 1300 without", ours=ours,
            unit="",
            why="Queues grow meanwhile: the reward does not say which decision was a good one.",
        ),
        Claim(
            key="mean-reward", text="mean reward of all decisions", where="section 5.2, figure 3",
            paper="rises, then stable", ours=rewards, unit="tasks per minute", why=why,
        ),
    ]  # fmt: skip


CONVERGENCE = runs.Case(tasks=runs.CONVERGENCE_TASKS)
REWARD = Experiment(
    number=3,
    title="convergence of the deep Q-network",
    where="section 5.2",
    panels=(
        Panel(key="reward", title="reward", x_label="decisions", y_label="tasks per minute"),
        Panel(key="response", title="response time", x_label="decisions", y_label="mean response time, s"),
    ),
    cases=lambda _: [CONVERGENCE],
    measure=reward,
    claims=reward_claims,
)

# ---- Figure 4


def loss(case: runs.Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the error of the network of one kind of node over the measurements of the run's subtasks."""
    case = runs.scaled(case, settings)
    world = runs.world_of(case)
    workload = draw(world, seed)
    profiler = Profiler(world, 0.0)
    rng = np.random.default_rng(seed)
    measured = []
    kind = 0
    for _ in range(case.tasks):
        type_ = int(rng.integers(len(world.subtasks)))
        true_s = workload.true.seconds([type_], 100.0)[0, kind].tolist()
        measured += [(type_, *each) for each in profiler.measure(type_, kind, true_s, rng)]
    metrics = 1 + max(metric for _, metric, _ in measured)
    scale = np.ones(metrics)
    scale[-1] = 16.0
    # Adam fits it to the first of the measurements.
    for name, pretrain_after in ((WITH, max(64, len(measured) // 20)), (WITHOUT, 0)):
        network = Ncf(len(world.subtasks), metrics, rng=np.random.default_rng(seed), pretrain_after=pretrain_after)
        for type_, metric, value in measured:
            network.observe(type_, metric, min(value / float(scale[metric]), 1.0))
        for part, mean in enumerate(part_means(network.losses), start=1):
            yield Sample("loss", part / PARTS, name, seed, mean)


def loss_claims(samples: Samples) -> list[Claim]:
    """Return the error of the last tenth of the steps."""
    ours = {name: samples.mean("loss", name, 1.0) for name in (WITH, WITHOUT)}
    return [
        Claim(
            key="last-loss", text="mean squared error of the last tenth of the steps", where="section 5.2, figure 4",
            paper="lower with pre-training; no values in the text", ours=ours, unit="",
            why="Without pre-training the paper goes on with Adam, here SGD takes the steps.",
        )
    ]  # fmt: skip


LOSS = Experiment(
    number=4,
    title="convergence of neural collaborative filtering",
    where="section 5.2",
    panels=(Panel(key="loss", title="training error", x_label="part of the steps", y_label="mean squared error"),),
    cases=lambda _: [CONVERGENCE],
    measure=loss,
    claims=loss_claims,
)
EXPERIMENTS = (REWARD, LOSS)
