import heapq
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.core.gangs.gangs import Gangs, How, TierParams
from fpga_pool.core.gangs.paper import Easy, Keasy, Measy, Reasy
from fpga_pool.core.gangs.plus import MeasyPlus, PlusParams
from fpga_pool.core.gangs.progress import Shares, UsageSaid
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import NOBODY
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.sim.gangs.models import lublin, tsafrir
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.swf import to_swf
from fpga_pool.sim.gangs.trace import Sink, Trace, batch_means, bounded_slowdown, draw, trace_of, utilisation

TWO_TIERS = (Keasy, Measy, MeasyPlus, Reasy)
PAPER = (Keasy, Measy, Reasy)


def trace_of_rows(*rows) -> Trace:
    """Return a trace of rows (submit, width, run, estimate)."""
    submit_s, width, run_s, estimate_s = (np.array(column) for column in zip(*rows, strict=True))
    number = np.arange(len(rows))
    return Trace(job=number, submit_s=submit_s, run_s=run_s, estimate_s=estimate_s, width=width, user=number)


def run(processors, trace, policy, *, usage=0.5, loss=0.1, used=0.5, sink=None, migration_s=20.0, user=None):
    count = len(trace.job)
    gangs = Gangs(width=trace.width, estimate_s=trace.estimate_s, usage=np.full(count, usage), user=user)
    shares = Shares(np.full(count, loss), np.full(count, used))
    return simulate(processors, trace, gangs, shares, policy, migration_s=migration_s, sink=sink)


class Kept(Sink):
    def __init__(self):
        self.stretches = []

    def stretch(self, gang, begin_s, end_s, tier, processors, rate):
        self.stretches.append((gang, begin_s, end_s, tier, processors.tolist(), round(rate, 9)))


def test_foreground_and_background_progress_as_their_neighbours_let_them():
    # Gang 0 needs 90 s alone.  From 0 on it shares both processors with 1 and runs at 0.9, until 100.  Gang 1 uses half
    # of what is left by a process that uses half: 0.5, so 50 of 80 s by then.  It is swapped and ends at 130.
    kept = Kept()
    outcome = run(2, trace_of_rows((0, 2, 90, 90), (0, 2, 80, 80)), Measy(), sink=kept)
    assert outcome.finish_s.tolist() == pytest.approx([100, 130])
    assert (outcome.tier_swaps, outcome.migrations, outcome.kills) == (1, 0, 0)
    assert kept.stretches == [
        (0, 0.0, 100.0, "fg", [0, 1], 0.9),
        (1, 0.0, 100.0, "bg", [0, 1], 0.5),
        (1, 100.0, 130.0, "fg", [0, 1], 1.0),
    ]
    assert (outcome.front_busy_s, outcome.behind_busy_s) == (260, 200)


def test_a_migration_takes_its_time_and_keeps_progress_and_a_kill_does_not():
    # Gang 2 runs behind 0, at 0.5, until 1 ends at 40: 20 of 50 s are done.  It moves to the free foreground, and 0 is
    # alone again, after 40 s at 0.9.
    rows = (0, 1, 100, 100), (0, 1, 40, 40), (0, 1, 50, 50)
    kept = Kept()
    outcome = run(2, trace_of_rows(*rows), Measy(), sink=kept)
    assert outcome.finish_s.tolist() == pytest.approx([104, 40, 40 + 20 + 30])
    assert (2, 40.0, 60.0, "move", [1], 0.0) in kept.stretches
    killed = run(2, trace_of_rows(*rows), Keasy())
    assert killed.finish_s.tolist() == pytest.approx([104, 40, 40 + 50])
    assert (killed.kills, killed.migrations) == (1, 0)


def test_a_trial_has_the_priority_for_its_time():
    # Gang 1 is in its trial from 10 to 40, on an idle processor and one of 0; sharing costs it 0.1, so 27 s are done.
    # Gang 0 uses half of what a process leaves that uses half: 15 s.  Then the priority changes: 1 does its last 10 s
    # at 0.5, until 60, and 0 does 18 s in this time.  It was alone for the first 10 of its 90 s, as it is for the rest.
    kept = Kept()
    policy = MeasyPlus(PlusParams(trial_s=30.0, trial_share=1.0))
    outcome = run(5, trace_of_rows((0, 4, 90, 90), (10, 2, 37, 37)), policy, sink=kept)
    assert sorted(kept.stretches) == [
        (0, 0.0, 10.0, "fg", [0, 1, 2, 3], 1.0),
        (0, 10.0, 40.0, "fg", [0, 1, 2, 3], 0.5),
        (0, 40.0, 60.0, "fg", [0, 1, 2, 3], 0.9),
        (0, 60.0, 107.0, "fg", [0, 1, 2, 3], 1.0),
        (1, 10.0, 40.0, "bg", [4, 0], 0.9),
        (1, 40.0, 60.0, "bg", [4, 0], 0.5),
    ]
    assert outcome.finish_s.tolist() == pytest.approx([107, 60])


def test_a_gang_that_ends_within_its_trial_leaves_at_once():
    # Gang 1 does 18 s at 0.9, from 10 to 30; gang 0 has done 10 + 10 s by then.
    policy = MeasyPlus(PlusParams(trial_s=30.0, trial_share=1.0))
    outcome = run(5, trace_of_rows((0, 4, 90, 90), (10, 2, 18, 80)), policy)
    assert outcome.finish_s.tolist() == pytest.approx([30 + 70, 30])


def test_run_times_of_a_user_put_short_gangs_first():
    # At 20 half of the processors are idle, the first gang in the queue needs more, and nothing is reserved for it yet.
    # Gang 4 estimates 500 s and gang 5 estimates 900 s, but the user of 5 has run for 10 s twice.
    rows = (0, 1, 10, 900), (0, 1, 10, 900), (0, 2, 30, 900), (20, 3, 30, 50), (20, 2, 10, 500), (20, 2, 10, 900)
    user = np.array([1, 1, 3, 3, 2, 1])
    for last_runs, served in ((0, 4), (2, 5)):
        policy = MeasyPlus(PlusParams(last_runs=last_runs, usage_threshold=0.0))
        outcome = run(4, trace_of_rows(*rows), policy, loss=0.0, user=user)
        assert [gang for gang in (3, 4, 5) if outcome.start_s[gang] == 20.0] == [served]


def test_all_that_happens_at_one_instant_has_happened_before_anything_is_decided():
    # At 10 gang 0 ends, and 2 and 3 arrive.  Gang 1 is the first in the queue and gets both processors, not 2.
    rows = (0, 1, 10, 10), (5, 2, 10, 10), (10, 1, 5, 5), (10, 1, 5, 5)
    assert run(2, trace_of_rows(*rows), Easy()).finish_s.tolist() == [10, 20, 25, 25]


def test_a_policy_that_serves_nobody_is_an_error():
    class Idle(Easy):
        def decide(self, view, state, now_s, rng):
            return iter(())

    with pytest.raises(FpgaPoolError, match="1 gangs are never served"):
        run(1, trace_of_rows((0, 1, 1, 1)), Idle())


def short_easy(processors, rows):
    """Return the start of each (submit, width, run, estimate) under EASY, by an independent implementation."""
    queue, running, starts, idle = [], [], {}, processors
    for now in instants(rows, running):
        while running and running[0][0] == now:
            idle += heapq.heappop(running)[2]
        queue += [number for number, row in enumerate(rows) if row[0] == now]
        free_s, extra = None, 0
        for number in list(queue):
            _, width, run_s, estimate_s = rows[number]
            if free_s is None and width > idle:
                total = idle
                for expected_s, _, freed in sorted((row[3], row[1], row[2]) for row in running):
                    total += freed
                    if total >= width:
                        free_s, extra = max(expected_s, now), total - width
                        break
                continue
            if width > idle:
                continue
            if free_s is not None and now + estimate_s > free_s:
                if width > extra:
                    continue
                extra -= width
            queue.remove(number)
            idle -= width
            starts[number] = now
            heapq.heappush(running, (now + run_s, number, width, now + estimate_s))
    return [starts[number] for number in range(len(rows))]


def instants(rows, running):
    """Yield the times at which gangs arrive or end, in order, while `running` changes."""
    submissions = sorted({row[0] for row in rows})
    while submissions or running:
        now = min([*submissions[:1], *(row[0] for row in running[:1])])
        if submissions and submissions[0] == now:
            submissions.pop(0)
        yield now


def synthetic(seed, count=600, processors=64, load=0.9):
    rng = np.random.default_rng(seed)
    jobs = lublin(count, processors, rng)
    run_s = np.minimum(jobs.run_s, 64_800)
    estimate_s = tsafrir(run_s, 64_800, rng)
    swf = to_swf(type(jobs)(submit_s=jobs.submit_s, run_s=run_s, width=jobs.width), estimate_s, "", processors)
    return trace_of(swf, processors)[0].with_load(load, processors)


@pytest.mark.parametrize("seed", range(6))
def test_an_independent_easy_agrees_on_every_job(seed):
    trace = synthetic(seed)
    columns = (trace.submit_s, trace.width, trace.run_s, trace.estimate_s)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert run(64, trace, Easy()).start_s.tolist() == short_easy(64, rows)


@pytest.mark.parametrize("policy", PAPER)
def test_with_the_background_forbidden_all_are_easy(policy):
    trace = synthetic(9)
    easy = run(64, trace, Easy())
    found = run(64, trace, policy(TierParams(usage_threshold=0.0)))
    assert found.finish_s.tolist() == easy.finish_s.tolist()
    assert found.behind_busy_s == 0


ROWS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=14
)


class Audited(Sink):
    """A sink that adds up the progress of each gang, and records the places used in every stretch."""

    def __init__(self, count):
        self.done_s, self.spans = [0.0] * count, []

    def stretch(self, gang, begin_s, end_s, tier, processors, rate):
        if tier == "kill":
            self.done_s[gang] = 0.0
        else:
            self.done_s[gang] += (end_s - begin_s) * rate
            place = "bg" if tier == "bg" else "fg"
            self.spans += [(place, int(i), begin_s, end_s) for i in processors]


def trying():
    """Return our policy with both options: predictions from one run time, and trials whenever a gang can give way."""
    return MeasyPlus(PlusParams(last_runs=1, trial_s=2.0, trial_share=0.3))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.sampled_from((Easy, *TWO_TIERS, trying)), st.booleans())
def test_work_is_conserved_and_nobody_shares_a_vm(rows, policy, per_process):
    rows = sorted((submit, width, run_s, run_s + more) for submit, width, run_s, more in rows)
    trace = trace_of_rows(*rows)
    gangs, shares = draw(trace, ProgressParams(), np.random.default_rng(1), per_process=per_process)
    audited = Audited(len(rows))
    outcome = simulate(4, trace, gangs, shares, policy(), sink=audited, migration_s=3.0)
    assert audited.done_s == pytest.approx(trace.run_s.tolist())
    assert (outcome.start_s >= trace.submit_s).all()
    assert (outcome.finish_s >= outcome.start_s + trace.run_s - 1e-6).all()
    spans = sorted(audited.spans)
    for (tier, processor, _, end_s), (next_tier, next_processor, begin_s, _) in itertools.pairwise(spans):
        assert (tier, processor) != (next_tier, next_processor) or end_s <= begin_s


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.sampled_from((Easy, *TWO_TIERS)))
def test_the_view_agrees_with_itself_after_every_move(rows, policy):
    class Watched(policy):
        def decide(self, view, state, now_s, rng):
            for move in super().decide(view, state, now_s, rng):
                yield move
                consistent(view)

    rows = sorted((submit, width, run_s, run_s + more) for submit, width, run_s, more in rows)
    run(4, trace_of_rows(*rows), Watched())


def consistent(view):
    assert view.idle == int((view.front == NOBODY).sum())
    assert view.processes_behind == int((view.behind != NOBODY).sum())
    assert ((view.front == NOBODY) == (view.front_usage == 0)).all()
    assert ((view.behind == NOBODY) == (view.behind_usage == 0)).all()
    in_front, behind = set(view.front.tolist()) - {NOBODY}, set(view.behind.tolist()) - {NOBODY}
    assert set(view.ends.present()) == in_front
    assert set(view.queue.present()) == behind | set(view.unplaced.present())
    assert not in_front & behind
    assert not behind & set(view.unplaced.present())


def test_with_exact_estimates_and_one_tier_no_head_starts_after_its_reservation():
    trace = synthetic(11)
    exact = Trace(
        job=trace.job, submit_s=trace.submit_s, run_s=trace.run_s, estimate_s=trace.run_s, width=trace.width,
        user=trace.user,
    )  # fmt: skip
    promised = {}

    class Watched(Easy):
        def _reserve(self, view, head, now_s):
            reservation = super()._reserve(view, head, now_s)
            promised.setdefault(head, reservation.begin_s)
            return reservation

    outcome = run(64, exact, Watched())
    assert promised
    assert all(outcome.start_s[head] <= begin_s + 1e-6 for head, begin_s in promised.items())


def test_trials_delay_no_head_beyond_its_first_reservation():
    trace = synthetic(11)
    exact = replace(trace, estimate_s=trace.run_s)
    promised, first_s, tried = {}, {}, []

    class Watched(MeasyPlus):
        def _reserve(self, view, head, now_s):
            reservation = super()._reserve(view, head, now_s)
            promised.setdefault(head, reservation.begin_s)
            return reservation

        def decide(self, view, state, now_s, rng):
            for move in super().decide(view, state, now_s, rng):
                tried.extend([move.gang] if move.how is How.TRY else [])
                yield move

    class InFront(Sink):
        def stretch(self, gang, begin_s, end_s, tier, processors, rate):
            if tier != "bg":
                first_s.setdefault(gang, begin_s)

    policy = Watched(PlusParams(patience=0.0, trial_s=60.0, trial_share=0.5))
    outcome = run(64, exact, policy, loss=0.0, sink=InFront())
    assert len(tried) > 50
    late = [
        first_s.get(head, outcome.finish_s[head]) - begin_s
        for head, begin_s in promised.items()
        if first_s.get(head, outcome.finish_s[head]) > begin_s + 1e-6
    ]
    assert not late


def test_a_gang_that_is_late_gives_way_to_no_trial_that_delays_the_head():
    # Two gangs of 2000 s share their processors from 11 s on and lose a tenth.  The head needs both processors, and
    # starts when they have ended, at 2000 / 0.9 at the latest.  The last gang arrives when they are already late.
    rows = [(0, 1, 2000, 2000), (1, 1, 1990, 1990), (2, 2, 9000, 9000), (10, 1, 100, 800), (11, 1, 10, 2000)]
    trace = trace_of_rows(*rows, (2100, 2, 50, 800))
    starts_s = []

    class InFront(Sink):
        def stretch(self, gang, begin_s, end_s, tier, processors, rate):
            if gang == 2 and tier != "bg":
                starts_s.append(begin_s)

    run(2, trace, MeasyPlus(PlusParams(patience=0.0, trial_s=60.0, trial_share=0.5)), usage=0.9, sink=InFront())
    assert min(starts_s) <= 2000 / 0.9


def test_measures_are_those_of_the_paper():
    # A run of 5 s counts as 10 s, so it is (20 + 5) / 10 = 2.5; that of 40 s did not wait: 1.
    trace = trace_of_rows((0, 1, 40, 40), (20, 1, 5, 5))
    outcome = run(1, trace, Easy())
    assert outcome.finish_s.tolist() == [40, 45]
    assert bounded_slowdown(trace, outcome).tolist() == [1.0, 2.5]
    assert utilisation(1, trace, outcome) == (1.0, 0.0)


def test_batch_means_leave_out_the_ends_and_have_an_interval():
    # 1000 values, of which 800 count, in 20 batches that alternate between 0 and 2: mean 1, deviation of the batch
    # means sqrt(20/19), half width t(19, 0.975) = 2.0930 times that over sqrt(20).
    values = np.concatenate((np.full(100, 1e9), np.tile(np.repeat([0.0, 2.0], 40), 10), np.full(100, 1e9)))
    found = batch_means(values)
    assert found.mean == 1.0
    assert found.half_width == pytest.approx(2.0930 * (20 / 19) ** 0.5 / 20**0.5, abs=1e-4)
    assert np.isnan(batch_means(np.ones(5)).half_width)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    ROWS,
    st.sampled_from((0.0, 0.04)),
    st.sampled_from(({}, {"last_runs": 1}, {"trial_s": 2.0, "trial_share": 0.5}, {"patience": 0.0, "trial_s": 1.0})),
)
def test_no_head_is_delayed_beyond_its_first_reservation_but_by_the_loss(rows, loss, options):
    # Foreground gangs end at their estimate e, or by the loss at e / (1 - loss).  The background may complete the head
    # earlier.
    promised = {}

    class Watched(MeasyPlus):
        def _reserve(self, view, head, now_s):
            reservation = super()._reserve(view, head, now_s)
            if reservation.begin_s < np.inf:  # its turn has come
                promised.setdefault(head, reservation.begin_s)
            return reservation

    class InFront(Sink):
        def stretch(self, gang, begin_s, end_s, tier, processors, rate):
            if tier != "bg":
                first_s.setdefault(gang, begin_s)

    first_s = {}
    rows = sorted((submit, width, run_s, run_s + more) for submit, width, run_s, more in rows)
    policy = Watched(PlusParams(least_rate=0.0, **options))
    user = np.arange(len(rows)) % 2
    outcome = run(4, trace_of_rows(*rows), policy, loss=loss, sink=InFront(), migration_s=3.0, user=user)
    late_s = max(row[3] for row in rows) * loss / (1 - loss)
    for head, begin_s in promised.items():
        assert first_s.get(head, outcome.finish_s[head]) <= begin_s + late_s + 1e-6


def test_a_wide_gang_is_served_although_short_ones_keep_coming():
    # Gangs of 10 s that arrive every 3 s use all processors in turn.  The turn of the wide gang is at 21 + 2 * 50.
    # Gangs that arrive after 121 - 2 * 10 are behind it by then, and running ones end within 10 s, or 20 s later
    # after a migration.
    short = [(3.0 * i, 1, 10, 10) for i in range(300)]
    rows = sorted([*short, (21.0, 4, 50, 50)])
    wide = rows.index((21.0, 4, 50, 50))
    outcome = run(4, trace_of_rows(*rows), MeasyPlus(), loss=0.0)
    assert outcome.start_s[wide] <= 121 + 30


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.sampled_from((0.0, 1.0, 3.0)))
def test_nobody_who_comes_after_the_turn_of_a_gang_starts_to_its_delay(rows, patience):
    # With one tier and exact estimates: once the first gang in the queue has its turn, its reservation never gets
    # later, and a gang that has a reservation later has the later turn.
    reserved = []

    class Watched(MeasyPlus):
        def _reserve(self, view, head, now_s):
            reservation = super()._reserve(view, head, now_s)
            if now_s >= view.turn_s[head]:
                reserved.append((view.turn_s[head], head, reservation.begin_s))
            return reservation

    rows = sorted((submit, width, run_s, run_s) for submit, width, run_s, _ in rows)
    policy = Watched(PlusParams(patience=patience, usage_threshold=0.0, least_rate=1.0, least_rate_from_s=0.0))
    run(4, trace_of_rows(*rows), policy, loss=0.0)
    assert reserved == sorted(reserved, key=lambda row: row[:2])
    for (_, head, begin_s), (_, later, later_begin_s) in itertools.pairwise(reserved):
        assert head != later or later_begin_s <= begin_s + 1e-9


@pytest.mark.parametrize("said", [UsageSaid(unknown=True), UsageSaid(error=0.5)])
@pytest.mark.parametrize("per_process", [False, True])
def test_what_is_said_of_usages_changes_decisions_but_not_the_truth(said, per_process):
    trace = synthetic(3, count=200)
    true, known = draw(trace, ProgressParams(), np.random.default_rng(1), per_process=per_process)
    told, shares = draw(trace, ProgressParams(), np.random.default_rng(1), per_process=per_process, said=said)
    assert known.loss.tolist() == shares.loss.tolist()
    assert sorted(true.usage) == sorted(shares.usage)
    assert told.usage.tolist() != true.usage.tolist()
    single = np.flatnonzero(trace.width == 1)
    if not per_process:
        assert (told.usage[single] == 1).all()
        assert true.usage.tolist() == shares.usage.tolist()
    assert simulate(64, trace, told, shares, Easy()).finish_s.tolist() == (
        simulate(64, trace, true, known, Easy()).finish_s.tolist()
    )


def test_rates_follow_the_true_usage():
    # Declared is 0.5, true are 0.8 in front and 0.4 behind: a process that needs 0.4 of 0.2 left does 0.5 * 0.2 / 0.4.
    trace = trace_of_rows((0, 1, 90, 90), (0, 1, 80, 80))
    gangs = Gangs(width=trace.width, estimate_s=trace.estimate_s, usage=np.full(2, 0.5))
    shares = Shares(np.full(2, 0.1), np.full(2, 0.5), usage=np.array([0.8, 0.4]))
    kept = Kept()
    simulate(1, trace, gangs, shares, Measy(), sink=kept)
    assert kept.stretches[:2] == [(0, 0.0, 100.0, "fg", [0], 0.9), (1, 0.0, 100.0, "bg", [0], 0.25)]
