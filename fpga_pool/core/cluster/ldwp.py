"""`ldwp`: Learning-Driven Workload Parallelization, the deep Q-network of the paper for clusters (section 4.2).

A baseline for comparison: doc/source/algorithms/learned explains which parts work, and which cannot work as printed.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.cluster.metrics import require_torch
from fpga_pool.core.cluster.nodes import NodePolicy
from fpga_pool.core.cluster.policies import NodeParams
from fpga_pool.core.cluster.views import ClusterView
from fpga_pool.core.parameters import parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats

if TYPE_CHECKING:  # torch is optional
    from fpga_pool.core.cluster.dqn import Network

INPUTS, REWARDS, TRANSFERS = ("normalised", "raw"), ("increase", "throughput", "response"), ("hidden", "all", "none")
#: Features of a node: use of cores, accelerators and both memories, sent and received (table 1); its queue is optional.
NODE_FEATURES = 6
#: The largest input of the paper's tasks (section 5.3.5), by which sizes are normalized.
LARGEST_MB = 400.0
_MB_PER_S_OF_GIGABIT = 125.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LdwpParams(NodeParams):
    """Parameters; the values that the paper gives are in section 5.1, the others are ours."""

    node: str = parameter("iawp", "Policy within a node.")
    inputs: str = parameter("normalised", "Scale of the inputs.", choices=INPUTS)
    one_hot: bool = parameter(False, "Whether the type of task is one input for each type.")
    queue: bool = parameter(False, "Whether the tasks at each node are inputs as well; ours.")
    reward: str = parameter(
        "increase",
        "Increase of throughput since the last decision as in the paper, throughput itself, or the task's own response "
        "time, without a next state.",
        choices=REWARDS,
    )
    learning_rate: float = parameter(0.1, "Learning rate (section 5.1).", above=0.0)
    adam: bool = parameter(False, "Whether to train with Adam instead of SGD.")
    gamma: float = parameter(0.8, "Discount of the next state's value (section 5.1).", min=0.0, max=1.0)
    batch: int = parameter(20, "Transitions of a gradient step (section 5.1).", min=1)
    replay: int = parameter(5000, "Transitions in memory; not given in the paper.", min=1)
    copy_every: int = parameter(100, "Steps between copies to the target network; not given.", min=1)
    explore: int = parameter(
        800, "Number of decisions over which exploration decreases to epsilon; not given in the paper.", min=1
    )
    epsilon: float = parameter(0.05, "Share of random decisions after that; not given.", min=0.0, max=1.0)
    window_s: float = parameter(60.0, "Seconds over which throughput is measured; not given.", above=0.0)
    transfer: str = parameter(
        "hidden",
        "Weights that are kept when nodes join or leave; all = also those of the nodes that remain.",
        choices=TRANSFERS,
    )
    learn: bool = parameter(True, "Whether it learns while it decides.")

    def __post_init__(self) -> None:
        NodeParams.__post_init__(self)
        if self.replay < self.batch:
            raise ValueError(f"replay: expected at least as many as batch, {self.batch}, got {self.replay}")


class Ldwp:
    """Chooses the node with the greatest action value; `learner` returns a policy that learns from the outcomes."""

    name = "ldwp"
    Params = LdwpParams

    def __init__(self, params: LdwpParams | None = None, weights: Mapping[str, Floats] | None = None) -> None:
        require_torch(self.name)
        self._params = params or LdwpParams()
        self.node: NodePolicy = self._params.node_policy()
        self.calibrate = self._params.calibrate
        self._pretrained = dict(weights or {})

    @property
    def weights(self) -> dict[str, Floats]:
        """Return the weights passed at construction."""
        return self._pretrained

    def with_weights(self, weights: Mapping[str, Floats]) -> Self:
        """Return this policy with the weights of an earlier run; arrays of other shapes are not used.

        Raises ValueError if the weights are not those of such a network.
        """
        wanted = {f"{layer}.{part}" for layer in (0, 2, 4) for part in ("weight", "bias")}
        if missing := wanted - {"nodes", *weights} | ({"nodes"} - set(weights)):
            raise ValueError(f"weights: missing: {', '.join(sorted(missing))}")
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ValueError("weights: expected finite numbers")
        return type(self)(self._params, weights)

    def learner(self, rng: np.random.Generator) -> "Learner":
        """Return a copy of this policy that learns, with separate memory, for one run."""
        return Learner(self._params, self._pretrained, rng)

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        """Return the node chosen by the given weights, or by random ones, without learning."""
        learner = Learner(self._params, self._pretrained, np.random.default_rng(0))
        learner.epsilon_from = 0.0
        return learner.decide(view, state, now_s, rng)


class Learner(Ldwp):
    """The policy during one run: decides, remembers, and takes one gradient step per decision."""

    def __init__(self, params: LdwpParams, weights: Mapping[str, Floats], rng: np.random.Generator) -> None:
        super().__init__(params, weights)
        self._rng = rng
        self._network: Network | None = None
        self._nodes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._decisions = 0
        #: Exploration decreases from this share to `epsilon`; with pre-trained weights it begins at `epsilon`.
        self.epsilon_from = params.epsilon if weights or not params.learn else 1.0
        #: State and action of the last decision, and the throughput at that time.
        self._last: tuple[Floats, int, float] | None = None
        #: (seconds, completed tasks) at the decisions of the last `window_s`.
        self._history: deque[tuple[float, int]] = deque()
        #: State and action of each task that is not completed, for the reward `response`.
        self._placed: dict[int, tuple[Floats, int]] = {}
        #: Reward of each decision, for figures.
        self.rewards: list[float] = []

    @property
    def weights(self) -> dict[str, Floats]:
        """Return the current weights; empty before the first decision."""
        from fpga_pool.core.cluster.dqn import weights_of

        if self._network is None:
            return {}
        return weights_of(self._network.online) | {"nodes": self._nodes.astype(np.float64)}

    @property
    def losses(self) -> list[float]:
        """Return the squared error of each gradient step since the last change of the cluster."""
        return [] if self._network is None else self._network.losses

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        candidates = view.candidates()
        if not len(candidates):
            return None
        present = np.flatnonzero(view.present)
        features = self._features(view, present, now_s)
        if self._network is None or not np.array_equal(present, self._nodes):
            self._rebuild(present, len(features))
        assert self._network is not None  # noqa: S101
        throughput = self._throughput(view.completed, now_s)
        if self._params.learn:
            self._learn(features, throughput)
        allowed = np.searchsorted(present, candidates)
        action = self._choose(features, allowed, rng)
        self._last = features, action, throughput
        if self._params.reward == "response":
            self._placed[view.task.number] = features, action
        self._decisions += 1
        return int(present[action])

    def completed(self, task: int, response_s: float) -> None:
        """Learn from the response time of a task that this network has placed."""
        placed = self._placed.pop(task, None)
        if placed is not None and self._network is not None and self._params.learn:
            reward = -float(np.log(max(response_s, 1e-3)))
            self.rewards.append(reward)
            self._network.store(*placed, reward, None)

    def _learn(self, features: Floats, throughput: float) -> None:
        assert self._network is not None  # noqa: S101
        if self._last is not None and self._params.reward != "response":
            state, action, before = self._last
            reward = throughput - before if self._params.reward == "increase" else throughput
            self.rewards.append(reward)
            self._network.store(state, action, reward, features)
        self._network.step()

    def _choose(self, features: Floats, allowed: NDArray[np.int64], rng: np.random.Generator) -> int:
        fallen = min(self._decisions / self._params.explore, 1.0)
        epsilon = self.epsilon_from + (self._params.epsilon - self.epsilon_from) * fallen
        if self._params.learn and rng.random() < epsilon:
            return int(rng.choice(allowed))
        assert self._network is not None  # noqa: S101
        values = self._network.values(features)[allowed]
        # The values of a network that has diverged are useless.
        return int(allowed[np.argmax(values)] if np.isfinite(values).all() else rng.choice(allowed))

    def _throughput(self, completed: int, now_s: float) -> float:
        """Return the tasks completed in the last `window_s`, or since the first decision, times 60 / `window_s`."""
        history, window_s = self._history, self._params.window_s
        history.append((now_s, completed))
        while len(history) > 1 and history[1][0] <= now_s - window_s:
            history.popleft()
        return (completed - history[0][1]) * 60 / window_s

    def _features(self, view: ClusterView, present: NDArray[np.int64], now_s: float) -> Floats:
        """Return the observation x_t, (inputs,): type and size of the task, and features of each node present."""
        raw = self._params.inputs == "raw"
        units, memory_gb = np.maximum(view.units[present], 1), np.maximum(view.memory_gb[present], 1e-9)
        receiving = (view.link_free_s[present] > now_s).astype(np.float64)
        shares = np.column_stack(
            [
                view.busy[present] / units,
                view.used_gb[present] / memory_gb,
                np.zeros(len(present)),  # outputs stay on the node: nothing is sent
                receiving * (view.link_mb_per_s[present] / _MB_PER_S_OF_GIGABIT),
            ]
        )
        if raw:
            shares[:, :4] *= 100  # percent
            shares[:, 4:] *= _MB_PER_S_OF_GIGABIT
        if self._params.queue:
            queued = view.tasks[present] / np.maximum(view.units[present, 1], 1)
            shares = np.column_stack([shares, queued if raw else queued / (1 + queued)])
        task = view.task
        type_ = (
            np.eye(view.pipelines)[task.pipeline]
            if self._params.one_hot
            else np.array([task.pipeline if raw else task.pipeline / max(view.pipelines - 1, 1)])
        )
        size = task.input_mb if raw else task.input_mb / LARGEST_MB
        return np.concatenate([type_, [size], shares.ravel()])

    def _rebuild(self, present: NDArray[np.int64], inputs: int) -> None:
        """Build the network for another set of nodes: hidden layers are kept, memory and exploration start over.

        This is the parameter transfer of section 4.2.2.
        """
        from fpga_pool.core.cluster.dqn import Network, Training, set_weights

        params = self._params
        training = Training(
            learning_rate=params.learning_rate,
            gamma=0.0 if params.reward == "response" else params.gamma,
            batch=params.batch,
            replay=params.replay,
            copy_every=params.copy_every,
            adam=params.adam,
        )
        earlier = self.weights or self._pretrained
        changed = self._network is not None
        network = Network(inputs, len(present), training, self._rng)
        if earlier and not (changed and params.transfer == "none"):
            own = {name: tensor.numpy().copy() for name, tensor in network.online.state_dict().items()}
            set_weights(
                network.online, _transferred(earlier, own, present, params, node_inputs=NODE_FEATURES + params.queue)
            )
            network.copy()
        if changed:
            self.epsilon_from, self._decisions = (1.0 if params.learn else 0.0), 0
            self._last = None
            self._placed.clear()
        self._network, self._nodes = network, present


def _transferred(
    earlier: Mapping[str, Floats],
    own: Mapping[str, Floats],
    present: NDArray[np.int64],
    params: LdwpParams,
    node_inputs: int,
) -> dict[str, Floats]:
    """Return the weights of a network for the nodes `present`, from those of an earlier network and new ones.

    For the same nodes all weights are kept.  For others the hidden layer is kept and, if `transfer` is `all`, also the
    weights of the task and of the nodes that both networks have.
    """
    before = earlier["nodes"].astype(np.int64)
    if np.array_equal(before, present):
        return dict(earlier)
    kept = {name: earlier[name] for name in ("2.weight", "2.bias")}
    task_inputs = own["0.weight"].shape[1] - node_inputs * len(present)
    if params.transfer != "all" or earlier["0.weight"].shape[1] != task_inputs + node_inputs * len(before):
        return kept
    weights = {name: own[name].copy() for name in ("0.weight", "0.bias", "4.weight", "4.bias")}
    weights["0.bias"] = earlier["0.bias"]
    weights["0.weight"][:, :task_inputs] = earlier["0.weight"][:, :task_inputs]
    for at, node in enumerate(present.tolist()):
        for from_ in np.flatnonzero(before == node).tolist():
            to_columns, from_columns = (task_inputs + node_inputs * place for place in (at, from_))
            weights["0.weight"][:, to_columns : to_columns + node_inputs] = earlier["0.weight"][
                :, from_columns : from_columns + node_inputs
            ]
            weights["4.weight"][at], weights["4.bias"][at] = earlier["4.weight"][from_], earlier["4.bias"][from_]
    return kept | weights
