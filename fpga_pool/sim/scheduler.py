"""The scheduler of a simulated pool: it owns the only shard, plans, and applies agents' messages in simulated time."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fpga_pool.model.cycle import Cycle, PolicyFailure
from fpga_pool.model.messages.agents import Heartbeat, ObservedJob, Report
from fpga_pool.model.objects.pool import DEFAULT_SHARD, JobState
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.shared.families import AnyFamily
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat, note_progress, tick
from fpga_pool.model.rules.shared.reports import apply_reports, frees_place, makes_work
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.store import MemoryStore

OWNER = "simulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """One kind of failure of a policy, and how often it occurred."""

    message: str
    #: Time of the first failure, and number of failures.
    first_s: float
    times: int


class SimulatedScheduler:
    """Plans a shard with the cycles of the live scheduler, one after the other.

    `dispatch` sends the commands of the outbox; `observed` returns the jobs that agents observe, with their progress.
    """

    def __init__(
        self,
        engine: Engine,
        store: MemoryStore,
        settings: PoolSettings,
        dispatch: Callable[[], None],
        observed: Callable[[], Sequence[ObservedJob]],
    ) -> None:
        self._engine, self._store, self._settings = engine, store, settings
        self._dispatch, self._observed = dispatch, observed
        self._shard = store.acquire_shard(DEFAULT_SHARD, OWNER, 0.0)
        #: The scheduler is dead and the shard has no owner, so messages for it wait.
        self.is_dead = False
        #: Failures of policies, by message.
        self.failures: dict[str, FailureCount] = {}
        #: Whether an error of a policy ends the run.
        self.raises = True
        #: Delay from a wake-up to planning, in seconds; None = no delay, and of all reports only those that free a
        #: place trigger planning.
        self.cycle_delay_s: float | None = None
        self._cycles: Sequence[Cycle[Any, Any]] = ()
        self._replans = False
        #: Whether a check of the progress of inputs is on the agenda.
        self._checking = False
        self._woken: list[Callable[[], None]] = []
        #: By host: time of its last heartbeat.
        self._heard_s: dict[str, float] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the shard."""
        return self._shard.epoch

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction on the shard."""
        return self._store.transaction(self._shard.name, self._shard.owner, self._shard.epoch)

    # Life -------------------------------------------------------------------------------------------------------

    def begin(self, families: Iterable[AnyFamily], seed: int) -> None:
        """Plan these families from now on."""
        self._cycles = [
            Cycle(
                family,
                reading=self.transaction,
                transactions=self.transaction,
                dispatch=self._dispatch,
                clock=lambda: self._engine.now_s,
                timer=lambda: self._engine.now_s,
                rng=np.random.default_rng(seed),
            )
            for family in families
        ]
        self._replans = any(isinstance(cycle.family, BatchFamily) and cycle.family.replans for cycle in self._cycles)

    def die(self) -> None:
        """Stop planning, and give up the shard."""
        self.is_dead, self._cycles = True, ()

    def acquire(self) -> None:
        """Acquire the shard again after a death, with only the stored state."""
        self._shard = self._store.acquire_shard(DEFAULT_SHARD, OWNER, self._engine.now_s)
        self.is_dead = False
        self._heard_s = dict.fromkeys(self._heard_s, self._engine.now_s)

    # Planning ---------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Plan until nothing is left to decide, like the live scheduler; plan again later if jobs wait."""
        self._run_cycles(self._cycles)
        self._dispatch()
        if self._checking or not self._replans:
            return
        with self.transaction() as tx:
            waiting = any(job.state is not JobState.RUNNING for job in tx.active_jobs())
        if waiting:
            self._checking = True
            self._engine.after(self._settings.replan_late_s, self._check_delays)

    def plan_online(self) -> None:
        """Decide on online jobs only."""
        self._run_cycles(cycle for cycle in self._cycles if cycle.family.name == "online")

    def tick(self) -> None:
        """Apply changes caused by the passage of time, such as timeouts, and plan."""
        if self.is_dead:
            return
        silent_s = {name: self._engine.now_s - heard_s for name, heard_s in self._heard_s.items()}
        with self.transaction() as tx:
            tick(tx, self._settings, self._engine.now_s, silent_s)
        self.plan()

    def _run_cycles(self, cycles: Iterable[Cycle[Any, Any]]) -> None:
        for cycle in cycles:
            again = True
            while again:
                result = cycle.run()
                again = result.again
                for failure in result.failures:
                    if self.raises:
                        raise failure.error
                    self._note_failure(failure)

    def _note_failure(self, failure: PolicyFailure) -> None:
        """Count a failure, under the message that the live scheduler would log."""
        error = failure.error
        message = f"{failure.message} ({' '.join(f'{type(error).__name__}: {error}'.split())})"
        known = self.failures.get(message)
        first_s, times = (known.first_s, known.times) if known else (self._engine.now_s, 0)
        self.failures[message] = FailureCount(message=message, first_s=first_s, times=times + 1)

    def _place_freed(self) -> None:
        """Run the families with waiting jobs or tasks, which can use the places that have become free."""
        self._run_cycles([cycle for cycle in self._cycles if cycle.family.waits])

    def _wake(self, step: Callable[[], None]) -> None:
        """Schedule a step soon, as the live loops do when woken; one run serves all wake-ups until then."""
        if step not in self._woken:
            self._woken.append(step)
            self._engine.after(self.cycle_delay_s or 0.0, partial(self._run_step, step))

    def _run_step(self, step: Callable[[], None]) -> None:
        self._woken.remove(step)
        step()

    def _check_delays(self) -> None:
        """Record the progress of inputs, and plan."""
        self._checking = False
        observed = self._observed()
        with self.transaction() as tx:
            note_progress(tx, observed, self._engine.now_s)
        self.plan()

    # Messages of agents -----------------------------------------------------------------------------------------

    def apply_reports(self, host: str, numbered: Sequence[tuple[int, Report]]) -> None:
        """Apply reports of an agent, and wake the planning if they affect waiting work."""
        if not numbered:
            return
        with self.transaction() as tx:
            apply_reports(tx, host, "simulated", numbered, self._engine.now_s)
        reports = [report for _, report in numbered]
        if self.cycle_delay_s is not None and any(map(makes_work, reports)):
            self._wake(self.plan)
        elif any(cycle.family.waits for cycle in self._cycles) and any(map(frees_place, reports)):
            self._wake(self._place_freed)

    def apply_heartbeat(self, beat: Heartbeat) -> None:
        """Apply a heartbeat, and plan if anything had to be repaired."""
        with self.transaction() as tx:
            repairs = apply_heartbeat(tx, beat, self._engine.now_s)
        self._heard_s[beat.host] = self._engine.now_s
        if repairs and self._cycles:
            self.plan()
