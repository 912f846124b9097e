"""Processors with one foreground and one background process each, and the gangs that run on them or wait for them."""

import numpy as np

from fpga_pool.core.gangs.gangs import Gangs, History, How, Move, corrected
from fpga_pool.core.types import Floats, Ints


class Rows:
    """Gangs ordered by key, then by index; only the first `count` entries of `rows` and `keys` are in use."""

    __slots__ = ("_insert", "_remove", "_room", "count", "keys", "rows")

    def __init__(self) -> None:
        from fpga_pool.core.gangs import scans

        self._insert, self._remove = scans.insert, scans.remove
        self._room = 64
        self.count = 0
        self.rows: Ints = np.empty(self._room, np.int64)
        self.keys: Floats = np.empty(self._room)

    def __len__(self) -> int:
        return self.count

    def present(self) -> list[int]:
        """Return the gangs in order."""
        found: list[int] = self.rows[: self.count].tolist()
        return found

    def add(self, gang: int, key: float) -> None:
        """Insert a gang."""
        count = self.count
        if count == self._room:
            self._room *= 2
            self.rows = np.concatenate((self.rows, np.empty_like(self.rows)))
            self.keys = np.concatenate((self.keys, np.empty_like(self.keys)))
        self._insert(self.keys, self.rows, count, key, gang)
        self.count = count + 1

    def remove(self, gang: int, key: float) -> None:
        """Remove a gang; raise ValueError if it is not present."""
        if not self._remove(self.keys, self.rows, self.count, key, gang):
            raise ValueError(f"gang {gang}: not in this queue")
        self.count -= 1


#: State of a gang: not in the view, waiting, in the background, or in the foreground.
AWAY, QUEUED, BEHIND, IN_FRONT = range(4)
#: On a tier of a processor: no gang.
NOBODY = -1
#: On a tier of a processor: a process that belongs to no gang of the view.
BLOCKED = -2
#: Turns come sooner for wide gangs, which only a reservation serves while many gangs wait: the time until a turn is
#: multiplied by this power of the share of the processors that the gang leaves to others.
SOONER_FOR_WIDTH = 0.3

_NOWHERE: Ints = np.empty(0, np.int64)


class Tiers:
    """The view of gang policies.  A shell reports events to it and applies each move; policies only read it.

    The shell keeps `done_s` of a gang up to date when it applies a move of that gang.  Times are seconds of the
    shell's clock; all lists and arrays over gangs are indexed as in `gangs`.

    `patience` is a parameter of the policy: the turn of a gang comes this multiple of its estimate after its arrival,
    sooner for gangs that need more of the processors, and the queue is ordered by turns.  With patience 0 it is in
    order of arrival.  `last_runs`, also of the policy, is the number of past run times of a user that predict the next
    one, unless the shell passes its own predictions (`predicted_s`, (G,)).  `trial_s` is the duration of a trial.
    """

    def __init__(
        self,
        processors: int,
        gangs: Gangs,
        *,
        migration_s: float = 0.0,
        patience: float = 0.0,
        last_runs: int = 0,
        predicted_s: Floats | None = None,
        trial_s: float = 0.0,
        in_service: int | None = None,
    ) -> None:
        if len(gangs.width) and gangs.width.max() > processors:
            raise ValueError(f"width: a gang of {gangs.width.max()} on {processors} processors")
        from fpga_pool.core.gangs import scans

        self.scans = scans
        self.processors, self.gangs, self.migration_s, self.patience = processors, gangs, migration_s, patience
        #: Number of processors that gangs may get now; the share that a gang needs is a share of these.
        self.in_service = processors if in_service is None else in_service
        self.width: list[int] = gangs.width.tolist()
        self.estimate_s: list[float] = gangs.estimate_s.tolist()
        self._history = History(gangs.user, last_runs) if last_runs and gangs.user is not None else None
        if predicted_s is not None:
            self._predicted_s: list[float] = predicted_s.tolist()
        else:
            self._predicted_s = self.estimate_s if self._history is None else gangs.estimate_s.tolist()
        #: Expected run time of each gang on dedicated processors, by which the shortest gangs are found.
        self.expected_s = self._predicted_s if self._predicted_s is self.estimate_s else self._predicted_s.copy()
        self.usage: list[float] | list[Floats] = (
            np.split(gangs.usage, np.cumsum(gangs.width)[:-1]) if gangs.per_process else gangs.usage.tolist()
        )
        #: Duration of a trial, 0 = no trials; background gangs in a trial; and the total time for which each foreground
        #: gang has yielded.
        self.trial_s = trial_s
        self.trying: set[int] = set()
        self.gave_way_s: dict[int, float] = {}
        #: Progress kept, in seconds on dedicated processors.
        self.done_s = [0.0] * len(self.width)
        #: Arrival of each gang, and the time of its turn, after which no new arrival is queued ahead of it.
        self._arrived_s = [0.0] * len(self.width)
        self.turn_s = [0.0] * len(self.width)
        self.tier = [AWAY] * len(self.width)
        #: For each running gang: the processors of its processes, in descending order of usage.
        self.placed: list[Ints] = [_NOWHERE] * len(self.width)
        #: By processor: the gang in each tier, NOBODY if none, and the usage of its process, 0 if none.
        self.front: Ints = np.full(processors, NOBODY)
        self.behind: Ints = np.full(processors, NOBODY)
        self.front_usage: Floats = np.zeros(processors)
        self.behind_usage: Floats = np.zeros(processors)
        #: Number of processors without a foreground process, and number of background processes.
        self.idle = processors
        self.processes_behind = 0
        #: Gangs that are not in the foreground, in order of their turns; the first one is the head, served next.
        self.queue = Rows()
        self._shortest: Rows | None = None
        self._unplaced: Rows | None = None
        #: Foreground gangs by their estimated ends.
        self.ends = Rows()
        self._end_s: dict[int, float] = {}
        #: Whether a gang has arrived, or the foreground or the head has changed, since the last decision.
        self.news_in_front = False

    def end_s(self, gang: int) -> float:
        """Return the estimated end of a foreground gang."""
        return self._end_s[gang]

    @property
    def shortest(self) -> Rows:
        """Gangs that are not in the foreground, the shortest expected run times first; maintained after first use."""
        if self._shortest is None:
            self._shortest = self._by_estimate(self.queue.present())
        return self._shortest

    @property
    def unplaced(self) -> Rows:
        """Gangs that run nowhere, the shortest expected run times first; maintained after first use."""
        if self._unplaced is None:
            self._unplaced = self._by_estimate([gang for gang in self.queue.present() if self.tier[gang] == QUEUED])
        return self._unplaced

    def _by_estimate(self, gangs: list[int]) -> Rows:
        rows = Rows()
        for gang in gangs:
            rows.add(gang, self.expected_s[gang])
        return rows

    # Events and moves ---------------------------------------------------------------------------------------------

    def arrive(self, gang: int, now_s: float = 0.0) -> None:
        """Add a gang that has arrived to the queue."""
        if self._history is not None:
            self._predicted_s[gang] = self._history.predict(gang, self.estimate_s[gang])
            self.expected_s[gang] = self._predicted_s[gang]
        self._arrived_s[gang] = now_s
        self.turn_s[gang] = self._turn_s(gang)
        self.rejoin(gang)

    def rejoin(self, gang: int) -> None:
        """Add a gang to the queue that was in it before; its turn still depends on its arrival."""
        self.tier[gang] = QUEUED
        self.queue.add(gang, self._place(gang))
        if self._shortest is not None:
            self._shortest.add(gang, self.expected_s[gang])
        if self._unplaced is not None:
            self._unplaced.add(gang, self.expected_s[gang])
        self.news_in_front = True

    def finish(self, gang: int) -> None:
        """Remove a gang that has completed its work from its processors."""
        if self.tier[gang] not in (BEHIND, IN_FRONT):
            raise ValueError(f"gang {gang}: is not running")
        self.leave(gang)
        if self._history is not None:
            self._history.ran(gang, self.done_s[gang])

    def leave(self, gang: int) -> None:
        """Remove a gang from the view, whatever its state."""
        if self.tier[gang] == IN_FRONT:
            self._leave_front(gang)
            self.news_in_front = True
        else:
            if self.queue.rows[0] == gang:
                self.news_in_front = True
            if self.tier[gang] == BEHIND:
                self._leave_behind(gang)
            else:
                self._leave_unplaced(gang)
            self._leave_line(gang)
        self.tier[gang] = AWAY
        self.placed[gang] = _NOWHERE

    def displace(self, gang: int) -> None:
        """Remove a gang from its processors after a failure; it restarts without progress, queued by its arrival."""
        self.leave(gang)
        self.done_s[gang] = 0.0
        if self.expected_s is not self.estimate_s:
            self.expected_s[gang] = self._predicted_s[gang]
        self.rejoin(gang)

    def correct(self, gang: int, done_s: float) -> None:
        """Extend the expected run time of a background gang that has done `done_s`, if it has outrun its prediction."""
        expected_s, estimate_s = self.expected_s[gang], self.estimate_s[gang]
        if done_s < expected_s or expected_s >= estimate_s:
            return
        if self._shortest is not None:
            self._shortest.remove(gang, expected_s)
        self.expected_s[gang] = corrected(self._predicted_s[gang], done_s, estimate_s)
        if self._shortest is not None:
            self._shortest.add(gang, self.expected_s[gang])

    def serve_with(self, in_service: int) -> None:
        """Change the number of processors that gangs may get, and with it the turns of all waiting gangs."""
        waiting = self.queue.present()
        for gang in waiting:
            self.queue.remove(gang, self._place(gang))
        self.in_service = in_service
        self.turn_s = [self._turn_s(gang) for gang in range(len(self.width))]
        for gang in waiting:
            self.queue.add(gang, self._place(gang))
        self.news_in_front = True

    def resume(self, gang: int, processors: Ints, end_s: float) -> None:
        """Record that a queued gang already runs in the foreground, until its estimated end."""
        self._leave_line(gang)
        self._leave_unplaced(gang)
        self._enter_front(gang, processors, end_s)

    def apply(self, move: Move, now_s: float) -> None:
        """Apply a move of a policy to the view."""
        gang, how, processors = move
        if how is How.START_BEHIND or how is How.TRY:
            self._leave_unplaced(gang)
            self._enter_behind(gang, processors)
            if how is How.TRY:
                self._begin_trial(gang)
            return
        begin_s = now_s
        if how is How.START:
            self._leave_unplaced(gang)
        else:
            self._leave_behind(gang)
            if how is How.RESTART:
                self.done_s[gang] = 0.0
            elif how is How.MIGRATE:
                begin_s += self.migration_s
        self._leave_line(gang)
        self._enter_front(gang, processors, begin_s + self.estimate_s[gang] - self.done_s[gang])

    def in_front_of(self, processors: Ints) -> set[int]:
        """Return the gangs in the foreground of these processors."""
        return set(self.front[processors].tolist()) - {NOBODY, BLOCKED}

    def _begin_trial(self, gang: int) -> None:
        """Give a background gang the higher priority; the gangs in front of it are expected to end later."""
        self.trying.add(gang)
        for other in self.in_front_of(self.placed[gang]):
            self.gave_way_s[other] = self.gave_way_s.get(other, 0.0) + self.trial_s
            self.ends.remove(other, self._end_s[other])
            self._end_s[other] += self.trial_s
            self.ends.add(other, self._end_s[other])

    def _leave_line(self, gang: int) -> None:
        self.queue.remove(gang, self._place(gang))
        if self._shortest is not None:
            self._shortest.remove(gang, self.expected_s[gang])

    def _leave_unplaced(self, gang: int) -> None:
        if self._unplaced is not None:
            self._unplaced.remove(gang, self.expected_s[gang])

    def _turn_s(self, gang: int) -> float:
        """Return the time of a gang's turn."""
        if not self.patience:
            return self._arrived_s[gang]
        left = max(0.0, 1.0 - self.width[gang] / self.in_service) if self.in_service else 0.0
        others: float = left**SOONER_FOR_WIDTH
        return self._arrived_s[gang] + self.patience * self.estimate_s[gang] * others

    def _place(self, gang: int) -> float:
        """Return the key of a gang in the queue."""
        return self.turn_s[gang] if self.patience else gang

    def block(self, processor: int, tier: int) -> None:
        """Keep gangs off a tier (`BEHIND` or `IN_FRONT`) of a processor that something else occupies.

        A blocked tier is assumed to use the whole processor.
        """
        of_tier = self.front if tier == IN_FRONT else self.behind
        if of_tier[processor] != NOBODY:
            raise ValueError(f"processor {processor}: gang {of_tier[processor]} is in the tier to be blocked")
        of_tier[processor] = BLOCKED
        if tier == IN_FRONT:
            self.front_usage[processor] = 1.0
            self.idle -= 1
        else:
            self.behind_usage[processor] = 1.0
            self.processes_behind += 1

    def unblock(self, processor: int, tier: int) -> None:
        """Let gangs use a blocked tier of a processor again."""
        if tier == IN_FRONT:
            self.front[processor], self.front_usage[processor] = NOBODY, 0.0
            self.idle += 1
        else:
            self.behind[processor], self.behind_usage[processor] = NOBODY, 0.0
            self.processes_behind -= 1

    # The tiers ----------------------------------------------------------------------------------------------------

    def _enter_front(self, gang: int, processors: Ints, end_s: float) -> None:
        self.tier[gang], self.placed[gang] = IN_FRONT, processors
        if self.trying:  # it yields to no trial that began before it came
            self.trying.difference_update(self.behind[processors].tolist())
        self.front[processors] = gang
        self.front_usage[processors] = self.usage[gang]
        self.idle -= self.width[gang]
        self._end_s[gang] = end_s
        self.ends.add(gang, end_s)

    def _leave_front(self, gang: int) -> None:
        processors = self.placed[gang]
        self.front[processors] = NOBODY
        self.front_usage[processors] = 0.0
        self.idle += self.width[gang]
        self.ends.remove(gang, self._end_s.pop(gang))
        self.gave_way_s.pop(gang, None)

    def _enter_behind(self, gang: int, processors: Ints) -> None:
        self.tier[gang], self.placed[gang] = BEHIND, processors
        self.behind[processors] = gang
        self.behind_usage[processors] = self.usage[gang]
        self.processes_behind += self.width[gang]

    def _leave_behind(self, gang: int) -> None:
        self.trying.discard(gang)
        processors = self.placed[gang]
        self.behind[processors] = NOBODY
        self.behind_usage[processors] = 0.0
        self.processes_behind -= self.width[gang]
