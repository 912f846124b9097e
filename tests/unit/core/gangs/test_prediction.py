import numpy as np
import pytest

from fpga_pool.core.gangs.gangs import UNKNOWN, Gangs, History, How, Move, corrected
from fpga_pool.core.gangs.plus import MeasyPlus, PlusParams
from fpga_pool.core.gangs.tiers import Tiers


def test_the_mean_of_the_last_two_run_times_of_a_user_predicts_the_next():
    history = History(np.array([7, 7, 7, 8, 7]), 2)
    assert history.predict(0, 900.0) == 900.0
    history.ran(0, 100.0)
    assert history.predict(1, 900.0) == 900.0  # one run time is not enough
    history.ran(1, 300.0)
    assert history.predict(2, 900.0) == 200.0
    assert history.predict(3, 900.0) == 900.0  # another user
    history.ran(2, 500.0)
    assert history.predict(4, 900.0) == 400.0  # the mean of 300 and 500


def test_no_prediction_is_above_the_estimate():
    history = History(np.array([7, 7]), 1)
    history.ran(0, 100.0)
    assert history.predict(1, 60.0) == 60.0


def test_nothing_is_learned_of_users_whom_nobody_knows():
    history = History(np.array([UNKNOWN, UNKNOWN]), 1)
    history.ran(0, 100.0)
    assert history.predict(1, 900.0) == 900.0


@pytest.mark.parametrize(
    ("done_s", "found"),
    # 100 s plus 60 s, 5 min, 15 min, ...: the first step that is not exceeded, at most the estimate of 20,000 s.
    [(99.0, 100.0), (100.0, 160.0), (160.0, 400.0), (900.0, 1000.0), (3000.0, 3700.0), (19_000.0, 20_000.0)],
)
def test_a_prediction_that_is_outrun_grows_step_by_step_to_the_estimate(done_s, found):
    assert corrected(100.0, done_s, 20_000.0) == found


def test_a_gang_that_has_run_longer_than_all_steps_is_expected_to_run_as_long_as_it_said():
    assert corrected(100.0, 400_000.0, 500_000.0) == 500_000.0


def view_of_users(processors, user, *rows, last_runs=2):
    width, estimate_s = (np.array(column) for column in zip(*rows, strict=True))
    users = None if user is None else np.array(user)
    gangs = Gangs(width=width, estimate_s=estimate_s, usage=np.full(len(rows), 0.5), user=users)
    return Tiers(processors, gangs, last_runs=last_runs)


def ran(view, gang, run_s):
    """Run a gang alone to its end."""
    view.arrive(gang)
    view.apply(Move(gang, How.START, np.arange(view.width[gang])), 0.0)
    view.done_s[gang] = run_s
    view.finish(gang)


@pytest.mark.parametrize(("user", "first"), [([1, 1, 2, 1], 3), ([-1, -1, -1, -1], 2), (None, 2)])
def test_the_shortest_are_those_of_the_shortest_prediction(user, first):
    # User 1 has run for 10 and 30 s, so 20 of its 900 s are expected.  If no user is known, the estimates decide.
    view = view_of_users(4, user, (1, 900), (1, 900), (1, 500), (1, 900))
    ran(view, 0, 10.0)
    ran(view, 1, 30.0)
    view.arrive(2)
    view.arrive(3)
    assert view.shortest.present()[0] == view.unplaced.present()[0] == first


def test_a_gang_of_the_background_that_outruns_its_prediction_loses_its_place():
    view = view_of_users(4, [1, 1, 2, 1], (1, 900), (1, 900), (1, 70), (1, 900))
    ran(view, 0, 10.0)
    ran(view, 1, 30.0)
    view.arrive(2)
    view.arrive(3)
    assert view.shortest.present() == [3, 2]
    view.apply(Move(3, How.START_BEHIND, np.array([0])), 0.0)
    view.correct(3, 19.0)
    assert view.shortest.present() == [3, 2]
    view.correct(3, 25.0)  # 25 s exceed the predicted 20 s, which become 20 + 60
    assert view.shortest.present() == [2, 3]
    view.correct(3, 900.0)
    view.correct(3, 900.0)
    view.apply(Move(3, How.START, np.array([0])), 0.0)
    assert view.shortest.present() == [2]


def test_predictions_reserve_nothing_and_let_nobody_before_the_head():
    # Gang 3 is the head: it needs all 4 processors, of which 2 has 3 until 900 by its estimate.  Gang 4 is expected to
    # run for 20 s, but estimates 1000 s.  It needs one extra processor, and there is none, so it is not served.
    view = view_of_users(4, [1, 1, 3, 3, 1], (1, 900), (1, 900), (3, 900), (4, 100), (1, 1000))
    ran(view, 0, 10.0)
    ran(view, 1, 30.0)
    policy = MeasyPlus(PlusParams(last_runs=2, usage_threshold=0.0))
    for gang in (2, 3, 4):
        view.arrive(gang)
    moves = []
    for move in policy.decide(view, None, 0.0, np.random.default_rng(0)):
        view.apply(move, 0.0)
        moves.append((move.gang, move.how))
    assert view.expected_s[4] == 20.0
    assert moves == [(2, How.START)]


def test_users_are_one_for_each_gang():
    with pytest.raises(ValueError, match="user: expected 1 numbers"):
        Gangs(width=np.array([1]), estimate_s=np.array([1.0]), usage=np.array([1.0]), user=np.array([1, 2]))
