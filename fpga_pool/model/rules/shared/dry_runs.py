"""Decisions on work that is not stored: the cycle of its family, on a shard that is read as if it held the work."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle, Decision, Family, Look
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.model.rules.shared.families import Families, PoolPolicies, new_families
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import PendingBatch, Transaction

ViewT = TypeVar("ViewT")
WantedT = TypeVar("WantedT")

#: Returns a transaction that reads a shard as it is supposed to be.
Suppose = Callable[[Transaction], Transaction]


class _Supposed:
    def __init__(self, tx: Transaction, answers: Mapping[str, Callable[..., Any]]) -> None:
        self._tx = tx
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def supposed(tx: Transaction, **answers: Callable[..., Any]) -> Transaction:
    """Return a transaction with other answers of some of its methods."""
    return cast("Transaction", _Supposed(tx, answers))


def pending_batch(batch: Batch, jobs: Sequence[Job]) -> PendingBatch:
    """Return a batch, all jobs of which wait for a place, as transactions list it; `jobs` are those of a shard."""
    return PendingBatch(
        created_at=batch.created_at,
        policy=batch.policy,
        functions=frozenset(job.function for job in jobs),
        jobs=len(jobs),
        largest_input_bytes=max(job.input_bytes for job in jobs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunContext:
    """What a dry run is made with."""

    #: Begins a transaction that reads a shard, given by its name; none is open while a policy decides.
    reading: Callable[[str], AbstractContextManager[Transaction]]
    #: As of the families of a shard.
    catalogue: Catalogue
    settings: PoolSettings
    policies: PoolPolicies
    #: The present, UTC seconds.
    now_s: float
    #: Returns seconds since any fixed moment: how long a dry run has taken.
    timer: Callable[[], float]
    #: Random generator of the policies.
    rng: np.random.Generator

    def families(self) -> Families:
        """Return families that remember nothing."""
        return new_families(self.catalogue, self.settings, self.policies)

    @contextmanager
    def supposing(self, shard: str, suppose: Suppose) -> Iterator[Transaction]:
        """Read a shard as it is supposed to be."""
        with self.reading(shard) as tx:
            yield suppose(tx)

    def decide(
        self,
        family: Family[ViewT, WantedT],
        reading: Callable[[], AbstractContextManager[Transaction]],
        now_s: float | None = None,
    ) -> tuple[Look[ViewT], Decision[WantedT]] | None:
        """Return what a family would decide, now or at another time, and on what; None = there is nothing to decide."""
        at_s = self.now_s if now_s is None else now_s
        return Cycle(
            family,
            reading=reading,
            transactions=reading,
            dispatch=lambda: None,
            clock=lambda: at_s,
            timer=lambda: at_s,
            rng=self.rng,
        ).dry_run()
