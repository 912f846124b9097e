"""The figures of the learned placement paper, section 5."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings, Stated
from fpga_pool.experiments.figures.learned import runs
from fpga_pool.experiments.figures.learned.ours import COMPARED
from fpga_pool.experiments.figures.learned.runs import ECT, PAPER, PATS, RANDOM, Case
from fpga_pool.sim.cluster.node import Profiler
from fpga_pool.sim.cluster.workload import all_nodes, draw

# ---- Figures 3 and 4: convergence

WITH, WITHOUT = "with pre-training", "without pre-training"
#: Number of parts of a run whose means are drawn.
REWARD_PARTS = 10

# ---- Figure 3

_STACKS = {
    WITH: runs.Stack(cluster="ldwp", node="ect", pretrained=True),
    WITHOUT: runs.Stack(cluster="ldwp", node="ect"),
}


def _measure_reward(case: Case, _: None, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield mean reward and mean response time of the decisions of each part of a run."""
    case = runs.scaled(case, settings)
    for name, stack in _STACKS.items():
        run = runs.simulated(case, stack, seed)
        response_s = run.outcome.end_s - run.workload.arrival_s
        for panel, values in (("reward", run.policy.rewards), ("response", response_s)):
            for part, mean in enumerate(_part_means(values), start=1):
                yield Sample(panel, part * case.tasks / REWARD_PARTS, name, seed, mean)


def _part_means(values: object) -> list[float]:
    """Return the mean of each of `REWARD_PARTS` parts."""
    return [float(np.mean(part)) for part in np.array_split(np.asarray(values, dtype=np.float64), REWARD_PARTS)]


def _reward_claims(samples: Samples) -> list[Claim]:
    """Return how the last half of a run compares with the first fifth, and the mean reward."""
    ours = {}
    for name in _STACKS:
        places = samples.places("response", name)
        early = np.mean([samples.mean("response", name, x) for x in places[:2]])
        late = np.mean([samples.mean("response", name, x) for x in places[REWARD_PARTS // 2 :]])
        ours[name] = float(late / early)
    rewards = {name: samples.overall("reward", name) for name in _STACKS}
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


#: A single run provides all places on the x axis.
_CONVERGENCE = {Case(tasks=runs.CONVERGENCE_TASKS): (None,)}
REWARD = Experiment(
    number=3,
    title="convergence of the deep Q-network",
    where="section 5.2",
    panels=(
        Panel(key="reward", title="reward", x_label="decisions", y_label="tasks per minute"),
        Panel(key="response", title="response time", x_label="decisions", y_label="mean response time, s"),
    ),
    places=_CONVERGENCE,
    measure=_measure_reward,
    claims=_reward_claims,
)

# ---- Figure 4


def _measure_loss(case: Case, _: None, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the training error of the network of one kind of node while it learns from measurements of subtasks."""
    case = runs.scaled(case, settings)
    world = runs.world_of(case)
    workload = draw(world, seed)
    profiler = Profiler(world, 0.0)
    rng = np.random.default_rng(seed)
    measured = []
    kind = 0
    for _task in range(case.tasks):
        type_ = int(rng.integers(len(world.subtasks)))
        true_s = workload.true.seconds([type_], 100.0)[0, kind].tolist()
        measured += [(type_, *each) for each in profiler.measure(type_, kind, true_s, rng)]
    metrics = 1 + max(metric for _, metric, _ in measured)
    scale = np.ones(metrics)
    scale[-1] = 16.0
    # With pre-training, Adam fits the network to the first measurements.
    for name, pretrain_after in ((WITH, max(64, len(measured) // 20)), (WITHOUT, 0)):
        from fpga_pool.core.cluster.dqn import Ncf  # importing torch takes long

        network = Ncf(len(world.subtasks), metrics, rng=np.random.default_rng(seed), pretrain_after=pretrain_after)
        for type_, metric, value in measured:
            network.observe(type_, metric, min(value / float(scale[metric]), 1.0))
        for part, mean in enumerate(_part_means(network.losses), start=1):
            yield Sample("loss", part / REWARD_PARTS, name, seed, mean)


def _loss_claims(samples: Samples) -> list[Claim]:
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
    places=_CONVERGENCE,
    measure=_measure_loss,
    claims=_loss_claims,
)


# ---- Figures 9 to 11: use of the accelerators, and the degree of load balancing

TASK_COUNTS = (250, 500, 750, 1000, 1250, 1500)
_BUSY = "An accelerator that executes anything is busy, and one that thrashes is busy longer."


def _measure_busy(node: int | None, _: None, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the share of accelerators in use, on one node or on all, for parts of the time of arrivals."""
    for name, run in runs.of_each_stack(Case(), seed, settings):
        usage = run.stable_usage()[:, :, 2]
        counts = np.array([run.world.nodes[kind].accelerators for kind in all_nodes(run.world)])
        shares = usage[:, node] if node is not None else usage @ counts / counts.sum()
        for part, mean in enumerate(np.array_split(shares, 8), start=1):
            yield Sample("use", part / 8, name, seed, 100 * float(mean.mean()))


def _busy_experiment(number: int, node: int | None, mean: float, more: str = "") -> Experiment:
    title = f"use of the accelerators of {'the cluster' if node is None else 'node 1'}"
    paper = f"IAWP {mean:g}{more}"

    def claims(samples: Samples) -> list[Claim]:
        ours = {name: samples.overall("use", name) for name in samples.series("use")}
        where = f"section 5.3.3, figure {number}"
        return [Claim(key="use", text=f"mean {title}", where=where, paper=paper, ours=ours, why=_BUSY)]

    return Experiment(
        number=number,
        title=title,
        where="section 5.3.3",
        panels=(Panel(key="use", title=title, x_label="part of the time of arrivals", y_label="%"),),
        places={node: (None,)},
        measure=_measure_busy,
        claims=claims,
        stated=(Stated("use", PAPER, mean, mean),),
    )


BUSY_CLUSTER = _busy_experiment(9, None, 83.0, ", 14.7 more than the others")
BUSY_NODE_1 = _busy_experiment(10, 0, 87.0)


def _measure_balance(_: str, tasks: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield 1 minus the standard deviation of the mean use over the nodes (equations 7 to 10)."""
    for name, run in runs.of_each_stack(Case(tasks=tasks), seed, settings):
        load = np.minimum(run.stable_usage(), 1.0).mean(axis=2)
        yield Sample("balance", tasks, name, seed, float((1 - load.std(axis=1)).mean()))


def _balance_claims(samples: Samples) -> list[Claim]:
    """Return the degree of load balancing at the greatest number of tasks."""
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
    places={"balance": TASK_COUNTS},
    measure=_measure_balance,
    claims=_balance_claims,
)


NODE_COUNTS, RATES, SIZES_MB = (3, 4, 5, 6, 7, 8, 9, 10, 11), (10, 20, 30, 40, 50, 60), (10, 20, 60, 120, 200, 400)
PANEL = "throughput"
OWN_TIMES = "Times and interference are ours; the paper publishes none."


def _gains(samples: Samples) -> dict[str, float]:
    """Return the gain of the paper's stack in throughput over each other one at the greatest x, in percent."""
    x = max(float(place) for place in samples.places(PANEL, PAPER))
    found = {}
    for name in samples.series(PANEL):
        if name != PAPER:
            below = samples.mean(PANEL, name, x)
            found[f"over {name}"] = 100 * (samples.mean(PANEL, PAPER, x) / below - 1) if below else float("nan")
    return found


def _by(
    number: int, title: str, x_label: str, places: Sequence[int], case: Callable[[int], Case], node: int | None,
    paper: str,
) -> Experiment:  # fmt: skip
    where = f"section 5.3.{1 if number < 7 else 2}, figure {number}"

    def measure(_: str, x: int, seed: int, settings: Settings) -> Iterator[Sample]:
        """Yield the throughput of each stack, from the first arrival to the last completion."""
        for name, run in runs.of_each_stack(case(x), seed, settings):
            yield Sample(PANEL, x, name, seed, run.throughput(0.0, run.end_s, node))

    def claims(samples: Samples) -> list[Claim]:
        text = (
            f"throughput of {'the cluster' if node is None else 'node 1'} at the greatest {x_label}: the paper's gain"
        )
        why = f"{OWN_TIMES} Every method shares accelerators here; throughput below saturation is the arrival rate."
        return [Claim(key="gain", text=text, where=where, paper=paper, ours=_gains(samples), why=why)]

    return Experiment(
        number=number,
        title=title,
        where=where,
        panels=(Panel(key=PANEL, title=title, x_label=x_label, y_label="tasks per minute"),),
        places={PANEL: places},
        measure=measure,
        claims=claims,
    )


_NODES = "nodes", NODE_COUNTS, lambda nodes: Case(nodes=nodes)
_RATE = "tasks per minute", RATES, lambda per_minute: Case(per_minute=per_minute)
NODES = _by(5, "cluster throughput by nodes", *_NODES, None, "38.8 with 10 nodes")
NODE_1 = _by(6, "throughput of node 1 by nodes", *_NODES, 0, "31.9 with 6 nodes")
RATE = _by(7, "cluster throughput by arrival rate", *_RATE, None, "27.9 at 60 per minute")
RATE_1 = _by(8, "throughput of node 1 by arrival rate", *_RATE, 0, "41.0 at 60 per minute")

# ---- Figure 12


def _measure_speedup(_: str, size_mb: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the mean response time of `random` over that of each other stack."""
    stacks = runs.of_each_stack(Case(input_mb=size_mb), seed, settings)
    response_s = {name: run.mean_response_s() for name, run in stacks}
    base_s = response_s.pop(RANDOM)
    for name, own_s in response_s.items():
        yield Sample("speedup", size_mb, name, seed, base_s / own_s)


def _speedup_claims(samples: Samples) -> list[Claim]:
    """Return the greatest speedup of each stack."""
    ours = {
        name: max(samples.mean("speedup", name, x) for x in samples.places("speedup", name))
        for name in samples.series("speedup")
    }
    return [
        Claim(
            key="speedup", text="mean response time of random over that of each method, greatest of all sizes",
            where="section 5.3.5, figure 12", paper="LDWP and IAWP 5 to 10", ours=ours, unit="",
            why=f"{OWN_TIMES} Random is unstable where load is high: there any stable policy is many times faster.",
        )
    ]  # fmt: skip


SIZE = Experiment(
    number=12,
    title="speedup over random by size",
    where="section 5.3.5",
    panels=(Panel(key="speedup", title="speedup", x_label="input, MB", y_label="response time of random / own"),),
    places={"speedup": SIZES_MB},
    measure=_measure_speedup,
    claims=_speedup_claims,
    stated=(Stated("speedup", PAPER, 5.0, 10.0),),
)

# ---- Figure 13

#: Shares of the run after which three nodes join and two leave; the times of the figure are not in the text.
JOIN, LEAVE, FIRST_NODES = 1 / 3, 2 / 3, 8
PARTS = 12
CHANGING_TASKS = 3000
_CHANGING = (PAPER, ECT, PATS)


def _measure_changing(_: str, most: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield throughput over a run in which nodes join and leave."""
    tasks = settings.scaled(most)
    minutes = tasks / runs.PER_MINUTE
    changes = ((JOIN * minutes * 60, True, 3), (LEAVE * minutes * 60, False, 2))
    case = Case(tasks=tasks, nodes=FIRST_NODES, changes=changes)
    edges = np.linspace(0, minutes * 60, PARTS + 1)
    for name in _CHANGING:
        run = runs.run(case, name, seed)
        for begin_s, end_s in pairwise(edges.tolist()):
            x = round(end_s / (minutes * 60), 6)
            yield Sample(PANEL, x, name, seed, run.throughput(begin_s, end_s))


def _changing_claims(samples: Samples) -> list[Claim]:
    """Return the ratios of throughput after the join and after the leave to that before each."""
    ours = {}
    for name in samples.series(PANEL):
        means = [samples.mean(PANEL, name, x) for x in samples.places(PANEL, name)]
        first, then, last = (float(np.mean(part[-2:])) for part in np.array_split(means, 3))
        ours[f"{name}, join"] = then / first if first else float("nan")
        ours[f"{name}, leave"] = last / then if then else float("nan")
    return [
        Claim(
            key="after-changes", text="throughput at the end of the part after a change over that before it",
            where="section 5.3.6, figure 13", paper="rises after the join for 12 min, falls after the leave for 10 min",
            ours=ours, unit="",
            why="Of the network's weights only the hidden layer is kept, so it explores again after each change.",
        )
    ]  # fmt: skip


CHANGING = Experiment(
    number=13,
    title="throughput while nodes join and leave",
    where="section 5.3.6",
    panels=(Panel(key=PANEL, title="3 join, 2 leave", x_label="part of the run", y_label="tasks per minute"),),
    places={PANEL: (CHANGING_TASKS,)},
    measure=_measure_changing,
    claims=_changing_claims,
)

#: In order of their numbers.
EXPERIMENTS = (
    REWARD,
    LOSS,
    NODES,
    NODE_1,
    RATE,
    RATE_1,
    BUSY_CLUSTER,
    BUSY_NODE_1,
    BALANCE,
    SIZE,
    CHANGING,
    COMPARED,
)
