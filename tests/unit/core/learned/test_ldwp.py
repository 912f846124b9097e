"""The paper's deep Q-network: its inputs, when it explores, what it remembers, and that it can learn at all."""

import sys

import numpy as np
import pytest

from fpga_pool.conf.policies import policy_with
from fpga_pool.core.cluster.ldwp import Ldwp, LdwpParams
from fpga_pool.core.cluster.views import ClusterView, TaskView
from fpga_pool.model.exceptions import InvalidInput


def view(nodes=2, *, present=None, able=None, number=0, pipeline=0, completed=0):
    """Return a cluster of equal idle nodes; the nodes not in `able` are of a kind that cannot execute the task."""
    kind = np.array([0 if able is None or node in able else 1 for node in range(nodes)])
    return ClusterView(
        task=TaskView(
            number=number, pipeline=pipeline, input_mb=200.0, work_s=np.ones((2, 2)), path_s=np.array([1.0, np.inf])
        ),
        kind=kind,
        units=np.tile([4.0, 2.0], (nodes, 1)),
        present=np.array([present is None or node in present for node in range(nodes)]),
        tasks=np.zeros(nodes),
        busy=np.zeros((nodes, 2)),
        memory_gb=np.full((nodes, 2), 8.0),
        used_gb=np.zeros((nodes, 2)),
        backlog_s=np.zeros((nodes, 2)),
        backlog_gb_s=np.zeros(nodes),
        committed_s=np.zeros((nodes, 2)),
        link_free_s=np.zeros(nodes),
        link_mb_per_s=np.full(nodes, 125.0),
        pipelines=3,
        completed=completed,
    )


def learner(seed=0, weights=None, **values):
    policy = Ldwp(LdwpParams(node="ect", **values))
    return (policy.with_weights(weights) if weights else policy).learner(np.random.default_rng(seed))


def decide(policy, *views, first=0):
    rng = np.random.default_rng(1)
    return [policy.decide(each, None, first + i, rng) for i, each in enumerate(views)]


def test_observation_has_the_task_and_six_features_of_each_node():
    seen = view(2, pipeline=2)
    seen.busy[1], seen.used_gb[1], seen.link_free_s[1] = (2, 1), (4, 2), 5
    expected = [1, 0.5, 0, 0, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0.25, 0, 1]
    assert learner()._features(seen, np.arange(2), 3.0) == pytest.approx(expected)
    raw = [2, 200, 0, 0, 0, 0, 0, 0, 50, 50, 50, 25, 0, 125]
    assert learner(inputs="raw")._features(seen, np.arange(2), 3.0) == pytest.approx(raw)
    assert learner(one_hot=True)._features(seen, np.arange(2), 3.0)[:4] == pytest.approx([0, 0, 1, 0.5])


def test_reward_is_the_increase_of_throughput_in_a_minute_between_decisions():
    policy = learner()
    decide(policy, *(view(completed=done) for done in (0, 3, 4)))
    assert policy.rewards == [3, 1]


def test_only_nodes_that_can_take_the_task_are_chosen():
    policy = learner(explore=1, epsilon=0.5)
    chosen = set(decide(policy, *(view(4, present={0, 1, 2}, able={1, 2, 3}) for _ in range(60))))
    assert chosen == {1, 2}
    assert decide(policy, view(4, present=set())) == [None]


def test_network_that_has_diverged_leaves_the_choice_to_chance():
    weights = learner_after(20).weights
    policy = learner(weights=weights, learn=False)
    decide(policy, view())
    policy._network.online[0].weight.data.fill_(float("nan"))
    assert set(decide(policy, *(view() for _ in range(40)))) == {0, 1}


def learner_after(count, nodes=2, **values):
    policy = learner(**values)
    decide(policy, *(view(nodes, number=i) for i in range(count)))
    return policy


def test_bandit_with_the_tasks_own_response_time_learns_which_node_is_quick():
    policy = learner(reward="response", learning_rate=0.05, explore=150, epsilon=0.0)
    rng = np.random.default_rng(0)
    for i in range(300):
        node = policy.decide(view(3, number=i), None, float(i), rng)
        policy.completed(i, [20.0, 2.0, 20.0][node])
    assert decide(policy, *(view(3, number=1000 + i) for i in range(5)), first=300) == [1] * 5


@pytest.mark.parametrize(("transfer", "kept"), [("hidden", {"2"}), ("all", {"2", "0", "4"}), ("none", set())])
def test_weights_that_are_kept_when_a_node_joins(transfer, kept):
    policy = learner_after(30, transfer=transfer, learn=False)
    before = policy.weights
    decide(policy, view(3))
    after = policy.weights
    same = {
        "2": (after["2.weight"] == before["2.weight"]).all(),
        "0": (after["0.weight"][:, :14] == before["0.weight"]).all(),
        "4": (after["4.weight"][:2] == before["4.weight"]).all(),
    }
    assert {name for name, equal in same.items() if equal} == kept
    assert after["4.weight"].shape == (3, 128)


def test_weights_of_an_earlier_run_give_the_same_decisions_and_wrong_ones_are_refused():
    weights = learner_after(40).weights
    again = [decide(learner(weights=weights, learn=False), *(view(pipeline=i) for i in range(3))) for _ in range(2)]
    assert again[0] == again[1]
    with pytest.raises(ValueError, match="weights: missing"):
        Ldwp().with_weights({"0.weight": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="finite"):
        Ldwp().with_weights(weights | {"0.bias": np.full(256, np.nan)})


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInput, match=r"fpga_pool\[learning\]"):
        policy_with("cluster", "ldwp", {"node": "ect"})
    with pytest.raises(InvalidInput, match=r"fpga_pool\[learning\]"):
        policy_with("cluster", "ect", {"node": "iawp"})
    assert policy_with("cluster", "ect", {"node": "iawp:predictor=gaussian"}).node.admission


@pytest.mark.parametrize(
    "values", [{"inputs": "x"}, {"reward": "x"}, {"gamma": 2.0}, {"learning_rate": 0.0}, {"batch": 30, "replay": 20}]
)
def test_parameters_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match=f"{list(values)[-1]}: expected"):
        LdwpParams(**values)
