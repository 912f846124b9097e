"""The planning cycle of one family of work: policies with their effort, calibration of time models, and logs.

Policies search for a bounded time.  Time models a + b * bytes are refitted by linear regression from observed runs
(makespan paper, section 2).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, cast

from oslo_config import cfg

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.cluster.slowdown import Run as CardRun
from fpga_pool.core.cluster.slowdown import SlowdownModel, learned_from
from fpga_pool.core.fitting import Fit, refit
from fpga_pool.core.policy import BatchPolicy, Preparing, Searching, Sparing, TaskPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue, extended
from fpga_pool.model.cycle import Cycle, CycleResult
from fpga_pool.model.messages.requests import Calibration
from fpga_pool.model.objects.bitstreams import DesignState, is_design
from fpga_pool.model.objects.pool import is_cpu
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.online.family import OnlineFamily, OnlineRule
from fpga_pool.model.rules.pipeline.family import PipelineFamily
from fpga_pool.model.rules.shared.designs import DECIDED, withdraw
from fpga_pool.model.rules.shared.families import AnyFamily
from fpga_pool.model.rules.task.family import TaskFamily
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.family_reads import Runs
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)


# ---- Policies

#: Effort of a task policy that searches; its plans for later are made again at the next event.
TASK_EFFORT = 20
#: Approximate factor by which a unit of effort takes longer if loops are not compiled.
SLOWER_WITHOUT_NUMBA = 100


def online_rule(conf: cfg.ConfigOpts) -> OnlineRule:
    """Return the configured policy for online jobs; raise InvalidInput, with the known ones, if it is unknown."""
    name = conf.scheduler.online_policy
    names = {*policy_names("online"), name} - set(policy_names("batch"))
    return OnlineRule(load_policy("online", name, conf), names.__contains__, conf.scheduler.default_policy in names)


def sparing(policies: Callable[[str], BatchPolicy], share: float) -> Callable[[str], BatchPolicy]:
    """Return a lookup of batch policies by name; they plan for at most about a share of the time that a batch takes."""
    slower = 1 if find_spec("numba") else SLOWER_WITHOUT_NUMBA

    def policy(name: str) -> BatchPolicy:
        found = policies(name)
        return found.sparing(share / slower) if isinstance(found, Sparing) else found

    return policy


def quick(policy: TaskPolicy) -> TaskPolicy:
    """Return a policy that searches with little effort; without numba it does not search."""
    if not isinstance(policy, Searching):
        return policy
    return policy.searching(TASK_EFFORT if find_spec("numba") else 0, None, time.monotonic)


def prepare(policy: object) -> threading.Thread | None:
    """Load the compiled loops of a policy in a thread, for which its decisions wait; return None if it has no loops.

    `fpga-pool-manage prepare` compiles them in advance, so that this takes a second or two.
    """

    def prepared(preparing: Preparing) -> None:
        began_s = time.monotonic()
        preparing.prepare()
        LOG.info("Loaded compiled loops in %.1f s", time.monotonic() - began_s)

    if not isinstance(policy, Preparing):
        return None
    thread = threading.Thread(target=prepared, args=[policy], name="prepare-policy", daemon=True)
    thread.start()
    return thread


# ---- Calibration

#: Weight of the catalogue's model in observed runs, so that a few noisy runs do not override it.
PRIOR_RUNS = 8.0
#: Number of newest runs that are used, per function and board.
WINDOW = 500


class Calibrator:
    """Keeps the stored time models in line with the runs that agents reported."""

    def __init__(self, store: Store, catalogue: Catalogue, clock: Clock) -> None:
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
        self._stored: dict[tuple[str, str], TimeModel] = {}
        #: When the newest run ended to which the models are fitted.
        self._fitted_to: float | None = None
        #: Slowdown of functions by each other on a card, by the stored runs; None until runs were concurrent.
        self.slowdown: SlowdownModel | None = None
        self._learned_from: list[CardRun] = []

    def refit(self) -> bool:
        """Refit every model that has runs, store those that changed, and learn the slowdown from concurrent runs.

        Without new runs this does nothing.
        """
        with self._store.single_reads() as tx:
            newest = tx.last_run_at()
        if newest == self._fitted_to:
            return False
        fits = list(self._fits(self._catalogue.functions))
        for name, board, _, fitted, _ in fits:
            if self._stored.get((name, board)) != fitted.model:
                self._store.save_time_model(name, board, fitted.model, fitted.samples, self._clock())
                self._stored[name, board] = fitted.model
                LOG.debug("%s on %s: %s from %d runs", name, board, fitted.model, fitted.samples)
        self._learn(fits)
        self._fitted_to = newest
        return False

    def learned(self) -> SlowdownModel | None:
        """Return the slowdown of functions by each other on a card, as the stored runs show it; nothing is stored."""
        self._learn(self._fits(self._catalogue.functions))
        return self.slowdown

    def _learn(self, fits: Iterable[tuple[str, str, TimeModel, Fit, Runs]]) -> None:
        on_cards = [run for name, _, _, fitted, runs in fits for run in _on_cards(name, fitted.model, runs)]
        newest = sorted(on_cards, key=lambda run: (run.end_s, run.unit, run.type))[-WINDOW:]
        if newest != self._learned_from:
            self._learned_from, self.slowdown = newest, learned_from(newest)

    def report(self, only: str | None = None) -> list[Calibration]:
        """Return the models of the catalogue and the fitted ones, with the errors of the fits over their runs."""
        if only is not None:
            self._catalogue.function(only)
        return [
            Calibration(
                function=name,
                board=board,
                runs=fitted.samples,
                catalogue_a_s=prior.a_s,
                catalogue_b_s_per_byte=prior.b_s_per_byte,
                fitted_a_s=fitted.model.a_s,
                fitted_b_s_per_byte=fitted.model.b_s_per_byte,
                mean_relative_error=fitted.mean_relative_error,
                worst_relative_error=fitted.worst_relative_error,
            )
            for name, board, prior, fitted, _ in self._fits(self._catalogue.functions if only is None else [only])
        ]

    def _fits(self, names: Iterable[str]) -> Iterator[tuple[str, str, TimeModel, Fit, Runs]]:
        with self._store.reading() as tx:
            observed = {name: tx.runs(name, newest=WINDOW) for name in sorted(names)}
        for name, boards in observed.items():
            for board, runs in sorted(boards.items()):
                prior = self._catalogue.functions[name].fpga_time.get(board)
                if prior is None:
                    continue
                try:
                    fitted = refit(prior, runs.input_bytes, runs.seconds, prior_weight=PRIOR_RUNS)
                except ValueError as error:
                    LOG.warning("%s on %s: its runs give no time model: %s", name, board, error)
                    continue
                yield name, board, prior, fitted, runs


def _on_cards(function: str, model: TimeModel, runs: Runs) -> Iterator[CardRun]:
    """Yield runs with the card of each, whose name is that of the slot without its region."""
    for size, seconds, ended_at, slot in zip(*runs, strict=True):
        card, _, region = slot.rpartition("/")
        if region and not is_cpu(slot):
            yield CardRun(
                unit=card,
                type=function,
                estimated_s=model.seconds(int(size)),
                actual_s=float(seconds),
                end_s=float(ended_at),
            )


# ---- The cycle


#: A cycle that has placed work is followed by a pause of the same length, at most this, so that work that arrives
#: meanwhile is planned together.
LONGEST_PAUSE_S = 0.05


class Planner:
    """Runs planning cycles; `observer` is called with the result of each cycle in which the policy was called."""

    def __init__(self, cycle: Cycle[Any, Any], observer: Callable[[CycleResult], None]) -> None:
        self._cycle = cycle
        self._observer = observer

    def step(self) -> bool:
        """Run one cycle; return whether the next one is to follow immediately."""
        result = self._cycle.run()
        if result.policy is not None:
            log_cycle(result)
            self._observer(result)
        if result.outcome.changed:
            time.sleep(min(result.durations.total_s, LONGEST_PAUSE_S))
        return result.again


def log_cycle(result: CycleResult) -> None:
    """Log the decisions and failures of a cycle, and how long each step took."""
    times, outcome = result.durations, result.outcome
    for failure in result.failures:
        LOG.error("%s", failure.message, exc_info=failure.error)
    for detail in outcome.details:
        LOG.info("%s", detail)
    if outcome.summary:
        LOG.info("%s; decided in %.1f ms", outcome.summary, 1000 * times.decide_s)
    LOG.debug(
        "%s cycle: snapshot %.1f ms, decision %.1f ms, commit %.1f ms, dispatch %.1f ms",
        result.family,
        1000 * times.snapshot_s,
        1000 * times.decide_s,
        1000 * times.commit_s,
        1000 * times.dispatch_s,
    )


# ---- Designs of tenants

#: Interval of checks for jobs and slots with designs that are not approved.
WITHDRAW_S = 15.0


class DesignCatalogue:
    """The current catalogue with the functions of designs; thread-safe."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._own, self._store = catalogue, store
        self._last: tuple[Sequence[str], Catalogue] = [], catalogue
        #: By shard: the last generation in which there was nothing to withdraw.
        self._settled: dict[str, int] = {}

    def visible(self, tx: SqlTransaction, project_id: str, named: Iterable[str] | None = None) -> Catalogue:
        """Return the catalogue with all functions that jobs of a project may name; those in `named` suffice."""
        if named is not None and self._own.functions.keys() >= set(named):
            return self._own
        return extended(self._own, tx.designs([DesignState.APPROVED], project_id))

    def everything(self, tx: SqlTransaction) -> Catalogue:
        """Return the catalogue with the designs of all projects that may be in slots, for planning."""
        functions = tx.design_functions(DECIDED)
        before, made = self._last
        if functions != before:
            made = extended(self._own, tx.designs(DECIDED))
            self._last = functions, made
        return made

    @contextmanager
    def reading_for(self, family: AnyFamily, shard: str) -> Iterator[SqlTransaction]:
        """Begin to read a shard for a family, and give the family the current catalogue."""
        with self._store.reading(shard) as tx:
            if isinstance(family, BatchFamily | OnlineFamily | TaskFamily | PipelineFamily):  # gangs name no functions
                family.catalogue = self.everything(tx)
            yield tx

    def withdraw(self, shard: str, writer: ShardWriter, clock: Clock) -> int:
        """Withdraw designs that are not approved from a shard: see `rules.shared.designs.withdraw`."""
        with self._store.reading(shard) as reading:
            generation = reading.generations()[shard]
            if self._settled.get(shard) == generation or self._is_settled(reading):
                self._settled[shard] = generation
                return 0

        def change(writing: Transaction) -> int:
            tx = cast("SqlTransaction", writing)
            approved = {design.function for design in tx.designs([DesignState.APPROVED])}
            return withdraw(tx, tx.design_jobs(but=approved), approved, self._own, clock())

        if count := writer.run(change):
            LOG.info("shard %s: %d jobs and slots of designs that are not approved are withdrawn", shard, count)
        return count

    def _is_settled(self, tx: SqlTransaction) -> bool:
        """Return whether the shard of a transaction has no jobs or slots that `withdraw` would handle."""
        known = tx.designs(list(DesignState))
        approved = {design.function for design in known if design.state is DesignState.APPROVED}
        held = (slot.function for slot in tx.slots() if is_design(slot.function))
        return approved.issuperset(held) and not (known and tx.design_jobs(but=approved))  # reading jobs is slow
