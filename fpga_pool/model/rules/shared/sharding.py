"""Assignment of hosts and jobs to the shards of the pool.

A large pool is divided into shards that are planned independently of each other (makespan paper, section 5.8).  A host
stays in the shard it was assigned to by its first heartbeat. A job stays in the shard it was admitted to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects.pool import DEFAULT_SHARD, Host, Slot
from fpga_pool.model.transaction import Transaction

#: Values of `ShardRule.by`.
BY_NUMBER, BY_ZONE = "number", "availability_zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRule:
    """How the pool is divided: into a fixed number of shards, or one per availability zone."""

    by: str = BY_NUMBER
    number: int = 1
    #: Divide each batch among all shards, instead of planning it in one.
    split_batches: bool = False

    def __post_init__(self) -> None:
        if self.by not in (BY_NUMBER, BY_ZONE):
            raise ValueError(f"shard_by: expected {BY_NUMBER} or {BY_ZONE}, found {self.by!r}")
        if self.number < 1:
            raise ValueError(f"shards: expected at least 1, found {self.number}")

    def names(self) -> tuple[str, ...]:
        """Return the names of the shards that exist before the first heartbeat of any host."""
        if self.by == BY_ZONE:
            return ()
        if self.number == 1:
            return (DEFAULT_SHARD,)
        return tuple(f"shard-{number}" for number in range(1, self.number + 1))

    def shard_for(self, availability_zone: str, hosts: Mapping[str, int]) -> str:
        """Return the shard for a new host: its zone, or the shard with the fewest `hosts` (their numbers by shard)."""
        if self.by == BY_ZONE:
            return availability_zone or DEFAULT_SHARD
        return min(self.names(), key=lambda name: hosts.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The capacity and load of one shard, used to assign the jobs of a batch to shards."""

    #: Number of slots that can hold each function.
    slots: Mapping[str, int]
    ingress_bps: float
    #: Pending and active jobs of the shard, per slot.
    backlog: float


@dataclass(frozen=True, slots=True)
class Work:
    """The demand of one job."""

    function: str
    seconds: float
    input_bytes: int


def open_jobs(tx: Transaction, slots: Sequence[Slot]) -> dict[str, int]:
    """Return the number of pending or active jobs of each shard; empty if all `slots` are in one shard."""
    return tx.jobs_by_shard() if len({slot.shard for slot in slots}) > 1 else {}


def parts(
    catalogue: Catalogue, slots: Sequence[Slot], hosts: Sequence[Host], jobs: Mapping[str, int]
) -> dict[str, Part]:
    """Return the capacity and load of each shard that has slots; `jobs` are its numbers of pending or active jobs."""
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

    Without `split`, all jobs go to the shard with the least backlog among those that can hold all functions. If there
    is no such shard, the shard is chosen for each function separately.  With `split`, jobs are assigned in decreasing
    order of size, each to the shard where the larger of the resulting computation and ingress times is smallest.
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
