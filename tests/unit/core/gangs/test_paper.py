"""Decisions on small machines, followed by hand.  Gangs are (width, estimate)."""

import pytest

from fpga_pool.core.gangs.gangs import ReservationParams, TierParams
from fpga_pool.core.gangs.paper import Easy, Keasy, Measy, Reasy
from fpga_pool.core.gangs.tiers import BEHIND, IN_FRONT


def test_easy_serves_in_order_and_backfills_what_does_not_delay_the_head(make_view, decide):
    # Gang 0 takes 3 of 4 processors until 100.  Gang 1 is the head and starts then, with 2 extra.  Gang 2 needs 2, but
    # only 1 is idle.  Gang 3 ends by 100 and takes it, so none is idle for gang 4.
    view = make_view(4, (3, 100), (2, 50), (2, 10), (1, 100), (1, 10))
    assert decide(Easy(), view) == [(0, "start", [0, 1, 2]), (3, "start", [3])]
    assert view.queue.present() == [1, 2, 4]


def test_easy_gives_extra_processors_to_long_gangs_until_they_are_used_up(make_view, decide):
    # Gang 0 leaves 2 idle; with its 3 the head of 4 leaves 1 extra beyond time 100: for gang 2, but not for 3 as well.
    view = make_view(5, (3, 100), (4, 50), (1, 500), (1, 500))
    assert decide(Easy(), view) == [(0, "start", [0, 1, 2]), (2, "start", [3])]


@pytest.mark.parametrize(("extra_ends", "backfilled"), [("needed", []), ("all", [(3, "start", [4])])])
def test_gangs_that_end_together_count_as_the_parameter_says(make_view, decide, extra_ends, backfilled):
    # 0 and 1 end at 100.  The head of 3 needs only the idle processor and those of 0: without those of 1 none is extra.
    view = make_view(5, (2, 100), (2, 100), (3, 50), (1, 500))
    policy = Easy(ReservationParams(extra_ends=extra_ends))
    assert decide(policy, view)[2:] == backfilled


def test_a_gang_beyond_its_estimate_is_expected_to_end_now(make_view, decide):
    # At 200, gang 0 should have ended at 100.  It is expected to end now, so no gang ends before it.
    view = make_view(2, (1, 100), (2, 10), (1, 1), arrived=2)
    decide(Easy(), view)
    view.arrive(2)
    assert decide(Easy(), view, 200.0) == []


def test_the_shortest_of_the_queue_start_behind_the_least_used(make_view, decide):
    # Gang 0 uses 0.8 of processors 0 and 1, gang 1 uses 0.4 of 2 and 3.  Gang 4 is the shortest one that waits.
    view = make_view(4, (2, 100, 0.8), (2, 100, 0.4), (2, 90), (3, 50), (1, 20))
    assert decide(Measy(), view)[2:] == [(4, "start behind", [2]), (3, "start behind", [3, 0, 1])]
    assert view.unplaced.present() == [2]
    assert view.queue.present() == [2, 3, 4]


def test_nobody_starts_behind_a_gang_that_uses_all(make_view, decide):
    view = make_view(2, (2, 100, 0.96), (1, 10))
    assert decide(Measy(), view)[1:] == []
    assert decide(Measy(TierParams(usage_threshold=0.97)), view) == [(1, "start behind", [0])]


def behind_two(make_view, decide, policy, *more):
    """Return a view with gang 2 in the background of 0, which has ended, and of 1; `more` gangs arrive later."""
    view = make_view(4, (1, 50), (1, 100), (2, 30), (2, 60), *more, arrived=2)
    decide(policy, view)
    view.arrive(3)
    assert decide(policy, view) == [(3, "start", [2, 3])]
    view.arrive(2)
    assert decide(policy, view) == [(2, "start behind", [0, 1])]
    view.finish(0)
    view.finish(3)
    view.done_s[2] = 12.0
    return view


def test_keasy_kills_measy_migrates_and_reasy_waits(make_view, decide):
    # At 60, processors 0, 2 and 3 are idle in front.  The moving gang no longer counts behind, so 0 is as good as 2.
    for policy, how, done_s, end_s in ((Keasy(), "restart", 0.0, 90.0), (Measy(), "migrate", 12.0, 60 + 20 + 18.0)):
        view = behind_two(make_view, decide, policy)
        assert decide(policy, view, 60.0) == [(2, how, [0, 2])]
        assert (view.done_s[2], view.end_s(2), view.tier[2]) == (done_s, end_s, IN_FRONT)
        assert view.behind.tolist() == [-1] * 4
    view = behind_two(make_view, decide, Reasy())
    assert decide(Reasy(), view, 60.0) == []
    assert view.tier[2] == BEHIND
    view.finish(1)
    assert decide(Reasy(), view, 70.0) == [(2, "swap", [0, 1])]
    assert view.end_s(2) == 70 + 18


@pytest.mark.parametrize("policy", [Keasy(), Measy(), Reasy()])
def test_a_gang_swaps_where_all_in_front_of_it_is_idle(make_view, decide, policy):
    view = behind_two(make_view, decide, policy)
    view.finish(1)
    assert decide(policy, view, 60.0) == [(2, "swap", [0, 1])]


def test_reasy_keeps_the_processors_of_a_head_in_the_background(make_view, decide):
    # The head 2 waits for processor 1 until 100, and 0 is reserved for it from then on.  4 ends in time and may take
    # it, 5 runs longer and gets another one, and 6 finds all others taken.
    view = behind_two(make_view, decide, Reasy(), (1, 40), (1, 900), (2, 900))
    for gang in (4, 5, 6):
        view.arrive(gang)
    assert decide(Reasy(), view, 60.0)[:2] == [(4, "start", [2]), (5, "start", [3])]


def test_the_end_of_the_head_in_the_background_frees_its_reservation(make_view, decide):
    # 1 waits in the background for both processors; 2 is too long to be served before it.  When 1 has ended there, 2 is
    # the head.
    view = make_view(2, (1, 100), (2, 30), (1, 900))
    assert decide(Measy(), view) == [(0, "start", [0]), (1, "start behind", [1, 0])]
    view.finish(1)
    assert decide(Measy(), view, 40.0) == [(2, "start", [1])]


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="extra_ends"):
        TierParams(extra_ends="some")
    with pytest.raises(ValueError, match="usage_threshold"):
        TierParams(usage_threshold=1.5)
