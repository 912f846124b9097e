import numpy as np
import pytest

from fpga_pool.core.gangs.gangs import How, Move
from fpga_pool.core.gangs.paper import Easy, Measy
from fpga_pool.core.gangs.plus import MeasyPlus, PlusParams
from fpga_pool.core.gangs.reservation import Why, outlook
from fpga_pool.core.gangs.tiers import BEHIND, IN_FRONT


def test_the_shortest_is_served_before_the_head_first(make_view, decide):
    # Gang 1 is the head.  Until 100 one processor is idle: MEASY gives it to 2, ours to the shorter 3.
    rows = (3, 100), (4, 50), (1, 90), (1, 10)
    assert decide(Measy(), make_view(4, *rows))[1] == (2, "start", [3])
    assert decide(MeasyPlus(), make_view(4, *rows))[1] == (3, "start", [3])


def test_a_long_gang_does_not_start_where_it_would_hardly_progress(make_view, decide):
    # Usage 0.5, 0.482 of the idle cycles: the rate is 0.2 at a usage in front of 1 - 0.2 * 0.5 / 0.482 = 0.793.
    for front, found in ((0.80, []), (0.79, [(1, "start behind", [0, 1])])):
        assert decide(MeasyPlus(), make_view(2, (2, 9000, front), (2, 5000)))[1:] == found
    assert decide(MeasyPlus(), make_view(2, (2, 9000, 0.9), (2, 900)))[1:] == [(1, "start behind", [0, 1])]
    never = MeasyPlus(PlusParams(least_rate=0.5))
    assert decide(never, make_view(2, (2, 9000, 0.4), (2, 5000)))[1:] == []


def test_a_longer_gang_is_passed_over_for_one_that_can_progress(make_view, decide):
    # Gang 1 has no room behind gang 0.  Gang 2 is longer but uses less, and has room.
    view = make_view(2, (2, 9000, 0.7), (2, 4000, 0.9), (2, 5000, 0.5))
    assert decide(MeasyPlus(), view)[1:] == [(2, "start behind", [0, 1])]


def test_a_migration_that_would_delay_the_head_is_not_made(make_view, decide):
    # Gang 2 runs behind 0.  At 60 it needs 30 s, and 20 s to migrate, until 110: beyond the reservation of 1 at 100.
    for policy, moved in ((Measy(), [(2, "migrate", [1])]), (MeasyPlus(), [])):
        view = make_view(3, (1, 100), (3, 50), (1, 30), (2, 60), arrived=1)
        decide(policy, view)
        for gang in (3, 2, 1):
            view.arrive(gang)
            decide(policy, view)
        assert view.placed[2].tolist() == [0]
        view.finish(3)
        moves = decide(policy, view, 60.0)
        assert [move for move in moves if move[0] == 2] == moved


def test_each_gang_that_waits_has_an_expected_start_and_a_reason(make_view, decide):
    # Gang 0 has 3 of 4 processors until 100.  1 needs all, from 100 to 150; 2 and 3 follow it together.  4 is short but
    # the last to arrive; one processor is idle until 100, so it would end in time if EASY decided now.
    view = make_view(4, (3, 100), (4, 50), (2, 10), (1, 200), (1, 30), arrived=4)
    decide(Easy(), view)
    view.arrive(4)
    told = outlook(view, 0.0)
    assert [(told_.gang, told_.begin_s) for told_ in told] == [(1, 100), (2, 150), (3, 150), (4, 0)]
    assert [told_.why for told_ in told] == [Why.TOO_FEW_IDLE, Why.TOO_FEW_IDLE, Why.WOULD_DELAY, Why.WOULD_DELAY]


def test_what_runs_beyond_its_estimate_is_expected_to_end_now(make_view, decide):
    view = make_view(1, (1, 100), (1, 50))
    decide(Easy(), view)
    assert outlook(view, 300.0)[0].begin_s == 300.0


def test_shorter_gangs_have_their_turns_sooner(make_view, decide):
    # The patience is 2, and for half of the processors 0.5 ** 0.3 = 0.81225.  The turn of 1 is at 2 * 50 * 0.81225,
    # that of 2, which arrives at 30, at 30 + 2 * 30 * 0.81225 = 78.735.
    view = make_view(4, (4, 100), (2, 50), (2, 30), patience=2.0, arrived=1)
    decide(MeasyPlus(), view)
    view.arrive(1)
    view.arrive(2, 30.0)
    assert view.turn_s == pytest.approx([0.0, 81.225, 78.735], abs=1e-3)
    assert view.queue.present() == [2, 1]
    assert make_view(2, (2, 50), (2, 30)).queue.present() == [0, 1]


def test_wider_gangs_have_their_turns_sooner(make_view):
    # 2 * 50 times (1 - 1/4) ** 0.3 = 0.91732 and (1 - 3/4) ** 0.3 = 0.65975; one that needs all has its turn at once.
    view = make_view(4, (1, 50), (3, 50), (4, 50), patience=2.0)
    assert view.turn_s == pytest.approx([91.732, 65.975, 0.0], abs=1e-3)
    assert view.queue.present() == [2, 1, 0]


def test_nothing_is_kept_for_the_head_before_its_turn(make_view, decide):
    # Gang 1 is the head: 5 of 8 processors are taken until 400, and 2 are extra then.  Its turn is at
    # 2 * 50 * (1 - 6/8) ** 0.3 = 65.98.  Before that 2 is served first, however long it is; after that it is not.
    for now_s, found in ((65.0, [(2, "start", [5, 6, 7])]), (66.0, [])):
        view = make_view(8, (5, 400), (6, 50), (3, 900), patience=2.0, arrived=1)
        decide(MeasyPlus(), view)
        view.arrive(1)
        view.arrive(2)
        moves = decide(MeasyPlus(), view, now_s)
        assert [move for move in moves if move[1] == "start"] == found


def test_a_trial_is_begun_where_all_in_front_can_give_way(make_view, decide):
    # A share of 0.05 is 60 s of 1200 s, and 20 s of 400 s.  After one trial of 60 s the first gang's share is used up.
    policy = MeasyPlus(PlusParams(trial_s=60.0))
    for estimate_s, found in ((1200, "try"), (400, "start behind")):
        view = make_view(2, (2, estimate_s), (1, 50), (1, 50), patience=4.0, trial_s=60.0)
        assert decide(policy, view)[1:] == [(1, found, [0]), (2, "start behind", [1])]
    # A view for a shell that does no trials has none.
    assert decide(policy, make_view(1, (1, 9000), (1, 50), patience=4.0))[1][1] == "start behind"


def test_no_trial_delays_the_head(make_view, decide):
    # 2 needs all processors, at 1300, when 1 ends.  Only 0 can give way, if it ends at 1240 at the latest.
    policy = MeasyPlus(PlusParams(trial_s=60.0))
    for estimate_s, found in ((1240, "try"), (1241, "start behind"), (1300, "start behind")):
        view = make_view(2, (1, estimate_s, 0.4), (1, 1300, 0.5), (2, 9000), (1, 50), trial_s=60.0)
        view.block(1, BEHIND)
        assert decide(policy, view)[2:] == [(3, found, [0])]


def test_who_gives_way_is_expected_to_end_later_by_a_trial(make_view, decide):
    policy = MeasyPlus(PlusParams(trial_s=60.0))
    view = make_view(2, (1, 1300), (1, 1320), (1, 50), trial_s=60.0, patience=4.0, arrived=2)
    decide(policy, view)
    view.arrive(2)
    decide(policy, view)
    # 2 is in its trial behind 0, which has the processor with the lower number.
    assert (view.trying, view.end_s(0), view.end_s(1)) == ({2}, 1360.0, 1320.0)
    assert view.ends.present() == [1, 0]
    view.finish(0)
    assert view.gave_way_s == {}


def test_a_trial_ends_when_another_gang_gets_to_its_foreground(make_view, decide):
    policy = MeasyPlus(PlusParams(trial_s=60.0))
    view = make_view(2, (1, 1300), (1, 500), (1, 400), patience=4.0, trial_s=60.0, arrived=1)
    view.block(1, IN_FRONT)
    view.block(1, BEHIND)
    decide(policy, view)
    view.arrive(1)
    decide(policy, view)
    assert view.trying == {1}
    view.finish(0)
    view.arrive(2)
    view.apply(Move(2, How.START, np.array([0])), 10.0)
    assert view.trying == set()


@pytest.mark.parametrize(
    "name",
    [
        "patience",
        "least_rate",
        "used_single",
        "used_several",
        "least_rate_from_s",
        "last_runs",
        "trial_s",
        "trial_share",
    ],
)
def test_parameters_are_checked(name):
    with pytest.raises(ValueError, match=name):
        PlusParams(**{name: -0.1})


def test_a_policy_that_several_threads_ask_answers_each_about_its_own_gangs(make_view):
    """Another thread calls the policy just after the first one has stored its result."""
    one, other = make_view(2, (2, 9000, 0.5)).gangs, make_view(2, (1, 900), (2, 5000, 0.3)).gangs

    class Interrupted(MeasyPlus):
        noted = None

        @property
        def _highest(self):
            return self.noted

        @_highest.setter
        def _highest(self, found):
            self.noted = found
            if found is not None and found[0] is one:
                self._highest_usage(other)

    assert len(Interrupted()._highest_usage(one)) == 1
    assert len(Interrupted()._highest_usage(other)) == 2
