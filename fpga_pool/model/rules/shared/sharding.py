"""Shards of the pool: the one that a host belongs to, and the one that runs a job.

A large pool is divided into sub-systems that are planned independently of each other (makespan paper, section 5.8).  A
host stays in the shard in which it was first heard; a job stays in the one it was admitted to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects.pool import DEFAULT_SHARD, Host, Slot
from fpga_pool.model.transaction import Transaction

#: What `ShardRule.by` can be.
BY_NUMBER, BY_ZONE = "number", "availability_zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRule:
    """How the pool is divided: into a fixed number of shards, or one per availability zone."""

    by: str = BY_NUMBER
    number: int = 1
    #: Divide a batch among all shards, rather than plan it in one.
    split_batches: bool = False

    def __post_init__(self) -> None:
        if self.by not in (BY_NUMBER, BY_ZONE):
            raise ValueError(f"shard_by: expected {BY_NUMBER} or {BY_ZONE}, found {self.by!r}")
        if self.number < 1:
            raise ValueError(f"shards: expected at least 1, found {self.number}")

    def names(self) -> tuple[str, ...]:
        """Return the shards that exist before the first heartbeat of any host."""
        if self.by == BY_ZONE:
            return ()
        if self.number == 1:
            return (DEFAULT_SHARD,)
        return tuple(f"shard-{number}" for number in range(1, self.number + 1))

    def shard_for(self, availability_zone: str, hosts: Mapping[str, int]) -> str:
        """Return the shard of a new host: that of its zone, or the one with the fewest `hosts`, counted by shard."""
        if self.by == BY_ZONE:
            return availability_zone or DEFAULT_SHARD
        return min(self.names(), key=lambda name: hosts.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one shard can do, for the division of a batch."""

    #: Slots that can hold each function.
    slots: Mapping[str, int]
    ingress_bps: float
    #: Jobs that wait or run there already, per slot.
    backlog: float


@dataclass(frozen=True, slots=True)
class Work:
    """What one job asks for."""

    function: str
    seconds: float
    input_bytes: int


def open_jobs(tx: Transaction, slots: Sequence[Slot]) -> dict[str, int]:
    """Return how many jobs of each shard have not ended; nothing where these slots leave no choice between shards."""
    return tx.jobs_by_shard() if len({slot.shard for slot in slots}) > 1 else {}


def parts(
    catalogue: Catalogue, slots: Sequence[Slot], hosts: Sequence[Host], jobs: Mapping[str, int]
) -> dict[str, Part]:
    """Return the shards that have slots; `jobs` counts those pending or active in each."""
    of_shard: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots:
        of_shard[slot.shard].append(slot)
    ingress_bps = {host.name: host.ingress_bps for host in hosts}
    return {
        shard: Part(
            slots=_capacities(catalogue, members),
            ingress_bps=sum(ingress_bps[host] for host in {slot.host for slot in members}),
            backlog=jobs.get(shard, 0) / len(members),
        )
        for shard, members in sorted(of_shard.items())
    }


def _capacities(catalogue: Catalogue, slots: Iterable[Slot]) -> dict[str, int]:
    kinds = Counter((slot.board, slot.kind) for slot in slots)
    return {
        name: sum(
            count
            for (board, kind), count in kinds.items()
            if board in function.fpga_time and catalogue.fits(name, board, kind)
        )
        for name, function in catalogue.functions.items()
    }


def assign(work: Sequence[Work], parts: Mapping[str, Part], *, split: bool) -> list[str]:
    """Return the shard of each job.

    Undivided, a batch goes to the shard with the least backlog that can hold all its functions; where there is none,
    each function's jobs go where they can.  Divided, the largest jobs choose first, and each goes where the fuller of
    the shard's two bottlenecks, computing and ingress, ends up least full.
    """
    if not split:
        whole = _least_busy({item.function for item in work}, parts)
        if whole is not None:
            return [whole] * len(work)
        place = {name: _least_busy({name}, parts) for name in {item.function for item in work}}
        return [place[item.function] or DEFAULT_SHARD for item in work]
    chosen = [DEFAULT_SHARD] * len(work)
    seconds, received_s = dict.fromkeys(parts, 0.0), dict.fromkeys(parts, 0.0)
    for index in sorted(range(len(work)), key=lambda i: (-work[i].seconds, -work[i].input_bytes, i)):
        item = work[index]
        offers = []
        for name, part in parts.items():
            if capacity := part.slots.get(item.function, 0):
                computed_s = seconds[name] + item.seconds / capacity
                fill = computed_s, received_s[name] + 8 * item.input_bytes / part.ingress_bps
                offers.append((max(fill), sum(fill), name, fill))
        if offers:
            _, _, name, (seconds[name], received_s[name]) = min(offers)
            chosen[index] = name
    return chosen


def _least_busy(functions: set[str], parts: Mapping[str, Part]) -> str | None:
    able = [name for name, part in parts.items() if all(part.slots.get(function) for function in functions)]
    return min(able, key=lambda name: (parts[name].backlog, name), default=None)
