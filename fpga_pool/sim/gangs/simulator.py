"""Simulates a gang policy on a trace, with the tiers and the policy of the live scheduler.

Only the progress of both tiers (fluid: rates change only when neighbours do) and the duration of migrations are
modelled.  All events of one instant are processed before the policy decides.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from fpga_pool.core.gangs.gangs import Gangs, How, Move
from fpga_pool.core.gangs.progress import Shares, rate
from fpga_pool.core.gangs.reservation import outlook
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import AWAY, BEHIND, IN_FRONT, NOBODY, QUEUED, Tiers
from fpga_pool.core.policy import GangPolicy
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.sim.gangs.trace import (
    Cancellation,
    Failure,
    Fault,
    Outage,
    OutageEnd,
    Outcome,
    Sink,
    Trace,
    TrueUsage,
    timeline,
)

#: The rate of a gang that has just been placed; it differs from all actual rates.
_UNKNOWN = -1.0
_FROM_THE_QUEUE = (How.START, How.START_BEHIND, How.TRY)


def simulate(
    processors: int,
    trace: Trace,
    gangs: Gangs,
    shares: Shares,
    policy: GangPolicy,
    *,
    params: ProgressParams | None = None,
    migration_s: float = 20.0,
    seed: int = 0,
    sink: Sink | None = None,
    outlooks: bool = False,
    faults: Sequence[Fault] = (),
) -> Outcome:
    """Simulate a policy on a trace; with `outlooks` the sink receives the outlook of waiting gangs.

    Raises FpgaPoolError if a gang is never served, for example because it is wider than the processors that a
    permanent outage leaves.
    """
    view = Tiers(
        processors,
        gangs,
        migration_s=migration_s,
        patience=policy.patience,
        last_runs=policy.last_runs,
        trial_s=policy.trial_s,
    )
    shell = _Shell(view, trace, shares, policy, params or ProgressParams(), sink or Sink(), seed, outlooks, faults)
    shell.run()
    return Outcome(
        start_s=np.array(shell.start_s),
        finish_s=np.array(shell.finish_s),
        migrations=sum(shell.migrations.values()),
        kills=sum(shell.kills.values()),
        tier_swaps=sum(shell.swaps.values()),
        events=shell.events,
        front_busy_s=shell.busy_s[IN_FRONT],
        behind_busy_s=shell.busy_s[BEHIND],
    )


class _Shell:
    """Keeps the clock, and carries out the decisions of the policy."""

    def __init__(
        self,
        view: Tiers,
        trace: Trace,
        shares: Shares,
        policy: GangPolicy,
        params: ProgressParams,
        sink: Sink,
        seed: int,
        outlooks: bool,
        faults: Sequence[Fault],
    ) -> None:
        self._outlooks = outlooks
        self._view, self._policy, self._sink = view, policy, sink
        self._predicts = policy.last_runs > 0
        self._rng = np.random.default_rng(seed)
        self._usage_threshold = params.usage_threshold
        self._truth = None if shares.usage is None else TrueUsage(view, shares.usage)
        self._usage = None if self._truth is None else self._truth.usage
        self._loss: list[float] = shares.loss.tolist()
        self._used: list[float] = shares.used.tolist()
        self._submit_s: list[float] = trace.submit_s.tolist()
        self._run_s: list[float] = trace.run_s.tolist()
        count = len(self._run_s)
        self.start_s, self.finish_s = [-1.0] * count, [0.0] * count
        self.migrations: dict[int, int] = {}
        self.kills: dict[int, int] = {}
        self.swaps: dict[int, int] = {}
        self.events = 0
        self.busy_s = {BEHIND: 0.0, IN_FRONT: 0.0}
        self._now_s = 0.0
        #: (time, gang, version): the end of a gang or of its migration; void if the gang's version has changed by then.
        self._agenda: list[tuple[float, int, int]] = []
        self._version = [0] * count
        #: By gang: its rate if it runs, and the time of the last change of the rate.
        self._rate, self._since_s = [0.0] * count, [0.0] * count
        #: Gangs that are migrating.
        self._moving: set[int] = set()
        #: (end, gang) of each trial, in order of time, as all trials have the same length.
        self._trials: deque[tuple[float, int]] = deque()
        #: End of the latest trial of each gang; an earlier trial may have ended when the gang lost its processors.
        self._trial_ends_s: dict[int, float] = {}
        #: (time, fault) in order of time; and gangs that wait for processors to return.
        self._faults = deque(timeline(faults))
        self._left_out: set[int] = set()
        #: Gangs whose rate may change at this instant.
        self._touched: set[int] = set()

    def run(self) -> None:
        """Run until every gang has ended; raises FpgaPoolError if gangs are never served."""
        submit_s, agenda, view, trials, faults = self._submit_s, self._agenda, self._view, self._trials, self._faults
        arriving, count = 0, len(submit_s)
        while arriving < count or agenda or faults:
            now_s = submit_s[arriving] if arriving < count else math.inf
            if agenda and agenda[0][0] < now_s:
                now_s = agenda[0][0]
            if trials and trials[0][0] < now_s:
                now_s = trials[0][0]
            if faults and faults[0][0] < now_s:
                now_s = faults[0][0]
            self._now_s = now_s
            changed, first = bool(trials) and self._end_trials(), arriving
            while agenda and agenda[0][0] == now_s:
                _, gang, version = heapq.heappop(agenda)
                if version == self._version[gang]:
                    self._happens(gang)
                    changed = True
            while faults and faults[0][0] == now_s:
                self._strike(faults.popleft()[1])
                changed = True
            while arriving < count and submit_s[arriving] == now_s:
                view.arrive(arriving, now_s)
                arriving += 1
                changed = True
            if view.in_service < view.processors:
                self._leave_out()
            if changed:
                self.events += 1
                self._decide()
                if self._outlooks and first < arriving:
                    self._report_outlook(range(first, arriving))
        if waiting := len(view.queue) + len(self._left_out):
            raise FpgaPoolError(f"policy {self._policy.name!r}: {waiting} gangs are never served")

    def _strike(self, fault: Fault | OutageEnd) -> None:
        """Apply a fault, or the end of an outage."""
        view = self._view
        match fault:
            case Outage(processors=processors):
                held = view.front[list(processors)].tolist() + view.behind[list(processors)].tolist()
                for gang in sorted(set(held) - {NOBODY}):
                    self._displace(gang)
                for processor in processors:
                    view.block(processor, IN_FRONT)
                    view.block(processor, BEHIND)
                view.serve_with(view.in_service - len(processors))
            case OutageEnd(processors):
                for processor in processors:
                    view.unblock(processor, IN_FRONT)
                    view.unblock(processor, BEHIND)
                view.serve_with(view.in_service + len(processors))
                for gang in sorted(gang for gang in self._left_out if view.width[gang] <= view.in_service):
                    self._left_out.discard(gang)
                    view.rejoin(gang)
            case Failure(gang=gang):
                if view.tier[gang] in (BEHIND, IN_FRONT):
                    self._displace(gang)
            case Cancellation(gang=gang):
                self._cancel(gang)

    def _leave_out(self) -> None:
        """Remove gangs from the queue for which too few processors are in service, so that they delay no others."""
        view = self._view
        for gang in view.queue.present():
            if view.width[gang] > view.in_service and view.tier[gang] == QUEUED:
                view.leave(gang)
                self._left_out.add(gang)

    def _displace(self, gang: int) -> None:
        """Remove a gang from its processors; it starts over."""
        self._stop(gang)
        self._view.displace(gang)

    def _cancel(self, gang: int) -> None:
        if gang in self._left_out:
            self._left_out.discard(gang)
        elif self._view.tier[gang] == AWAY:
            return
        else:
            if self._view.tier[gang] != QUEUED:
                self._stop(gang)
            self._view.leave(gang)
        self.finish_s[gang] = self._now_s

    def _stop(self, gang: int) -> None:
        """Account for a gang that is about to leave its processors before its work is done."""
        self._note(gang)
        self._touch_neighbours(gang)
        if self._truth is not None:
            self._truth.leave(gang)
        self._moving.discard(gang)
        self._version[gang] += 1
        self._rate[gang] = 0.0

    def _end_trials(self) -> bool:
        """End the trials whose time is over; return whether there was any."""
        ended = False
        while self._trials and self._trials[0][0] <= self._now_s:
            end_s, gang = self._trials.popleft()
            if gang in self._view.trying and self._trial_ends_s[gang] == end_s:
                self._view.trying.discard(gang)
                self._touched.add(gang)
                self._touch_neighbours(gang)
                ended = True
        return ended

    def _decide(self) -> None:
        view = self._view
        if self._predicts:
            self._correct()
        for move in self._policy.decide(view, None, self._now_s, self._rng):
            self._do(move)
        view.news_in_front = False
        tier, touched = view.tier, self._touched
        touched.discard(NOBODY)
        for gang in touched:
            if tier[gang] >= BEHIND:
                self._refresh(gang)
        touched.clear()

    def _correct(self) -> None:
        """Increase the predictions of gangs in the background that have run longer than predicted."""
        view, now_s = self._view, self._now_s
        for gang in view.queue.present():
            if view.tier[gang] == BEHIND:
                view.correct(gang, view.done_s[gang] + max(0.0, now_s - self._since_s[gang]) * self._rate[gang])

    def _report_outlook(self, arrived: range) -> None:
        """Report the outlook of newly arrived gangs that are not in the foreground."""
        for expected in outlook(self._view, self._now_s):
            if expected.gang in arrived:
                self._sink.waits(expected.gang, expected.begin_s, expected.why.value)

    def _happens(self, gang: int) -> None:
        """End a gang, or its migration."""
        self._note(gang)
        self._touched.add(gang)
        if gang in self._moving:
            self._moving.discard(gang)
            return
        view, now_s = self._view, self._now_s
        self.finish_s[gang] = now_s
        self._touch_neighbours(gang)
        if self._truth is not None:
            self._truth.leave(gang)
        view.finish(gang)
        migrations, kills, swaps = self.migrations.get(gang, 0), self.kills.get(gang, 0), self.swaps.get(gang, 0)
        self._sink.finished(gang, self.start_s[gang], now_s, migrations, kills, swaps)

    def _do(self, move: Move) -> None:
        """Apply a move to the tiers, and account for its effects on progress."""
        gang, how, _ = move
        view, now_s = self._view, self._now_s
        if how in _FROM_THE_QUEUE:
            if self.start_s[gang] < 0:
                self.start_s[gang] = now_s
        else:
            self._note(gang)
            self._touch_neighbours(gang)
            if how is How.SWAP:
                self.swaps[gang] = self.swaps.get(gang, 0) + 1
            elif how is How.RESTART:
                self.kills[gang] = self.kills.get(gang, 0) + 1
                self._sink.stretch(gang, now_s, now_s, "kill", view.placed[gang][:0], 0.0)
            else:
                self.migrations[gang] = self.migrations.get(gang, 0) + 1
                if view.migration_s > 0:
                    self._moving.add(gang)
        if self._truth is not None:
            self._truth.leave(gang)
        trying = view.trying.copy() if view.trying else ()
        view.apply(move, now_s)
        if how is How.TRY:
            self._trial_ends_s[gang] = now_s + view.trial_s
            self._trials.append((now_s + view.trial_s, gang))
        for other in trying:
            if other not in view.trying and other != gang:
                self._touched.add(other)
                self._touch_neighbours(other)
        if self._truth is not None:
            self._truth.enter(gang)
        self._rate[gang], self._since_s[gang] = _UNKNOWN, now_s
        self._touched.add(gang)
        self._touch_neighbours(gang)

    def _touch_neighbours(self, gang: int) -> None:
        """Mark the gangs that share processors with a gang, as their rates may change."""
        view = self._view
        if view.tier[gang] == BEHIND:
            self._touched.update(view.front[view.placed[gang]].tolist())
        elif view.processes_behind:
            self._touched.update(view.behind[view.placed[gang]].tolist())

    def _refresh(self, gang: int) -> None:
        """Update the rate and the end of a running gang, if the rate has changed."""
        view = self._view
        if gang in self._moving:
            if self._rate[gang] == _UNKNOWN:
                self._rate[gang] = 0.0
                self._awaits(gang, self._now_s + view.migration_s)
            return
        found = rate(view, gang, self._loss[gang], self._used[gang], self._usage_threshold, self._usage)
        if found != self._rate[gang]:
            self._note(gang)
            self._rate[gang] = found
            if found > 0:
                self._awaits(gang, self._now_s + max(0.0, self._run_s[gang] - view.done_s[gang]) / found)
            else:
                self._version[gang] += 1

    def _awaits(self, gang: int, time_s: float) -> None:
        self._version[gang] += 1
        heapq.heappush(self._agenda, (time_s, gang, self._version[gang]))

    def _note(self, gang: int) -> None:
        """Account for the work of a gang since its rate last changed."""
        now_s, since_s, speed, view = self._now_s, self._since_s[gang], self._rate[gang], self._view
        if now_s <= since_s:
            return
        self._since_s[gang] = now_s
        view.done_s[gang] += (now_s - since_s) * speed
        tier = view.tier[gang]
        self.busy_s[tier] += (now_s - since_s) * view.width[gang]
        name = "bg" if tier == BEHIND else "move" if gang in self._moving else "fg"
        self._sink.stretch(gang, since_s, now_s, name, view.placed[gang], speed)
