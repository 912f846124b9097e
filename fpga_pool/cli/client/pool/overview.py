"""What is shown of a whole pool: counts that the pool makes, and the first of what is open."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fpga_pool.client import Client
from fpga_pool.model.exceptions import Forbidden, NotFound
from fpga_pool.model.messages.requests import BatchDetail, CardCount, GangDetail, PoolCounts, Usage
from fpga_pool.model.objects.gangs import ENDED_GANGS, Gang, GangState
from fpga_pool.model.objects.pool import Batch, BatchState, JobState, Slot

T = TypeVar("T")

#: How many batches and gangs are shown, the oldest first, and how many slots, by name.
BATCHES, GANGS, SLOTS = 5, 4, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the pool counts; None = the caller's roles do not allow to see it."""

    pool: PoolCounts | None
    #: By kind ("job", "task", "gang") and state, what has not ended.
    work: Mapping[str, Mapping[str, int]]
    #: For how long the oldest job has been waiting for a place.
    oldest_wait_s: float
    #: Of the last day, by function.
    usage: Sequence[Usage]

    @property
    def slots_by_state(self) -> Counter[str]:
        """Return the number of slots in each state."""
        return _added((one.state, one.slots) for one in self.pool.slot_list) if self.pool else Counter()

    @property
    def slots_by_function(self) -> dict[str, Counter[str]]:
        """Return the number of slots in each state by the function that they hold; "" = none."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.pool.slot_list if self.pool else ():
            found[one.function][one.state] += one.slots
        return found

    @property
    def leases(self) -> dict[str, int]:
        """Return the number of slots that each kind of holder has."""
        return {one.kind: one.slots for one in self.pool.lease_list} if self.pool else {}


def count_cards(pool: PoolCounts, called: Callable[[CardCount], str]) -> Counter[str]:
    """Return the number of cards by what those of one board and state are `called`."""
    return _added((called(one), one.cards) for one in pool.card_list)


def counts(client: Client, project_id: str | None = None) -> Counts:
    """Ask the pool for all that it counts, in three requests whatever its size."""
    work = client.work_counts(project_id)
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for one in work:
        by_kind[one.kind][one.state] += one.count
    waiting = [one.oldest_at for one in work if (one.kind, one.state) == ("job", JobState.PENDING)]
    return Counts(
        pool=_seen(client.pool_counts),
        work=by_kind,
        oldest_wait_s=max(time.time() - min(waiting), 0.0) if waiting else 0.0,
        usage=client.usage(project_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A pool at one moment."""

    at: float
    counts: Counts
    #: The first by name; None as in `Counts`.
    slots: Sequence[Slot] | None
    #: The oldest that have not ended, each with its detail if the caller may see it; and one more if there are more.
    batches: Sequence[tuple[Batch, BatchDetail | None]]
    gangs: Sequence[tuple[Gang, GangDetail | None]]


def overview(client: Client, project_id: str | None = None) -> Overview:
    """Look at a pool, in a number of requests that does not grow with it."""
    oldest: Any = {"sort": "created_at:asc", "project_id": project_id}
    batches = client.batches(BATCHES + 1, state=[BatchState.PENDING, BatchState.RUNNING], **oldest)
    gangs = client.gangs(GANGS + 1, state=sorted(set(GangState) - ENDED_GANGS), **oldest)
    return Overview(
        at=time.time(),
        counts=counts(client, project_id),
        slots=_seen(lambda: client.slots(SLOTS)),
        batches=[(one, _seen(partial(client.batch_detail, one.uuid))) for one in batches],
        gangs=[(one, _seen(partial(client.gang, one.uuid))) for one in gangs],
    )


def _added(numbers: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, number in numbers:
        found[name] += number
    return found


def _seen(ask: Callable[[], T]) -> T | None:
    """Return an answer; None where the caller may not see it, or it belongs to another project or is gone."""
    try:
        return ask()
    except (Forbidden, NotFound):
        return None
