import numpy as np
import pytest

from fpga_pool.core.gangs.gangs import Gangs, How, Move
from fpga_pool.core.gangs.progress import draw_shares, draw_usage, rate
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import Tiers


def placed(view, gang, how, *processors):
    view.apply(Move(gang, how, np.array(processors)), 0.0)


def test_gangs_are_where_moves_have_brought_them(make_view):
    view = make_view(3, (2, 10), (2, 20))
    placed(view, 0, How.START, 2, 0)
    placed(view, 1, How.START_BEHIND, 0, 1)
    assert (view.front.tolist(), view.behind.tolist()) == ([0, -1, 0], [1, 1, -1])
    assert (view.idle, view.processes_behind) == (1, 2)
    view.finish(0)
    placed(view, 1, How.SWAP, 0, 1)
    assert (view.front.tolist(), view.behind.tolist(), view.idle) == ([1, 1, -1], [-1, -1, -1], 1)
    view.finish(1)
    assert view.idle == 3
    assert not view.queue.present()
    assert not view.ends.present()


def test_a_gang_that_does_not_run_cannot_finish(make_view):
    with pytest.raises(ValueError, match="gang 0: is not running"):
        make_view(1, (1, 10)).finish(0)


def test_a_gang_must_fit(make_view):
    with pytest.raises(ValueError, match="a gang of 3 on 2 processors"):
        make_view(2, (3, 10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": [0]}, "width"),
        ({"estimate_s": [0.0]}, "estimate_s"),
        ({"estimate_s": [np.nan]}, "estimate_s"),
        ({"usage": [1.5]}, "usage"),
        ({"usage": [0.5, 0.6, 0.7]}, "usage"),
        ({"usage": [0.5, 0.6]}, "descending"),
    ],
)
def test_wrong_gangs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Gangs(**({"width": [2], "estimate_s": [10.0], "usage": [0.5]} | change))


def test_rates_are_those_of_the_slowest_process(make_view):
    # Gang 0 uses 0.7 in front of processors 0 and 1, gang 1 uses 0.5 behind 1 and 2.  Alone, each runs at full rate.
    view = make_view(3, (2, 10, 0.7), (2, 10, 0.5))
    placed(view, 0, How.START, 0, 1)
    assert rate(view, 0, 0.02, 0.4, 0.96) == 1.0
    placed(view, 1, How.START_BEHIND, 1, 2)
    assert rate(view, 0, 0.02, 0.4, 0.96) == 0.98
    # On processor 1, 0.3 is left for a process that uses 0.5: 0.4 * 0.6.
    assert rate(view, 1, 0.02, 0.4, 0.96) == pytest.approx(0.24)
    assert rate(view, 1, 0.02, 0.4, 0.7) == 0.0
    view.finish(0)
    assert rate(view, 1, 0.02, 0.4, 0.96) == 1.0


def test_each_process_may_have_its_own_usage():
    # The process of gang 1 with the most usage, 0.9, gets the processor that is idle in front.
    gangs = Gangs(width=[1, 2], estimate_s=[10.0, 10.0], usage=[0.8, 0.9, 0.4])
    view = Tiers(2, gangs)
    view.arrive(0)
    view.arrive(1)
    placed(view, 0, How.START, 0)
    placed(view, 1, How.START_BEHIND, 1, 0)
    assert view.behind_usage.tolist() == [0.4, 0.9]
    assert rate(view, 1, 0.0, 0.5, 0.96) == pytest.approx(0.5 * 0.2 / 0.4)


def test_what_a_trace_does_not_say_is_drawn_as_the_paper_says():
    width = np.repeat([1, 8], 4000)
    rng = np.random.default_rng(1)
    usage = draw_usage(width, ProgressParams(), rng)
    assert (usage[:4000] == 1).all()
    assert usage[4000:].min() >= 0.4
    assert usage[4000:].mean() == pytest.approx(0.7, abs=0.01)
    shares = draw_shares(width, ProgressParams(), rng)
    assert shares.used[:4000].min() >= 0.80
    assert shares.used[:4000].max() <= 0.92
    assert shares.used[4000:].min() >= 0.198
    assert shares.used[4000:].mean() == pytest.approx(0.482, abs=0.01)
    assert shares.loss.mean() == pytest.approx(0.0225, abs=0.001)
    each = draw_usage(width, ProgressParams(), rng, per_process=True)
    assert Gangs(width=width, estimate_s=np.ones(8000), usage=each).per_process


def test_wrong_physics_are_refused():
    for wrong in ({"loss": (0.1, 0.0)}, {"several_mean": 0.9}, {"usage_threshold": 0.0}, {"usage": (0.0, 1.0)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ProgressParams(**wrong)
