"""Dry runs: the cycle of a family decides on work that is not stored, reading the shard as if it held the work."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle, CycleSnapshot, Decision, Family
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.model.rules.shared.families import Families, PoolPolicies, new_families
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import PendingBatch, Transaction

ViewT = TypeVar("ViewT")
WantedT = TypeVar("WantedT")

#: Wraps a transaction so that it reads the shard as if it held the work of a dry run.
Suppose = Callable[[Transaction], Transaction]


class _Supposed:
    def __init__(self, tx: Transaction, answers: Mapping[str, Callable[..., Any]]) -> None:
        self._tx = tx
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def supposed(tx: Transaction, **answers: Callable[..., Any]) -> Transaction:
    """Return a transaction whose methods named in `answers` are replaced."""
    return cast("Transaction", _Supposed(tx, answers))


def pending_batch(batch: Batch, jobs: Sequence[Job]) -> PendingBatch:
    """Return the entry of `Transaction.pending_batches` for a batch of which all `jobs`, of one shard, are pending."""
    return PendingBatch(
        created_at=batch.created_at,
        policy=batch.policy,
        functions=frozenset(job.function for job in jobs),
        jobs=len(jobs),
        largest_input_bytes=max(job.input_bytes for job in jobs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunContext:
    """The inputs of a dry run."""

    #: Begins a transaction that reads the shard of the given name; none is open while a policy decides.
    reading: Callable[[str], AbstractContextManager[Transaction]]
    #: The same arguments with which the families of a shard are created.
    catalogue: Catalogue
    settings: PoolSettings
    policies: PoolPolicies
    #: Current time, UTC seconds.
    now_s: float
    #: Returns seconds since any fixed moment; measures the duration of a dry run.
    timer: Callable[[], float]
    #: Random generator of the policies.
    rng: np.random.Generator

    def families(self) -> Families:
        """Return new families, without memory of earlier cycles."""
        return new_families(self.catalogue, self.settings, self.policies)

    @contextmanager
    def supposing(self, shard: str, suppose: Suppose) -> Iterator[Transaction]:
        """Begin a transaction that reads a shard through `suppose`."""
        with self.reading(shard) as tx:
            yield suppose(tx)

    def decide(
        self,
        family: Family[ViewT, WantedT],
        reading: Callable[[], AbstractContextManager[Transaction]],
        now_s: float | None = None,
    ) -> tuple[CycleSnapshot[ViewT], Decision[WantedT]] | None:
        """Return a family's snapshot and decision at `now_s` (None = now); None if there is nothing to decide."""
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
