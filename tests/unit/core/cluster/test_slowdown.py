import numpy as np
import pytest

from fpga_pool.core.cluster.slowdown import Run, SlowdownModel, learned_from
from fpga_pool.sim.cluster.laws import Bottleneck, Pressure, Saturation

#: Four types: a light one, two that need the same resource, and one that needs almost all of the other.
DEMANDS = np.array([[0.2, 0.0], [0.8, 0.1], [0.7, 0.2], [0.1, 0.9]])


def rates(law, types):
    return 1 / law.slowdowns(DEMANDS[list(types)])


@pytest.mark.parametrize("law", [Saturation(), Bottleneck(), Pressure()])
def test_learns_any_law_from_durations(law):
    model, rng = SlowdownModel(), np.random.default_rng(0)
    for _ in range(800):
        types = sorted(rng.integers(4, size=rng.integers(1, 4)).tolist())
        which = int(rng.integers(len(types)))
        beside = (*types[:which], *types[which + 1 :])
        rate = rates(law, types)[which]
        actual_s = 10 / rate * rng.lognormal(-0.005, 0.1)
        # A tenth of the work was done alone.
        alone_s = 0.1 * actual_s * rate
        actual_s = alone_s + 0.9 * actual_s
        model.observe(types[which], 10, actual_s, {(): alone_s, beside: actual_s - alone_s} if beside else {(): 1})
    for types in [(0, 1), (1, 2), (1, 3), (0, 1, 3), (1, 1, 2)]:
        # The prior expects 1.7, 2.6 and so on; noise and the diagonal covariance leave errors of up to 20 %.
        assert model.total_rate(types) == pytest.approx(rates(law, types).sum(), rel=0.2)


def test_a_pair_that_was_never_seen_is_estimated_by_what_its_types_do_to_others():
    model = SlowdownModel()
    for _ in range(60):
        for other in ("a", "b", "c"):
            model.observe("loud", 10, 20, {(other,): 20})
            model.observe(other, 10, 40, {("loud",): 40})
            model.observe("quiet", 10, 10, {(other,): 10})
            model.observe(other, 10, 10, {("quiet",): 10})
    assert model.rate("new", ("loud",)) < 0.7 * model.rate("new", ("quiet",))


def test_an_error_of_the_estimate_is_not_taken_for_interference():
    model = SlowdownModel()
    for _ in range(40):
        model.observe("x", 10, 25, {(): 25})
        model.observe("x", 10, 25, {("y",): 25})
    assert model.rate("x", ("y",)) > 0.9


def test_useless_observations_change_nothing():
    model = SlowdownModel()
    model.observe("x", float("inf"), 10, {})
    model.observe("x", 10, 0, {("y",): 0})
    assert not model._terms


def runs_of_a_card(card, count, *, together):
    """Return runs of a and b: 2 s each beside each other; alone a takes 1 s, and b 2 s as before."""
    runs = []
    for number in range(count):
        end_s = 100.0 * number + 10
        a_s, apart_s = (2.0, 0.0) if together else (1.0, 50.0)
        runs.append(Run(unit=card, type="a", estimated_s=1.5, actual_s=a_s, end_s=end_s))
        runs.append(Run(unit=card, type="b", estimated_s=2.0, actual_s=2.0, end_s=end_s + apart_s))
    return runs


def test_learns_from_runs_that_were_on_one_card_at_the_same_time():
    model = learned_from([*runs_of_a_card("x", 20, together=True), *runs_of_a_card("y", 20, together=False)])
    assert model.rate("a", ("b",)) == pytest.approx(0.5, abs=0.07)
    assert model.rate("b", ("a",)) == pytest.approx(1.0, abs=0.07)


def test_an_overlap_counts_for_as_long_as_it_lasts():
    # The run of 4 s is beside the other for 1 s; alone it would take 3.5 s, which is its estimate.
    overlapping = [
        run
        for number in range(100)
        for run in (
            Run(unit="x", type="a", estimated_s=3.5, actual_s=4.0, end_s=100.0 * number),
            Run(unit="x", type="b", estimated_s=4.0, actual_s=4.0, end_s=100.0 * number + 3),
        )
    ]
    alone = [Run(unit="y", type="a", estimated_s=3.5, actual_s=3.5, end_s=100.0 * number) for number in range(100)]
    assert learned_from([*overlapping, *alone]).rate("a", ("b",)) == pytest.approx(0.5, abs=0.1)


def test_nothing_is_learned_of_cards_where_nothing_was_side_by_side():
    apart = runs_of_a_card("x", 20, together=False)
    assert learned_from(apart) is None
    assert learned_from([]) is None
    # Runs on two cards at the same time are not side by side.
    assert learned_from([Run(unit=card, type="a", estimated_s=1, actual_s=1, end_s=1) for card in "xy"]) is None
