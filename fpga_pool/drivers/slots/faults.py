"""Faults of a simulated card: pseudo-random and reproducible, or requested by a test."""

import math
from dataclasses import dataclass
from random import Random

from fpga_pool.model.exceptions import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Fault probabilities.  The same seed and the same calls on a slot produce the same faults of that slot."""

    #: Probability that a load fails at its end.
    load_fails: float = 0.0
    #: Probability that a run hangs until it is stopped.
    job_hangs: float = 0.0
    #: Probability that the card disappears during a run.
    card_disappears: float = 0.0
    #: Time after which a card that disappeared is back.
    card_returns_after_s: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("load_fails", "job_hangs", "card_disappears"):
            probability = getattr(self, name)
            if not 0 <= probability <= 1:
                raise InvalidInput(f"faults.{name} must be 0..1, found {probability}")
        if not (math.isfinite(self.card_returns_after_s) and self.card_returns_after_s >= 0):
            raise InvalidInput(
                f"faults.card_returns_after_s must be finite and >= 0, found {self.card_returns_after_s}"
            )
        if self.seed < 0:
            raise InvalidInput(f"faults.seed must be >= 0, found {self.seed}")


@dataclass(frozen=True, slots=True)
class RunFate:
    """The faults drawn for one run."""

    hangs: bool
    #: Share of the run after which the card disappears; None = it does not disappear.
    card_disappears_after: float | None


class SlotLuck:
    """The faults of one slot, drawn once per operation."""

    def __init__(self, faults: Faults, card: int, slot: int) -> None:
        self._faults = faults
        self._rng = Random(f"{faults.seed} {card} {slot}")  # noqa: S311
        #: Set by tests to make the next load fail or the next run hang.
        self.fail_next_load = False
        self.hang_next_run = False

    def load_fails(self) -> bool:
        """Draw whether the next load fails."""
        forced, self.fail_next_load = self.fail_next_load, False
        return self._rng.random() < self._faults.load_fails or forced

    def run(self) -> RunFate:
        """Draw the faults of the next run; always three numbers, so that no probability affects the draws of others."""
        forced, self.hang_next_run = self.hang_next_run, False
        hang, disappear, when = (self._rng.random() for _ in range(3))
        return RunFate(
            hangs=hang < self._faults.job_hangs or forced,
            card_disappears_after=when if disappear < self._faults.card_disappears else None,
        )
