"""A miniature training: the properties that can be checked within seconds."""

import numpy as np
import pytest
from distributed import LocalCluster

from fpga_pool.conf.learned import read_network, shipped_network, write_network
from fpga_pool.experiments.figures.figure import Sample, Samples
from fpga_pool.experiments.figures.learned.ours import compared_claims
from fpga_pool.experiments.rollouts import Run, evaluate, runner, runs_of
from fpga_pool.experiments.training import Effort, Plan, train
from fpga_pool.model.exceptions import InvalidInput

PLAN = Plan(seed=3, runs=1, generations=2, interval=1, validation=1, effort=Effort(pairs=1, worlds=1, tasks=40))


def trained(directory, run_all, report=lambda *_: None):
    network, progress = train(PLAN, directory, run_all, report)
    return network.weights.tobytes(), progress


class Killed(Exception):
    pass


def test_a_training_that_was_killed_goes_on_to_the_same_weights(tmp_path):
    def kill(step, done, of):
        if (step, done) == ("evolution", 1):
            raise Killed

    with runner(1) as run_all:
        weights, progress = trained(tmp_path / "whole", run_all)
        with pytest.raises(Killed):
            trained(tmp_path / "parts", run_all, kill)
        again = trained(tmp_path / "parts", run_all)
        # A training that was killed at the end of its first phase repeats that phase.
        (tmp_path / "parts" / "supervised.npz").unlink()
        repeated = trained(tmp_path / "parts", run_all)
    assert again == repeated == (weights, progress)
    assert [each[0] for each in progress.validations] == ["none", "supervised", "generation 1", "generation 2"]
    # The supervised start has reduced the loss, and the selected weights are no worse than no correction.
    assert progress.losses[-1] < progress.losses[0]
    assert min(each[1] for each in progress.validations) <= 0
    assert len(progress.costs) == 2


def test_a_directory_of_another_training_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text('{"seed": 1}')
    with runner(1) as run_all, pytest.raises(InvalidInput, match="contains a training with other parameters"):
        trained(tmp_path, run_all)


def test_a_dask_cluster_finds_what_one_process_finds():
    runs = [Run(suite="held_out", world=world, seed=1, tasks=30, policy="jsq") for world in range(3)]
    with runner(1) as run_all:
        here = list(run_all(runs))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        runner(1, cluster.scheduler_address) as run_all,
    ):
        assert list(run_all(runs)) == here


def test_the_weights_of_the_package_are_small_and_finite(tmp_path):
    network = shipped_network()
    assert np.isfinite(network.weights).all()
    write_network(tmp_path / "weights.npz", network)
    assert (tmp_path / "weights.npz").stat().st_size <= 16 * 1024
    assert read_network(tmp_path / "weights.npz").weights.tobytes() == network.weights.tobytes()
    (tmp_path / "weights.npz").write_text("nothing")
    with pytest.raises(ValueError, match="weights: "):
        read_network(tmp_path / "weights.npz")


def test_comparisons_are_paired_and_of_every_stack_in_every_world():
    stacks = ["ect", "jsq", "ect"]
    runs = runs_of(stacks, "unseen_law", 2, 2, 30, None)
    with runner(1) as run_all:
        found = evaluate("unseen_law", stacks[:2], runs[:8], run_all)
    assert found.values("jsq", "mean_response_s").shape == (2, 2)
    same = found.compare("ect", "ect", "mean_response_s")
    assert (same.ratio, same.low, same.high, same.worst, same.wins) == (1, 1, 1, 1, 0)
    jsq = found.compare("jsq", "ect", "mean_response_s")
    ratios = found.values("jsq", "mean_response_s") / found.values("ect", "mean_response_s")
    assert jsq.ratio == pytest.approx(np.exp(np.log(ratios).mean()))
    assert jsq.low <= jsq.ratio <= jsq.high <= jsq.worst
    best = found.best_heuristic("mean_response_s")
    assert (best <= found.values("jsq", "mean_response_s")).all()


def test_claims_of_ours_are_of_the_suites_that_were_run():
    """As with `--points 2`, results of two suites are available."""
    values = {"mean": (10.0, 8.0), "p95": (20.0, 15.0), "goodput": (4.0, 5.0)}
    samples = Samples(
        Sample(panel, suite, name, 0, value)
        for suite in ("held_out", "unseen_kinds")
        for panel, (theirs, ours) in values.items()
        for name, value in {"ect": theirs, "jsq": theirs, "pats": theirs, "learned": ours}.items()
    )
    found = {claim.key: claim.ours for claim in compared_claims(samples)}
    expected = {"mean-below-ect": 20.0, "p95-below-ect": 25.0, "goodput-over-heuristics": 25.0}
    assert found == {
        key: {"held_out": pytest.approx(value), "unseen_kinds": pytest.approx(value)} for key, value in expected.items()
    }
