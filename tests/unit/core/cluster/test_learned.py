import numpy as np
import pytest

from fpga_pool.core.cluster.learned import (
    FEATURES,
    FIRST_SHARE,
    LEAST_SHARE,
    MOST_SHARE,
    PARAMETERS,
    SHORTLIST,
    Guard,
    Learned,
    LearnedParams,
    Network,
    features,
)
from fpga_pool.core.cluster.views import ClusterView, TaskView

RNG = np.random.default_rng(0)


def network(seed=0, scale=0.2, limit=2.0):
    weights = (np.random.default_rng(seed).normal(0, scale, PARAMETERS)).astype(np.float32)
    count = len(FEATURES)
    return Network(weights=weights, low=np.zeros(count, np.float32), high=np.full(count, 3, np.float32), limit=limit)


def view(seed, nodes=8, number=0):
    rng = np.random.default_rng(seed)
    kinds = 3
    return ClusterView(
        task=TaskView(
            number=number,
            pipeline=0,
            input_mb=100.0,
            work_s=rng.uniform(1, 50, (kinds, 2)),
            path_s=rng.uniform(10, 40, kinds),
            memory_gb=2.0,
            work_gb_s=rng.uniform(1, 50, kinds),
        ),
        kind=rng.integers(kinds, size=nodes),
        units=rng.integers(1, 9, (nodes, 2)).astype(float),
        present=np.ones(nodes, dtype=bool),
        tasks=rng.integers(9, size=nodes).astype(float),
        busy=rng.integers(2, size=(nodes, 2)).astype(float),
        memory_gb=rng.uniform(8, 64, (nodes, 2)),
        used_gb=np.zeros((nodes, 2)),
        backlog_s=rng.uniform(0, 300, (nodes, 2)),
        committed_s=rng.uniform(0, 300, (nodes, 2)),
        link_free_s=np.zeros(nodes),
        link_mb_per_s=np.full(nodes, 125.0),
        pipelines=1,
        backlog_gb_s=rng.uniform(0, 900, nodes),
    )


def corrections(net, there, order):
    nodes = np.asarray(order)
    completion_s = 10.0 + np.arange(len(order))[np.argsort(np.argsort(nodes))]
    return net.corrections(features(there, nodes, completion_s, 5.0))


def test_the_score_of_a_node_does_not_depend_on_the_order_of_the_nodes():
    there, order = view(1), np.array([5, 2, 7, 0, 1, 6, 3, 4])
    in_order = corrections(network(), there, np.arange(8))
    np.testing.assert_array_equal(corrections(network(), there, order), in_order[order])
    assert len(set(in_order.tolist())) > 3


def test_features_beyond_those_of_the_training_count_as_at_the_edge():
    net, table = network(), np.full((1, len(FEATURES)), 3, np.float32)
    np.testing.assert_array_equal(net.corrections(table * 1000), net.corrections(table))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_change_no_decision(bad):
    net = network()
    net.weights[3:900] = bad
    learned, without = Learned(LearnedParams(guard=False), net), Learned(LearnedParams(scorer=False), net)
    for seed in range(20):
        assert learned.decide(view(seed), None, 5.0, RNG) == without.decide(view(seed), None, 5.0, RNG)


def test_never_chooses_a_node_beyond_the_shortlist_whatever_the_weights():
    differs = 0
    for seed in range(60):
        there = view(seed)
        learned = Learned(LearnedParams(guard=False), network(seed, scale=1.0, limit=100.0))
        costs = learned._cost(there, there.candidates(), 5.0, RNG)
        chosen = learned.decide(there, None, 5.0, RNG)
        assert costs[chosen] <= SHORTLIST * costs.min()
        differs += chosen != costs.argmin()
    assert differs > 5


def test_waits_for_memory_and_for_what_is_urgent_count_and_so_does_the_work_that_is_left_to_others():
    there = view(0, nodes=2)
    there.kind[:], there.units[:], there.memory_gb[:] = [0, 1], 4.0, 16.0
    there.task.work_s[:], there.task.path_s[:], there.backlog_s[:], there.backlog_gb_s[:] = 8.0, 20.0, 40.0, 0.0
    learned = Learned()
    # The input takes 0.8 s.  The backlog of a class is 40 s / 4, of which three quarters count.
    assert learned._cost(there, np.arange(2), 0.0, RNG).tolist() == [27.5, 27.5]
    there.backlog_gb_s[0] = 16 * 30.0
    assert learned._cost(there, np.arange(2), 0.0, RNG).tolist() == [50.0, 27.5]
    there.backlog_gb_s[0] = 0.0
    there.task.path_s[1], there.task.work_s[1] = 19.0, 16.0
    # On node 0 it completes 1 s later, but occupies 4 units for 2 s less; others wait if units are busy.
    for busy, chosen in ((0.0, 1), (1.0, 1), (3.0, 0), (4.0, 0)):
        there.busy[:] = busy
        assert learned.decide(there, None, 0.0, RNG) == chosen
    there.task.path_s[1] = 17.0
    assert learned.decide(there, None, 0.0, RNG) == 1


@pytest.mark.parametrize(("worse", "share"), [(1.0, LEAST_SHARE), (-1.0, MOST_SHARE)])
def test_the_share_of_the_scorer_follows_the_responses(worse, share):
    guard, rng = Guard(), np.random.default_rng(0)
    assert guard.share == FIRST_SHARE
    arms = []
    for task in range(400):
        arms.append(guard.arm(task, 10.0))
        # The scorer's tasks take exp(worse) times as long.
        guard.completed(task, 10 * float(np.exp(worse * arms[-1] + rng.normal(0, 0.5))))
    assert guard.share == share
    assert np.mean(arms[100:]) == pytest.approx(share, abs=0.05)
    # Both continue to get tasks.
    assert len(set(arms[200:])) == 2
    assert not guard.unfinished


def test_refuses_arrays_of_another_shape():
    with pytest.raises(ValueError, match=f"weights: expected {PARAMETERS} numbers of type float32"):
        Network(weights=np.zeros(5, np.float32), low=network().low, high=network().high, limit=1.0)
