"""Training from scratch: a supervised start with two rounds of data, then an evolution strategy.

The network that performs best on the validation worlds is returned.  One of the candidates corrects nothing, so more
training can only help.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.conf.learned import read_network, write_network
from fpga_pool.core.cluster.learned import FEATURES, OUTPUT, PARAMETERS, Floats32, Network, layers
from fpga_pool.core.types import Floats
from fpga_pool.experiments.rollouts import Result, Run, Runner, Samples, network_data, samples_of
from fpga_pool.model.exceptions import InvalidInput

# ---- Supervised start: the network predicts the log of actual / estimated response, with a Huber loss

_STEPS, _BATCH, _LEARNING_RATE, _HUBER = 3000, 128, 3e-3, 0.5
#: Share of the samples outside the ranges of features, and of corrections, on each side.
_OUTSIDE = 0.002


def fresh_network(rng: np.random.Generator) -> Network:
    """Return a network with random hidden layers that corrects nothing, because its output layer is 0."""
    weights = np.zeros(PARAMETERS, dtype=np.float32)
    parts = layers(weights)
    for matrix in (parts[0], parts[2]):
        matrix[:] = rng.normal(0, np.sqrt(2 / len(matrix)), matrix.shape)
    count = len(FEATURES)
    return Network(weights=weights, low=np.zeros(count, np.float32), high=np.ones(count, np.float32), limit=0.0)


def fitted(network: Network, samples: Sequence[Samples], rng: np.random.Generator) -> tuple[Network, list[float]]:
    """Return the network after training on samples, and the mean loss of each 100 steps."""
    table = np.concatenate([each.features for each in samples])
    target = np.concatenate([each.log_ratio for each in samples]).astype(np.float32)
    target -= np.median(target)
    low, high = (np.quantile(table, q, axis=0).astype(np.float32) for q in (_OUTSIDE, 1 - _OUTSIDE))
    network = replace(network, low=low, high=high, limit=float(np.quantile(np.abs(target), 1 - _OUTSIDE)))
    span = high - low
    x = (np.clip(table, low, high) - low) / np.where(span > 0, span, np.float32(1))
    weights = network.weights.copy()
    adam = Adam(len(weights), _LEARNING_RATE)
    losses = []
    for step in range(_STEPS):
        batch = rng.integers(len(x), size=_BATCH)
        loss, gradient = _gradient(weights, x[batch], target[batch])
        weights += adam.step(-gradient)
        losses.append(loss)
        if step == _STEPS * 2 // 3:
            adam.rate /= 5
    means = [float(np.mean(losses[i : i + 100])) for i in range(0, _STEPS, 100)]
    return replace(network, weights=weights), means


def _gradient(weights: Floats32, x: Floats32, target: Floats32) -> tuple[float, Floats32]:
    """Return the Huber loss and its gradient with respect to the weights."""
    w1, b1, w2, b2, w3, b3, direct = layers(weights)
    first = np.maximum(x @ w1 + b1, 0)
    second = np.maximum(first @ w2 + b2, 0)
    error = (second @ w3 + x @ direct + b3)[:, 0] - target
    slope = np.clip(error, -_HUBER, _HUBER)
    loss = float(np.mean(np.where(np.abs(error) <= _HUBER, error**2 / 2, _HUBER * (np.abs(error) - _HUBER / 2))))
    d3 = slope[:, None] / np.float32(len(x))
    d2 = (d3 @ w3.T) * (second > 0)
    d1 = (d2 @ w2.T) * (first > 0)
    parts = (x.T @ d1, d1.sum(axis=0), first.T @ d2, d2.sum(axis=0), second.T @ d3, d3.sum(axis=0), x.T @ d3)
    return loss, np.concatenate([part.ravel() for part in parts]).astype(np.float32)


class Adam:
    """The optimizer Adam of Kingma and Ba (2015), with their constants."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.mean: Floats = np.zeros(size)
        self.square: Floats = np.zeros(size)
        self.steps = 0

    def step(self, ascent: Floats32 | Floats) -> Floats32:
        """Return the change of the parameters along this gradient, in the direction of ascent."""
        self.steps += 1
        self.mean += 0.1 * (ascent - self.mean)
        self.square += 0.001 * (ascent**2 - self.square)
        mean = self.mean / (1 - 0.9**self.steps)
        square = self.square / (1 - 0.999**self.steps)
        return (self.rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)


# ---- Evolution: the objective is the response times of whole runs, which the gradient of a prediction does not capture

# Salimans et al. (2017): pairs of opposite perturbations, ranks instead of values; steps by Adam.  Only the output
# layer evolves, because a few hundred runs say little about more parameters; the hidden layers are those of the
# supervised start.

#: Weight of the logarithm of the 95th percentile relative to that of the mean.
TAIL = 0.5
#: Standard deviation of the perturbations of a weight, and the rate of the steps.
_SIGMA, _RATE = 0.1, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The amount of simulation per generation: pairs of perturbations, worlds for each, and tasks of a run."""

    pairs: int = 6
    worlds: int = 5
    tasks: int = 200


@dataclass(slots=True, eq=False)
class Evolution:
    """The state of an evolution: the network, and the moments of Adam."""

    network: Network
    adam: Adam
    generation: int = 0

    @classmethod
    def of(cls, network: Network) -> "Evolution":
        """Return the state before the first generation."""
        return cls(network, Adam(OUTPUT, _RATE))

    def step(self, seed: int, effort: Effort, run_all: Runner) -> float:
        """Simulate one generation; return the mean objective of its members, lower is better."""
        rng = np.random.default_rng([seed, self.generation])
        noise = rng.standard_normal((effort.pairs, OUTPUT))
        worlds = rng.integers(1_000_000, size=effort.worlds).tolist()
        members = [sign * each for each in noise for sign in (1, -1)]
        runs = [
            Run(
                suite="train",
                world=world,
                seed=0,
                tasks=effort.tasks,
                values={"guard": False},
                network=network_data(self._moved(_SIGMA * member)),
            )
            for member in members
            for world in worlds
        ]
        costs = np.array([cost(result) for result in run_all(runs)]).reshape(len(members), len(worlds)).mean(axis=1)
        ranks = costs.argsort().argsort() / (len(costs) - 1) - 0.5
        ascent = -(ranks @ np.array(members)) / (len(members) * _SIGMA)
        self.network = self._moved(self.adam.step(ascent))
        self.generation += 1
        return float(costs.mean())

    def _moved(self, change: Floats | Floats32) -> Network:
        weights = self.network.weights.copy()
        weights[-OUTPUT:] += change.astype(np.float32)
        return replace(self.network, weights=weights)

    def to_arrays(self) -> Mapping[str, Any]:
        """Return the state as arrays for a file."""
        adam = self.adam
        return {"generation": self.generation, "mean": adam.mean, "square": adam.square, "steps": adam.steps}

    @classmethod
    def from_arrays(cls, network: Network, arrays: Mapping[str, Any]) -> "Evolution":
        """Return the state from the arrays of a file."""
        found = cls.of(network)
        found.generation = int(arrays["generation"])
        found.adam.mean, found.adam.square = np.array(arrays["mean"]), np.array(arrays["square"])
        found.adam.steps = int(arrays["steps"])
        return found


def cost(result: Result) -> float:
    """Return the objective of a run, lower is better; lost tasks add the logarithm of 1 + their number."""
    lost = 1 + result["tasks"] - result["completed"]
    return float(np.log(result["mean_response_s"]) + TAIL * np.log(result["p95_response_s"]) + np.log(lost))


def ratios(results: Sequence[Result], references: Sequence[Result], name: str) -> Floats:
    """Return the (n,) ratios of the results to their references."""
    return np.array([a[name] / b[name] for a, b in zip(results, references, strict=True)])


#: Share of random decisions in each round of data.
_RANDOM = (0.5, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Extent and seed of a training; the result depends only on these and on the machine's arithmetic."""

    seed: int = 0
    #: Runs of each of the two rounds of data.
    runs: int = 12
    generations: int = 8
    #: Generations between validations.
    interval: int = 4
    #: Worlds of a validation.
    validation: int = 14
    effort: Effort = field(default_factory=Effort)


@dataclass(slots=True)
class Progress:
    """The recorded progress of a training."""

    losses: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    #: For each validation: name of the candidate, its cost minus that without corrections, and geometric means of its
    #: mean and p95 response times relative to those without corrections.
    validations: list[tuple[str, float, float, float]] = field(default_factory=list)


#: Called with the name of the current phase, the number of steps done, and the total number of steps.
Report = Callable[[str, int, int], None]


def train(plan: Plan, directory: Path, run_all: Runner, report: Report) -> tuple[Network, Progress]:
    """Return the best network; continue an earlier training of the same plan in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    _check(plan, directory)
    store = _Store(directory)
    validation = _Validation(plan, run_all)
    if not (directory / "supervised.npz").exists():
        progress = Progress()
        network = _supervised(plan, progress, report)
        report("validation", 0, 1)
        weights = network.weights.copy()
        weights[-OUTPUT:] = 0
        neutral = replace(network, weights=weights)
        for name, each in (("none", neutral), ("supervised", network)):
            store.consider(name, each, progress, validation)
        better = progress.validations[1][1] < 0
        store.save(Evolution.of(network if better else neutral), progress)
        write_network(directory / "supervised.npz", network)
    evolution, progress = store.load()
    while evolution.generation < plan.generations:
        report("evolution", evolution.generation, plan.generations)
        progress.costs.append(evolution.step(plan.seed, plan.effort, run_all))
        if evolution.generation % plan.interval == 0 or evolution.generation == plan.generations:
            store.consider(f"generation {evolution.generation}", evolution.network, progress, validation)
        store.save(evolution, progress)
    report("evolution", plan.generations, plan.generations)
    return read_network(directory / "best.npz"), progress


def _supervised(plan: Plan, progress: Progress, report: Report) -> Network:
    rng = np.random.default_rng([plan.seed, 1_000_000_007])
    network, samples = fresh_network(rng), []
    for number, share in enumerate(_RANDOM):
        for each in range(plan.runs):
            report(f"data {number + 1}", each, plan.runs)
            world = int(rng.integers(1_000_000))
            run = Run(
                suite="train",
                world=world,
                seed=0,
                tasks=plan.effort.tasks,
                network=network_data(network) if number else None,
            )
            samples.append(samples_of(run, share))
        report("supervised", number, len(_RANDOM))
        network, losses = fitted(network, samples, rng)
        progress.losses += losses
    return network


class _Validation:
    """Compares networks with one that corrects nothing, in worlds that training does not use."""

    def __init__(self, plan: Plan, run_all: Runner) -> None:
        self._plan, self._run_all = plan, run_all
        self._reference: list[Mapping[str, float]] = []

    def compare(self, network: Network) -> tuple[float, float, float]:
        """Return the difference in cost, and the ratios of mean and p95."""
        if not self._reference:
            self._reference = self._results(replace(network, limit=0.0))
        results = self._results(network)
        difference = np.mean([cost(a) - cost(b) for a, b in zip(results, self._reference, strict=True)])
        mean, p95 = (
            float(np.exp(np.log(ratios(results, self._reference, name)).mean()))
            for name in ("mean_response_s", "p95_response_s")
        )
        return float(difference), mean, p95

    def _results(self, network: Network) -> list[Mapping[str, float]]:
        plan, data = self._plan, network_data(network)
        runs = [
            Run(suite="validation", world=world, seed=0, tasks=plan.effort.tasks, values={"guard": False}, network=data)
            for world in range(plan.validation)
        ]
        return list(self._run_all(runs))


class _Store:
    """The files of a training; each is replaced atomically, the state together with its progress."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, evolution: Evolution, progress: Progress) -> None:
        """Save a generation: its state and the progress so far."""
        new = self._directory / "state.new.npz"
        network = evolution.network
        np.savez(
            new,
            **evolution.to_arrays(),
            weights=network.weights,
            low=network.low,
            high=network.high,
            limit=np.float64(network.limit),
            progress=json.dumps(asdict(progress)),
        )
        new.replace(self._directory / "state.npz")

    def load(self) -> tuple[Evolution, Progress]:
        """Return the generation that was saved last, and the progress up to it."""
        with np.load(self._directory / "state.npz", allow_pickle=False) as arrays:
            network = Network(
                weights=arrays["weights"], low=arrays["low"], high=arrays["high"], limit=float(arrays["limit"])
            )
            progress = Progress(**json.loads(str(arrays["progress"])))
            progress.validations = [tuple(each) for each in progress.validations]  # type: ignore[misc]
            return Evolution.from_arrays(network, dict(arrays)), progress

    def consider(self, name: str, network: Network, progress: Progress, validation: _Validation) -> None:
        """Validate the network, and store it if it is the best so far."""
        difference, mean, p95 = validation.compare(network)
        best = min((each[1] for each in progress.validations), default=np.inf)
        progress.validations.append((name, difference, mean, p95))
        if difference < best:
            write_network(self._directory / "best.npz", network)


def _check(plan: Plan, directory: Path) -> None:
    """Store the plan in the directory; raise InvalidInput if it belongs to another plan."""
    path, mine = directory / "plan.json", json.loads(json.dumps(asdict(plan)))
    if path.exists():
        theirs: Any = json.loads(path.read_text())
        if theirs != mine:
            raise InvalidInput(
                f"{directory}: contains a training with other parameters: {theirs}; choose another --out"
            )
    else:
        path.write_text(json.dumps(mine))


def draw(progress: Progress, path: Path) -> None:
    """Draw the losses, the objective of the generations, and the response times of the validated networks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (losses, costs, validations) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    losses.plot([100 * (i + 1) for i in range(len(progress.losses))], progress.losses)
    losses.set(title="Supervised start", xlabel="steps, both rounds", ylabel="Huber loss")
    costs.plot(range(1, len(progress.costs) + 1), [-cost for cost in progress.costs])
    costs.set(title="Evolution", xlabel="generation", ylabel="reward: -(log mean + 0.5 log p95)")
    names = [name for name, *_ in progress.validations]
    validations.axhline(1.0, color="grey", linewidth=0.8)
    validations.plot(names, [each[2] for each in progress.validations], marker="o", label="mean")
    validations.plot(names, [each[3] for each in progress.validations], marker="s", label="p95")
    validations.set(title="Validation", ylabel="response / that without corrections (ECT)")
    validations.tick_params(axis="x", rotation=60)
    validations.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
