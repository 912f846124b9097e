import pytest

from fpga_pool.core.gangs.outlook import Why, outlook
from fpga_pool.core.gangs.paper import Easy, Measy
from fpga_pool.core.gangs.plus import MeasyPlus, PlusParams


def test_the_shortest_is_served_before_the_head_first(make_view, decide):
    # 1 is the head, until 100 one processor is idle: MEASY gives it to 2, ours to the shorter 3.
    rows = (3, 100), (4, 50), (1, 90), (1, 10)
    assert decide(Measy(), make_view(4, *rows))[1] == (2, "start", [3])
    assert decide(MeasyPlus(), make_view(4, *rows))[1] == (3, "start", [3])


def test_a_long_gang_does_not_start_where_it_would_hardly_progress(make_view, decide):
    # Of two processes with usage 0.5 each, 0.482 of the idle cycles: at 0.2 from 1 - 0.2 * 0.5 / 0.482 = 0.793 on, no.
    for front, found in ((0.80, []), (0.79, [(1, "start behind", [0, 1])])):
        assert decide(MeasyPlus(), make_view(2, (2, 9000, front), (2, 5000)))[1:] == found
    assert decide(MeasyPlus(), make_view(2, (2, 9000, 0.9), (2, 900)))[1:] == [(1, "start behind", [0, 1])]
    never = MeasyPlus(PlusParams(least_rate=0.5))
    assert decide(never, make_view(2, (2, 9000, 0.4), (2, 5000)))[1:] == []


def test_a_longer_gang_is_passed_over_for_one_that_can_progress(make_view, decide):
    # 1 finds no room behind gang 0; 2, which is longer, uses less and does.
    view = make_view(2, (2, 9000, 0.7), (2, 4000, 0.9), (2, 5000, 0.5))
    assert decide(MeasyPlus(), view)[1:] == [(2, "start behind", [0, 1])]


def test_a_migration_that_would_delay_the_head_is_not_made(make_view, decide):
    # Gang 2 runs behind 0.  At 60 it asks for 30 s, and 20 to migrate: 110, beyond the reservation of 1 at 100.
    for policy, moved in ((Measy(), [(2, "migrate", [1])]), (MeasyPlus(), [])):
        view = make_view(3, (1, 100), (3, 50), (1, 30), (2, 60))
        for gang in (1, 2, 3):
            view.line.remove(gang, gang)
            view.shortest.remove(gang, view.estimate_s[gang])
            view.queue.remove(gang, view.estimate_s[gang])
        decide(policy, view)
        for gang in (3, 2, 1):
            view.arrive(gang)
            decide(policy, view)
        assert view.placed[2].tolist() == [0]
        view.finish(3)
        moves = decide(policy, view, 60.0)
        assert [move for move in moves if move[0] == 2] == moved


def test_each_gang_that_waits_has_an_expected_start_and_a_reason(make_view, decide):
    # 0 has 3 of 4 processors until 100.  1 needs all, from 100 to 150; 2 and 3 follow it together; 4 is short but came
    # last: one processor is idle until 100, so it would end in time, once EASY is asked.
    view = make_view(4, (3, 100), (4, 50), (2, 10), (1, 200), (1, 30))
    view.line.remove(4, 4)
    decide(Easy(), view)
    view.line.add(4, 4)
    told = outlook(view, 0.0)
    assert [(told_.gang, told_.begin_s) for told_ in told] == [(1, 100), (2, 150), (3, 150), (4, 0)]
    assert [told_.why for told_ in told] == [Why.TOO_FEW_IDLE, Why.TOO_FEW_IDLE, Why.WOULD_DELAY, Why.WOULD_DELAY]


def test_what_runs_beyond_its_estimate_is_expected_to_end_now(make_view, decide):
    view = make_view(1, (1, 100), (1, 50))
    decide(Easy(), view)
    assert outlook(view, 300.0)[0].begin_s == 300.0


@pytest.mark.parametrize("name", ["least_rate", "used_single", "used_several", "least_rate_from_s"])
def test_knobs_are_checked(name):
    with pytest.raises(ValueError, match=name):
        PlusParams(**{name: -0.1})
